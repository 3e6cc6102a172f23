"""`repair`: copies every good record of a damaged file to a new file and reports what was lost.

How a file is repaired:

1. `resync.contents` opens the file. A compressed file is decompressed into a temporary file, as far
   as that is possible, and the parts that could not be decompressed are the first gaps.
2. `resync.scan_source` yields blocks of good records and the gaps between them, in file order.
3. The frames of good records are copied as they are. A record that lost its header gets a new one,
   which is correct because the checksum of its data matched.
4. Records above 16 MiB come without their bytes and are copied from the source in pieces, so memory
   does not grow with the size of a record.
5. The target is a temporary file that is renamed at the end. It appears complete or not at all, and
   a file without a good record leaves no target.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from .. import storage
from .._errors import DecodeError, UsageError
from .._limits import DEFAULT, Limits
from ..core.memory import Buffer
from ..storage import files
from ..transforms import compression as compressions
from ..wire import tfrecord
from . import resync
from .blocks import Block
from .resync import Gap

_PIECE = 1 << 20
"""Bytes of a large record that are copied at once."""
_SHOWN = 20
"""The maximum number of gaps that `str(report)` lists."""


@dataclass(frozen=True)
class RepairReport:
    """The result of `repair`: the records that were found, and the gaps.

    It is true if nothing was lost. `json()` returns it as plain dicts, `str()` describes it in
    words.

    >>> import tensorwire as tw
    >>> import os, tempfile
    >>> path = os.path.join(tempfile.mkdtemp(), "a.tfrecord")
    >>> with tw.RecordWriter(path) as writer:
    ...     writer.write(b"one")
    >>> report = tw.repair(path)
    >>> report.records, report.gaps, report.ok
    (1, [], True)
    """

    path: str
    target: str | None
    records: int
    """The number of good records, all of which are in the target."""
    recovered_headers: int
    """How many of them had lost their header and were found by the checksum of their data."""
    gaps: list[Gap]
    lost_bytes: int
    """Bytes in the gaps, without the headers of recovered records.

    For a compressed file, bytes of its content, as far as that could be decompressed.
    """
    size: int
    """The size of the file; of a compressed file, the size of its content."""

    @property
    def ok(self) -> bool:
        """Whether nothing was lost."""
        return not self.lost_bytes and not any(gap.packed for gap in self.gaps)

    def __bool__(self) -> bool:
        return self.ok

    def json(self) -> dict[str, Any]:
        """Return the report as plain dicts and lists."""
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


def repair(
    path: str | os.PathLike[str],
    target: str | os.PathLike[str] | None = None,
    *,
    overwrite: bool = False,
    compression: str | None = None,
    limits: Limits | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> RepairReport:
    """Copy every good record of a damaged TFRecord file to a new file and report what was lost.

    Records are copied byte for byte. Without a target, nothing is written.

    target       the new file, compressed like the damaged one; it appears complete or not at all
    overwrite    True replaces an existing target compression  of the damaged file, where its
    beginning is too damaged to detect it progress     called with (bytes done, bytes in total)

    Returns a RepairReport. Raises DecodeError, and writes nothing, if the file has no good record,
    and EncodeError for an invalid target.

    >>> import tensorwire as tw
    >>> import os, tempfile
    >>> broken = os.path.join(tempfile.mkdtemp(), "broken.tfrecord")
    >>> with tw.RecordWriter(broken) as writer:
    ...     writer.write_many([b"one", b"two", b"three"])
    >>> with open(broken, "r+b") as file:
    ...     _ = file.seek(31), file.write(b"?")
    >>> report = tw.repair(broken, broken.replace("broken", "saved"))
    >>> report.records, report.lost_bytes, bool(report)
    (2, 19, False)
    >>> list(tw.RecordReader(report.target))
    [b'one', b'three']
    """
    name, new = os.fspath(path), None if target is None else os.fspath(target)
    if storage.is_url(new):
        raise UsageError("the target of a repair must be a local file", path=new)
    if (
        new is not None
        and not storage.is_url(name)
        and os.path.exists(new)
        and os.path.samefile(name, new)
    ):
        raise UsageError(
            "the target is the damaged file itself",
            path=name,
            hint="pass another target, and keep the original until the result is checked",
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
            raise DecodeError(
                "no good record found: the file is not a TFRecord file, or is damaged throughout",
                path=name,
                format="tfrecord",
                offset=0,
            )
        if out is not None:
            out.finish()
        if progress is not None:
            progress(source.size, source.size)
        lost = sum(gap.length for gap in gaps if not gap.packed) - tfrecord.HEADER * recovered
        return RepairReport(name, new, records, recovered, gaps, lost, source.size)


class _Target:
    """The target of a repair: copies frames and writes new headers, compressed or not."""

    def __init__(self, fd: int, source: storage.Readable, compression: str | None) -> None:
        self._fd, self._source = fd, source
        self._compressor = compressions.compressor(compression) if compression is not None else None

    def write(self, block: Block) -> None:
        # Every frame begins with a header, so a record at the very start of a block has lost its
        # header.
        start = int(block.starts[0])
        if start == 0:
            self._put(tfrecord.header(int(block.sizes[0])))
        if len(block.data):
            data = block.data[max(0, start - tfrecord.HEADER) : block.end - block.offset]
            self._put(data.data)
            return
        offset, end = block.offset + max(0, start - tfrecord.HEADER), block.end
        while offset < end:
            piece = self._source.read_at(offset, min(_PIECE, end - offset))
            self._put(piece)
            offset += len(piece)

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
