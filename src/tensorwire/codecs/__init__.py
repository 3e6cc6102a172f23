"""The table of formats. Each format has a module or package of its own next to it.

A codec is a frozen dataclass whose fields are its options (`protocol.TensorFormat`). It is imported
when it is first used (`opening.codec`, `rows.named`).
"""

from __future__ import annotations

from typing import NamedTuple


class Format(NamedTuple):
    """A row of the table of formats."""

    name: str
    where: str
    """"module:Class" of the codec for tensors, relative to this package; "" if there is none."""
    about: str
    """One line for people, shown by `tensorwire formats`."""
    recognised: bool
    """Whether `loads` recognises the format by its first bytes."""
    suffixes: tuple[str, ...] = ()
    lazy: bool = False
    """Whether `tw.open` reads tensors on demand."""
    metadata: bool = False
    """Whether the format stores metadata for any value. Other formats store that of a Bundle only.
    """
    extra: str | None = None
    """The pip extra that the format needs."""
    compressions: tuple[str, ...] = ()
    """Compressions of the format itself. With any other one the whole stream is compressed."""
    packs: bool = False
    """Whether the format can compress and shuffle tensors one by one."""
    writes: bool = True
    """Whether tensorwire writes the format."""
    files: bool = False
    """Whether a value is several files with a common prefix, which `save` and `open` take as path.
    """
    tensors: bool = True
    """Whether the format holds tensors by name or any value, for `dumps`, `save` and `open`."""
    rows: str = ""
    """"module:Class" of the format for datasets (see `codecs.rows`); "" if there is none."""


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
            "TensorFlow's bytes for one tensor; any other value is a string vector",
            True,
            (".pb",),
        ),
        Format(
            "npy",
            "npy:Npy",
            "NumPy's file of one array; a trailer holds what NumPy cannot express",
            True,
            (".npy",),
            True,
            True,
        ),
        Format(
            "npz",
            "npz:Npz",
            "NumPy's zip of named arrays, each with a CRC",
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
            "Arrow IPC file or stream: a table with one row per item, or one row of flat tensors",
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
            "columns with a common first dimension, for query engines",
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
            "TensorFlow checkpoint: an index and data files with one prefix",
            False,
            (".ckpt",),
            lazy=True,
            metadata=True,
            files=True,
        ),
        Format(
            "keras",
            "keras:Keras",
            "weights of Keras models: .keras, .weights.h5 and older .h5 files; read only",
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
            "bare numbers; dtype, shape and byte order are passed separately",
            False,
            (".raw", ".bin"),
        ),
        Format(
            "tfrecord",
            "",
            "records with checksums, usually tf.train.Examples",
            False,
            (".tfrecord", ".tfrecords", ".tfrec", ".tfr"),
            tensors=False,
            rows="tfrecord:TfrecordRows",
        ),
        Format(
            "jsonl",
            "",
            "JSON lines, one object per row",
            False,
            (".jsonl", ".ndjson"),
            tensors=False,
            rows="jsonl:JsonLinesRows",
        ),
        Format("saved_model", "", "TensorFlow SavedModel, a folder", False, tensors=False),
    )
}
TENSOR_FORMATS = {name: row for name, row in FORMATS.items() if row.tensors}
ROW_FORMATS = {name: row for name, row in FORMATS.items() if row.rows}
