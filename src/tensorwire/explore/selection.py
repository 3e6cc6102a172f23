"""`0,:,3` as Python and NumPy mean it between brackets, and which names are meant."""

from __future__ import annotations

import fnmatch
from collections.abc import Iterable, Sequence
from types import EllipsisType

from .._errors import SchemaError, choices

Key = tuple[int | slice | EllipsisType, ...]


def parse(text: str) -> Key:
    """
    >>> parse("0, :, 3:9:2")
    (0, slice(None, None, None), slice(3, 9, 2))
    """
    words = [word.strip() for word in text.strip().removeprefix("[").removesuffix("]").split(",")]
    if words and words[-1] == "" and len(words) > 1:
        words.pop()  # "3," is a tuple of one
    found = tuple(_index(word, text) for word in words)
    if sum(one is Ellipsis for one in found) > 1:
        raise SchemaError(f"{text!r}: ... may stand once in a slice")
    return found


def _index(word: str, text: str) -> int | slice | EllipsisType:
    if word == "...":
        return Ellipsis
    try:
        if ":" not in word:
            return int(word)
        parts = word.split(":")
        if len(parts) <= 3:
            found = slice(*(int(part) if part.strip() else None for part in parts))
            if found.step != 0:
                return found
    except ValueError:
        pass
    raise SchemaError(
        f"{text!r:.80} is no slice: write numbers, from:to, from:to:step or ..., with commas"
        " between them, as '0,:,3'"
    )


def fitted(key: Key, kind: str, shape: Sequence[int | None]) -> Key:
    """The key without `...`, once it is known that the tensor has all that it asks for.

    >>> fitted((Ellipsis, 0), "dense", (2, 3, 4))
    (slice(None, None, None), slice(None, None, None), 0)
    """
    given = len(key) - (Ellipsis in key)
    if given > len(shape):
        raise SchemaError(
            f"a slice of {given} dimensions, and the tensor has {len(shape)}: {tuple(shape)}"
        )
    if kind in ("sparse", "ragged"):
        if any(one is not Ellipsis and one != slice(None) for one in key[1:]):
            raise SchemaError(f"a {kind} tensor is sliced by its first dimension alone")
        first = key[0]
        if isinstance(first, slice) and first.step not in (None, 1):
            raise SchemaError(f"rows of a {kind} tensor are sliced in steps of 1")
    whole = (slice(None),) * (len(shape) - given)
    at = key.index(Ellipsis) if Ellipsis in key else len(key)
    full = (*key[:at], *(whole if Ellipsis in key else ()), *key[at + 1 :])
    for number, (one, dim) in enumerate(zip(full, shape, strict=False)):
        if isinstance(one, int) and dim is not None and not -dim <= one < dim:
            raise SchemaError(f"index {one} is outside of dimension {number}, which has {dim}")
    return full


def chosen(names: Iterable[str], wanted: Sequence[str], path: str | None = None) -> list[str]:
    """The names that are meant: each by itself, or by a pattern (`layers/*`).

    >>> chosen(["a/x", "a/y", "b"], ["b", "a/*"])
    ['b', 'a/x', 'a/y']
    """
    known = list(names)
    there, found = set(known), {}
    for one in wanted:
        matches = (
            [one] if one in there else [name for name in known if fnmatch.fnmatchcase(name, one)]
        )
        if not matches:
            raise SchemaError(
                f"no tensor {one!r}{choices(one, known[:1000]) if known else ': there are none'}",
                path=path,
            )
        found.update(dict.fromkeys(matches))
    return list(found)
