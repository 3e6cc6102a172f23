"""Decoding of tf.train.Example and SequenceExample into columns: how the outputs are filled.

The rules for reading a message are in example_protobuf and, with `compat`, in example_compat. For
each record:
1. The message is parsed. For a fault in its bytes, `column` and `found` of the result are 0.
2. The kind and number of values of the last Feature of each name are checked, column by column.
3. The space in the outputs is checked. Only if all columns fit, the row is written.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ...core.memory import Array, flat
from .. import status
from . import example_compat, example_protobuf
from .example_protobuf import BYTES, FLOAT, INT64, PLACES, ColumnSpec, FeatureMessage, Found
from .protobuf import WireFault
from .tfrecord import FOOTER, holds

Output = tuple[Array, Array | None, Array | None, Array | None, Array]


class ExampleDecoder:
    def __init__(
        self,
        names: list[bytes],
        kinds: list[int],
        lengths: list[int],
        lists: list[bool],
        sequence: bool,
        compat: int = 0,
    ) -> None:
        self.columns = [ColumnSpec(*row) for row in zip(names, kinds, lengths, lists, strict=True)]
        if any(
            column.kind == PLACES and (column.list or column.length < 0 or compat)
            for column in self.columns
        ):
            raise ValueError("places are for features of a fixed length")
        if any(
            column.kind not in (BYTES, FLOAT, INT64, PLACES)
            or column.length < -1
            or (column.list and not sequence)
            for column in self.columns
        ):
            raise ValueError("a kind, length or list that no column has")
        self.numbers: example_protobuf.Numbers = {
            (column.list, column.name): number for number, column in enumerate(self.columns)
        }
        if len(self.numbers) != len(self.columns):
            raise ValueError("two columns of one name")
        self.sequence = sequence
        self.compat = int(compat)

    def decode(
        self,
        data: Any,
        starts: Array,
        sizes: Array,
        first: int,
        row: int,
        outputs: list[Output],
        checked: bool,
    ) -> tuple[int, int, int, int, int, bool]:
        view, count, done, strange = flat(data), len(starts), 0, False
        rows = len(outputs[0][4]) if outputs else row + count - first
        writers = [
            ColumnWriter(column, output, rows)
            for column, output in zip(self.columns, outputs, strict=True)
        ]
        while first + done < count and row + done < rows:
            start, size = int(starts[first + done]), int(sizes[first + done])
            end = start + size
            if start < 0 or size < 0 or end + (0 if checked else FOOTER) > len(view):
                return status.TRUNCATED, start, done, 0, 0, strange
            if not checked and not holds(view, start, end):
                return status.BAD_DATA_CRC, start, done, 0, 0, strange
            try:
                record = self._read(view, start, end)
            except WireFault as fault:
                return fault.status, fault.offset, done, 0, 0, strange
            for number, column in enumerate(self.columns):
                for feature in record.get(number, ()):
                    if feature.kind not in (0, BYTES if column.kind == PLACES else column.kind):
                        return (
                            status.WRONG_KIND,
                            feature.offset,
                            done,
                            number,
                            feature.kind,
                            strange,
                        )
                    if column.length not in (-1, len(feature.values)):
                        return (
                            status.WRONG_LENGTH,
                            feature.offset,
                            done,
                            number,
                            len(feature.values),
                            strange,
                        )
            for number, writer in enumerate(writers):
                if not writer.fits(row + done, record.get(number)):
                    return status.NO_SPACE, 0, done, number, 0, strange
            for number, writer in enumerate(writers):
                writer.write(row + done, record.get(number))
            strange |= example_protobuf.STRANGE in record
            done += 1
        return 0, 0, done, 0, 0, strange

    def _read(self, view: memoryview, offset: int, end: int) -> Found:
        if self.compat:
            return example_compat.read(
                view, offset, end, self.columns, self.numbers, self.sequence, self.compat == 2
            )
        return example_protobuf.read(view, offset, end, self.columns, self.numbers, self.sequence)


class ColumnWriter:
    """The output of a column. `fits` and `write` take its features in a row, None if missing."""

    def __init__(self, column: ColumnSpec, output: Output, rows: int) -> None:
        self.column = column
        self.values, self.offsets, self.splits, self.steps, self.present = output
        if len(self.present) != rows or (self.steps is not None and len(self.steps) != rows + 1):
            raise ValueError("outputs of different numbers of rows")

    def _begin(self, row: int) -> tuple[int, int]:
        """Return the numbers of the first instance and of the first value of a row."""
        instance = row if self.steps is None else int(self.steps[row])
        return instance, (
            instance * self.column.length if self.splits is None else int(self.splits[instance])
        )

    def _filled(self, features: list[FeatureMessage] | None) -> list[Any]:
        """Return the values of a row. A missing feature of fixed length has zeros."""
        if features is None and self.splits is None and self.steps is None:
            return [
                {BYTES: b"", FLOAT: bytes(4), INT64: 0, PLACES: (0, 0)}[self.column.kind]
            ] * self.column.length
        return [value for feature in features or () for value in feature.values]

    def fits(self, row: int, features: list[FeatureMessage] | None) -> bool:
        instance, first = self._begin(row)
        values: list[Any] = [value for feature in features or () for value in feature.values]
        last = first + len(values)
        if features is None and self.splits is None and self.steps is None:
            # The zeros of a missing feature are counted but not created here, as they may be many.
            last = first + self.column.length
        count = len(features or ()) if self.steps is not None else 1
        if self.splits is not None and instance + count >= len(self.splits):
            return False
        if self.offsets is None:
            return last <= len(self.values) // (2 if self.column.kind == PLACES else 1)
        if last >= len(self.offsets):
            return False
        used = sum(len(value) for value in values) if self.column.kind == BYTES else 0
        return int(self.offsets[first]) + used <= len(self.values)

    def write(self, row: int, features: list[FeatureMessage] | None) -> None:
        instance, first = self._begin(row)
        values = self._filled(features)
        last = first + len(values)
        if self.offsets is not None:
            used = int(self.offsets[first])
            data = b"".join(values)
            self.values[used : used + len(data)] = np.frombuffer(data, np.uint8)
            self.offsets[first + 1 : last + 1] = used + np.cumsum(
                [len(value) for value in values], dtype=np.int64
            )
        elif self.column.kind == FLOAT:
            self.values[first:last] = np.frombuffer(b"".join(values), "<f4")
        elif self.column.kind == PLACES:
            self.values[2 * first : 2 * last] = [number for place in values for number in place]
        else:
            self.values[first:last] = values
        counts = (
            [len(feature.values) for feature in features or ()]
            if self.steps is not None
            else [len(values)]
        )
        if self.splits is not None:
            self.splits[instance + 1 : instance + 1 + len(counts)] = first + np.cumsum(
                counts, dtype=np.int64
            )
        if self.steps is not None:
            self.steps[row + 1] = instance + len(counts)
        self.present[row] = features is not None
