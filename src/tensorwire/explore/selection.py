"""Slices written as in NumPy (`0,:,3`), and name patterns."""

from __future__ import annotations

import fnmatch
from collections.abc import Iterable, Sequence
from types import EllipsisType

from .._errors import SchemaError, choices
from ..core import formatting

Key = tuple[int | slice | EllipsisType, ...]


def parse(text: str) -> Key:
    """Parse a slice as NumPy writes it between brackets.

    >>> parse("0, :, 3:9:2")
    (0, slice(None, None, None), slice(3, 9, 2))
    """
    words = [word.strip() for word in text.strip().removeprefix("[").removesuffix("]").split(",")]
    # A trailing comma is allowed: "3," is a tuple of one index.
    if words and words[-1] == "" and len(words) > 1:
        words.pop()
    key = tuple(_index(word, text) for word in words)
    if sum(index is Ellipsis for index in key) > 1:
        raise SchemaError(f"invalid slice {text!r}: '...' may appear only once")
    return key


def _index(word: str, text: str) -> int | slice | EllipsisType:
    if word == "...":
        return Ellipsis
    try:
        if ":" not in word:
            return int(word)
        parts = word.split(":")
        if len(parts) <= 3:
            index = slice(*(int(part) if part.strip() else None for part in parts))
            if index.step != 0:
                return index
    except ValueError:
        pass
    raise SchemaError(
        f"invalid slice {text!r:.80}",
        hint="use integers, start:stop, start:stop:step or '...', separated by commas: '0,:,3'",
    )


def fitted(key: Key, kind: str, shape: Sequence[int | None]) -> Key:
    """Check a key against a shape and return it with `...` expanded.

    >>> fitted((Ellipsis, 0), "dense", (2, 3, 4))
    (slice(None, None, None), slice(None, None, None), 0)
    """
    given = len(key) - (Ellipsis in key)
    if given > len(shape):
        raise SchemaError(
            f"the slice has {given} dimensions, and the tensor has only {len(shape)}:"
            f" {formatting.shape(shape)}"
        )
    if kind in ("sparse", "ragged"):
        if any(index is not Ellipsis and index != slice(None) for index in key[1:]):
            raise SchemaError(f"a {kind} tensor can only be sliced along its first dimension")
        first = key[0]
        if isinstance(first, slice) and first.step not in (None, 1):
            raise SchemaError(f"rows of a {kind} tensor can only be sliced with step 1")
    whole = (slice(None),) * (len(shape) - given)
    ellipsis = key.index(Ellipsis) if Ellipsis in key else len(key)
    full = (*key[:ellipsis], *(whole if Ellipsis in key else ()), *key[ellipsis + 1 :])
    for axis, (index, dim) in enumerate(zip(full, shape, strict=False)):
        if isinstance(index, int) and dim is not None and not -dim <= index < dim:
            raise SchemaError(f"index {index} is out of bounds for axis {axis} with size {dim}")
    return full


def chosen(names: Iterable[str], wanted: Sequence[str], path: str | None = None) -> list[str]:
    """Return the names that match a list of names and glob patterns (`layers/*`).

    >>> chosen(["a/x", "a/y", "b"], ["b", "a/*"])
    ['b', 'a/x', 'a/y']
    """
    available = list(names)
    exact_names, selected = set(available), {}
    for pattern in wanted:
        # An existing name is never a pattern, even if it contains "*", "?" or "[".
        matches = (
            [pattern]
            if pattern in exact_names
            else [name for name in available if fnmatch.fnmatchcase(name, pattern)]
        )
        if not matches:
            nearest = choices(pattern, available[:1000]) if available else ": the file has none"
            raise SchemaError(f"no tensor {pattern!r}{nearest}", path=path)
        selected.update(dict.fromkeys(matches))
    return list(selected)
