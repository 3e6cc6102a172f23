"""Resynchronisation after damage in a record file: finds every complete record, and no false one.

A header has a checksum of its own, so random bytes do not look like a header. But a record may
contain other records (a TFRecord file stored as a feature), and a record of eight bytes followed by
its checksum looks like a header. So a header is only a candidate, and the frames around it decide.
A chain begins at a candidate whose frame is followed by another header or by the end of the file,
or whose data has the right checksum.

1. The header of the damaged frame is valid, and a header follows where the frame ends: the length
   is right, and only the data is lost.
2. The header is valid, and no header follows: bytes were lost or inserted, or the next header is
   damaged too. Only a chain of frames that crosses the end of the frame shows the former
   (`_shifted`). A chain that stays inside the frame is the content of the record.
3. The header is valid, and the frame extends past the end of the file: the file was truncated, or
   bytes are missing. Only a chain that reaches the end exactly shows the latter (`_cut`). A chain
   that begins right behind the header is content all the same.
4. The header is damaged (`_headless`). Its record is complete if, at some candidate behind it, the
   checksum of the bytes between them equals the checksum stored in front of the candidate. Then
   everything inside that record is skipped.
5. Otherwise the first chain counts, unless it is content: it ends four bytes (a checksum) before
   the next header, or it is preceded by its length as a protobuf varint.
6. A hostile file can make every guess expensive. Wrong guesses are therefore charged to a
   `WorkLimit`, which depends on the size of the file alone.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from .. import storage
from .._errors import TensorwireError
from .._limits import DEFAULT, Limits
from ..storage import files
from ..wire import crc, kernels, status, tfrecord
from . import blocks as _blocks
from . import salvage
from .blocks import Block
from .scan_buffer import AROUND, MOST, SIZE, ScanBuffer

Array = np.ndarray[Any, Any]

_NOTHING: Array = np.empty(0, np.uint8)
_LARGE = 16 << 20
"""Records above this many bytes are verified in pieces before their size is allocated."""
_FAR = 64 << 10
"""A chain that extends this far past the end of a frame was not shifted by inserted bytes."""
_FREE = 16
"""Candidates that can be compared for free at each damage.

A record seldom contains others, and then the first few candidates decide.
"""
_GUESS, _LOOK = 1024, 4096
"""The minimum cost of a wrong guess, and the cost of a read elsewhere in the file.

Both are in bytes of checksum computation that take as long.
"""
_WITHOUT_HEADER = "the header of a record is damaged, its data is intact"
_FEW = 64
"""Frames scanned right after damage, before the number grows again.

More damage may follow, and then the scan would be wasted.
"""


@dataclass(frozen=True, slots=True)
class Gap:
    """A range of bytes that belongs to no good record.

    >>> print(Gap(216, 12, "the header of a record is damaged", "a.tfrecord"))
    a.tfrecord, bytes 216 to 228 (12): the header of a record is damaged
    """

    offset: int
    length: int
    why: str
    path: str | None = None
    packed: bool = False
    """Whether the offsets are those of the compressed file; else of its content."""

    def __str__(self) -> str:
        where = f"{self.path}, " if self.path else ""
        packed = "compressed " if self.packed else ""
        return (
            f"{where}{packed}bytes {self.offset:,} to {self.offset + self.length:,}"
            f" ({self.length:,}): {self.why}"
        )


class Resynced(NamedTuple):
    """The result of `resync`: the gap, the offset to continue at, and a record without a header.

    `record` is (start, size) if only the header of a record was lost.
    """

    gap: Gap
    next: int
    record: tuple[int, int] | None = None


class WorkLimit:
    """The work that may still be spent on wrong guesses in one pass over a file, in bytes.

    Each kind of work has its own allowance, so that one kind cannot use up the others.
    """

    __slots__ = ("ahead", "checks", "looked", "looks", "reaches")

    def __init__(self, size: int) -> None:
        self.ahead = self.checks = self.looks = (64 << 20) + size
        # The candidate for which the last read elsewhere was made.
        self.looked = -SIZE
        # The start of a chain that is known to reach the end of the file.
        self.reaches = -1


def resync(
    source: files.Source, offset: int, limits: Limits = DEFAULT, work: WorkLimit | None = None
) -> Resynced:
    """Find where the records continue behind the frame at `offset`, which is known to be damaged.

    >>> data = bytearray(kernels.frame(b"one") + kernels.frame(b"two") + kernels.frame(b"three"))
    >>> data[20] ^= 1  # in the header of "two"
    >>> resync(files.BytesSource(data), 19)
    Resynced(gap=Gap(offset=19, length=12, ...), next=38, record=(31, 3))
    """
    stop, why, record = _resync(
        ScanBuffer(source, limits.record), offset, work or WorkLimit(source.size)
    )
    length = tfrecord.HEADER if record is not None else stop - offset
    return Resynced(Gap(offset, length, why, source.path), stop, record)


_Result = tuple[int, str, tuple[int, int] | None]
"""(offset to continue at, reason, the record if only its header was lost)."""


def _resync(window: ScanBuffer, offset: int, work: WorkLimit) -> _Result:
    """Decide which of the cases in the module docstring applies."""
    if offset + AROUND > window.size:
        return window.size, "the file ends inside a record", None
    length = window.header(offset)
    if length < 0:
        return _headless(window, offset, work)
    end = offset + AROUND + length
    if end > window.size:
        return (
            _cut(window, offset, work),
            f"a record of {length:,} bytes extends past the end of the file",
            None,
        )
    long = length > window.longest
    why = (
        f"a record of {length:,} bytes is larger than Limits(record=...) allows"
        if long
        else status.PROBLEMS[status.BAD_DATA_CRC]
    )
    if end == window.size or window.header(end) >= 0:
        return end, why, None
    next = _shifted(window, offset, end, work)
    return (
        next,
        why if next == end else "bytes of a record are missing, or bytes were inserted",
        None,
    )


def _shifted(window: ScanBuffer, offset: int, end: int, work: WorkLimit) -> int:
    """Find where to continue after a frame with a valid header that no header follows."""
    candidate = offset + 1
    while end - offset <= work.checks and (candidate := _next(window, candidate, end, work)) < end:
        last, until = window.walk(candidate, end + _FAR)
        if (until == window.size or (last > end and until > end + _FAR)) and not _follows(
            window, offset, candidate
        ):
            # The next frame begins before `end`, so these bytes may be scanned again. That is
            # charged, or nested lengths could make the scan quadratic.
            work.checks -= end - offset
            return candidate
        candidate = last + 1
    return end


def _cut(window: ScanBuffer, offset: int, work: WorkLimit) -> int:
    """Find where to continue after a frame with a valid header that extends past the end."""
    candidate, stop = offset + 1, min(window.size, offset + AROUND + window.longest)
    while work.reaches <= offset and (candidate := _next(window, candidate, stop, work)) < stop:
        last, until = window.walk(candidate, stop)
        if (until == window.size or last >= stop) and not _follows(window, offset, candidate):
            work.reaches = candidate
        candidate = last + 1
    return work.reaches if work.reaches > offset else stop


def _headless(window: ScanBuffer, offset: int, work: WorkLimit) -> _Result:
    """Find where to continue after a damaged header, whose record may be complete."""
    data = offset + tfrecord.HEADER
    # The data of an eight-byte record, followed by its checksum, looks like a header.
    inner = window.header(data)
    # The damaged record ends here at the latest.
    furthest = min(window.size, data + window.longest + tfrecord.FOOTER)
    value, done, compared = 0, data, 0
    first, broken, candidate, stop = -1, 0, offset + 1, window.size
    while True:
        # When the allowance for comparisons is used up, only chains are searched.
        comparing = compared < _FREE or work.ahead >= _GUESS
        candidate = (
            window.find(candidate, stop)
            if comparing or first >= 0
            else _next(window, candidate, stop, work)
        )
        # The record can end at this candidate if it is long enough and not too long. An eight-byte
        # record does not end at its own checksum.
        able = data + tfrecord.FOOTER <= candidate <= furthest and (
            candidate == window.size
            or (candidate < stop and (inner < 0 or candidate != data + tfrecord.HEADER))
        )
        if able and comparing:
            if compared >= _FREE:
                work.ahead -= _GUESS
            compared += 1
            # The checksum is continued from the last candidate, so all comparisons together read
            # the bytes once.
            foot = candidate - tfrecord.FOOTER
            value, done = window.crc(done, foot, value), foot
            if crc.mask(value) == window.stored(foot):
                return candidate, _WITHOUT_HEADER, (data, foot - data)
        if candidate >= stop:
            break
        if first < 0 and comparing and not _begins(window, candidate, work):
            candidate += 1
            continue
        last, until = window.walk(candidate, furthest)
        reaches = until == window.size or last >= furthest
        if first < 0:
            if not reaches and (
                _is_content(window, candidate, until)
                or (candidate == data + tfrecord.HEADER and until == candidate + inner)
            ):
                candidate = until
                continue
            # A chain that reaches this far is not content. After one that breaks off, the damaged
            # record may still turn out to be complete.
            first, broken = candidate, last
            stop = (
                last
                if reaches
                else min(furthest, last + min(work.ahead, max(SIZE, work.ahead // 4)))
            )
        elif first == data and not reaches and _is_end(window, until + tfrecord.FOOTER):
            # The chain at the start of the data was content, and this was the rest of it.
            first, candidate, stop = -1, until, window.size
            continue
        candidate = last + 1
    if first < 0:
        return window.size, status.PROBLEMS[status.BAD_LENGTH_CRC], None
    work.ahead -= min(work.ahead, max(0, stop - broken))
    if inner >= 0 and first == data + tfrecord.HEADER:
        return first, _WITHOUT_HEADER, (data, 8)
    return first, status.PROBLEMS[status.BAD_LENGTH_CRC], None


def _follows(window: ScanBuffer, offset: int, start: int) -> bool:
    """Return whether a chain begins right behind the header of a frame, as its content."""
    return start == offset + tfrecord.HEADER and AROUND + window.header(start) <= window.header(
        offset
    )


def _is_content(window: ScanBuffer, start: int, stop: int) -> bool:
    """Return whether a chain was part of a record.

    It is content if the record's checksum and another header follow, or if it is a protobuf field.
    """
    if _is_end(window, stop + tfrecord.FOOTER):
        return True
    left = stop - start
    # A length below 128 is a single byte, which may precede the chain by chance.
    if left < 128:
        return False
    # The length of the chain as a varint, with the tag of a length-delimited field before it.
    size = bytearray()
    while left > 127:
        size.append(left & 127 | 128)
        left >>= 7
    size.append(left)
    before = min(start, len(size) + 1)
    head = bytes(window.source.read_at(start - before, before))
    return head[1:] == size and head[0] & 7 == 2


def _is_end(window: ScanBuffer, offset: int) -> bool:
    """Return whether a frame can end here: a header follows, or the file ends."""
    return offset == window.size or window.header(offset) >= 0


def _next(window: ScanBuffer, start: int, stop: int, work: WorkLimit) -> int:
    """Return the first offset from `start` on where a chain begins; `stop` if there is none."""
    while True:
        near = work.looked + _FAR if work.looks < _LOOK else 0
        start, work.checks = window.chain(start, stop, near, work.checks, _GUESS)
        if (
            start >= stop
            or window.sees(start + AROUND + window.length(start))
            or _begins(window, start, work)
        ):
            # The kernel has already judged a chain that lies within the buffer.
            return start
        start += 1


def _begins(window: ScanBuffer, offset: int, work: WorkLimit) -> bool:
    """Return whether the (valid) header at an offset begins a chain."""
    length = window.length(offset)
    end = offset + AROUND + length
    if end > window.size:
        return False
    if not window.sees(end):
        # The next header is outside the buffer, so this check needs a read. Large records are far
        # apart; many headers close together that claim large records are charged.
        if offset - work.looked < _FAR:
            if work.looks < _LOOK:
                return False
            work.looks -= _LOOK
        work.looked = offset
    # A second header right behind this one: either the record contains others, or this is not a
    # header but an eight-byte record with its checksum. Then only the checksum of the data decides.
    if not _is_end(window, offset + tfrecord.HEADER) and _is_end(window, end):
        return True
    cost = max(length, _GUESS)
    if cost > work.checks:
        return False
    if window.whole(offset, length):
        return True
    work.checks -= cost
    return False


def scan(
    path: str, *, compression: str | None = None, limits: Limits | None = None, hold: bool = True
) -> Iterator[Block | Gap]:
    """Yield everything in a file in order: blocks of good records, and the gaps between them.

    Blocks number good records only. A record that lost its header comes in a block of its own,
    whose data begins with the record. With `hold=False`, records of more than 16 MiB are verified
    and come in a block without data. A compressed file is decompressed as far as possible, and the
    parts that cannot be decompressed are reported first.

    >>> import os, tempfile
    >>> path = os.path.join(tempfile.mkdtemp(), "a.tfrecord")
    >>> with open(path, "wb") as file:
    ...     _ = file.write(kernels.frame(b"one") + b"?" + kernels.frame(b"two"))
    >>> [item.why if isinstance(item, Gap) else item.strings() for item in scan(path)]
    [[b'one'], 'the length of a record does not match its checksum', [b'two']]
    """
    with contents(path, compression, limits or DEFAULT) as (source, lost, _):
        yield from lost
        yield from scan_source(source, limits or DEFAULT, path, hold)


@contextlib.contextmanager
def contents(
    path: str, compression: str | None, limits: Limits, folder: str | None = None
) -> Iterator[tuple[storage.Readable, list[Gap], str | None]]:
    """Open a file as (decompressed source, gaps, name of the compression).

    The gaps are the parts that could not be decompressed. The temporary file is created in
    `folder`.
    """
    with contextlib.ExitStack() as stack:
        source: storage.Readable = storage.opened(path, ahead=True)
        stack.callback(source.close)
        try:
            name = _blocks.compression_of(source, compression)
            lost: list[salvage.Lost] = []
            if name is not None:
                source, lost = salvage.salvage(source, name, limits, folder)
                stack.callback(source.close)
            yield (
                source,
                [Gap(offset, length, why, path, True) for offset, length, why in lost],
                name,
            )
        except TensorwireError as error:
            raise error.add(path=path, format="tfrecord") from error.__cause__


def scan_source(
    source: files.Source, limits: Limits, path: str | None = None, hold: bool = True
) -> Iterator[Block | Gap]:
    """Yield the blocks and gaps of an uncompressed source, like `scan`."""
    window, work = ScanBuffer(source, limits.record), WorkLimit(source.size)
    offset, record, need, limit = 0, 0, 1, MOST
    # The start of the current gap, -1 if there is none. A gap is only yielded when a record follows,
    # because damage may continue and extend it.
    gap, why = -1, ""
    while offset < source.size:
        data = window.at(offset, need)
        code, used, starts, sizes = kernels.frame_scan(data, 0, True, limits.record, limit)
        if len(starts):
            if gap >= 0:
                yield Gap(gap, offset - gap, why, path)
                gap = -1
            yield Block(data[:used], starts, sizes, record, offset, path or "")
            offset, record = offset + used, record + len(starts)
        need, left = 1, len(data) - used
        if code == 0:
            limit = min(MOST, 4 * limit)
            continue
        # The buffer ends inside a frame, but the file does not: the frame is read in full, or
        # verified in pieces if it is large, before it counts as damaged.
        if code == status.TRUNCATED and offset + left < source.size:
            frame = AROUND + (window.header(offset) if left >= tfrecord.HEADER else 0)
            small = frame <= _LARGE
            if offset + frame <= source.size and (small or window.whole(offset, frame - AROUND)):
                if small or hold:
                    need = frame
                else:
                    if gap >= 0:
                        yield Gap(gap, offset - gap, why, path)
                        gap = -1
                    yield _single(_NOTHING, offset, tfrecord.HEADER, frame - AROUND, record, path)
                    offset, record = offset + frame, record + 1
                continue
        next, what, headless = _resync(window, offset, work)
        if gap < 0:
            gap, why = offset, what
        if headless is not None:
            start, size = headless
            yield Gap(gap, start - gap, why, path)
            gap = -1
            data = (
                window.at(start, size + tfrecord.FOOTER)[: size + tfrecord.FOOTER]
                if hold or size <= _LARGE
                else _NOTHING
            )
            yield _single(data, start, 0, size, record, path)
            record += 1
        offset, limit = next, _FEW
    if gap >= 0:
        yield Gap(gap, offset - gap, why, path)


def _single(
    data: Array, offset: int, start: int, size: int, record: int, path: str | None
) -> Block:
    """Return a block of one record."""
    return Block(
        data, np.array([start], np.int64), np.array([size], np.int64), record, offset, path or ""
    )
