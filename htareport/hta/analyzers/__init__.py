"""HTA's analyzers: the methods of TraceAnalysis as class methods that take a `Trace`."""
