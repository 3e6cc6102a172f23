"""Finding out what features a file has, from a sample of it or from all of it."""

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
"""Bytes in which a record must begin somewhere, ..."""
_SIP = 64 << 10
"""... after a look into so many, which is also the least that is read at once."""
_FILES = 256
"""Files that a sample looks into at most, spread over all of them."""
_SIDE_BY_SIDE = 16
"""Files that are looked into at once: an object's sample is some short requests, each of which is
mostly waiting.
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
    """The features of a file, a pattern or a list: kinds, shapes, presence and ranges.

    A sample is the first, middle and last blocks of the files, `sample` bytes in all, 64 MiB if not
    said (of a compressed file, its beginning). With `full=True` every record is looked at, and the
    index beside each file keeps the result. `progress(done, total)` is told of bytes.

    A feature that always has one value is a scalar column, one that always has n has shape (n,),
    any other varies.

    >>> import os, tempfile, tensorwire as tw
    >>> path = os.path.join(tempfile.mkdtemp(), "a.tfrecord")
    >>> _ = tw.write_examples(path, [{"label": 1, "ids": [1, 2]}, {"label": 0, "ids": []}],
    ...     schema_file=False)
    >>> infer_schema(path)
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
    """The same of files that are known to be there. With `skip`, what is damaged is left out of a
    sample.

    Features named by `cast` may be integers in some records and floats in others: they are floats
    then.
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
            known = _index.open_index(name, compression, limits)
            _index.save(_index.add_schema(known, schema.json()))
    return schema


def _surveyed(
    survey: kernels.ExampleSurvey,
    names: list[str],
    sample: int | None,
    compression: str | None,
    limits: Limits,
    skip: bool,
) -> Iterator[bool]:
    """Counts in the files, in whatever order, which changes nothing; says of each in turn if that
    was all of it.
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

    # which workers of datasets would import in vain
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
    """Counts in a sample of one file; True if that was all of it."""
    source = storage.source(path)
    try:
        plain, size = _blocks.compression_of(source, compression) is None, source.size
        # what a compressed file has in the middle only shows when all before it is unpacked
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
    """Meets what is wrong at a place of a plain file, reading from its start. Perhaps nothing is: a
    sample may have begun inside of a record that holds others."""
    for block in _blocks.blocks(path, compression="", limits=limits):
        if block.end > offset:
            _add(kernels.ExampleSurvey(limits.names), block)
            return


def _limited(blocks: Iterator[_blocks.Block], budget: int) -> Iterator[_blocks.Block]:
    """Records up to a number of bytes; at least one, if there is any."""
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
    """Records of a plain file, from the first one on that begins behind an offset, so many bytes of
    them; none if none is nearby.
    """
    stream = _Sips(source, offset, budget)
    start = stream.to_record(limits) if offset else 0
    if start < 0:
        return
    for block in _blocks.frames(
        stream, source.path or "", source.size, True, limits, memory.MemoryPool(), start, 0
    ):
        yield block
        # one more would be too much, so nothing is read for it
        if block.end + int(block.sizes.max()) + 16 >= offset + budget:
            return


class _Sips:
    """A plain file from some place on, a little at a time: of an object, what is asked for is what
    is fetched.
    """

    most: int | None = None

    def __init__(self, source: storage.Readable, at: int, step: int) -> None:
        self._source, self.at, self._step = source, at, max(step, _SIP)
        self._ready = memory.fresh(0)

    def fill(self, buffer: Array) -> int:
        if not len(self._ready):
            self._read(min(self._step, len(buffer)))
            self._step *= 2  # a large record is not read in as many steps as it has kilobytes
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
        """Goes to where the next record begins, which it gives, or -1 if none is nearby."""
        start = self.at
        for room in (min(self._step, _PIECE), _PIECE):
            self.at = start
            self._read(room)
            found = self._header(start, limits)
            if found >= 0:
                self._ready = self._ready[found:]
                return start + found
            if self.at == self._source.size:
                break
        return -1

    def _header(self, start: int, limits: Limits) -> int:
        """A header that holds, and one that holds behind it (or the end)."""
        window, size, at = self._ready, self._source.size, 0
        while (at := kernels.frame_find(window, at, limits.record)) < len(window):
            following = start + at + 16 + int(np.frombuffer(window, "<u8", 1, at)[0])
            if following == size:
                return at
            if (
                following + 12 <= size
                and kernels.frame_find(self._source.read_at(following, 12), 0, limits.record) == 0
            ):
                return at
            at += 1
        return -1


def _add(survey: kernels.ExampleSurvey, block: _blocks.Block) -> None:
    before = survey.others
    code, offset, done = survey.add(block.data, block.starts, block.sizes, False)
    if code == status.TOO_MANY:
        raise SchemaError(
            "more features than Limits(names=...) allows",
            path=block.path,
            record=block.first + done,
        )
    if code:
        raise status.problem(code, offset, "example").add(
            path=block.path, record=block.first + done, base=block.offset
        )
    coverage.check_examples(survey, before, block)


def schema_of(
    found: tuple[int, int, list[Any]],
    complete: bool,
    cast: Container[str] = (),
) -> Schema:
    """The schema that a survey amounts to."""
    records, _, rows = found
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
        if not there:
            continue  # it never has a value, so it has no kind
        if shown in cast and {_BY_NUMBER[number] for number in there} == {INT64, FLOAT}:
            there = [number for number in there if _BY_NUMBER[number] == FLOAT]
        if len(there) > 1:
            counts = ", ".join(f"{_BY_NUMBER[number]} in {kinds[number]}" for number in there)
            raise SchemaError(
                f"feature {shown!r} is of several kinds: {counts} records", tensor=shown
            )
        try:
            name.decode()
        except UnicodeDecodeError:
            raise SchemaError(f"the name {shown!r} is not UTF-8") from None
        kind = _BY_NUMBER[there[0]]
        if is_list and kinds[0]:
            shortest = 0  # a step without a list has no values
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
    """Infinities as text: JSON has none."""
    return bound if np.isfinite(bound) else str(bound)
