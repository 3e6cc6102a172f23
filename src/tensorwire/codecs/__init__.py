"""One module a format, and the table of all of them.

A codec is a frozen dataclass whose fields are its options (`protocol.TensorFormat`). It is imported
when it is first used; only `api` resolves this table.
"""

from __future__ import annotations

from typing import NamedTuple


class Format(NamedTuple):
    """A row of the table."""

    name: str
    where: str
    """module:Class of what reads and writes tensors, below this package; "" if it holds none."""
    about: str
    recognised: bool
    """Whether `loads` finds it without being told."""
    suffixes: tuple[str, ...] = ()
    lazy: bool = False
    """Whether `tw.open` reads only what is asked for."""
    metadata: bool = False
    """Whether it keeps text about any value; others keep it for a Bundle only."""
    extra: str | None = None
    """The pip extra that it needs."""
    compressions: tuple[str, ...] = ()
    """What it compresses with by itself; elsewhere the whole stream is compressed."""
    packs: bool = False
    """Whether it can compress and shuffle each tensor alone."""
    writes: bool = True
    """Whether it is written too."""
    files: bool = False
    """Whether it is several files that share a prefix, which is what `save` and `open` are given.
    """
    tensors: bool = True
    """Whether it holds tensors by name, or any value: what `dumps`, `save` and `open` take."""
    rows: str = ""
    """module:Class of what reads and writes rows of it (see `codecs.rows`); "" if it holds none."""


FORMATS: dict[str, Format] = {
    row.name: row
    for row in (
        Format(
            "safetensors",
            "safetensors:Safetensors",
            "named tensors of every kind, aligned, read in place",
            True,
            (".safetensors",),
            lazy=True,
            metadata=True,
            packs=True,
            rows="tensor_rows:TensorRows",
        ),
        Format(
            "tensorproto",
            "tensorproto:TensorProto",
            "TensorFlow's own bytes for one tensor, and any value inside a string vector",
            True,
            (".pb",),
        ),
        Format(
            "npy",
            "npy:Npy",
            "NumPy's file of one array; what NumPy cannot say stands behind it",
            True,
            (".npy",),
            True,
            True,
        ),
        Format(
            "npz",
            "npz:Npz",
            "NumPy's zip of named arrays, each with its CRC",
            True,
            (".npz",),
            lazy=True,
            metadata=True,
            compressions=("zlib", "gzip"),
            rows="tensor_rows:TensorRows",
        ),
        Format(
            "arrow",
            "arrow:Arrow",
            "Arrow's IPC file or stream: a table, one row an item, or one row of flat tensors",
            True,
            (".arrow", ".feather", ".arrows"),
            lazy=True,
            metadata=True,
            extra="arrow",
            compressions=("zstd", "lz4"),
            rows="arrow.rows:ArrowRows",
        ),
        Format(
            "parquet",
            "parquet:Parquet",
            "columns that share their first dimension, for query engines",
            True,
            (".parquet", ".pq"),
            metadata=True,
            extra="arrow",
            compressions=("zstd", "snappy", "gzip", "lz4"),
            rows="parquet.rows:ParquetRows",
        ),
        Format(
            "protobuf",
            "protobuf:Protobuf",
            "our tensor_data.proto, for other languages",
            True,
            (".tensor",),
            lazy=True,
            metadata=True,
        ),
        Format(
            "json",
            "json:Json",
            "text that people and other languages read",
            True,
            (".json",),
            metadata=True,
        ),
        Format(
            "checkpoint",
            "checkpoint.codec:Checkpoint",
            "TensorFlow's checkpoints: an index and data files under one prefix",
            False,
            (".ckpt",),
            lazy=True,
            metadata=True,
            files=True,
        ),
        Format(
            "keras",
            "keras:Keras",
            "weights of Keras models: .keras, .weights.h5 and older .h5 files; only read",
            True,
            (".keras", ".h5", ".hdf5"),
            lazy=True,
            extra="keras",
            writes=False,
        ),
        Format("example", "example:Example", "one tf.train.Example", False, (".example",)),
        Format(
            "raw",
            "raw:Raw",
            "bare numbers; dtype, shape and byte order travel separately",
            False,
            (".raw", ".bin"),
        ),
        Format(
            "tfrecord",
            "",
            "records with checksums, mostly tf.train.Examples",
            False,
            (".tfrecord", ".tfrecords", ".tfrec", ".tfr"),
            tensors=False,
            rows="tfrecord:TfrecordRows",
        ),
        Format(
            "jsonl",
            "",
            "JSON lines, an object a row",
            False,
            (".jsonl", ".ndjson"),
            tensors=False,
            rows="jsonl:JsonLinesRows",
        ),
        Format("saved_model", "", "TensorFlow's SavedModel, a folder", False, tensors=False),
    )
}
TENSOR_FORMATS = {name: row for name, row in FORMATS.items() if row.tensors}
ROW_FORMATS = {name: row for name, row in FORMATS.items() if row.rows}
