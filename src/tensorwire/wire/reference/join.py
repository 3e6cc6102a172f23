"""Concatenation of chunks."""

from __future__ import annotations

from typing import Any


def join(chunks: list[Any]) -> bytes:
    return b"".join(chunks)
