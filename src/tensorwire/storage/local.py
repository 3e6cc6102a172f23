"""Files on this machine."""

from __future__ import annotations

import contextlib
import errno
import glob
import io
import os
from collections.abc import Iterator, Sequence
from typing import IO, Any, Self, cast

from .. import files, memory
from .places import Entry

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


def stat(path: str) -> Entry | None:
    try:
        found = os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    return Entry(path, found.st_size, str(found.st_mtime_ns))


def matches(pattern: str) -> list[Entry]:
    names: Iterator[str]
    if os.path.isdir(pattern):
        names = (os.path.join(pattern, name) for name in os.listdir(pattern) if name[0] not in "._")
    elif os.path.lexists(pattern) or not glob.has_magic(pattern):
        names = iter([pattern])
    else:
        names = glob.iglob(pattern, recursive=True)
    return _entries(names)


def listing(folder: str) -> list[Entry]:
    return sorted(_entries(os.path.join(place, name) for place, _, names in os.walk(folder) for name in names))


def _entries(names: Iterator[str]) -> list[Entry]:
    """Files, without folders and what is gone meanwhile."""
    return [found for name in names if not os.path.isdir(name) and (found := stat(name)) is not None]


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
