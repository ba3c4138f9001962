"""Mends what trace writers get wrong, and salvages damaged files."""
