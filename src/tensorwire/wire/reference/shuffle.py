"""Byte shuffling: items are split into byte planes, and planes merged into items."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...core.memory import Array


def shuffle(data: Any, item: int, block: int, out: Array) -> None:
    for source, target, items in _blocks(data, item, block, out):
        done = items * item
        target[:done].reshape(item, items)[...] = source[:done].reshape(items, item).T
        target[done:] = source[done:]


def unshuffle(data: Any, item: int, block: int, out: Array) -> None:
    for source, target, items in _blocks(data, item, block, out):
        done = items * item
        target[:done].reshape(items, item)[...] = source[:done].reshape(item, items).T
        target[done:] = source[done:]


def merge_planes(planes: list[Any], out: Array) -> None:
    _check(out)
    if not 1 <= len(planes) <= 256 or len(out) % len(planes):
        raise ValueError("from 1 to 256 planes, and whole items")
    items = len(out) // len(planes)
    sources = [np.frombuffer(plane, np.uint8) for plane in planes]
    if any(len(source) not in (1, items) for source in sources):
        raise ValueError("a plane has a byte for each item, or one for all")
    if any(np.may_share_memory(source, out) for source in sources):
        raise ValueError("the output is other memory than the input")
    for i, source in enumerate(sources):
        out.reshape(items, len(planes))[:, i] = source


def _check(out: Array) -> None:
    if (
        not isinstance(out, np.ndarray)
        or out.dtype != np.uint8
        or out.ndim != 1
        or not out.flags.c_contiguous
    ):
        raise TypeError("out must be a 1-d uint8 array")
    if not out.flags.writeable:
        raise ValueError("an output must be writable")


def _blocks(data: Any, item: int, block: int, out: Array) -> list[tuple[Array, Array, int]]:
    """Return (source, target, number of whole items) of each block."""
    source = np.frombuffer(data, np.uint8)
    _check(out)
    if item < 0 or block < 0:
        raise TypeError("sizes are not negative")
    if item == 0 or block == 0 or block % item:
        raise ValueError("a block is a whole number of items, at least one")
    if len(out) != len(source):
        raise ValueError("as many bytes come out as go in")
    if np.may_share_memory(source, out):
        raise ValueError("the output is other memory than the input")
    parts = [slice(offset, offset + block) for offset in range(0, len(source), block)]
    return [(source[part], out[part], len(source[part]) // item) for part in parts]
