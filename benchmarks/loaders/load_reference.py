"""Load one rank with the reference loader, a module given by its path."""

import sys
from importlib.util import module_from_spec, spec_from_file_location

spec = spec_from_file_location("reference", sys.argv[2])
if spec is None or spec.loader is None:
    sys.exit(f"{sys.argv[2]} is no Python module")
module = module_from_spec(spec)
sys.modules["reference"] = module
spec.loader.exec_module(module)
trace = module.load(sys.argv[1])
print(sum(len(columns["ts"]) for columns in trace.tables.values()))
