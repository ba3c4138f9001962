"""Load one rank as most scripts do: the json module and a DataFrame, arguments left as dicts."""

import gzip
import json
import sys

import pandas as pd

with gzip.open(sys.argv[1]) as file:
    events = pd.DataFrame(json.load(file)["traceEvents"])
print(len(events))
