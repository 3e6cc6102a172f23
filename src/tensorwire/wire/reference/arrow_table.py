"""Arrow files of one batch of dense columns, the form that tensorwire writes."""

from __future__ import annotations

import json
import math
import re
from typing import Any

import numpy as np

from ...core import memory
from .arrow_ipc import FIXED_LIST, FLOAT, INT, ipc_footer, ipc_message
from .arrow_ipc_write import ipc_batch, ipc_end, ipc_schema

MAGIC, MARK = b"ARROW1", b"\xff\xff\xff\xff"
KEY, LONE = "tensorwire", '{"version":1,"spec":{}}'
NAME, ABOUT, TENSOR = "ARROW:extension:name", "ARROW:extension:metadata", "arrow.fixed_shape_tensor"
MAX_COLUMNS, MAX_RANK, ALIGN = 1_000_000, 32, 64
_NUMBERS = r"\[((?:(?:0|[1-9]\d{0,17})(?:,(?=\d)|(?=\])))*)\]"
_SHAPE = re.compile(rf'\{{"shape":{_NUMBERS}(?:,"permutation":{_NUMBERS})?\}}')


def decode_columns(data: Any, copy: bool) -> Any:
    view = memory.flat(data)
    count = int.from_bytes(view[-10:-6], "little", signed=True)
    if (
        len(view) < 18
        or bytes(view[:6]) != MAGIC
        or bytes(view[-6:]) != MAGIC
        or not 0 < count <= len(view) - 18
    ):
        return None
    end = len(view) - 10 - count
    status, _, version, schema, dictionaries, batches = ipc_footer(view[end:-10])
    if (
        status
        or version not in (3, 4)
        or schema[0]
        or len(dictionaries)
        or len(batches) != 1
        or len(schema[1]) > MAX_COLUMNS
    ):
        return None
    pairs = dict(schema[2])
    if len(pairs) != len(schema[2]) or len(pairs) > 16 or pairs.get(KEY, LONE) != LONE:
        return None
    batch = _batch(view, end, *batches[0].tolist())
    if batch is None:
        return None
    arrays = _columns(view, schema[1], batch, copy)
    if arrays is None or KEY not in pairs:
        return arrays
    return arrays["tensor"] if list(arrays) == ["tensor"] else None


def _batch(view: memoryview, end: int, offset: int, length: int, body: int) -> Any:
    if (
        offset < 8
        or length < 8
        or body < 0
        or offset + length + body > end
        or bytes(view[offset : offset + 4]) != MARK
    ):
        return None
    size = int.from_bytes(view[offset + 4 : offset + 8], "little", signed=True)
    if not 0 < size <= length - 8:
        return None
    status, _, version, kind, body_size, batch = ipc_message(view[offset + 8 : offset + 8 + size])
    if (
        status
        or kind != 3
        or body_size != body
        or version not in (3, 4)
        or batch[3] >= 0
        or batch[4]
    ):
        return None
    return offset + length, batch[0], batch[1].tolist(), batch[2].tolist()


def _columns(view: memoryview, fields: list[Any], batch: Any, copy: bool) -> dict[str, Any] | None:
    body, rows, nodes, buffers = batch
    inner: tuple[int, ...]
    arrays, node, buffer, i, columns = dict[str, Any](), 0, 0, 0, 0
    while i < len(fields):
        name, leaf, inner = fields[i][0], fields[i], ()
        if leaf[1] == FIXED_LIST:
            shape = _shape(leaf)
            if (
                shape is None
                or node == len(nodes)
                or buffer == len(buffers)
                or nodes[node] != [rows, 0]
            ):
                return None
            leaf, inner, node, buffer, i = fields[i + 1], shape, node + 1, buffer + 1, i + 1
        dtype, count = _dtype(leaf), rows * math.prod(inner)
        if dtype is None or node == len(nodes) or buffer + 2 > len(buffers) or nodes[node][1]:
            return None
        if nodes[node][0] < count or (not inner and nodes[node][0] != count and leaf[0] is name):
            return None
        if (
            16 * math.prod(dim or 1 for dim in (rows, *inner)) >= 1 << 63
            or buffers[buffer + 1][1] < count * dtype.itemsize
        ):
            return None
        arrays[name] = memory.dense(
            view, body + buffers[buffer + 1][0], dtype, (rows, *inner), copy or None
        )
        node, buffer, i, columns = node + 1, buffer + 2, i + 1, columns + 1
    return arrays if (node, buffer, columns) == (len(nodes), len(buffers), len(arrays)) else None


def _shape(field: Any) -> tuple[int, ...] | None:
    _, _, width, _, children, coded, pairs = field
    if coded or children != 1 or width < 0:
        return None
    if not pairs:
        return (width,)
    metadata = dict(pairs)
    match = (
        _SHAPE.fullmatch(metadata.get(ABOUT, ""))
        if len(pairs) == 2 and metadata.get(NAME) == TENSOR
        else None
    )
    if match is None:
        return None
    shape = tuple(map(int, match[1].split(","))) if match[1] else ()
    order = None if match[2] is None else list(map(int, match[2].split(","))) if match[2] else []
    if (
        len(shape) >= MAX_RANK
        or math.prod(shape) != width
        or order not in (None, list(range(len(shape))))
    ):
        return None
    return shape


def _dtype(field: Any) -> np.dtype[Any] | None:
    _, kind, width, signed, children, coded, pairs = field
    if coded or children or pairs:
        return None
    if kind == FLOAT and width in (0, 1, 2):
        return np.dtype(f"f{2 << width}")
    return (
        np.dtype(f"{'i' if signed else 'u'}{width // 8}")
        if kind == INT and width in (8, 16, 32, 64)
        else None
    )


def encode_columns(value: Any, each: int) -> bytes | None:
    lone = type(value) is not dict
    columns = {"tensor": value} if lone else value
    fields: list[Any] = []
    nodes, buffers, body, rows = list[Any](), list[Any](), 0, None
    for name, array in columns.items():
        if (
            type(array) is not np.ndarray
            or array.dtype.kind not in "iuf"
            or not array.dtype.isnative
            or array.dtype.num > 23
        ):
            return None
        if (
            not array.flags.c_contiguous
            or not array.flags.aligned
            or not 1 <= array.ndim <= MAX_RANK
            or array.itemsize > 8
        ):
            return None
        inner = array.shape[1:]
        if (
            not _is_text(name)
            or (rows is not None and len(array) != rows)
            or math.prod(inner) > (1 << 31) - 1
        ):
            return None
        rows = len(array)
        if inner:
            metadata = [
                (NAME, TENSOR),
                (ABOUT, json.dumps({"shape": inner}, separators=(",", ":"))),
            ]
            fields.append((name, FIXED_LIST, math.prod(inner), 0, 1, None, metadata))
            nodes.append((rows, 0))
            buffers.append((body, 0))
        floats = array.dtype.kind == "f"
        width = {2: 0, 4: 1, 8: 2}[array.itemsize] if floats else 8 * array.itemsize
        fields.append(
            (
                "item" if inner else name,
                FLOAT if floats else INT,
                width,
                int(array.dtype.kind == "i"),
                0,
                None,
                [],
            )
        )
        nodes.append((array.size, 0))
        buffers += [(body, 0), (body, array.nbytes)]
        body += array.nbytes + -array.nbytes % ALIGN
    if not columns or sum(array.nbytes for array in columns.values()) > each * len(columns):
        return None
    pairs = [(KEY, LONE)] if lone else []
    head = _message(MAGIC + bytes(2), ipc_schema(fields, pairs), 8)
    start = len(head)
    head = _message(head, ipc_batch(rows or 0, nodes, buffers, -1, body), ALIGN)
    data = b"".join(array.tobytes() + bytes(-array.nbytes % ALIGN) for array in columns.values())
    footer = ipc_end(fields, pairs, [(start, len(head) - start, body)])
    return head + data + MARK + bytes(4) + footer + len(footer).to_bytes(4, "little") + MAGIC


def _message(before: bytes, flatbuffer: bytes, align: int) -> bytes:
    pad = -(len(before) + 8 + len(flatbuffer)) % align
    return before + MARK + (len(flatbuffer) + pad).to_bytes(4, "little") + flatbuffer + bytes(pad)


def _is_text(name: Any) -> bool:
    try:
        return type(name) is str and name.encode() is not None
    except UnicodeEncodeError:
        return False
