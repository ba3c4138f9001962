"""Pure functions on arrays. Nothing here knows of traces, reports or files."""
