"""Skipping of JSON lists and objects."""

from __future__ import annotations

import re
from typing import Any

from ...core.memory import flat
from .. import status

_STEP = re.compile(rb'[\[\]{}"]')
_STRING = re.compile(rb'[^"\\]*(?:\\.[^"\\]*)*"', re.DOTALL)


def json_skip(
    text: Any, at: int, most_depth: int, past_dollars: bool
) -> tuple[int, int, int, bool]:
    data, depth, deepest = bytes(flat(text)), 0, 0
    if at > len(data):
        raise ValueError("at is past the end")
    while step := _STEP.search(data, at) if depth or data[at : at + 1] in b'[]{}"' else None:
        at = step.start()
        if data[at] in b"[{":
            if depth == most_depth:
                return status.TOO_DEEP, at, deepest, False
            depth += 1
            deepest = max(depth, deepest)
        elif data[at] in b"]}":
            depth -= 1
            if depth <= 0:
                return (
                    (0, at + 1, deepest, False)
                    if depth == 0
                    else (status.BAD_JSON, at, deepest, False)
                )
        else:
            if not past_dollars and data[at + 1 : at + 2] == b"$":
                return 0, at, deepest, True
            closed = _STRING.match(data, at + 1)
            if closed is None:
                return status.TRUNCATED, len(data), deepest, False
            at = closed.end() - 1
        at += 1
    return (
        (status.TRUNCATED, len(data), deepest, False)
        if depth or at == len(data)
        else (status.BAD_JSON, at, deepest, False)
    )
