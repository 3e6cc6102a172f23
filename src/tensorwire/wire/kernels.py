"""The kernels: hot loops from the native extension.

With TENSORWIRE_PURE=1 they come from `reference`, whose functions do the same and are slow.
"""

from __future__ import annotations

import importlib
import os
from typing import TYPE_CHECKING

from ..core import dtypes


def _is_pure() -> bool:
    """Whether the twins are used: by request, or because the pure wheel has no extension."""
    if os.environ.get("TENSORWIRE_PURE", "0") not in ("", "0"):
        return True
    try:
        importlib.import_module("tensorwire._native")
    except ModuleNotFoundError as error:
        # An extension that is there and cannot be loaded is an error to see, not a reason to be slow.
        if error.name != "tensorwire._native":
            raise
        return True
    return False


PURE = _is_pure()

if TYPE_CHECKING or not PURE:
    from .._native import (
        ExampleDecoder,
        ExampleSurvey,
        bundle_block,
        crc32c,
        decode_columns,
        decode_dense,
        decode_named,
        dense_header,
        encode_columns,
        encode_dense,
        encode_named,
        example_encode,
        find_string_vals,
        frame,
        frame_chain,
        frame_find,
        frame_list,
        frame_scan,
        frames,
        ipc_batch,
        ipc_end,
        ipc_footer,
        ipc_message,
        ipc_schema,
        join,
        json_read_numbers,
        json_skip,
        json_write_numbers,
        merge_planes,
        named_header,
        parse_string_lengths,
        parse_string_vals,
        read_named,
        register_dtype,
        shuffle,
        snappy_decode,
        string_lengths,
        string_vals,
        table_block,
        tensor_scan,
        typed_vals,
        unshuffle,
    )
else:
    from .reference.arrow_ipc import ipc_footer, ipc_message
    from .reference.arrow_ipc_write import ipc_batch, ipc_end, ipc_schema
    from .reference.arrow_table import decode_columns, encode_columns
    from .reference.crc32c import crc32c
    from .reference.dense import decode_dense, dense_header, encode_dense, register_dtype
    from .reference.example import ExampleDecoder
    from .reference.example_encode import example_encode
    from .reference.example_survey import ExampleSurvey
    from .reference.join import join
    from .reference.json_read import json_read_numbers
    from .reference.json_skip import json_skip
    from .reference.json_write import json_write_numbers
    from .reference.leveldb import bundle_block, table_block
    from .reference.named import decode_named, encode_named, named_header, read_named
    from .reference.shuffle import merge_planes, shuffle, unshuffle
    from .reference.snappy import snappy_decode
    from .reference.string_vals import (
        find_string_vals,
        parse_string_lengths,
        parse_string_vals,
        string_lengths,
        string_vals,
    )
    from .reference.tensor_scan import tensor_scan
    from .reference.tfrecord import frame, frame_chain, frame_find, frame_list, frame_scan, frames
    from .reference.typed_vals import typed_vals

# Kernels need the dtype table, but dtypes are defined only once, in core.dtypes.
for _row in dtypes.TABLE:
    register_dtype(
        _row.numpy,
        _row.tf or 0,
        _row.safetensors or "",
        not _row.reading_only,
        _row.name == "bool" or _row.bits < 8,
    )

__all__ = [
    "PURE",
    "ExampleDecoder",
    "ExampleSurvey",
    "bundle_block",
    "crc32c",
    "decode_columns",
    "decode_dense",
    "decode_named",
    "dense_header",
    "encode_columns",
    "encode_dense",
    "encode_named",
    "example_encode",
    "find_string_vals",
    "frame",
    "frame_chain",
    "frame_find",
    "frame_list",
    "frame_scan",
    "frames",
    "ipc_batch",
    "ipc_end",
    "ipc_footer",
    "ipc_message",
    "ipc_schema",
    "join",
    "json_read_numbers",
    "json_skip",
    "json_write_numbers",
    "merge_planes",
    "named_header",
    "parse_string_lengths",
    "parse_string_vals",
    "read_named",
    "shuffle",
    "snappy_decode",
    "string_lengths",
    "string_vals",
    "table_block",
    "tensor_scan",
    "typed_vals",
    "unshuffle",
]
