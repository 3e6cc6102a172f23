"""`write_examples`: columns, rows or batches as TFRecord files of Examples."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

import numpy as np

from .. import frameworks, storage
from .._errors import EncodeError, SchemaError, TensorwireError, UsageError, choices
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
"""Size of the output buffer of the encoder, in bytes."""
_ROWS = 1024
"""Rows that are gathered into columns at once."""


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
    """Write TFRecord files of tf.train.Example and return the number of records.

    `data` is a dict of columns (arrays of any framework, Strings, Ragged, or lists with one value
    per row), an iterable of rows (dicts; None or no entry is a missing feature), or an iterable of
    batches (as `read_examples` yields; plain dicts of columns with `batched=True`).

    Integers, bool, floats of up to 32 bits and strings become lists in the Example. A row's tensor
    of higher rank, and a dtype without a list type, becomes a TensorProto that tf.io.parse_tensor
    reads. A value that neither can hold exactly is an error. The schema is written to the sidecar
    file `NAME.schema.json`, from which `read_examples` restores dtypes and shapes.

    tensors      columns to write as TensorProtos: any dtype and shape, exactly base64       string
    columns to encode like tf.io.encode_base64 quantize     {column: scheme}: store floats in fewer
    bits, see docs/quantization.md schema       the features that the columns must have; a
    difference is an error schema_file  False writes no sidecar file shards       write n files;
    record i goes to shard i % n compression  of the files, for example "gzip", at `level` threads
    threads that compress mode         "w" replaces the files when all is written, "a" appends,
    "live" writes in place so
                 that a reader can follow
    durable      flush the files to disk before returning progress     called now and then with the
    number of records so far

    Raises EncodeError for values that cannot be written and SchemaError for values that do not fit
    `schema`.

    >>> import tensorwire as tw
    >>> import os, tempfile
    >>> import numpy as np
    >>> path = os.path.join(tempfile.mkdtemp(), "a.tfrecord")
    >>> tw.write_examples(path, [{"id": "a", "x": [0.5, 2]}, {"id": "b", "x": [1.5, 3], "image":
    ...     np.zeros((2, 2), np.uint8)}])
    2
    >>> batch = next(iter(tw.read_examples(path)))
    >>> batch["id"].tolist(), batch["image"].shape, batch.present["image"]
    (['a', 'b'], (2, 2, 2), array([False,  True]))
    """
    wanted = None if schema is None else as_schema(schema)
    options = pack.Options(tensors, base64, quantize, wanted)
    name = os.fspath(path)
    existing = before(name, mode, shards)
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
        for group in _lots(data, batched):
            sink.add(group)
        options.check(sink.names)
    if schema_file and existing is not None:
        features = {**(wanted or {}), **sink.features}
        save_schema(
            Schema(features, existing.sequences), existing, writer, schema_place(name, mode)
        )
    return writer.records


def before(name: str, mode: str, shards: int | None) -> Schema | None:
    """Return the schema of the records that a file already has.

    It is an empty schema if there are no records, and None if there are records without a schema.
    """
    if mode != "a":
        return Schema()
    if storage.is_url(name):
        raise UsageError(
            'mode="a" needs a local file', path=name, hint='objects are written with mode="w"'
        )
    targets = [paths.shard(name, i, shards) for i in range(shards)] if shards else [name]
    targets = [target for target in targets if os.path.exists(target) and os.path.getsize(target)]
    if not targets:
        return Schema()
    sidecars = sidecar.find(targets)
    if len(sidecars.schemas) != 1 or sidecars.without:
        return None
    return sidecars.united()


def save_schema(schema: Schema, existing: Schema, writer: RecordWriter, sidecar_path: str) -> None:
    """Write the schema to the sidecar file of the files that were written."""
    files = {
        **existing.files,
        **{os.path.basename(path): paths.mark(path) for path in writer.paths},
    }
    records = existing.records + writer.records
    Schema(schema, schema.sequences, records=records, complete=True, files=files).save(sidecar_path)


def schema_place(name: str, mode: str) -> str:
    """Return the path of the sidecar file: when appending, that of an existing one."""
    return (
        paths.schema_beside(name)
        if mode == "a" and os.path.exists(paths.schema_beside(name))
        else name + paths.SCHEMA
    )


def _lots(data: object, batched: bool) -> Iterator[Any]:
    """Yield the data in groups: dicts of columns, or lists of rows."""
    if "pandas" in roots(type(data)):
        data = frameworks.leaf(data)
    if isinstance(data, Mapping):
        yield data
        return
    if conversion := _CONVERSIONS.get(type(data).__name__):
        raise UsageError(
            f"expected columns, rows or batches, not a {type(data).__name__}",
            hint=f"pass {conversion}",
        )
    if not isinstance(data, Iterable) or isinstance(data, (str, bytes, np.ndarray)):
        raise UsageError(
            "expected columns (a dict), rows (an iterable of dicts) or batches, not"
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
                raise EncodeError("the data mixes rows and batches")
            rows.append(other)
        for number, row in enumerate(rows):
            if not isinstance(row, Mapping):
                raise EncodeError(
                    f"a row must be a dict of features, not {type(row).__name__}",
                    record=first + number,
                )
        first += len(rows)
        yield rows


class Rows(list[Mapping[str, Any]]):
    """Rows that are encoded together."""


_CONVERSIONS = {
    "Table": "x.to_pylist()",
    "RecordBatch": "x.to_pylist()",
    "RecordBatchReader": "x.read_all().to_pylist()",
}
"""How to convert Arrow tables to rows, by the name of their class."""


class ExampleSink:
    """Encodes groups of rows and passes the framed records to a writer."""

    def __init__(
        self, writer: RecordWriter, options: pack.Options, progress: Callable[[int], None] | None
    ) -> None:
        self._writer, self.options, self._progress = writer, options, progress
        self._pool = memory.MemoryPool()
        self.features: dict[str, Feature] = {}
        """The merged features of all columns so far."""
        self.names: set[str] = set()
        """All column names so far, including columns that never had a value."""

    def add(self, group: Any) -> None:
        """Encode and write a dict of columns, or `Rows`."""
        first = self._writer.records
        if isinstance(group, Rows):
            columns, count = gather.from_rows(group, self.options, first, self.features), len(group)
            self.names.update(name for row in group for name in row)
        else:
            columns, count = gather.from_columns(group, self.options, first, self.features)
            self.names.update(group)
        self.check(columns, first, count)
        order = key_order([name.encode() for name in columns])
        self.encode([columns[name.decode()].input(name) for name in order], count, sequence=False)

    def check(self, columns: dict[str, pack.PackedColumn], first: int, count: int) -> None:
        """Check columns against the columns before them and against the caller's schema."""
        wanted = self.options.schema
        for name, column in columns.items():
            feature = column.feature
            if wanted is not None:
                feature = _conform(name, column, wanted, first)
            try:
                feature_before = self.features.get(name)
                self.features[name] = (
                    feature if feature_before is None else pack.merge(feature_before, feature)
                )
            except TensorwireError as error:
                raise error.add(tensor=name, record=first) from None
        if wanted is not None:
            for name, feature in wanted.items() if count else ():
                there = columns[name].present if name in columns else np.zeros(1, np.bool_)
                if feature.required and there is not None and not there.all():
                    record = first + int(np.flatnonzero(~there)[0])
                    raise SchemaError(
                        "the row lacks this feature, which the schema requires",
                        tensor=name,
                        record=record,
                    )

    def encode(self, inputs: list[Any], count: int, sequence: bool) -> None:
        """Encode and write `count` rows, record i to shard i % n."""
        shards, before = len(self._writer.paths), self._writer.records
        for lane in range(min(shards, count)):
            shard = (before + lane) % shards
            # The kernel encodes every n-th row, so each shard is written in one run of rows.
            done, total, room = 0, len(range(lane, count, shards)), _OUT
            while done < total:
                out = self._pool.take(room)
                code, more, used, wanted = kernels.example_encode(
                    inputs, sequence, lane + done * shards, shards, total - done, True, out, None
                )
                if code == status.OUT_OF_RANGE:
                    record = before + lane + (done + more) * shards
                    raise EncodeError(
                        "a column changed while it was written, or a record is larger than 2 GiB",
                        record=record,
                    )
                if more:
                    self._writer.put_framed(shard, out[:used].data, more)
                    done += more
                    if self._progress is not None:
                        self._progress(self._writer.records)
                else:
                    room = max(_OUT, wanted)


def _conform(name: str, column: pack.PackedColumn, wanted: Schema, first: int) -> Feature:
    """Return the feature under which a column is written, according to the caller's schema.

    Raises SchemaError if the column could not be read back with that schema.
    """
    if name not in wanted:
        raise SchemaError(
            f"the schema has no feature {name!r}{choices(name, wanted)}", tensor=name, record=first
        )
    declared, actual = wanted[name], column.feature
    if (declared.kind, declared.encoding) != (actual.kind, actual.encoding) or not _fits(
        declared, actual
    ):
        raise SchemaError(
            f"the schema declares {declared!r}, but the column is {actual!r}",
            tensor=name,
            record=first,
        )
    try:
        if not declared.encoding and declared.dtype != actual.dtype:
            _columns.numbers(column.values, declared)
        if declared.text and not actual.text:
            assert column.offsets is not None
            strings = trusted(
                Strings, column.values, column.offsets, (len(column.offsets) - 1,), False
            )
            _columns.text(encodings.unpack_base64(strings) if declared.encoding else strings)
    except TensorwireError as error:
        row = _columns.row_of(error.record, column.splits, actual.length)
        raise SchemaError(error.message, tensor=name, record=first + row) from None
    return replace(declared, seen={})


def _fits(declared: Feature, actual: Feature) -> bool:
    """Return whether the schema allows the shape and, for tensors, the dtype of a column."""
    if declared.encoding and (
        declared.dtype not in ("string", actual.dtype)
        or (declared.encoding == "tensor" and declared.text and not actual.text)
    ):
        return False
    if declared.shape is None or declared.shape == actual.shape:
        return True
    if actual.shape is None:
        return False
    if not declared.encoding or declared.encoding == "base64":
        return declared.shape == (None,) and len(actual.shape) <= 1
    if declared.encoding == "raw" and declared.shape == (None,):
        return len(actual.shape) == 1
    return len(declared.shape) == len(actual.shape) and all(
        a in (None, b) for a, b in zip(declared.shape, actual.shape, strict=True)
    )
