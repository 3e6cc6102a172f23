"""Where the kernels come from: the extension, or with TENSORWIRE_PURE=1 their readable twins, which do the same and are slow."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from .. import dtypes

PURE = os.environ.get("TENSORWIRE_PURE", "0") not in ("", "0")

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
    from ._pure.arrow_ipc import ipc_footer, ipc_message
    from ._pure.arrow_ipc_write import ipc_batch, ipc_end, ipc_schema
    from ._pure.arrow_table import decode_columns, encode_columns
    from ._pure.crc32c import crc32c
    from ._pure.dense import decode_dense, dense_header, encode_dense, register_dtype
    from ._pure.example import ExampleDecoder
    from ._pure.example_encode import example_encode
    from ._pure.example_survey import ExampleSurvey
    from ._pure.join import join
    from ._pure.json_read import json_read_numbers
    from ._pure.json_skip import json_skip
    from ._pure.json_write import json_write_numbers
    from ._pure.named import decode_named, encode_named, named_header, read_named
    from ._pure.shuffle import merge_planes, shuffle, unshuffle
    from ._pure.snappy import snappy_decode
    from ._pure.string_vals import find_string_vals, parse_string_lengths, parse_string_vals, string_lengths, string_vals
    from ._pure.table import bundle_block, table_block
    from ._pure.tensor_scan import tensor_scan
    from ._pure.tfrecord import frame, frame_chain, frame_find, frame_list, frame_scan, frames
    from ._pure.typed_vals import typed_vals

for _row in dtypes.TABLE:
    register_dtype(_row.numpy, _row.tf or 0, _row.safetensors or "", not _row.reading_only, _row.name == "bool" or _row.bits < 8)

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
