"""The names that options take, as types: a type checker reports a misspelt one.

tests/test_typing.py holds them against the tables that they are taken from.
"""

from __future__ import annotations

import os
from typing import Literal

FormatName = Literal[
    "safetensors",
    "tensorproto",
    "npy",
    "npz",
    "arrow",
    "parquet",
    "protobuf",
    "json",
    "checkpoint",
    "keras",
    "example",
    "raw",
]
"""A format of tensors: see `tw.formats()`."""
FileFormatName = FormatName | Literal["tfrecord", "jsonl", "saved_model"]
"""A format of tensors, rows or models."""
CompressionName = Literal["gzip", "zlib", "zstd", "lz4", "snappy"]
FormatCompressionName = CompressionName | Literal["none"]
"""A compression of a stream, or what a format that compresses by itself calls it."""
FrameworkName = Literal["numpy", "tensorflow", "torch", "jax", "scipy", "arrow", "object"]
"""What `to=` may be."""
SchemeName = Literal["float16", "bfloat16", "float8_e4m3fn", "float8_e5m2", "int8", "uint8", "int4"]
"""What `quantize=` may be."""
Nonfinite = Literal["raise", "clip", "zero"]
OnCorrupt = Literal["raise", "skip"]
ByteOrder = Literal["little", "big"]
PathLike = str | os.PathLike[str]
