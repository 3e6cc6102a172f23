"""Row formats: the interface of dataset formats, which count, read and write batches of records.

Memory is bounded, since a batch has a few megabytes. Only npz and safetensors hold a whole shard.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import shutil
import tempfile
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, NamedTuple, Protocol

from .. import storage
from .._errors import UnknownFormatError, choices
from ..core.memory import Buffer
from ..records.batch import Batch
from ..records.schema import Schema
from ..transforms.compression import SUFFIXES as _PACKED
from . import ROW_FORMATS
from .conversion_spec import ConversionSpec
from .identify import by_name

ROWS = 8192
BYTES = 16 << 20
"""The largest number of rows and of bytes in a batch."""

STREAMS = ("tfrecord", "jsonl", "safetensors")
"""Formats whose files can be compressed as a whole."""


class SourcePart(NamedTuple):
    """A range of records of one source file."""

    path: str
    size: int
    stamp: str
    number: int
    """The position of the source among all sources."""
    first: int = 0
    stop: int | None = None
    mark: tuple[int, int] | None = None
    """The number and the offset of a record at or before the first one, to start reading there."""
    base: int = 0
    """The number of records in all sources before this one, if the operation needs it."""
    ranks: dict[str, int] = {}
    """For a sample: the number of records of each stratum before this source."""


class Counted(NamedTuple):
    """The number of records, and the offset of every `step`-th record, if it is known."""

    records: int
    marks: list[int]
    step: int = 1


class Damage(NamedTuple):
    """A damaged part of a source that was skipped."""

    path: str
    why: str
    nbytes: int = 0


@dataclass
class Reading:
    """Damage and progress that a format reports while it reads a part."""

    damage: list[Damage] = field(default_factory=list)
    """The parts of the source that were skipped."""
    share: float = 0.0
    """The share of the part that has been read, 0 to 1."""

    def reach(self, share: float) -> None:
        self.share = share


class ByteOutput(Protocol):
    """The output of a row writer."""

    def write(self, data: Buffer, /) -> int: ...


class RowWriter(Protocol):
    """A writer of one shard."""

    def add(self, batch: Batch) -> None: ...
    def close(self) -> None: ...


class RowFormat(Protocol):
    """The interface of a dataset format. Its objects have no state.

    A format implements the abstract methods, and overrides the others if their defaults do not fit.
    """

    declares_columns: ClassVar[bool] = False
    """Whether files declare their columns. If so, the format implements `names` and `blank`."""

    @abstractmethod
    def count(self, path: str, marks: int, spec: ConversionSpec, reading: Reading) -> Counted:
        """Counts the records of a file, and gives the offsets of about `marks` of them."""

    @abstractmethod
    def schema(self, paths: Sequence[str], spec: ConversionSpec, nbytes: int) -> Schema | None:
        """Infers the schema of the columns as Examples. `nbytes` is the size of all files."""

    @abstractmethod
    def read(self, part: SourcePart, spec: ConversionSpec, reading: Reading) -> Iterator[Batch]:
        """Yields the records of a part as batches. Damage and progress go into `reading`."""

    @abstractmethod
    def writer(self, file: ByteOutput, spec: ConversionSpec) -> RowWriter:
        """Returns a writer of batches to a file."""

    def check_target(self, spec: ConversionSpec) -> None:
        """Raises EncodeError for options that the format cannot write, before any work is done."""

    def bare(self, names: list[str], paths: Sequence[str], spec: ConversionSpec) -> list[str]:
        """Returns which of these features are stored as the bytes that they are in an Example."""
        return names

    def remembers(self, path: str) -> bool:
        """Whether a file contains the schema of the Examples that it was made from."""
        return False

    def names(self, path: str, spec: ConversionSpec) -> list[str]:
        """Returns the names of a file's columns."""
        raise NotImplementedError

    def blank(self, path: str, spec: ConversionSpec) -> Batch:
        """Returns the columns of a file that are read, as a batch without rows."""
        raise NotImplementedError


@functools.cache
def named(name: str) -> RowFormat:
    """Returns the dataset format of a name. Raises UnknownFormatError.

    >>> type(named("jsonl")).__name__, named("npz").declares_columns
    ('JsonLinesRows', True)
    """
    if name not in ROW_FORMATS:
        raise UnknownFormatError(f"unknown dataset format {name!r}{choices(name, ROW_FORMATS)}")
    module, _, kind = ROW_FORMATS[name].rows.partition(":")
    row_format: RowFormat = getattr(importlib.import_module(f"{__package__}.{module}"), kind)()
    return row_format


def load(name: str) -> None:
    """Imports the packages of a format ahead of its use. A missing one raises only when used."""
    named(name)
    with contextlib.suppress(ImportError):
        importlib.import_module(
            {"parquet": "pyarrow.parquet", "arrow": "pyarrow"}.get(name, "numpy")
        )


def of_name(path: str) -> str | None:
    """Returns the dataset format of a file name, compressed or not. None if there is none.

    >>> of_name("a/train-00000-of-00002.tfrecord.gz"), of_name("a.tfrecord-00000-of-00001")
    ('tfrecord', 'tfrecord')
    >>> of_name("a.pq"), of_name("a"), of_name("a.parquet/")
    ('parquet', None, None)
    """
    format, _ = by_name(path)
    return format if format in ROW_FORMATS else None


def suffix(spec: ConversionSpec) -> str:
    """Returns the suffix of the shards, including that of their compression."""
    own = ROW_FORMATS[spec.target].suffixes[0]
    if spec.target not in ("tfrecord", "jsonl") or not spec.compression:
        return own
    return own + next(
        (ending for ending, kind in _PACKED.items() if kind == spec.compression),
        "." + spec.compression,
    )


@contextlib.contextmanager
def local(path: str) -> Iterator[str]:
    """Gives the path of a local file with the same bytes.

    An object of a cloud store is downloaded to a temporary file, for readers that need random
    access.
    """
    if not storage.is_url(path):
        yield path
        return
    with tempfile.NamedTemporaryFile(prefix="tensorwire-") as file:
        with storage.reader(path) as source:
            shutil.copyfileobj(source, file, 1 << 20)
        file.flush()
        yield file.name
