"""Where files are: on this machine or behind URLs; and writing them whole."""
