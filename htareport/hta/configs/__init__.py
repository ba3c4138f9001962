"""HTA's configuration: which arguments of events become columns, files of settings, switches."""
