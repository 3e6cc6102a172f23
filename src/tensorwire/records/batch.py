"""Rows of Examples as columns."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from .. import frameworks
from ..core.tensors import Bundle, Strings, Tensor

Array = np.ndarray[Any, Any]

_NO_STRINGS = ("torch", "jax")


def holds_strings(column: Any) -> bool:
    """Whether a column is of strings, however they are arranged."""
    return isinstance(column, Strings) or isinstance(getattr(column, "values", None), Strings)


def _rows(
    columns: Mapping[str, Any], present: Mapping[str, Array], count: int
) -> Iterator[dict[str, Any]]:
    for row in range(count):
        yield {name: column[row] for name, column in columns.items() if present[name][row]}


class Batch(Bundle):
    """Columns by name, each with one row a record. `present[name]` says which records have the
    feature at all.

    >>> batch = Batch({"label": np.array([3, 0])}, {"label": np.array([True, False])}, 2)
    >>> len(batch), batch.size, list(batch.rows())
    (1, 2, [{'label': np.int64(3)}, {}])
    """

    __slots__ = ("present", "size")

    present: dict[str, Array]
    """bool [size] by name: where it is False, the column has `default`, zero, or nothing."""
    size: int
    """The number of rows."""

    def __init__(
        self,
        columns: Mapping[str, Tensor],
        present: Mapping[str, Array] | None = None,
        size: int = 0,
    ) -> None:
        super().__init__(columns)
        self.size = size
        self.present = (
            dict(present)
            if present is not None
            else {name: np.ones(size, np.bool_) for name in columns}
        )

    def rows(self) -> Iterator[dict[str, Any]]:
        """One dict a record, without the features that it does not have."""
        return _rows(self, self.present, self.size)

    def to(self, framework: str, device: Any = None, cast: bool = False) -> Batch | ForeignBatch:
        """The same columns as objects of a framework; see `tw.to`. torch and JAX have no strings:
        there, strings stay `Strings`.
        """
        if framework == "numpy":
            return self
        columns = {
            name: (
                column
                if holds_strings(column) and framework in _NO_STRINGS
                else frameworks.to(column, framework, device, cast)
            )
            for name, column in self.items()
        }
        return ForeignBatch(columns, self.present, self.size)


class ForeignBatch(dict[str, Any]):
    """A batch whose columns are objects of another framework: a dict, with `present`, `size` and
    `rows()` as a Batch has.
    """

    def __init__(self, columns: Mapping[str, Any], present: Mapping[str, Array], size: int) -> None:
        super().__init__(columns)
        self.present, self.size = dict(present), size

    def rows(self) -> Iterator[dict[str, Any]]:
        """One dict a record, without the features that it does not have."""
        return _rows(self, self.present, self.size)


class SequenceBatch:
    """Records of SequenceExamples: `context` has one row a record, and so has `sequences`, each row
    a list of steps (Ragged).
    """

    def __init__(self, context: Batch | ForeignBatch, sequences: Batch | ForeignBatch) -> None:
        self.context, self.sequences = context, sequences

    @property
    def size(self) -> int:
        """The number of records."""
        return self.context.size

    def rows(self) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
        """One pair (context, sequences) a record."""
        return zip(self.context.rows(), self.sequences.rows(), strict=True)

    def __repr__(self) -> str:
        return (
            f"SequenceBatch of {self.size}\ncontext {self.context!r}\nsequences {self.sequences!r}"
        )
