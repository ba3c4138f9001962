"""Rules about the recording."""
