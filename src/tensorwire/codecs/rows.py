"""The formats that datasets are in: each a class that counts, reads and writes records as batches
of columns.

Memory stays bounded: batches are of some megabytes. npz and safetensors alone hold a shard whole.
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
"""A batch ends at so many rows, or bytes."""

STREAMS = ("tfrecord", "jsonl", "safetensors")
"""Those that can be compressed as a whole."""
"""Loaded on first use."""


class SourcePart(NamedTuple):
    """Records of one source."""

    path: str
    size: int
    stamp: str
    number: int
    """Of the source among all."""
    first: int = 0
    stop: int | None = None
    mark: tuple[int, int] | None = None
    """A record at or before the first one, and where in the file it begins."""
    base: int = 0
    """How many records all sources before this one have, where that matters."""
    ranks: dict[str, int] = {}
    """For a sample: how many records of each stratum come before this source."""


class Counted(NamedTuple):
    """The number of records, and where every `step`-th of them begins, if that is known."""

    records: int
    marks: list[int]
    step: int = 1


class Damage(NamedTuple):
    """Something of a source that could not be read."""

    path: str
    why: str
    nbytes: int = 0


@dataclass
class Reading:
    """What a format says while it reads a part."""

    damage: list[Damage] = field(default_factory=list)
    """What it passed over."""
    share: float = 0.0
    """How much of the part it has read (0 to 1), as far as it knows."""

    def reach(self, share: float) -> None:
        self.share = share


class ByteOutput(Protocol):
    """What a writer writes to."""

    def write(self, data: Buffer, /) -> int: ...


class RowWriter(Protocol):
    def add(self, batch: Batch) -> None: ...
    def close(self) -> None: ...


class RowFormat(Protocol):
    """What a format of datasets provides: the first four methods, and answers to the questions
    after them where the ones here are not its own. An object of it has no state.
    """

    declares_columns: ClassVar[bool] = False
    """Whether a file itself says what columns it has; if so, the format has `names` and `blank`."""

    @abstractmethod
    def count(self, path: str, marks: int, spec: ConversionSpec, reading: Reading) -> Counted:
        """How many records a file has, and where about `marks` of them begin."""

    @abstractmethod
    def schema(self, paths: Sequence[str], spec: ConversionSpec, nbytes: int) -> Schema | None:
        """The features of Examples that the columns are, by a look into the files, which have so
        many bytes.
        """

    @abstractmethod
    def read(self, part: SourcePart, spec: ConversionSpec, reading: Reading) -> Iterator[Batch]:
        """Batches of the records of a part. Damage and progress go into `reading`."""

    @abstractmethod
    def writer(self, file: ByteOutput, spec: ConversionSpec) -> RowWriter:
        """Writes batches into a file."""

    def check_target(self, spec: ConversionSpec) -> None:
        """An error for options that the format cannot write, before any record is read."""

    def bare(self, names: list[str], paths: Sequence[str], spec: ConversionSpec) -> list[str]:
        """Which of these features, that would go as bytes of an Example, are bytes in the files."""
        return names

    def remembers(self, path: str) -> bool:
        """Whether a file has the schema of the Examples that it was made of."""
        return False

    def names(self, path: str, spec: ConversionSpec) -> list[str]:
        """The columns of a file."""
        raise NotImplementedError

    def blank(self, path: str, spec: ConversionSpec) -> Batch:
        """The columns of a file that are read, as a batch without rows."""
        raise NotImplementedError


@functools.cache
def named(name: str) -> RowFormat:
    """The format of a name.

    >>> type(named("jsonl")).__name__, named("npz").declares_columns
    ('JsonLinesRows', True)
    """
    if name not in ROW_FORMATS:
        raise UnknownFormatError(f"no format of datasets {name!r}{choices(name, ROW_FORMATS)}")
    module, _, kind = ROW_FORMATS[name].rows.partition(":")
    row_format: RowFormat = getattr(importlib.import_module(f"{__package__}.{module}"), kind)()
    return row_format


def load(name: str) -> None:
    """Imports all that a format needs, so that it is there when it is used; what is missing is an
    error only then.
    """
    named(name)
    with contextlib.suppress(ImportError):
        importlib.import_module(
            {"parquet": "pyarrow.parquet", "arrow": "pyarrow"}.get(name, "numpy")
        )


def of_name(path: str) -> str | None:
    """The format that a name says; compressed record files and JSON lines too.

    >>> of_name("a/train-00000-of-00002.tfrecord.gz"), of_name("mnist-train.tfrecord-00000-of-00001")
    ('tfrecord', 'tfrecord')
    >>> of_name("a.pq"), of_name("a"), of_name("a.parquet/")
    ('parquet', None, None)
    """
    format, _ = by_name(path)
    return format if format in ROW_FORMATS else None


def suffix(spec: ConversionSpec) -> str:
    """What the names of shards end with."""
    own = ROW_FORMATS[spec.target].suffixes[0]
    if spec.target not in ("tfrecord", "jsonl") or not spec.compression:
        return own
    return own + next(
        (ending for ending, kind in _PACKED.items() if kind == spec.compression),
        "." + spec.compression,
    )


@contextlib.contextmanager
def local(path: str) -> Iterator[str]:
    """The path of a local file with these bytes: an object is copied to a temporary one, for those
    who must jump about in it.
    """
    if not storage.is_url(path):
        yield path
        return
    with tempfile.NamedTemporaryFile(prefix="tensorwire-") as file:
        with storage.reader(path) as source:
            shutil.copyfileobj(source, file, 1 << 20)
        file.flush()
        yield file.name
