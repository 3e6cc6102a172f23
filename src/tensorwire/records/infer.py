"""Schema inference: the features of files, from a sample of the records or from all of them."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Container, Iterator, Sequence
from typing import Any

import numpy as np

from .. import storage
from .._errors import DecodeError, SchemaError
from .._limits import DEFAULT, Limits
from ..core import memory
from ..core.memory import Array
from ..wire import kernels, status
from . import blocks as _blocks
from . import coverage, paths
from . import index as _index
from .record_reader import Paths
from .schema import BYTES, FLOAT, INT64, Feature, Schema

SAMPLE = 64 << 20
"""Bytes that a sample reads, over all files."""
_PIECE = 1 << 20
"""Bytes in which a sample searches for the start of a record, ..."""
_SIP = 64 << 10
"""... after a first look at this many. This is also the smallest read."""
_FILES = 256
"""The maximum number of files that a sample reads, spread over all of them."""
_SIDE_BY_SIDE = 16
"""Files that are sampled concurrently. A sample of an object is a few short requests, which mostly
wait.
"""
_BY_NUMBER = {1: BYTES, 2: FLOAT, 3: INT64}


def infer_schema(
    path: Paths,
    *,
    full: bool = False,
    sample: int | None = None,
    compression: str | None = None,
    limits: Limits | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Schema:
    """Infer the schema of a file, a glob pattern or a list: kinds, shapes, presence and ranges.

    A sample is taken from the first, middle and last blocks of the files (from the beginning of a
    compressed file). A feature that always has one value is a scalar column, one that always has n
    values has shape (n,), and any other has varying length.

    full       examine every record and keep the result in the index beside each file sample
    bytes to read in total (default: 64 MiB) progress   called with (bytes done, bytes in total)

    Returns a tw.Schema. Raises SchemaError if a feature has different kinds in different records,
    and DecodeError for damaged files.

    >>> import tensorwire as tw
    >>> import os, tempfile
    >>> path = os.path.join(tempfile.mkdtemp(), "a.tfrecord")
    >>> _ = tw.write_examples(path, [{"label": 1, "ids": [1, 2]}, {"label": 0, "ids": []}],
    ...     schema_file=False)
    >>> tw.infer_schema(path)
    Schema of 2 features from all 2 records
      ids: Feature(int64 (None,))  present 2, lengths [0, 2], range [1, 2]
      label: Feature(int64 ())  present 2, lengths [1, 1], range [0, 1]
    """
    return of_files(
        paths.expand(path),
        full=full,
        sample=sample,
        compression=compression,
        limits=limits,
        progress=progress,
    )


def of_files(
    names: Sequence[str],
    *,
    full: bool = False,
    sample: int | None = None,
    compression: str | None = None,
    limits: Limits | None = None,
    progress: Callable[[int, int], None] | None = None,
    skip: bool = False,
    cast: Container[str] = (),
) -> Schema:
    """Infer the schema of the named files, like `infer_schema`.

    With `skip`, a sample leaves out damaged parts. Features named by `cast` may be integers in some
    records and floats in others; they become floats.
    """
    limits = limits or DEFAULT
    survey = kernels.ExampleSurvey(limits.names)
    complete = full or len(names) <= _FILES
    chosen = (
        list(names)
        if full or len(names) <= _FILES
        else [names[i * len(names) // _FILES] for i in range(_FILES)]
    )
    ends = (
        list(itertools.accumulate(_blocks.stat_of(name)[0] for name in chosen)) if progress else []
    )
    for number, whole in enumerate(
        _surveyed(
            survey,
            chosen,
            None if full else SAMPLE if sample is None else sample,
            compression,
            limits,
            skip,
        )
    ):
        complete = complete and whole
        if progress:
            progress(ends[number], ends[-1])
    schema = schema_of(survey.result(), complete, cast)
    if full:
        for name in names:
            index = _index.open_index(name, compression, limits)
            _index.save(_index.add_schema(index, schema.json()))
    return schema


def _surveyed(
    survey: kernels.ExampleSurvey,
    names: list[str],
    sample: int | None,
    compression: str | None,
    limits: Limits,
    skip: bool,
) -> Iterator[bool]:
    """Add the files to the survey and yield, for each file in turn, whether all of it was read.

    The files are read concurrently in any order, which does not change the result.
    """
    if sample is None:
        for name in names:
            for block in _blocks.blocks(name, compression=compression, limits=limits):
                _add(survey, block)
            yield True
        return
    lock = threading.Lock()

    def add(block: _blocks.Block) -> None:
        with lock:
            _add(survey, block)

    # This import is slow, and worker processes of datasets never sample.
    from concurrent.futures import ThreadPoolExecutor

    pool = ThreadPoolExecutor(min(_SIDE_BY_SIDE, len(names)), "tensorwire-look")
    try:
        yield from pool.map(
            lambda name: _sampled(add, name, sample // len(names), compression, limits, skip), names
        )
    finally:
        pool.shutdown(cancel_futures=True)


def _sampled(
    add: Callable[[_blocks.Block], None],
    path: str,
    budget: int,
    compression: str | None,
    limits: Limits,
    skip: bool,
) -> bool:
    """Add a sample of one file to the survey and return whether that was all of it."""
    source = storage.source(path)
    try:
        plain, size = _blocks.compression_of(source, compression) is None, source.size
        # The middle of a compressed file cannot be reached without decompressing all before it.
        whole = not plain or size <= budget
        share, read = budget if whole else budget // 3, 0
        for offset in (0,) if whole else (0, size // 2, max(size - share, size * 2 // 3)):
            try:
                for block in _limited(
                    (
                        _from(source, offset, share, limits)
                        if plain
                        else _unpacked(path, compression, limits)
                    ),
                    share,
                ):
                    add(block)
                    read += int(block.sizes.sum())
            except DecodeError as error:
                whole = False
                if not skip:
                    if offset:
                        _check_up_to(path, size if error.offset is None else error.offset, limits)
                    else:
                        raise error.add(path=path, format="tfrecord") from error.__cause__
    finally:
        source.close()
    return whole and read < budget


def _check_up_to(path: str, offset: int, limits: Limits) -> None:
    """Read an uncompressed file from its start up to an offset, to raise the error that is there.

    There may be none: a sample may have started inside a record that contains other records.
    """
    for block in _blocks.blocks(path, compression="", limits=limits):
        if block.end > offset:
            _add(kernels.ExampleSurvey(limits.names), block)
            return


def _limited(blocks: Iterator[_blocks.Block], budget: int) -> Iterator[_blocks.Block]:
    """Yield records up to a number of bytes, but at least one record."""
    for block in blocks:
        ends = np.cumsum(block.sizes)
        count = int(np.searchsorted(ends, budget)) + 1
        yield block._replace(starts=block.starts[:count], sizes=block.sizes[:count])
        budget -= int(ends[-1])
        if budget <= 0:
            return


def _unpacked(path: str, compression: str | None, limits: Limits) -> Iterator[_blocks.Block]:
    return _blocks.blocks(path, compression=compression, limits=limits)


def _from(
    source: storage.Readable, offset: int, budget: int, limits: Limits
) -> Iterator[_blocks.Block]:
    """Yield about `budget` bytes of records, from the first record after `offset` on.

    The source is uncompressed. Yields nothing if no record begins nearby.
    """
    stream = _Sips(source, offset, budget)
    start = stream.to_record(limits) if offset else 0
    if start < 0:
        return
    for block in _blocks.frames(
        stream, source.path or "", source.size, True, limits, memory.MemoryPool(), start, 0
    ):
        yield block
        # The next record would probably exceed the budget, so nothing more is read.
        if block.end + int(block.sizes.max()) + 16 >= offset + budget:
            return


class _Sips:
    """A stream of an uncompressed file that reads a little at a time.

    For an object, every byte that is requested is transferred.
    """

    most: int | None = None

    def __init__(self, source: storage.Readable, offset: int, step: int) -> None:
        self._source, self.at, self._step = source, offset, max(step, _SIP)
        self._ready = memory.fresh(0)

    def fill(self, buffer: Array) -> int:
        if not len(self._ready):
            self._read(min(self._step, len(buffer)))
            # Reads grow, so that a large record does not take many of them.
            self._step *= 2
        count = min(len(self._ready), len(buffer))
        buffer[:count] = self._ready[:count]
        self._ready = self._ready[count:]
        return count

    def finish(self) -> None: ...

    def _read(self, room: int) -> None:
        window = memory.fresh(room)
        count = self._source.read_some(self.at, window)
        self.at, self._ready = self.at + count, window[:count]

    def to_record(self, limits: Limits) -> int:
        """Move to the start of the next record and return its offset, or -1 if none is nearby."""
        start = self.at
        for room in (min(self._step, _PIECE), _PIECE):
            self.at = start
            self._read(room)
            header = self._header(start, limits)
            if header >= 0:
                self._ready = self._ready[header:]
                return start + header
            if self.at == self._source.size:
                break
        return -1

    def _header(self, start: int, limits: Limits) -> int:
        """Return the position of a valid header that is followed by another, or by the end."""
        window, size, position = self._ready, self._source.size, 0
        while (position := kernels.frame_find(window, position, limits.record)) < len(window):
            following = start + position + 16 + int(np.frombuffer(window, "<u8", 1, position)[0])
            if following == size:
                return position
            if (
                following + 12 <= size
                and kernels.frame_find(self._source.read_at(following, 12), 0, limits.record) == 0
            ):
                return position
            position += 1
        return -1


def _add(survey: kernels.ExampleSurvey, block: _blocks.Block) -> None:
    """Add a block to the survey. Raises SchemaError or DecodeError for invalid records."""
    before = survey.others
    code, offset, done = survey.add(block.data, block.starts, block.sizes, False)
    if code == status.TOO_MANY:
        raise SchemaError(
            "the records have more features than the limit allows",
            path=block.path,
            record=block.first + done,
            hint="raise it with Limits(names=...)",
        )
    if code:
        raise status.problem(code, offset, "example").add(
            path=block.path, record=block.first + done, base=block.offset
        )
    coverage.check_examples(survey, before, block)


def schema_of(
    result: tuple[int, int, list[Any]],
    complete: bool,
    cast: Container[str] = (),
) -> Schema:
    """Return the schema that the result of a survey describes."""
    records, _, rows = result
    features: dict[str, Feature] = {}
    sequences: dict[str, Feature] = {}
    for (
        name,
        is_list,
        present,
        kinds,
        shortest,
        longest,
        _,
        ints,
        floats,
        nans,
        sizes,
        steps,
    ) in rows:
        shown = name.decode(errors="backslashreplace")
        there = [number for number in (1, 2, 3) if kinds[number]]
        # A feature that never has a value has no kind, so it is not in the schema.
        if not there:
            continue
        if shown in cast and {_BY_NUMBER[number] for number in there} == {INT64, FLOAT}:
            there = [number for number in there if _BY_NUMBER[number] == FLOAT]
        if len(there) > 1:
            counts = ", ".join(f"{_BY_NUMBER[number]} in {kinds[number]}" for number in there)
            raise SchemaError(
                f"feature {shown!r} has different kinds: {counts} records", tensor=shown
            )
        try:
            name.decode()
        except UnicodeDecodeError:
            raise SchemaError(f"the feature name {shown!r} is not UTF-8") from None
        kind = _BY_NUMBER[there[0]]
        # A step without a list has no values.
        if is_list and kinds[0]:
            shortest = 0
        shape: tuple[int | None, ...] = (
            (None,) if shortest != longest or longest == 0 else () if longest == 1 else (longest,)
        )
        seen: dict[str, Any] = {"present": present, "lengths": [shortest, longest]}
        if kind == INT64 and ints[0] <= ints[1]:
            seen["range"] = list(ints)
        if kind == FLOAT and floats[0] <= floats[1]:
            seen["range"] = [_number(bound) for bound in floats]
        if nans:
            seen["nan"] = nans
        if kind == BYTES and longest:
            seen["sizes"] = list(sizes)
        if is_list:
            seen["steps"] = list(steps)
        (sequences if is_list else features)[name.decode()] = Feature(kind, shape, seen=seen)
    return Schema(features, sequences, records=records, complete=complete)


def _number(bound: float) -> float | str:
    """Return infinities as text, which JSON does not have as numbers."""
    return bound if np.isfinite(bound) else str(bound)
