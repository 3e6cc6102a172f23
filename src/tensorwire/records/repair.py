"""`repair`: every good record of a damaged file in a new one, and a report of what was lost."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from .. import storage
from .._errors import DecodeError, EncodeError
from .._limits import DEFAULT, Limits
from ..core.memory import Buffer
from ..storage import files
from ..transforms import compression as compressions
from ..wire import tfrecord
from . import resync
from .blocks import Block
from .resync import Gap

_PIECE = 1 << 20
_SHOWN = 20


@dataclass(frozen=True)
class RepairReport:
    """What a file still had, and what not. True if nothing was lost; `json()` is for machines,
    `str()` for people.
    """

    path: str
    target: str | None
    records: int
    """Good ones, all of which are in the target."""
    recovered_headers: int
    """How many of them had lost their header, and were found by the checksum of their data."""
    gaps: list[Gap]
    lost_bytes: int
    """In the gaps, other than headers of recovered records; for a compressed file, of its content
    as far as that could be unpacked.
    """
    size: int
    """Bytes of the file; of its content, if it is compressed."""

    @property
    def ok(self) -> bool:
        """Whether nothing was lost."""
        return not self.lost_bytes and not any(gap.packed for gap in self.gaps)

    def __bool__(self) -> bool:
        return self.ok

    def json(self) -> dict[str, Any]:
        """Plain dicts and lists."""
        return {"ok": self.ok, **asdict(self)}

    def __str__(self) -> str:
        lost = (
            "nothing is lost" if self.ok else f"{self.lost_bytes:,} of {self.size:,} bytes are lost"
        )
        lines = [f"{self.path}: {self.records:,} good records, {lost}"]
        if self.recovered_headers:
            lines.append(f"  {self.recovered_headers:,} of them had lost their header")
        lines += [f"  {gap}" for gap in self.gaps[:_SHOWN]]
        if len(self.gaps) > _SHOWN:
            lines.append(f"  ... and {len(self.gaps) - _SHOWN:,} more gaps")
        if self.target is not None:
            lines.append(f"  written to {self.target}")
        return "\n".join(lines)

    __repr__ = __str__


def repair(
    path: str | os.PathLike[str],
    target: str | os.PathLike[str] | None = None,
    *,
    overwrite: bool = False,
    compression: str | None = None,
    limits: Limits | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> RepairReport:
    """Writes every good record of a damaged TFRecord file to a new file, byte for byte as it was;
    without a target it only reports.

    The target appears whole or not at all, and is compressed as the file was; `compression` says
    how that is where its beginning is too damaged to tell. An existing target is replaced only with
    `overwrite=True`. A file without a single good record raises DecodeError, and nothing is
    written. `progress` is called with (bytes done, bytes in all).

    >>> import os, tempfile
    >>> from tensorwire.wire.kernels import frame
    >>> broken = os.path.join(tempfile.mkdtemp(), "broken.tfrecord")
    >>> with open(broken, "wb") as file:
    ...     _ = file.write(frame(b"one") + frame(b"two")[:-1] + frame(b"three"))
    >>> report = repair(broken, broken.replace("broken", "saved"))
    >>> report.records, report.lost_bytes, bool(report)
    (2, 18, False)
    >>> os.path.getsize(report.target)
    40
    """
    name, new = os.fspath(path), None if target is None else os.fspath(target)
    if storage.is_url(new):
        raise EncodeError("the target of a repair is a local file", path=new)
    if (
        new is not None
        and not storage.is_url(name)
        and os.path.exists(new)
        and os.path.samefile(name, new)
    ):
        raise EncodeError(
            "the target is the damaged file itself; give another, and keep the original until you"
            " have looked at the result",
            path=name,
        )
    if new is not None:
        storage.check_replaceable(new, overwrite)
    limits = limits or DEFAULT
    folder = None if new is None else os.path.dirname(new) or "."
    records = recovered = 0
    with contextlib.ExitStack() as stack:
        source, gaps, packed = stack.enter_context(
            resync.contents(name, compression, limits, folder)
        )
        out = None
        if new is not None:
            out = _Target(
                stack.enter_context(files.replacing(new, if_absent=not overwrite)), source, packed
            )
            stack.callback(out.close)
        for item in resync.scan_source(source, limits, name, hold=False):
            if isinstance(item, Gap):
                gaps.append(item)
                continue
            records += len(item.starts)
            recovered += int(item.starts[0]) == 0
            if out is not None:
                out.write(item)
            if progress is not None:
                progress(item.end, source.size)
        if not records:
            why = "not a TFRecord file, or nothing of it is left: there is no good record in it"
            raise DecodeError(why, path=name, format="tfrecord", offset=0)
        if out is not None:
            out.finish()
        if progress is not None:
            progress(source.size, source.size)
        lost = sum(gap.length for gap in gaps if not gap.packed) - tfrecord.HEADER * recovered
        return RepairReport(name, new, records, recovered, gaps, lost, source.size)


class _Target:
    """Frames as they were, or around records that lost theirs, compressed or not."""

    def __init__(self, fd: int, source: storage.Readable, compression: str | None) -> None:
        self._fd, self._source = fd, source
        self._compressor = compressions.compressor(compression) if compression is not None else None

    def write(self, block: Block) -> None:
        start = int(block.starts[0])
        if start == 0:
            self._put(tfrecord.header(int(block.sizes[0])))
        if len(block.data):
            data = block.data[max(0, start - tfrecord.HEADER) : block.end - block.offset]
            self._put(data.data)
            return
        at, end = block.offset + max(0, start - tfrecord.HEADER), block.end
        while at < end:
            piece = self._source.read_at(at, min(_PIECE, end - at))
            self._put(piece)
            at += len(piece)

    def _put(self, data: Buffer) -> None:
        files.write_vector(
            self._fd, [data] if self._compressor is None else self._compressor.write(data)
        )

    def finish(self) -> None:
        if self._compressor is not None:
            files.write_vector(self._fd, self._compressor.finish())

    def close(self) -> None:
        if self._compressor is not None:
            self._compressor.close()
