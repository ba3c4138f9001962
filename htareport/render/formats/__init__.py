"""Output formats, one file each: a class says its suffix and its help."""
