from __future__ import annotations

import json
import math
import re
from typing import Any

import numpy as np

from ...core import memory
from .dense import rows

LONE = json.dumps({"tensorwire": '{"version":1,"spec":{}}'}, separators=(",", ":")).encode()
MAX_HEADER, MAX_NAMES, MAX_RANK = 100_000_000, 1_000_000, 32
_SPECIAL = re.compile(r'["\\\x00-\x1f]')
_METADATA = re.compile(r'([{,] *"__metadata__" *: *)(\{(?:[^"{}]|"(?:[^"\\]|\\.)*")*\})', re.S)


def named_header(names: list[str], arrays: list[Any], metadata: bytes) -> bytes | None:
    entries, at, last = [b'"__metadata__":' + metadata] if metadata else [], 0, 1 << 30
    for name, array in zip(names, arrays, strict=True):
        row = rows.of(array.dtype) if type(array) is np.ndarray else None
        if (
            row is None
            or not row.safetensors
            or not array.flags.c_contiguous
            or not array.flags.aligned
            or not array.dtype.isnative
        ):
            return None
        if (
            type(name) is not str
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
            "data_offsets": (at, at + array.nbytes),
        }
        entries.append(key + b":" + json.dumps(entry, separators=(",", ":")).encode())
        at, last = at + array.nbytes, array.itemsize
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
    found = read_named(data, copy)
    if found is None or not found[0]:
        return found and found[1]
    return found[1]["tensor"] if found[0] == LONE and list(found[1]) == ["tensor"] else None


def read_named(data: Any, copy: bool) -> tuple[bytes, dict[str, Any]] | None:
    view = memory.flat(data)
    size = int.from_bytes(view[:8], "little")
    if len(view) < 10 or size > MAX_HEADER or size > len(view) - 8 or view[8] != ord("{"):
        return None
    try:
        # bytes as they are: the metadata are somebody else's to judge
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
    found, at = {}, 0
    for name, entry in header.items():
        array, at = _array(view, 8 + size, at, entry, copy)
        if array is None:
            return None
        found[name] = array
    return (
        (metadata[2].encode("latin-1") if metadata else b"", found)
        if at == len(view) - 8 - size
        else None
    )


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a key stands twice")
    return found


def _no(text: str) -> Any:
    raise ValueError(text)


def _int(text: str) -> int:
    return int(text) if text[0] != "-" and len(text) < 20 else _no(text)


def _natural(values: Any) -> bool:
    return isinstance(values, list) and all(
        type(value) is int and 0 <= value < 1 << 63 for value in values
    )


def _array(view: memoryview, data: int, at: int, entry: Any, copy: bool) -> tuple[Any, int]:
    if not isinstance(entry, dict) or entry.keys() != {"dtype", "shape", "data_offsets"}:
        return None, at
    shape, offsets = entry["shape"], entry["data_offsets"]
    row = rows.named(entry["dtype"]) if isinstance(entry["dtype"], str) else None
    if (
        row is None
        or not _natural(shape)
        or not _natural(offsets)
        or len(offsets) != 2
        or len(shape) > MAX_RANK
    ):
        return None, at
    if math.prod(dim or 1 for dim in shape) * row.dtype.itemsize >= 1 << 63:
        return None, at
    if (
        offsets[0] != at
        or offsets[1] - at != math.prod(shape) * row.dtype.itemsize
        or offsets[1] > len(view) - data
    ):
        return None, at
    array = memory.dense(view, data + at, row.dtype, tuple(shape), copy or None)
    if row.checked and (array.reshape(-1).view(np.uint8) > 1).any():
        return None, at
    return array, offsets[1]
