"""tf.io.TFRecordWriter and its options, and the iterator that TensorFlow 2 no longer has."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Self

from .._errors import EncodeError
from ..records.record_reader import RecordReader
from ..records.record_writer import RecordWriter

_TYPES = {None: None, "": None, "GZIP": "gzip", "ZLIB": "zlib", "SNAPPY": "snappy"}
_NUMBERS = {0: "", 1: "ZLIB", 2: "GZIP"}
"""TFRecordCompressionType of TensorFlow 1."""


class TFRecordOptions:
    """Options for TFRecordWriter: the compression ("GZIP", "ZLIB", "SNAPPY" or "") and its level.

    The other arguments tune zlib's buffers inside TensorFlow; they are accepted and have no meaning
    here.

    >>> TFRecordOptions("GZIP", compression_level=9).compression_type
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
    """The name that options, a name or a number of TensorFlow 1 stand for."""
    kind = getattr(options, "compression_type", options)  # of ours, or of TensorFlow's own options
    if isinstance(kind, int):
        kind = _NUMBERS.get(kind, kind)
    if kind not in _TYPES:
        raise EncodeError(
            f"compression_type is one of {', '.join(repr(name) for name in _TYPES if name)} or '',"
            f" not {kind!r}"
        )
    return kind or ""


class TFRecordWriter:
    """Writes records to a TFRecord file in place, as TensorFlow's does. tw.RecordWriter makes files
    that appear whole.

    >>> import os, tempfile
    >>> path = os.path.join(tempfile.mkdtemp(), "a.tfrecord")
    >>> with TFRecordWriter(path, "GZIP") as writer:
    ...     writer.write(b"one")
    >>> list(tf_record_iterator(path, "GZIP"))
    [b'one']
    """

    def __init__(
        self, path: str | os.PathLike[str], options: TFRecordOptions | str | None = None
    ) -> None:
        compression = _TYPES[_compression_type(options)] or ""  # the name says nothing here
        level = getattr(options, "compression_level", None)
        self._writer = RecordWriter(
            path, compression=compression, mode="live", level=level, durable=False
        )

    def write(self, record: bytes | str) -> None:
        """Adds one record; text is written as UTF-8."""
        self._writer.write(record.encode() if isinstance(record, str) else record)

    def flush(self) -> None:
        """What was written so far is in the file."""
        self._writer.flush()

    def close(self) -> None:
        """Ends the file."""
        self._writer.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def tf_record_iterator(
    path: str | os.PathLike[str], options: TFRecordOptions | str | None = None
) -> Iterator[bytes]:
    """The records of a file, as `tf.compat.v1.io.tf_record_iterator` gives them, with every
    checksum checked.

    Without options the compression is recognised.

    >>> list(tf_record_iterator("no such file"))
    Traceback (most recent call last):
    FileNotFoundError: [Errno 2] No such file or directory: 'no such file'
    """
    name = None if options is None else _TYPES[_compression_type(options)]
    return iter(
        RecordReader(
            [os.fspath(path)], compression="" if options is not None and name is None else name
        )
    )
