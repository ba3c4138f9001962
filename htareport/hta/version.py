"""The version of HTA whose names these are."""

from __future__ import annotations

__version_tuple__ = (0, 6, 1)
__version__ = ".".join(map(str, __version_tuple__))
