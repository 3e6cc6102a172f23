"""Files on this machine."""

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
"""Bytes of small writes that are written together."""


class LocalSource(files.FileSource):
    """A file, read at any place, which knows its stamp."""

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
    try:
        return _entry(path, os.stat(path))
    except (FileNotFoundError, NotADirectoryError):
        return None


def _entry(path: str, found: os.stat_result) -> FileEntry:
    return FileEntry(path, found.st_size, str(found.st_mtime_ns))


def is_nowhere(error: OSError) -> bool:
    """Whether a file is gone, or is a link that leads nowhere; or round and round."""
    return error.errno in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP)


def within(folder: str, wanted: Callable[[str], object]) -> Iterator[FileEntry]:
    """The files of one folder with a wanted name, each looked at once: there may be a million.

    Pipes, sockets and devices are left out: opening a pipe waits for somebody who writes to it.
    """
    prefix = os.path.join(folder, "")
    with (
        contextlib.suppress(FileNotFoundError, NotADirectoryError),
        os.scandir(folder or ".") as found,
    ):
        for entry in found:
            try:
                if (
                    wanted(name := entry.name)
                    and not entry.is_dir()
                    and S_ISREG((about := entry.stat()).st_mode)
                ):
                    yield _entry(prefix + name, about)
            except OSError as error:
                if not is_nowhere(error):
                    raise


def listing(folder: str) -> list[FileEntry]:
    """Whatever is below a folder; what may not be read is an error, not nothing."""

    def failed(error: OSError) -> None:
        if not is_nowhere(error):
            raise error

    walk = os.walk(folder, onerror=failed)
    return sorted(
        entries((os.path.join(place, name) for place, _, names in walk for name in names), S_ISREG)
    )


def entries(names: Iterator[str], wanted: Callable[[int], bool]) -> list[FileEntry]:
    """Files of a wanted mode, without what is gone meanwhile."""
    found = []
    for name in names:
        try:
            about = os.stat(name)
        except OSError as error:
            if not is_nowhere(error):
                raise
            continue
        if wanted(about.st_mode):
            found.append(_entry(name, about))
    return found


def delete(path: str) -> None:
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)


class _Output(io.RawIOBase):
    """Writes through a descriptor that belongs to `files.replacing`; small pieces are held back."""

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
    if if_absent and os.path.lexists(path):
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path)
    with files.replacing(path, durable, if_absent) as fd:
        output = _Output(fd)
        yield cast("IO[bytes]", output)
        output.finish()
