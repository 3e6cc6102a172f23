"""Columns, rows or batches into files of Examples."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

import numpy as np

from .. import frameworks, storage
from .._errors import EncodeError, SchemaError, TensorwireError, choices
from .._optional import roots
from ..core import memory
from ..core.tensors import Strings, trusted
from ..wire import kernels, status
from ..wire.example import key_order
from . import columns as _columns
from . import encodings, gather, pack, paths, sidecar
from .record_writer import RecordWriter
from .schema import Feature, Schema, SchemaLike, as_schema

Array = np.ndarray[Any, Any]

_OUT = 1 << 20
"""Bytes encoded at once."""
_ROWS = 1024
"""Rows gathered into columns at once."""


def write_examples(
    path: str | os.PathLike[str],
    data: object,
    *,
    shards: int | None = None,
    compression: str | None = None,
    level: int | None = None,
    threads: int | None = None,
    mode: Literal["w", "live", "a"] = "w",
    schema: SchemaLike | None = None,
    tensors: Sequence[str] = (),
    base64: Sequence[str] = (),
    quantize: Mapping[str, str] | None = None,
    batched: bool = False,
    schema_file: bool = True,
    durable: bool = True,
    progress: Callable[[int], None] | None = None,
) -> int:
    """Writes a TFRecord file of tf.train.Example, which TensorFlow reads as its own; returns the
    number of records.

    `data` is a dict of columns (arrays of any framework, Strings, Ragged, or lists with one value a
    row), or an iterable of rows (dicts; None or no entry is a missing feature) or of batches (such
    as `read_examples` gives; plain dicts of columns with `batched=True`).

    Integers, bool and floats up to 32 bits and strings are lists in the Example; a row's tensor of
    higher rank, and whatever has no such list, is a TensorProto that tf.io.parse_tensor reads. What
    neither holds exactly is refused. The schema (`NAME.schema.json`) beside the file says how each
    comes back; `schema_file=False` leaves it out.

    tensors    columns to be written as TensorProtos: any dtype and shape, exactly
    base64     string columns to be written as tf.io.encode_base64 does
    quantize   {column: scheme}: floats in fewer bits, see docs/quantization.md
    schema     what the columns must be; anything else is an error
    progress   is called with the number of records so far, now and then

    The files are replaced whole at the end (`mode="w"`). With `shards=n` record i goes to shard i %
    n.

    >>> import tempfile
    >>> path = os.path.join(tempfile.mkdtemp(), "a.tfrecord")
    >>> write_examples(path, [{"id": "a", "x": [0.5, 2]}, {"id": "b", "x": [1.5, 3], "image":
    ...     np.zeros((2, 2), np.uint8)}])
    2
    >>> from tensorwire import read_examples
    >>> batch = next(iter(read_examples(path)))
    >>> batch["id"].tolist(), batch["image"].shape, batch.present["image"]
    (['a', 'b'], (2, 2, 2), array([False,  True]))
    """
    wanted = None if schema is None else as_schema(schema)
    options = pack.Options(tensors, base64, quantize, wanted)
    name = os.fspath(path)
    known = before(name, mode, shards)
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
        sink.features.update(known or {})
        for lot in _lots(data, batched):
            sink.add(lot)
        options.check(sink.names)
    if schema_file and known is not None:
        features = {**(wanted or {}), **sink.features}
        save_schema(Schema(features, known.sequences), known, writer, schema_place(name, mode))
    return writer.records


def before(name: str, mode: str, shards: int | None) -> Schema | None:
    """What is known of the records that a file has already; None if it has some and nothing is
    known.
    """
    if mode != "a":
        return Schema()
    if storage.is_url(name):
        raise EncodeError('objects are written whole: mode="w"', path=name)
    targets = [paths.shard(name, i, shards) for i in range(shards)] if shards else [name]
    targets = [target for target in targets if os.path.exists(target) and os.path.getsize(target)]
    if not targets:
        return Schema()
    sidecars = sidecar.find(targets)
    if len(sidecars.schemas) != 1 or sidecars.without:
        return None
    return sidecars.united()


def save_schema(schema: Schema, known: Schema, writer: RecordWriter, place: str) -> None:
    """Puts a schema beside the files that were written."""
    files = {**known.files, **{os.path.basename(path): paths.mark(path) for path in writer.paths}}
    records = known.records + writer.records
    Schema(schema, schema.sequences, records=records, complete=True, files=files).save(place)


def schema_place(name: str, mode: str) -> str:
    """Where the schema is written: where there is one already, if records are added to a file."""
    return (
        paths.schema_beside(name)
        if mode == "a" and os.path.exists(paths.schema_beside(name))
        else name + paths.SCHEMA
    )


def _lots(data: object, batched: bool) -> Iterator[Any]:
    """The data in lots: dicts of columns, or lists of rows."""
    if "pandas" in roots(type(data)):
        data = frameworks.leaf(data)
    if isinstance(data, Mapping):
        yield data
        return
    if way := _WAYS.get(type(data).__name__):
        raise EncodeError(f"a {type(data).__name__} is neither columns nor rows; pass {way}")
    if not isinstance(data, Iterable) or isinstance(data, (str, bytes, np.ndarray)):
        raise EncodeError(
            "pass columns (a dict), rows (an iterable of dicts) or batches, not"
            f" {type(data).__name__}"
        )
    items = iter(data)
    first = 0
    for item in items:
        if batched or gather.is_batch(item):
            yield item
            continue
        rows = Rows([item])
        for other in itertools.islice(items, _ROWS - 1):
            if gather.is_batch(other):
                raise EncodeError("rows and batches are mixed")
            rows.append(other)
        for number, row in enumerate(rows):
            if not isinstance(row, Mapping):
                raise EncodeError(
                    f"a row is a dict of features, not {type(row).__name__}", record=first + number
                )
        first += len(rows)
        yield rows


class Rows(list[Mapping[str, Any]]):
    """Rows that are written together."""


_WAYS = {
    "Table": "x.to_pylist()",
    "RecordBatch": "x.to_pylist()",
    "RecordBatchReader": "x.read_all().to_pylist()",
}
"""Tables of Arrow, by the names of their classes."""


class ExampleSink:
    """Encodes lots and hands the framed records to a writer."""

    def __init__(
        self, writer: RecordWriter, options: pack.Options, progress: Callable[[int], None] | None
    ) -> None:
        self._writer, self.options, self._progress = writer, options, progress
        self._pool = memory.MemoryPool()
        self.features: dict[str, Feature] = {}
        """What the columns so far amount to."""
        self.names: set[str] = set()
        """All names so far; some may be of columns that never had a value."""

    def add(self, lot: Any) -> None:
        """Columns, or `Rows`."""
        first = self._writer.records
        if isinstance(lot, Rows):
            columns, count = gather.from_rows(lot, self.options, first, self.features), len(lot)
            self.names.update(name for row in lot for name in row)
        else:
            columns, count = gather.from_columns(lot, self.options, first, self.features)
            self.names.update(lot)
        self.check(columns, first, count)
        order = key_order([name.encode() for name in columns])
        self.encode([columns[name.decode()].input(name) for name in order], count, sequence=False)

    def check(self, columns: dict[str, pack.PackedColumn], first: int, count: int) -> None:
        """Whether columns go with those before them, and with the caller's schema."""
        wanted = self.options.schema
        for name, column in columns.items():
            feature = column.feature
            if wanted is not None:
                feature = _conform(name, column, wanted, first)
            try:
                known = self.features.get(name)
                self.features[name] = feature if known is None else pack.merge(known, feature)
            except TensorwireError as error:
                raise error.add(tensor=name, record=first) from None
        if wanted is not None:
            for name, feature in wanted.items() if count else ():
                there = columns[name].present if name in columns else np.zeros(1, np.bool_)
                if feature.required and there is not None and not there.all():
                    at = first + int(np.flatnonzero(~there)[0])
                    raise SchemaError(
                        "the row does not have this feature, and the schema says that all do",
                        tensor=name,
                        record=at,
                    )

    def encode(self, inputs: list[Any], count: int, sequence: bool) -> None:
        """Writes `count` rows, record i to shard i % n."""
        shards, before = len(self._writer.paths), self._writer.records
        for lane in range(min(shards, count)):
            shard = (before + lane) % shards
            done, total, room = 0, len(range(lane, count, shards)), _OUT
            while done < total:
                out = self._pool.take(room)
                code, more, used, wanted = kernels.example_encode(
                    inputs, sequence, lane + done * shards, shards, total - done, True, out, None
                )
                if code == status.OUT_OF_RANGE:
                    at = before + lane + (done + more) * shards
                    raise EncodeError(
                        "a column changed while it was written, or a record is past 2 GiB",
                        record=at,
                    )
                if more:
                    self._writer.put_framed(shard, out[:used].data, more)
                    done += more
                    if self._progress is not None:
                        self._progress(self._writer.records)
                else:
                    room = max(_OUT, wanted)


def _conform(name: str, column: pack.PackedColumn, wanted: Schema, first: int) -> Feature:
    """Whether a column is what the caller's schema says, so that it can be read back as that."""
    if name not in wanted:
        raise SchemaError(
            f"the schema has no such feature{choices(name, wanted)}", tensor=name, record=first
        )
    asked, found = wanted[name], column.feature
    if (asked.kind, asked.encoding) != (found.kind, found.encoding) or not _fits(asked, found):
        raise SchemaError(f"{found!r}, and the schema says {asked!r}", tensor=name, record=first)
    try:
        if not asked.encoding and asked.dtype != found.dtype:
            _columns.numbers(column.values, asked)
        if asked.text and not found.text:
            assert column.offsets is not None
            strings = trusted(
                Strings, column.values, column.offsets, (len(column.offsets) - 1,), False
            )
            _columns.text(encodings.unpack_base64(strings) if asked.encoding else strings)
    except TensorwireError as error:
        row = _columns.row_of(error.record, column.splits, found.length)
        raise SchemaError(error.message, tensor=name, record=first + row) from None
    return replace(asked, seen={})


def _fits(asked: Feature, found: Feature) -> bool:
    """Whether the shape, and for tensors the dtype, is among those that the schema allows."""
    if asked.encoding and (
        asked.dtype not in ("string", found.dtype)
        or (asked.encoding == "tensor" and asked.text and not found.text)
    ):
        return False
    if asked.shape is None or asked.shape == found.shape:
        return True
    if found.shape is None:
        return False
    if not asked.encoding or asked.encoding == "base64":
        return asked.shape == (None,) and len(found.shape) <= 1
    if asked.encoding == "raw" and asked.shape == (None,):
        return len(found.shape) == 1
    return len(asked.shape) == len(found.shape) and all(
        a in (None, b) for a, b in zip(asked.shape, found.shape, strict=True)
    )
