"""Literal types for the names that options take, so that a type checker reports a misspelt one.

tests/typing/test_typing.py compares them with the tables that define the names.
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
"""A tensor format: see `tw.formats()`."""
FileFormatName = FormatName | Literal["tfrecord", "jsonl", "saved_model"]
"""A format of tensors, rows or models."""
CompressionName = Literal["gzip", "zlib", "zstd", "lz4", "snappy"]
FormatCompressionName = CompressionName | Literal["none"]
"""A compression of a stream, or of a format with a compression of its own."""
FrameworkName = Literal["numpy", "tensorflow", "torch", "jax", "scipy", "arrow", "object"]
"""Values of `to=`."""
SchemeName = Literal["float16", "bfloat16", "float8_e4m3fn", "float8_e5m2", "int8", "uint8", "int4"]
"""Values of `quantize=`."""
Nonfinite = Literal["raise", "clip", "zero"]
OnCorrupt = Literal["raise", "skip"]
ByteOrder = Literal["little", "big"]
PathLike = str | os.PathLike[str]
