"""The files of the records cases: Examples that are small, long or large, what is in them, and the
proof that someone reads just that.

Our own writer writes them, into a temporary folder that goes with the last who needs it. Everyone
reads the same file, from a warm page cache, because the proof has read it just before.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import tensorflow as tf
from tensorwire.stores import PREFIX
from tensorwire.ways import WrongResult

import tensorwire as tw

Array = np.ndarray[Any, Any]

LONG = 1024
"""Floats of a long Example."""
BLOB = 100_000
"""Bytes of a large one."""
ID = 12
_STEP = 64
"""From the start of one blob to that of the next in the noise that they are cut from; and what
tells rows apart.
"""
_WRITTEN = 200
"""Blobs written at once."""


@dataclass(frozen=True)
class Sample:
    """A file, and what is in it."""

    path: str
    columns: dict[str, Array]
    """By name, [rows, ...]; bytes are uint8 [rows, length]."""
    spec: dict[str, Any]
    """The features, as tf.io describes them. We are given the same."""
    batch: int
    """Rows of a batch for everyone: the number that suits TensorFlow best."""
    folder: Any = None
    """Lives as long as someone needs it."""

    @property
    def rows(self) -> int:
        return len(self.columns["x"])

    @property
    def size(self) -> int:
        return os.path.getsize(self.path)

    def beside(self, name: str) -> str:
        """Another path in the same folder."""
        return f"{os.path.dirname(self.path)}/{name}"

    def again(self, name: str) -> str:
        """The same file under another name, so that no index of another case lies beside it."""
        path = self.beside(name)
        if not os.path.exists(path):
            os.link(self.path, path)
        return path

    def to_write(self) -> dict[str, Any]:
        """The columns as our writer takes them."""
        return {name: strings(x) if x.dtype == np.uint8 else x for name, x in self.columns.items()}


def strings(rows: Array) -> tw.Strings:
    """uint8 [rows, length] as strings."""
    count, length = rows.shape
    return tw.Strings(rows.reshape(-1), np.arange(count + 1, dtype=np.int64) * length)


def _feature(x: Array) -> Any:
    return (
        tf.io.FixedLenFeature([], tf.string)
        if x.dtype == np.uint8
        else tf.io.FixedLenFeature(x.shape[1:], x.dtype)
    )


def _sample(name: str, columns: dict[str, Array], batch: int) -> Sample:
    folder = tempfile.TemporaryDirectory(prefix=PREFIX)
    spec = {name: _feature(x) for name, x in columns.items()}
    sample = Sample(f"{folder.name}/{name}.tfrecord", columns, spec, batch, folder)
    lots = (
        {name: x[start : start + _WRITTEN] for name, x in columns.items()}
        for start in range(0, sample.rows, _WRITTEN)
    )
    data = (
        (Sample("", lot, {}, 0).to_write() for lot in lots)
        if columns["x"].dtype == np.uint8
        else sample.to_write()
    )
    # durable: nothing is left to be written while others are timed
    tw.write_examples(sample.path, data, batched=True, schema_file=False)
    return sample


@cache
def small(rows: int) -> Sample:
    """An int64 label, float[16], an id of 12 bytes, int64[8] up to 2^40: about 195 bytes a record.
    Several cases share the file.
    """
    random = np.random.default_rng(11)
    columns = {
        "label": random.integers(0, 100, rows),
        "x": random.random((rows, 16), np.float32),
        "id": random.integers(97, 123, (rows, ID), np.uint8),
        "ids": random.integers(0, 1 << 40, (rows, 8)),
    }
    return _sample("small", columns, 4096)


def long(rows: int) -> Sample:
    """float[1024]."""
    return _sample("long", {"x": np.random.default_rng(12).random((rows, LONG), np.float32)}, 1024)


def blobs(rows: int) -> Sample:
    """100 KB of noise each, all different."""
    noise = np.random.default_rng(13).integers(0, 256, BLOB + _STEP * (rows - 1), np.uint8)
    return _sample(
        "blobs", {"x": np.lib.stride_tricks.sliding_window_view(noise, BLOB)[::_STEP]}, 32
    )


def gzipped(rows: int) -> Sample:
    """The small ones, by TensorFlow's writer: one member."""
    plain = small(rows)
    sample = Sample(
        plain.beside("small.tfrecord.gz"), plain.columns, plain.spec, plain.batch, plain.folder
    )
    with tf.io.TFRecordWriter(sample.path, "GZIP") as writer:
        for record in tw.RecordReader(plain.path):
            writer.write(record)
    return sample


def _bytes(column: Any) -> bytes:
    """A column's values and nothing else, whosever it is."""
    if isinstance(column, tw.Strings):
        return column.data[column.offsets[0] : column.offsets[-1]].tobytes()
    found = column if isinstance(column, (bytes, list)) else np.asarray(column)
    if isinstance(found, np.ndarray) and found.dtype != np.object_:
        return found.tobytes()
    return found if isinstance(found, bytes) else b"".join(found)


def check(name: str, sample: Sample, batches: Iterable[Mapping[str, Any]], rows: int) -> None:
    """Whether batches of `rows` rows are just what is in the file; those who were asked for speed
    may give them in another order.
    """
    starts = {sample.columns["x"][at].tobytes()[:_STEP]: at for at in range(0, sample.rows, rows)}
    for batch in batches:
        start = starts.pop(_bytes(batch["x"])[:_STEP], None)
        if start is None or len(batch) != len(sample.columns):
            raise WrongResult(f"{name} reads a batch that is not in the file")
        for key, x in sample.columns.items():
            if _bytes(batch[key]) != x[start : start + rows].tobytes():
                raise WrongResult(f"{name} reads another {key!r} in the batch from row {start} on")
    if starts:
        raise WrongResult(f"{name} leaves out {len(starts)} batches")


def same_records(
    name: str, sample: Sample, records: Iterator[Any], restore: Callable[[Any], bytes] = bytes
) -> None:
    """Whether records are those of the file, as TensorFlow reads them."""
    theirs = tf.compat.v1.io.tf_record_iterator(sample.path)
    if not all(restore(mine) == record for mine, record in zip(records, theirs, strict=True)):
        raise WrongResult(f"{name} reads other records")
