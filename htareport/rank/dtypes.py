"""Types of tensor elements: what traces call them, and what PyTorch does."""

from __future__ import annotations

TORCH_DTYPES = {
    "double": "float64", "float": "float32", "c10::Half": "float16", "c10::BFloat16": "bfloat16", "bool": "bool",
    "long int": "int64", "int": "int32", "unsigned char": "uint8", "signed char": "int8",
    "c10::Float8_e4m3fn": "float8_e4m3fn", "c10::Float8_e5m2": "float8_e5m2",
}  # fmt: skip
"""Name of the attribute of `torch` for each name of a type in a trace."""
