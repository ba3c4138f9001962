"""Base 85 for the largest block of the page: a quarter more than the bytes, where base 64 takes a third.

The digits are such that the text can stand inside a `<script>`: no `<`, `&`, quotes or backslash. `report.js` decodes
it with the same digits; the block says how many bytes there are, since the last group is filled up with zeros.
"""

from __future__ import annotations

import numpy as np

DIGITS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%()*+,-./:;=>?@[]^_{"
_BASE = len(DIGITS)
_GROUP = 5  # Digits for each four bytes.


def encode(data: bytes) -> str:
    """Return bytes as text of DIGITS, most significant digit first."""
    words = np.frombuffer(data + bytes(-len(data) % 4), ">u4").astype(np.uint64)
    digits = np.empty((len(words), _GROUP), np.uint8)
    for place in reversed(range(_GROUP)):
        digits[:, place] = words % _BASE
        words //= _BASE
    return np.frombuffer(DIGITS.encode(), np.uint8)[digits].tobytes().decode()
