"""What `diff` found."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

from ...core import display, formatting


@dataclass(frozen=True)
class TensorDifference:
    """Two tensors of one name. True if they are different."""

    name: str
    other: str
    """What it is called in the second file."""
    problems: list[str]
    """Of "kind", "dtype", "shape", "row lengths", "values", and "bits" for values that are equal
    and yet not the same (-0.0 and 0.0).
    """
    kind: tuple[str, str]
    dtype: tuple[str, str]
    shape: tuple[tuple[int | None, ...], tuple[int | None, ...]]
    elements: int | None
    """How many were compared; None if none has a counterpart, and so for what follows."""
    unequal: int | None
    nans: int | None
    """How many of those are NaN on one side only; None for strings, and so for what follows."""
    max_abs: float | None
    """The largest |a - b|."""
    max_rel: float | None
    """The largest |a - b| / max(|a|, |b|)."""
    exact: bool
    """The same to the bit."""

    def __bool__(self) -> bool:
        return bool(self.problems)

    def json(self) -> dict[str, Any]:
        """Plain dicts and lists; infinity is the text "Infinity"."""
        found = dict(vars(self))
        for key in ("kind", "dtype"):
            found[key] = list(found[key])
        found["shape"] = [list(shape) for shape in self.shape]
        for key in ("max_abs", "max_rel"):
            found[key] = "Infinity" if found[key] == math.inf else found[key]
        return found

    def cells(self) -> tuple[str, ...]:
        """A row of the table."""
        name = self.name if self.other == self.name else f"{self.name} -> {self.other}"
        shapes = [formatting.shape(shape) for shape in self.shape]
        share = "" if self.unequal is None else f"{self.unequal:,} of {self.elements:,}"
        gaps = ["" if gap is None else f"{gap:.6g}" for gap in (self.max_abs, self.max_rel)]
        return (
            name,
            ", ".join(self.problems) or "equal",
            _both(self.kind, self.dtype),
            _two(*shapes),
            share,
            *gaps,
        )


def _two(a: str, b: str) -> str:
    return a if a == b else f"{a} -> {b}"


def _both(kind: tuple[str, str], dtype: tuple[str, str]) -> str:
    a, b = (
        what if one == "dense" else f"{one} {what}" for one, what in zip(kind, dtype, strict=True)
    )
    return _two(a, b)


@dataclass(frozen=True)
class Differences:
    """What is different between two files. `equal` says whether anything is; `json()` is for
    machines, `str()` and `table()` for people.
    """

    a: str | None
    b: str | None
    formats: tuple[str, str]
    missing: list[str]
    """In the first file only."""
    extra: list[str]
    """In the second only."""
    tensors: list[TensorDifference]
    """All that both have."""
    values: list[str]
    """Numbers and text beside the tensors that are not the same."""

    @property
    def equal(self) -> bool:
        return not (self.missing or self.extra or self.values or any(self.tensors))

    def json(self) -> dict[str, Any]:
        """Plain dicts and lists."""
        found = {
            **vars(self),
            "formats": list(self.formats),
            "tensors": [tensor.json() for tensor in self.tensors],
        }
        return {"equal": self.equal, **found}

    def rows(self, all: bool = False) -> list[tuple[str, ...]]:
        rows = [tensor.cells() for tensor in self.tensors if all or tensor]
        rows += [(name, "missing", "", "", "", "", "") for name in self.missing] + [
            (name, "extra", "", "", "", "", "") for name in self.extra
        ]
        return rows + [(name, "other value", "", "", "", "", "") for name in self.values]

    def table(self, all: bool = False) -> str:
        """The tensors that are different, or all, one a line."""
        rows, head = self.rows(all), self.HEAD
        if not rows:
            return ""
        widths = [max(len(row[i]) for row in (head, *rows)) for i in range(len(head))]
        return "\n".join(
            "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
            for row in (head, *rows)
        )

    def __str__(self) -> str:
        return self.shown()

    __repr__ = __str__
    _repr_html_ = display.html
    HEAD: ClassVar = ("tensor", "difference", "dtype", "shape", "unequal", "max abs", "max rel")
    """Titles of the columns of `rows`."""

    def shown(self, all: bool = False) -> str:
        """The table, and a line that sums it up."""
        different = sum(map(bool, self.tensors))
        names = (
            f"{self.a or 'bytes'} ({self.formats[0]}) and {self.b or 'bytes'} ({self.formats[1]})"
        )
        others = f", {len(self.values):,} other values" if self.values else ""
        counts = (
            f"{different:,} of {len(self.tensors):,} tensors different, {len(self.missing):,}"
            f" missing, {len(self.extra):,} extra{others}"
        )
        how = (
            "the same to the bit"
            if not any(not tensor.exact for tensor in self.tensors)
            else "equal within the tolerance"
        )
        last = (
            f"{names}: {len(self.tensors):,} tensors, {how}" if self.equal else f"{names}: {counts}"
        )
        table = self.table(all)
        return f"{table}\n\n{last}" if table else last
