"""Temporary home."""

from htareport.render.format import text

__all__ = ["text"]
