"""Local files: metadata, listings, and atomic writes through a file object."""

from __future__ import annotations

import contextlib
import errno
import io
import os
from collections.abc import Callable, Iterator, Sequence
from stat import S_ISREG
from typing import IO, Any, Self, cast

from ..core import memory
from . import files
from .urls import FileEntry

_HELD = 256 << 10
"""Small writes are buffered up to this number of bytes."""


class LocalSource(files.FileSource):
    """A local file for random access, with its stamp."""

    @property
    def stamp(self) -> str:
        return str(os.fstat(self._fd).st_mtime_ns)

    def read_many(self, ranges: Sequence[tuple[int, int]]) -> list[memoryview]:
        return [self.read_at(offset, count) for offset, count in ranges]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def stat(path: str) -> FileEntry | None:
    """Return the entry of a file, or None if it does not exist."""
    try:
        return _entry(path, os.stat(path))
    except (FileNotFoundError, NotADirectoryError):
        return None


def _entry(path: str, status: os.stat_result) -> FileEntry:
    return FileEntry(path, status.st_size, str(status.st_mtime_ns))


def is_nowhere(error: OSError) -> bool:
    """Return whether an error means a missing file, a dangling link, or a loop of links."""
    return error.errno in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP)


def within(folder: str, wanted: Callable[[str], object]) -> Iterator[FileEntry]:
    """Yield the regular files of a folder whose names pass `wanted`, without recursion.

    Pipes, sockets and devices are left out, because opening a pipe blocks until it has a writer.
    Each file costs one `stat` call: a folder may have a million files.
    """
    prefix = os.path.join(folder, "")
    with (
        contextlib.suppress(FileNotFoundError, NotADirectoryError),
        os.scandir(folder or ".") as scan,
    ):
        for entry in scan:
            try:
                if (
                    wanted(name := entry.name)
                    and not entry.is_dir()
                    and S_ISREG((status := entry.stat()).st_mode)
                ):
                    yield _entry(prefix + name, status)
            except OSError as error:
                if not is_nowhere(error):
                    raise


def listing(folder: str) -> list[FileEntry]:
    """List the regular files below a folder, sorted; raise if a subfolder cannot be read."""

    def failed(error: OSError) -> None:
        if not is_nowhere(error):
            raise error

    walk = os.walk(folder, onerror=failed)
    return sorted(
        entries((os.path.join(place, name) for place, _, names in walk for name in names), S_ISREG)
    )


def entries(names: Iterator[str], wanted: Callable[[int], bool]) -> list[FileEntry]:
    """Return the entries of files whose mode passes `wanted`; skip files deleted meanwhile."""
    matches = []
    for name in names:
        try:
            status = os.stat(name)
        except OSError as error:
            if not is_nowhere(error):
                raise
            continue
        if wanted(status.st_mode):
            matches.append(_entry(name, status))
    return matches


def delete(path: str) -> None:
    """Delete a file; do nothing if it does not exist."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)


class _Output(io.RawIOBase):
    """A file object over a descriptor that `files.replacing` owns; it buffers small writes."""

    def __init__(self, fd: int) -> None:
        self._fd, self._at = fd, 0
        self._held: list[Any] = []
        self._size = 0

    def writable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def write(self, data: Any) -> int:
        view = memory.flat(data)
        count = len(view)
        if self._size + count >= _HELD:
            files.write_vector(self._fd, [*self._held, view])
            self._held, self._size = [], 0
        else:
            self._held.append(bytes(view))
            self._size += count
        self._at += count
        return count

    def finish(self) -> None:
        files.write_vector(self._fd, self._held)
        self._held, self._size = [], 0


@contextlib.contextmanager
def writing(path: str, if_absent: bool, durable: bool) -> Iterator[IO[bytes]]:
    """Yield a file object whose bytes replace `path` atomically when the `with` block ends."""
    # Fail early, before the caller produces any bytes. `replacing` checks again, atomically.
    if if_absent and os.path.lexists(path):
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path)
    with files.replacing(path, durable, if_absent) as fd:
        output = _Output(fd)
        yield cast("IO[bytes]", output)
        output.finish()
