"""Those who read and write TFRecord files: TensorFlow, tfrecord, tfrecords, tfx-bsl; each called
the fastest way that we found.

TensorFlow: of batches of 128 to 16,384 rows, buffers of 256 KiB to 8 MiB, `map` in sequence or in
parallel, with `prefetch` or not, nothing used less CPU than what is here, but for noise. With two
threads the parallel `map` was better in some runs, worse in others: both run, and the better one
counts. Autotuning is off, because its teardown stalls. Batches are left as eager tensors.

They do not live well together in one process. tfrecord's message classes have the names of
TensorFlow's, so it is given TensorFlow's (the same runtime parses them). tfrecords has TensorFlow's
C++ symbols, and is loaded with its own in front. tfx-bsl cannot be installed beside protobuf 7, but
works with it: see requirements.txt.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import sys
import types
from collections.abc import Iterator
from itertools import islice
from typing import Any

import numpy as np
import pyarrow as pa
import tensorflow as tf
from tensorflow.core.example import example_pb2, feature_pb2
from tensorwire.record_files import Array, Sample

tf.get_logger().setLevel("ERROR")  # the v1 iterator tells everyone that it is old
v1_iterator = tf.compat.v1.io.tf_record_iterator

_ROWS = 4096
"""Rows of a RecordBatch."""
_PROTOS = "tfrecord.example_pb2"


def _tfrecord() -> Any:
    if _PROTOS not in sys.modules:
        sys.modules[_PROTOS] = types.ModuleType(_PROTOS)
        for source in (feature_pb2, example_pb2):
            vars(sys.modules[_PROTOS]).update(
                {name: kind for name, kind in vars(source).items() if name[0].isupper()}
            )
    importlib.import_module("tfrecord.tools.tfrecord2idx")
    return importlib.import_module("tfrecord")


def _tfrecords() -> Any:
    flags = sys.getdlopenflags()
    sys.setdlopenflags(flags | getattr(os, "RTLD_DEEPBIND", 0))
    try:
        return importlib.import_module("tfrecords")
    finally:
        sys.setdlopenflags(flags)


def _tfx_bsl() -> Any:
    apart = os.path.join(sys.prefix, "rivals")
    if apart not in sys.path:
        sys.path.append(apart)
    importlib.import_module("tensorflow_metadata.proto.v0.schema_pb2")
    return importlib.import_module("tfx_bsl.coders.example_coder")


def _installed(load: Any) -> Any:
    with contextlib.suppress(ImportError):
        return load()
    return None


tfrecord, tfrecords, tfx_bsl = map(_installed, (_tfrecord, _tfrecords, _tfx_bsl))
"""None where it is not installed."""


def missing() -> str:
    """Who is not there, in words."""
    names = {
        "tfrecord": tfrecord,
        "tfrecords": tfrecords,
        "tfx-bsl (see benchmarks/requirements.txt)": tfx_bsl,
    }
    absent = [name for name, module in names.items() if module is None]
    return f"; not installed: {', '.join(absent)}" if absent else ""


def dataset(
    path: str,
    spec: dict[str, Any],
    batch: int,
    threads: int,
    compression: str = "",
    parallel: bool = False,
) -> Any:
    """Batches of dicts of eager tensors; `parallel` parses several at once, in any order."""
    options = tf.data.Options()
    options.autotune.enabled = False
    options.threading.private_threadpool_size = threads
    options.threading.max_intra_op_parallelism = threads
    several: dict[str, Any] = (
        {"num_parallel_calls": threads, "deterministic": False} if parallel else {}
    )
    records = tf.data.TFRecordDataset(path, compression).batch(batch)
    return records.map(lambda lot: tf.io.parse_example(lot, spec), **several).with_options(options)


def record_dataset(path: str) -> Any:
    """Records one at a time."""
    options = tf.data.Options()
    options.autotune.enabled = False
    options.threading.private_threadpool_size = 1
    return tf.data.TFRecordDataset(path).with_options(options)


def tensors_as_arrays(batch: dict[str, Any]) -> dict[str, Any]:
    return {name: tensor.numpy() for name, tensor in batch.items()}


_DESCRIPTIONS = {"u": "byte", "f": "float", "i": "int"}
_ARROW = {"u": 1, "f": 3, "i": 2}


def tfrecord_description(sample: Sample) -> dict[str, str]:
    return {name: _DESCRIPTIONS[x.dtype.kind] for name, x in sample.columns.items()}


def tfrecord_write(path: str, columns: dict[str, Array], description: dict[str, str]) -> None:
    """Row by row."""
    writer = tfrecord.TFRecordWriter(path)
    lists = [_values(x) for x in columns.values()]
    for row in zip(*lists, strict=True):
        writer.write(
            {
                name: (value, kind)
                for value, (name, kind) in zip(row, description.items(), strict=True)
            }
        )
    writer.close()


def _values(x: Array) -> list[Any]:
    """One Python value a row, as message classes like them best."""
    return [row.tobytes() for row in x] if x.dtype == np.uint8 else x.tolist()


def _protobuf_feature(x: Array) -> Any:
    one, train = x.ndim == 1, tf.train
    if x.dtype == np.uint8:
        return lambda value: train.Feature(bytes_list=train.BytesList(value=[value]))
    if x.dtype == np.float32:
        return lambda value: train.Feature(
            float_list=train.FloatList(value=[value] if one else value)
        )
    return lambda value: train.Feature(int64_list=train.Int64List(value=[value] if one else value))


def tensorflow_write(path: str, columns: dict[str, Array]) -> None:
    """A tf.train.Example a row."""
    makers = {name: _protobuf_feature(x) for name, x in columns.items()}
    lists = [_values(x) for x in columns.values()]
    with tf.io.TFRecordWriter(path) as writer:
        for row in zip(*lists, strict=True):
            feature = {
                name: make(value) for value, (name, make) in zip(row, makers.items(), strict=True)
            }
            writer.write(
                tf.train.Example(features=tf.train.Features(feature=feature)).SerializeToString()
            )


def tfx_decoder(sample: Sample) -> Any:
    """A decoder that was told the features."""
    schema = sys.modules["tensorflow_metadata.proto.v0.schema_pb2"].Schema()  # type: ignore[attr-defined]
    for name, x in sample.columns.items():
        schema.feature.add(name=name, type=_ARROW[x.dtype.kind])
    return tfx_bsl.ExamplesToRecordBatchDecoder(schema.SerializeToString())


def tfx_batches(decoder: Any, records: Iterator[bytes], rows: int) -> Iterator[Any]:
    """It decodes lists of bytes, and reads no files."""
    while lot := list(islice(records, rows)):
        yield decoder.DecodeBatch(lot)


def arrow_as_arrays(batch: Any) -> dict[str, Any]:
    found = {name: batch.column(name).flatten() for name in batch.schema.names}
    return {
        name: x.to_pylist() if x.type == pa.large_binary() else x.to_numpy()
        for name, x in found.items()
    }


def record_batches(columns: dict[str, Array]) -> list[Any]:
    """The columns as tfx-bsl takes them, lists in every row."""
    count = len(next(iter(columns.values())))
    return [
        _record_batch({name: x[at : at + _ROWS] for name, x in columns.items()})
        for at in range(0, count, _ROWS)
    ]


def _record_batch(columns: dict[str, Array]) -> Any:
    return pa.RecordBatch.from_arrays([_lists(x) for x in columns.values()], list(columns))


def _lists(x: Array) -> Any:
    count, width = len(x), x[0].size
    offsets = np.arange(count + 1, dtype=np.int64)
    if x.dtype != np.uint8:
        return pa.LargeListArray.from_arrays(pa.array(offsets * width), pa.array(x.reshape(-1)))
    buffers = [None, pa.py_buffer(offsets * width), pa.py_buffer(np.ascontiguousarray(x))]
    return pa.LargeListArray.from_arrays(
        pa.array(offsets), pa.LargeBinaryArray.from_buffers(pa.large_binary(), count, buffers)
    )


def tfx_write(path: str, encoder: Any, batches: list[Any]) -> None:
    """Its encoder and TensorFlow's writer."""
    with tf.io.TFRecordWriter(path) as writer:
        for batch in batches:
            for record in encoder.encode(batch):
                writer.write(record)
