"""Base 91 encoding for the packed blocks of the page: 23 % more than the bytes, where base 64 takes a third.

Thirteen bits are two digits; a last group of six bits or fewer is one, so that the length of the text gives the number
of bytes. The text is safe inside a `<script>`: it has no `<`, `"` or backslash. `report.js` decodes it with the same
digits.
"""

from __future__ import annotations

import numpy as np

DIGITS = "".join(chr(code) for code in range(33, 127) if chr(code) not in '<"\\')
_BASE = len(DIGITS)
_BITS, _FEW_BITS = 13, 6  # Of two digits, and of one.
_BLOCK = _BITS << 12  # Bytes at a time, since unpacked bits take eight times their memory; a multiple of _BITS.
_WEIGHTS = 1 << np.arange(_BITS - 1, -1, -1, dtype=np.uint16)


def encode(data: bytes) -> str:
    """Return bytes as text of DIGITS, most significant bit first."""
    return "".join(_encoded(data[start : start + _BLOCK]) for start in range(0, len(data), _BLOCK))


def _encoded(data: bytes) -> str:
    bits = np.unpackbits(np.frombuffer(data, np.uint8))
    num_last_bits = len(bits) % _BITS
    words = bits[: len(bits) - num_last_bits].reshape(-1, _BITS) @ _WEIGHTS
    tail = list[int]()
    if num_last_bits:
        num_bits = _FEW_BITS if num_last_bits <= _FEW_BITS else _BITS
        word = int("".join(map(str, bits[len(bits) - num_last_bits :])), 2) << (num_bits - num_last_bits)
        tail = [word] if num_bits == _FEW_BITS else [*divmod(word, _BASE)]
    digits = np.empty((len(words), 2), np.uint8)
    digits[:, 0], digits[:, 1] = words // _BASE, words % _BASE
    table = np.frombuffer(DIGITS.encode(), np.uint8)
    return table[digits].tobytes().decode() + "".join(DIGITS[digit] for digit in tail)
