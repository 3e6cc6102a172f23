from __future__ import annotations

import json
import math
import re
from typing import Any

import numpy as np

from ... import memory
from .dense import rows

LONE = '{"version":1,"spec":{}}'
MAX_HEADER, MAX_NAMES, MAX_RANK = 100_000_000, 1_000_000, 32
_SPECIAL = re.compile(r'["\\\x00-\x1f]')
_PLAIN = re.compile(r"[^\\\x00-\x1f]*")
"""What the fast reader takes: no escapes (but those of LONE), no whitespace but spaces."""


def encode_named(value: Any) -> bytes | None:
    items = list(value.items()) if type(value) is dict else [("tensor", value)]
    header: dict[str, Any] = {} if type(value) is dict else {"__metadata__": {"tensorwire": LONE}}
    at, last = 0, 1 << 30
    for name, array in items:
        row = rows.of(array.dtype) if type(array) is np.ndarray else None
        if row is None or not row.safetensors or not array.flags.c_contiguous or not array.flags.aligned or not array.dtype.isnative:
            return None
        if type(name) is not str or _SPECIAL.search(name) or name == "__metadata__" or array.itemsize > last:
            return None
        header[name] = {"dtype": row.safetensors, "shape": array.shape, "data_offsets": (at, at + array.nbytes)}
        at, last = at + array.nbytes, array.itemsize
    try:
        text = json.dumps(header, ensure_ascii=False, separators=(",", ":")).encode()
    except UnicodeEncodeError:
        return None
    text += b" " * (-(8 + len(text)) % 64)
    return None if len(text) > MAX_HEADER else len(text).to_bytes(8, "little") + text + b"".join(array.tobytes() for _, array in items)


def decode_named(data: Any, copy: bool) -> Any:
    view = memory.flat(data)
    size = int.from_bytes(view[:8], "little")
    if len(view) < 10 or size > MAX_HEADER or size > len(view) - 8 or view[8] != ord("{"):
        return None
    try:
        text = str(view[8 : 8 + size], "utf-8")
        mark = '"__metadata__":' + json.dumps({"tensorwire": LONE}, separators=(",", ":"))
        if not _PLAIN.fullmatch(text.replace(mark, "")):
            return None
        pairs = json.loads(text, object_pairs_hook=_once, parse_float=_no, parse_constant=_no, parse_int=_int)
    except (ValueError, RecursionError):
        return None
    lone = pairs.pop("__metadata__", None)
    if (lone is not None and (mark not in text or lone != {"tensorwire": LONE})) or len(pairs) > MAX_NAMES:
        return None
    found, at = {}, 0
    for name, entry in pairs.items():
        array, at = _array(view, 8 + size, at, entry, copy)
        if array is None:
            return None
        found[name] = array
    if at != len(view) - 8 - size:
        return None
    if lone is None:
        return found
    return found["tensor"] if list(found) == ["tensor"] else None


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
    return isinstance(values, list) and all(type(value) is int and 0 <= value < 1 << 63 for value in values)


def _array(view: memoryview, data: int, at: int, entry: Any, copy: bool) -> tuple[Any, int]:
    if not isinstance(entry, dict) or entry.keys() != {"dtype", "shape", "data_offsets"}:
        return None, at
    shape, offsets = entry["shape"], entry["data_offsets"]
    row = rows.named(entry["dtype"]) if isinstance(entry["dtype"], str) else None
    if row is None or not _natural(shape) or not _natural(offsets) or len(offsets) != 2 or len(shape) > MAX_RANK:
        return None, at
    if math.prod(dim or 1 for dim in shape) * row.dtype.itemsize >= 1 << 63:
        return None, at
    if offsets[0] != at or offsets[1] - at != math.prod(shape) * row.dtype.itemsize or offsets[1] > len(view) - data:
        return None, at
    array = memory.dense(view, data + at, row.dtype, tuple(shape), copy or None)
    if row.checked and (array.reshape(-1).view(np.uint8) > 1).any():
        return None, at
    return array, offsets[1]
