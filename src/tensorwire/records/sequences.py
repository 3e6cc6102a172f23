"""SequenceExamples: a context of features, and feature lists with one entry per step."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

import numpy as np

from .._errors import EncodeError, TensorwireError, UsageError
from .._limits import DEFAULT, Limits
from ..core.tensors import Array
from ..wire import example
from ..wire.example import key_order
from . import columns as _columns
from . import gather, pack
from .batch import Batch, SequenceBatch
from .example_reader import Examples, Piece
from .example_writer import ExampleSink, before, save_schema, schema_place
from .record_reader import Paths
from .record_writer import RecordWriter
from .rows import from_list
from .schema import BYTES, FLOAT, INT64, Feature, Schema, SchemaLike

_ROWS = 256
"""Records that are encoded at once."""


def read_sequence_examples(
    path: Paths,
    schema: SchemaLike | None = None,
    columns: Sequence[str] | None = None,
    *,
    batch_size: int = 256,
    to: str = "numpy",
    device: object = None,
    cast: bool = False,
    workers: int | None = None,
    prefetch: int | None = None,
    shuffle: int | bool | None = None,
    shard: tuple[int, int] | None = None,
    on_corrupt: Literal["raise", "skip"] = "raise",
    drop_last: bool = False,
    compression: str | None = None,
    limits: Limits | None = None,
) -> SequenceExamples:
    """Read TFRecord files of tf.train.SequenceExample as batches of columns.

    Each batch has `batch.context` and `batch.sequences`, which map names to columns. A column of a
    feature list is Ragged: (batch, None) if every step has one value, (batch, None, n) if every
    step has n values, and (batch, None, None) if that varies.

    The arguments and errors are those of `tw.read_examples`. Returns `SequenceExamples`, which can
    be iterated over repeatedly.

    >>> import tensorwire as tw
    >>> import os, tempfile
    >>> path = os.path.join(tempfile.mkdtemp(), "a.tfrecord")
    >>> tw.write_sequence_examples(path, [({"id": 7}, {"token": [b"a", b"b"], "score": [[0.5, 1.0],
    ...     [2.0, 3.0]]}), ({"id": 8}, {"token": []})])
    2
    >>> batch = next(iter(tw.read_sequence_examples(path)))
    >>> batch.context["id"], batch.sequences["token"].tolist(), batch.sequences["score"].shape
    (array([7, 8]), [[b'a', b'b'], []], (2, None, 2))
    """
    return SequenceExamples(
        path,
        schema,
        columns,
        batch_size,
        to,
        device,
        cast,
        workers,
        prefetch,
        shuffle,
        shard,
        on_corrupt,
        drop_last,
        False,
        (),
        False,
        compression,
        limits,
    )


class SequenceExamples(Examples):
    """An iterable of SequenceBatches, as returned by `read_sequence_examples`."""

    def tf_dataset(self) -> Any:
        raise UsageError(
            "read_sequence_examples cannot return a tf.data.Dataset",
            hint="iterate, and use batch.context and batch.sequences",
        )

    def arrow(self) -> Any:
        raise UsageError(
            "read_sequence_examples cannot return Arrow tables",
            hint="iterate, and use batch.context and batch.sequences",
        )

    def _sequences(self) -> dict[str, Feature] | None:
        return {}

    def _decoder(self) -> example.Decoder:
        wanted = [feature.column(name) for name, feature in self.schema.items()]
        wanted += [feature.column(name, True) for name, feature in self.schema.sequences.items()]
        return example.Decoder(wanted, sequence=True)

    def _batch(self, filled: list[example.Filled], job: list[Piece], rows: int) -> Any:
        context, lists = filled[: len(self.schema)], filled[len(self.schema) :]
        columns, present = {}, {}
        budget = (self.limits or DEFAULT).call(sum(part.values.nbytes for part in filled))
        for (name, feature), part in zip(self.schema.sequences.items(), lists, strict=True):
            try:
                columns[name] = _columns.sequence(feature, part, budget)
            except TensorwireError as error:
                # The number is that of a step over all records, not of a record.
                error.record = None
                raise error.add(tensor=name) from None
            present[name] = part.present
        sequences = Batch(columns, present, rows)
        return SequenceBatch(
            self._given(_columns.batch(dict(self.schema), context, rows, budget)),
            self._given(sequences),
        )


def write_sequence_examples(
    path: str | os.PathLike[str],
    rows: Iterable[object],
    *,
    shards: int | None = None,
    compression: str | None = None,
    level: int | None = None,
    threads: int | None = None,
    mode: Literal["w", "live", "a"] = "w",
    schema_file: bool = True,
    durable: bool = True,
    progress: Callable[[int], None] | None = None,
) -> int:
    """Write TFRecord files of tf.train.SequenceExample and return the number of records.

    `rows` is an iterable of pairs (context, sequences), or of SequenceBatches. The context is a row
    as for `tw.write_examples`. The sequences are a dict of lists with one entry per step: a number,
    a string, or a list of them (a 2-d array has one row per step).

    The other arguments and the errors are those of `tw.write_examples`.

    >>> import tensorwire as tw
    >>> import os, tempfile
    >>> path = os.path.join(tempfile.mkdtemp(), "a.tfrecord")
    >>> tw.write_sequence_examples(path, [({}, {"x": [[1], [2, 3]]})])
    1
    """
    name, options = os.fspath(path), pack.Options()
    existing = before(name, mode, shards)
    lists: dict[str, Feature] = {} if existing is None else dict(existing.sequences)
    with RecordWriter(
        name,
        compression=compression,
        mode=mode,
        shards=shards,
        level=level,
        threads=threads,
        durable=durable,
    ) as writer:
        sink = ExampleSink(writer, options, progress)
        sink.features.update(existing or {})
        pairs = _pairs(rows)
        while group := list(itertools.islice(pairs, _ROWS)):
            _add(sink, group, lists, writer.records)
    if schema_file and existing is not None:
        save_schema(Schema(sink.features, lists), existing, writer, schema_place(name, mode))
    return writer.records


def _pairs(rows: Iterable[object]) -> Any:
    """Yield the pairs (context, sequences) of rows and batches."""
    if isinstance(rows, SequenceBatch):
        rows = [rows]
    if not isinstance(rows, Iterable) or isinstance(rows, (str, bytes, Mapping)):
        raise UsageError(
            f"expected an iterable of pairs (context, sequences), not {type(rows).__name__}"
        )
    for row in rows:
        if isinstance(row, SequenceBatch):
            yield from row.rows()
            continue
        if not (
            isinstance(row, (tuple, list))
            and len(row) == 2
            and all(isinstance(part, Mapping) for part in row)
        ):
            raise EncodeError("a record must be a pair of dicts: (context, sequences)")
        yield row


def _add(sink: ExampleSink, group: list[Any], lists: dict[str, Feature], first: int) -> None:
    """Encode and write a group of pairs."""
    context = gather.from_rows([pair[0] for pair in group], sink.options, first, sink.features)
    sink.check(context, first, len(group))
    names = key_order([name.encode() for name in context])
    inputs = [context[name.decode()].input(name) for name in names]
    for text in dict.fromkeys(name for pair in group for name in pair[1]):
        gather.check_name(text)
    for name in key_order(
        name.encode() for name in dict.fromkeys(name for pair in group for name in pair[1])
    ):
        text = name.decode()
        column = _list_column(text, [pair[1].get(text) for pair in group], lists.get(text), first)
        # Without any step, the kind of the list is unknown.
        if column.steps is not None and column.steps[-1]:
            try:
                lists[text] = (
                    pack.merge(lists[text], column.feature) if text in lists else column.feature
                )
            except TensorwireError as error:
                raise error.add(tensor=text, record=first) from None
        inputs.append(column.input(name))
    sink.encode(inputs, len(group), sequence=True)


def _list_column(
    name: str, values: list[Any], feature_before: Feature | None, first: int
) -> pack.PackedColumn:
    """Pack the feature lists of one name, with the steps of all records concatenated."""
    present = np.fromiter((value is not None for value in values), np.bool_, len(values))
    steps: Array = np.zeros(len(values) + 1, np.int64)
    flat: list[Any] = []
    for number, value in enumerate(values):
        try:
            flat += _steps(value)
        except TensorwireError as error:
            raise error.add(tensor=name, record=first + number) from None
        steps[number + 1] = len(flat)
    try:
        column = from_list(name, flat, pack.Options(), feature_before)
    except TensorwireError as error:
        pack.drop_tensors_hint(error)
        error.record = first + int(np.searchsorted(steps, error.record or 0, side="right")) - 1
        raise error.add(tensor=name) from None
    # No step has a value, so the kind is unknown. Writing empty lists as int64 loses nothing.
    if column is None:
        column = pack.PackedColumn(
            feature_before or Feature(INT64, (None,)),
            np.zeros(0, np.int64),
            None,
            np.zeros(len(flat) + 1, np.int64),
            None,
        )
        if column.feature.kind == BYTES:
            column = replace(column, values=np.zeros(0, np.uint8), offsets=np.zeros(1, np.int64))
        elif column.feature.kind == FLOAT:
            column = replace(column, values=np.zeros(0, np.float32))
    if column.feature.encoding == "tensor":
        raise EncodeError(
            "a step of a sequence must be a number, a string or a flat list of them",
            tensor=name,
            record=first,
        )
    return replace(column, present=None if present.all() else present, steps=steps)


def _steps(value: Any) -> list[Any]:
    if value is None:
        return []
    if isinstance(value, (str, bytes, Mapping)):
        raise EncodeError(
            f"a sequence must be a list with one entry per step, not a {type(value).__name__}"
        )
    try:
        steps = list(value)
    except TypeError:
        raise EncodeError(
            f"a sequence must be a list with one entry per step, not a {type(value).__name__}"
        ) from None
    if any(step is None for step in steps):
        raise EncodeError("a step cannot be None", hint="an empty list is a step without values")
    return steps
