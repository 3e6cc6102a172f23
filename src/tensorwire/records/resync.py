"""The way back after damage in a record file: every record that is whole, and none that never was.

A header has a checksum of its own, so bytes that merely look like one do not happen by chance. What
does happen is that a record holds other records (a TFRecord file kept as a feature), or that it has
eight bytes: with the checksum behind them they look like a header. So a header is a candidate, and
what decides is how the frames around it fit together. A chain begins at a candidate whose frame is
followed by another header or by the end of the file, or whose data has the right checksum.

1. The header of the damaged frame holds, and a header follows where the frame ends: its length is
   true, and only its data is lost.
2. The header holds, and no header follows: bytes were lost or added, or the next header is damaged
   too. Only a chain of frames that runs across the place where the frame should end says the
   former (`_shifted`). A chain that stays inside the frame is the content of the record.
3. The header holds, and the frame would run past the end of the file: the file was cut, or bytes
   are missing. Only a chain that reaches the end exactly says the latter (`_cut`). One that begins
   right behind the header is content all the same.
4. The header is damaged (`_headless`). Its record is whole if, at some candidate behind it, the
   checksum of all that lies between is the one in front of the candidate. Then all that it holds is
   passed over.
5. Otherwise the first chain counts, unless it is content: it ends four bytes (a checksum) before
   the next header, or its length is in front of it as protobuf writes it.
6. A hostile file can make every guess costly. So wrong guesses are paid for out of `WorkLimit`,
   which grows with the size of the file alone.
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
"""Records beyond this are checked in pieces before anything of their size is allocated."""
_FAR = 64 << 10
"""A chain that runs so far past the end of a frame is not pushed there by bytes that were added
inside it.
"""
_FREE = 16
"""Candidates that each damage may compare at no cost: a record seldom holds others, and then the
first few decide.
"""
_GUESS, _LOOK = 1024, 4096
"""What a wrong guess costs at least, and a look at a far place, in bytes of checksums that take as
long.
"""
_WITHOUT_HEADER = "the header of a record is damaged, its data is whole"
_FEW = 64
"""Frames looked at behind damage before more are: more damage may follow, and then the look was in
vain.
"""


@dataclass(frozen=True, slots=True)
class Gap:
    """Bytes that belong to no good record.

    >>> print(Gap(216, 12, "the header of a record is damaged", "a.tfrecord"))
    a.tfrecord, bytes 216 to 228 (12): the header of a record is damaged
    """

    offset: int
    length: int
    why: str
    path: str | None = None
    packed: bool = False
    """Whether these are bytes of the compressed file; else they are counted in its content."""

    def __str__(self) -> str:
        where = f"{self.path}, " if self.path else ""
        packed = "compressed " if self.packed else ""
        return (
            f"{where}{packed}bytes {self.offset:,} to {self.offset + self.length:,}"
            f" ({self.length:,}): {self.why}"
        )


class Resynced(NamedTuple):
    """What came of a damaged frame: the gap, where to go on, and the record (start, size) if only
    its header was lost.
    """

    gap: Gap
    next: int
    record: tuple[int, int] | None = None


class WorkLimit:
    """What may still be spent on wrong guesses in one pass over a file, in bytes looked at.

    Each kind has its own allowance: one that is used up must not take the others with it.
    """

    __slots__ = ("ahead", "checks", "looked", "looks", "reaches")

    def __init__(self, size: int) -> None:
        self.ahead = self.checks = self.looks = (64 << 20) + size
        self.looked = -SIZE  # where the last look at a far place came from
        self.reaches = -1  # where a chain begins that is known to reach the end


def resync(
    source: files.Source, offset: int, limits: Limits = DEFAULT, work: WorkLimit | None = None
) -> Resynced:
    """Where the records go on behind the frame at `offset`, which is known to be damaged.

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
"""(where to go on, why, the record if only its header was lost)."""


def _resync(window: ScanBuffer, offset: int, work: WorkLimit) -> _Result:
    if offset + AROUND > window.size:
        return window.size, "the file ends inside a record", None
    length = window.header(offset)
    if length < 0:
        return _headless(window, offset, work)
    end = offset + AROUND + length
    if end > window.size:
        return (
            _cut(window, offset, work),
            f"a record of {length:,} bytes runs past the end of the file",
            None,
        )
    long = length > window.longest
    why = (
        f"a record of {length:,} bytes is more than Limits(record=...) allows"
        if long
        else status.PROBLEMS[status.BAD_DATA_CRC]
    )
    if end == window.size or window.header(end) >= 0:
        return end, why, None
    next = _shifted(window, offset, end, work)
    return next, why if next == end else "bytes of a record are missing, or others were added", None


def _shifted(window: ScanBuffer, offset: int, end: int, work: WorkLimit) -> int:
    """The length holds, but no header stands where it says that the frame ends."""
    at = offset + 1
    while end - offset <= work.checks and (at := _next(window, at, end, work)) < end:
        last, until = window.walk(at, end + _FAR)
        if (until == window.size or (last > end and until > end + _FAR)) and not _follows(
            window, offset, at
        ):
            # as all this may be looked at again for the next frame, which begins before `end`
            work.checks -= end - offset
            return at
        at = last + 1
    return end


def _cut(window: ScanBuffer, offset: int, work: WorkLimit) -> int:
    """The length holds, and runs past the end."""
    at, stop = offset + 1, min(window.size, offset + AROUND + window.longest)
    while work.reaches <= offset and (at := _next(window, at, stop, work)) < stop:
        last, until = window.walk(at, stop)
        if (until == window.size or last >= stop) and not _follows(window, offset, at):
            work.reaches = at
        at = last + 1
    return work.reaches if work.reaches > offset else stop


def _headless(window: ScanBuffer, offset: int, work: WorkLimit) -> _Result:
    """The header does not hold: its record may be whole all the same."""
    data = offset + tfrecord.HEADER
    # of a record of eight bytes, this is itself with its checksum, as a length with one
    inner = window.header(data)
    # where that record ends at the latest
    furthest = min(window.size, data + window.longest + tfrecord.FOOTER)
    value, done, compared = 0, data, 0
    first, broken, at, stop = -1, 0, offset + 1, window.size
    while True:
        # Once all that may be compared is, only chains are of interest.
        comparing = compared < _FREE or work.ahead >= _GUESS
        at = window.find(at, stop) if comparing or first >= 0 else _next(window, at, stop, work)
        able = data + tfrecord.FOOTER <= at <= furthest and (
            at == window.size or (at < stop and (inner < 0 or at != data + tfrecord.HEADER))
        )
        if able and comparing:
            if compared >= _FREE:
                work.ahead -= _GUESS
            compared += 1
            foot = at - tfrecord.FOOTER
            value, done = window.crc(done, foot, value), foot
            if crc.mask(value) == window.stored(foot):
                return at, _WITHOUT_HEADER, (data, foot - data)
        if at >= stop:
            break
        if first < 0 and comparing and not _begins(window, at, work):
            at += 1
            continue
        last, until = window.walk(at, furthest)
        reaches = until == window.size or last >= furthest
        if first < 0:
            if not reaches and (
                _is_content(window, at, until)
                or (at == data + tfrecord.HEADER and until == at + inner)
            ):
                at = until
                continue
            # A chain that reaches so far is no content. Behind one that breaks off, the damaged
            # record may still turn out to be whole.
            first, broken = at, last
            stop = (
                last
                if reaches
                else min(furthest, last + min(work.ahead, max(SIZE, work.ahead // 4)))
            )
        elif first == data and not reaches and _is_end(window, until + tfrecord.FOOTER):
            # content from the beginning, and this was the rest of it
            first, at, stop = -1, until, window.size
            continue
        at = last + 1
    if first < 0:
        return window.size, status.PROBLEMS[status.BAD_LENGTH_CRC], None
    work.ahead -= min(work.ahead, max(0, stop - broken))
    if inner >= 0 and first == data + tfrecord.HEADER:
        return first, _WITHOUT_HEADER, (data, 8)
    return first, status.PROBLEMS[status.BAD_LENGTH_CRC], None


def _follows(window: ScanBuffer, offset: int, at: int) -> bool:
    """Whether a chain stands right behind the header of a frame, as its content."""
    return at == offset + tfrecord.HEADER and AROUND + window.header(at) <= window.header(offset)


def _is_content(window: ScanBuffer, start: int, stop: int) -> bool:
    """Whether a chain was part of a record: its end, with the record's checksum behind it, or a
    field of a protobuf message.
    """
    if _is_end(window, stop + tfrecord.FOOTER):
        return True
    left = stop - start
    if left < 128:
        return False  # a single byte in front of it may be what it is by chance
    size = bytearray()  # as a varint
    while left > 127:
        size.append(left & 127 | 128)
        left >>= 7
    size.append(left)
    before = min(start, len(size) + 1)
    head = bytes(window.source.read_at(start - before, before))
    return head[1:] == size and head[0] & 7 == 2


def _is_end(window: ScanBuffer, offset: int) -> bool:
    """Whether a frame can end here: a header follows, or the file ends."""
    return offset == window.size or window.header(offset) >= 0


def _next(window: ScanBuffer, at: int, stop: int, work: WorkLimit) -> int:
    """The first offset from `at` on where a chain begins; `stop` if none does before it."""
    while True:
        near = work.looked + _FAR if work.looks < _LOOK else 0
        at, work.checks = window.chain(at, stop, near, work.checks, _GUESS)
        if at >= stop or window.sees(at + AROUND + window.length(at)) or _begins(window, at, work):
            return at  # a chain in sight was judged already
        at += 1


def _begins(window: ScanBuffer, offset: int, work: WorkLimit) -> bool:
    """Whether the header at an offset, which was just found, begins a chain."""
    length = window.length(offset)
    end = offset + AROUND + length
    if end > window.size:
        return False
    if not window.sees(end):
        # Only these looks need a read each. Large records are far apart; a crowd of headers that
        # say so has to pay.
        if offset - work.looked < _FAR:
            if work.looks < _LOOK:
                return False
            work.looks -= _LOOK
        work.looked = offset
    # A header right behind it: either the record holds others, or this is no header but a record of
    # eight bytes with its checksum, which look the same. Then only the data tells.
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
    """All that is in a file, in its order: blocks of good records, and the gaps between them.

    Blocks count good records only. A record that lost its header comes in a block of its own, whose
    data begins with the record. With `hold=False` records of more than 16 MiB are checked, and come
    in a block without data. Of a compressed file whatever can be unpacked is scanned, and what
    cannot be is reported first.

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
    """(the bytes of a file, unpacked; what of it could not be; the name of its compression). They
    may be unpacked into a `folder`.
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
    """The same for bytes that are not compressed, wherever they are."""
    window, work = ScanBuffer(source, limits.record), WorkLimit(source.size)
    at, record, need, most = 0, 0, 1, MOST
    # where it begins: it is held back, since the next one may follow without a record between
    gap, why = -1, ""
    while at < source.size:
        data = window.at(at, need)
        code, used, starts, sizes = kernels.frame_scan(data, 0, True, limits.record, most)
        if len(starts):
            if gap >= 0:
                yield Gap(gap, at - gap, why, path)
                gap = -1
            yield Block(data[:used], starts, sizes, record, at, path or "")
            at, record = at + used, record + len(starts)
        need, left = 1, len(data) - used
        if code == 0:
            most = min(MOST, 4 * most)
            continue
        if code == status.TRUNCATED and at + left < source.size:  # only the window ends here
            frame = AROUND + (window.header(at) if left >= tfrecord.HEADER else 0)
            small = frame <= _LARGE
            if at + frame <= source.size and (small or window.whole(at, frame - AROUND)):
                if small or hold:
                    need = frame
                else:
                    if gap >= 0:
                        yield Gap(gap, at - gap, why, path)
                        gap = -1
                    yield _single(_NOTHING, at, tfrecord.HEADER, frame - AROUND, record, path)
                    at, record = at + frame, record + 1
                continue
        next, what, headless = _resync(window, at, work)
        if gap < 0:
            gap, why = at, what
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
        at, most = next, _FEW
    if gap >= 0:
        yield Gap(gap, at - gap, why, path)


def _single(
    data: Array, offset: int, start: int, size: int, record: int, path: str | None
) -> Block:
    return Block(
        data, np.array([start], np.int64), np.array([size], np.int64), record, offset, path or ""
    )
