"""Rules about inference."""
