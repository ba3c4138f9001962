"""Load one rank with HolisticTraceAnalysis through one of its parser backends (json, ijson_batch_and_compress)."""

import logging
import sys

from hta.common.trace import Trace
from hta.configs.parser_config import ParserBackend, ParserConfig

logging.disable(logging.WARNING)
config = ParserConfig.get_default_cfg()
config.set_parser_backend(ParserBackend(sys.argv[2]))
trace = Trace(trace_files={0: sys.argv[1]}, trace_dir="", parser_config=config)
trace.load_traces(use_multiprocessing=False)
print(len(trace.get_trace(0)))
