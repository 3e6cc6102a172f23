"""tf.io.TFRecordWriter and TFRecordOptions, and tf_record_iterator of TensorFlow 1."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Self

from .._errors import UsageError
from ..records.record_reader import RecordReader
from ..records.record_writer import RecordWriter

_TYPES = {None: None, "": None, "GZIP": "gzip", "ZLIB": "zlib", "SNAPPY": "snappy"}
_NUMBERS = {0: "", 1: "ZLIB", 2: "GZIP"}
"""The values of TFRecordCompressionType in TensorFlow 1."""


class TFRecordOptions:
    """Options for TFRecordWriter: the compression ("GZIP", "ZLIB", "SNAPPY" or "") and its level.

    The other arguments tune zlib in TensorFlow; they are accepted and ignored. Raises UsageError
    for an unknown compression.

    >>> import tensorwire as tw
    >>> tw.io.TFRecordOptions("GZIP", compression_level=9).compression_type
    'GZIP'
    """

    def __init__(
        self,
        compression_type: str | int | None = None,
        flush_mode: int | None = None,
        input_buffer_size: int | None = None,
        output_buffer_size: int | None = None,
        window_bits: int | None = None,
        compression_level: int | None = None,
        compression_method: int | None = None,
        mem_level: int | None = None,
        compression_strategy: int | None = None,
    ) -> None:
        self.compression_type = _compression_type(compression_type)
        self.compression_level = compression_level


def _compression_type(options: TFRecordOptions | str | int | None) -> str:
    """Return the compression type of options, of a name or of a number of TensorFlow 1."""
    # The options may be ours or TensorFlow's.
    kind = getattr(options, "compression_type", options)
    if isinstance(kind, int):
        kind = _NUMBERS.get(kind, kind)
    if kind not in _TYPES:
        raise UsageError(
            "compression_type must be one of"
            f" {', '.join(repr(name) for name in _TYPES if name)} or '', not {kind!r}"
        )
    return kind or ""


class TFRecordWriter:
    """Writes records to a TFRecord file in place, like TensorFlow's writer.

    `options` are TFRecordOptions or the name of a compression. tw.RecordWriter writes files that
    appear only when they are complete.

    >>> import tensorwire as tw
    >>> import os, tempfile
    >>> path = os.path.join(tempfile.mkdtemp(), "a.tfrecord")
    >>> with tw.io.TFRecordWriter(path, "GZIP") as writer:
    ...     writer.write(b"one")
    >>> list(tw.io.tf_record_iterator(path, "GZIP"))
    [b'one']
    """

    def __init__(
        self, path: str | os.PathLike[str], options: TFRecordOptions | str | None = None
    ) -> None:
        # "" rather than None: as in TensorFlow, the suffix of the path does not matter.
        compression = _TYPES[_compression_type(options)] or ""
        level = getattr(options, "compression_level", None)
        self._writer = RecordWriter(
            path, compression=compression, mode="live", level=level, durable=False
        )

    def write(self, record: bytes | str) -> None:
        """Write one record; text is written as UTF-8."""
        self._writer.write(record.encode() if isinstance(record, str) else record)

    def flush(self) -> None:
        """Write all records so far to the file."""
        self._writer.flush()

    def close(self) -> None:
        """Finish and close the file."""
        self._writer.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def tf_record_iterator(
    path: str | os.PathLike[str], options: TFRecordOptions | str | None = None
) -> Iterator[bytes]:
    """Iterate over the records of a file, like `tf.compat.v1.io.tf_record_iterator`.

    Every checksum is verified. Without options, the compression is detected. Raises DecodeError for
    a damaged file.

    >>> import tensorwire as tw
    >>> list(tw.io.tf_record_iterator("no such file"))
    Traceback (most recent call last):
    FileNotFoundError: [Errno 2] No such file or directory: 'no such file'
    """
    name = None if options is None else _TYPES[_compression_type(options)]
    return iter(
        RecordReader(
            [os.fspath(path)], compression="" if options is not None and name is None else name
        )
    )
