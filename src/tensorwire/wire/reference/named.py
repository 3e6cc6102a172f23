"""safetensors files of dense tensors, the form that most files have."""

from __future__ import annotations

import json
import math
import re
from typing import Any

import numpy as np

from ...core import memory
from .dense import rows, writable_row

LONE = json.dumps({"tensorwire": '{"version":1,"spec":{}}'}, separators=(",", ":")).encode()
MAX_HEADER, MAX_NAMES, MAX_RANK = 100_000_000, 1_000_000, 32
_SPECIAL = re.compile(r'["\\\x00-\x1f]')
_METADATA = re.compile(r'([{,] *"__metadata__" *: *)(\{(?:[^"{}]|"(?:[^"\\]|\\.)*")*\})', re.S)


def named_header(names: list[str], arrays: list[Any], metadata: bytes) -> bytes | None:
    entries, offset, last = [b'"__metadata__":' + metadata] if metadata else [], 0, 1 << 30
    for name, array in zip(names, arrays, strict=True):
        row = writable_row(array)
        if (
            row is None
            or not row.safetensors
            or type(name) is not str
            or _SPECIAL.search(name)
            or name == "__metadata__"
            or array.itemsize > last
        ):
            return None
        try:
            key = f'"{name}"'.encode()
        except UnicodeEncodeError:
            return None
        entry = {
            "dtype": row.safetensors,
            "shape": array.shape,
            "data_offsets": (offset, offset + array.nbytes),
        }
        entries.append(key + b":" + json.dumps(entry, separators=(",", ":")).encode())
        offset, last = offset + array.nbytes, array.itemsize
    text = b"{" + b",".join(entries) + b"}"
    text += b" " * (-(8 + len(text)) % 64)
    return None if len(text) > MAX_HEADER else len(text).to_bytes(8, "little") + text


def encode_named(value: Any) -> bytes | None:
    names, arrays = (
        (list(value), list(value.values())) if type(value) is dict else (["tensor"], [value])
    )
    header = named_header(names, arrays, b"" if type(value) is dict else LONE)
    return None if header is None else header + b"".join(array.tobytes() for array in arrays)


def decode_named(data: Any, copy: bool) -> Any:
    result = read_named(data, copy)
    if result is None or not result[0]:
        return result and result[1]
    return result[1]["tensor"] if result[0] == LONE and list(result[1]) == ["tensor"] else None


def read_named(data: Any, copy: bool) -> tuple[bytes, dict[str, Any]] | None:
    view = memory.flat(data)
    size = int.from_bytes(view[:8], "little")
    if len(view) < 10 or size > MAX_HEADER or size > len(view) - 8 or view[8] != ord("{"):
        return None
    try:
        # latin-1 keeps all bytes. The caller decodes and validates the metadata.
        text = str(view[8 : 8 + size], "latin-1")
        metadata = _METADATA.search(text)
        rest = text[: metadata.start(2)] + "0" + text[metadata.end(2) :] if metadata else text
        if "\\" in rest or re.search(r"[\x00-\x1f]", rest):
            return None
        header = json.loads(
            rest.encode("latin-1"),
            object_pairs_hook=_once,
            parse_float=_no,
            parse_constant=_no,
            parse_int=_int,
        )
    except (ValueError, RecursionError):
        return None
    if (
        header.pop("__metadata__", 0 if metadata else None) != (0 if metadata else None)
        or len(header) > MAX_NAMES
    ):
        return None
    arrays, offset = {}, 0
    for name, entry in header.items():
        array, offset = _array(view, 8 + size, offset, entry, copy)
        if array is None:
            return None
        arrays[name] = array
    return (
        (metadata[2].encode("latin-1") if metadata else b"", arrays)
        if offset == len(view) - 8 - size
        else None
    )


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) != len(pairs):
        raise ValueError("a key appears twice")
    return result


def _no(text: str) -> Any:
    raise ValueError(text)


def _int(text: str) -> int:
    return int(text) if text[0] != "-" and len(text) < 20 else _no(text)


def _natural(values: Any) -> bool:
    return isinstance(values, list) and all(
        type(value) is int and 0 <= value < 1 << 63 for value in values
    )


def _array(view: memoryview, data: int, offset: int, entry: Any, copy: bool) -> tuple[Any, int]:
    if not isinstance(entry, dict) or entry.keys() != {"dtype", "shape", "data_offsets"}:
        return None, offset
    shape, offsets = entry["shape"], entry["data_offsets"]
    row = next((row for row in rows if row.safetensors and row.safetensors == entry["dtype"]), None)
    if (
        row is None
        or not _natural(shape)
        or not _natural(offsets)
        or len(offsets) != 2
        or len(shape) > MAX_RANK
    ):
        return None, offset
    if math.prod(dim or 1 for dim in shape) * row.dtype.itemsize >= 1 << 63:
        return None, offset
    if (
        offsets[0] != offset
        or offsets[1] - offset != math.prod(shape) * row.dtype.itemsize
        or offsets[1] > len(view) - data
    ):
        return None, offset
    array = memory.dense(view, data + offset, row.dtype, tuple(shape), copy or None)
    if row.checked and (array.reshape(-1).view(np.uint8) > 1).any():
        return None, offset
    return array, offsets[1]
