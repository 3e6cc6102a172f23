"""The result of `diff`."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

from ...core import display


@dataclass(frozen=True)
class TensorDifference:
    """The comparison of a tensor of one file with that of the other. It is true if they differ."""

    name: str
    other: str
    """The name in the second file."""
    problems: list[str]
    """A list of "kind", "dtype", "shape", "row lengths", "values", and "bits" for values that are
    equal but have different bits (-0.0 and 0.0).
    """
    kind: tuple[str, str]
    dtype: tuple[str, str]
    shape: tuple[tuple[int | None, ...], tuple[int | None, ...]]
    elements: int | None
    """The number of elements that were compared. This and the following fields are None if the
    tensors cannot be compared by element.
    """
    unequal: int | None
    nans: int | None
    """The number of unequal elements that are NaN on one side only. This and the following two
    fields are None for strings.
    """
    max_abs: float | None
    """The largest |a - b|."""
    max_rel: float | None
    """The largest |a - b| / max(|a|, |b|)."""
    exact: bool
    """Whether the tensors are equal bit for bit."""

    def __bool__(self) -> bool:
        return bool(self.problems)

    def json(self) -> dict[str, Any]:
        """Returns plain dicts and lists; infinity is the text "Infinity"."""
        fields = dict(vars(self))
        for key in ("kind", "dtype"):
            fields[key] = list(fields[key])
        fields["shape"] = [list(shape) for shape in self.shape]
        for key in ("max_abs", "max_rel"):
            fields[key] = "Infinity" if fields[key] == math.inf else fields[key]
        return fields

    def cells(self) -> tuple[str, ...]:
        """A row of the table."""
        name = self.name if self.other == self.name else f"{self.name} -> {self.other}"
        shapes = [f"({', '.join(map(str, shape))})" for shape in self.shape]
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
        dtype if kind == "dense" else f"{kind} {dtype}"
        for kind, dtype in zip(kind, dtype, strict=True)
    )
    return _two(a, b)


@dataclass(frozen=True)
class Differences:
    """The differences between two files, returned by `tw.diff`. `equal` is True if there are none;
    `json()` is for machines, `str()` and `table()` for people.
    """

    a: str | None
    b: str | None
    formats: tuple[str, str]
    missing: list[str]
    """The names of tensors that only the first file has."""
    extra: list[str]
    """The names of tensors that only the second file has."""
    tensors: list[TensorDifference]
    """The comparison of every tensor that both files have."""
    values: list[str]
    """The names of Python numbers and texts next to the tensors that are not equal."""

    @property
    def equal(self) -> bool:
        return not (self.missing or self.extra or self.values or any(self.tensors))

    def json(self) -> dict[str, Any]:
        """Returns plain dicts and lists."""
        fields = {
            **vars(self),
            "formats": list(self.formats),
            "tensors": [tensor.json() for tensor in self.tensors],
        }
        return {"equal": self.equal, **fields}

    def rows(self, all: bool = False) -> list[tuple[str, ...]]:
        """The rows of the table: of the tensors that differ, or of all."""
        rows = [tensor.cells() for tensor in self.tensors if all or tensor]
        rows += [(name, "missing", "", "", "", "", "") for name in self.missing] + [
            (name, "extra", "", "", "", "", "") for name in self.extra
        ]
        return rows + [(name, "other value", "", "", "", "", "") for name in self.values]

    def table(self, all: bool = False) -> str:
        """The tensors that differ, or all, one on a line."""
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

    _repr_html_ = display.html
    HEAD: ClassVar = ("tensor", "difference", "dtype", "shape", "unequal", "max abs", "max rel")
    """The titles of the columns of `rows`."""

    def shown(self, all: bool = False) -> str:
        """The table, and a summary line."""
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
