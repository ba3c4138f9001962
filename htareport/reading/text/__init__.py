"""Bytes → events: unpack, split, decode."""
