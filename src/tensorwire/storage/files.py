"""Bytes at rest: where they are read from, and how a file is replaced whole or not at all.

A Source has `size`, `read_at(offset, n)` and `close()`; any number of threads may read from it at
once.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import io
import mmap as _mmap
import os
import re
import stat
import threading
import time
from collections.abc import Iterator, Sequence
from typing import Any, Protocol

from .._errors import TruncatedError, UsageError
from ..core import memory

SMALL = memory.TINY + 64
"""Up to this size all tensors of a file are tiny: no header of ours is shorter than 64 bytes."""
_VECTOR = 1000
"""Buffers in one system call; the kernel's own ceiling is 1024."""
TEMPORARY = ".tensorwire"
"""The suffix of temporary siblings."""
_OURS = re.compile(r"\..*\.[0-9a-f]{16}" + re.escape(TEMPORARY), re.S)
_NAME = 50
"""Characters of the target's name in the temporary's: at most 200 bytes, so that the whole stays
under 255.
"""
_SWEEP_REST = 20
"""After a sweep the next one waits this many times as long as it took."""
_FOLDERS = 1000
_next_sweep: dict[str, float] = {}


class Source(Protocol):
    """Bytes that can be read at any place."""

    size: int
    path: str | None

    def read_at(self, offset: int, count: int) -> memoryview:
        """Exactly so many bytes; TruncatedError if they are not there."""

    def close(self) -> None: ...


class BytesSource:
    """Bytes in memory: reading is a view."""

    def __init__(self, data: Any, path: str | None = None) -> None:
        self.view, self.path = memory.flat(data), path
        self.size = len(self.view)

    def read_at(self, offset: int, count: int) -> memoryview:
        _check(self, offset, count, self.size)
        return self.view[offset : offset + count]

    def close(self) -> None:
        """Nothing of ours is open: arrays keep the memory alive as long as they need it."""


def _opened(path: str | os.PathLike[str]) -> tuple[int, int]:
    """(the descriptor of a file, its size). A folder can be opened, and would fail later without
    its name.
    """
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    found = os.fstat(fd)
    if stat.S_ISDIR(found.st_mode):
        os.close(fd)
        raise IsADirectoryError(
            errno.EISDIR, "this is a folder; name a file in it", os.fspath(path)
        )
    return fd, found.st_size


class FileSource:
    """A file, read by `pread` into fresh memory that starts at a multiple of 64."""

    _fd = -1

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path: str | None = os.fspath(path)
        self._fd, self.size = _opened(path)

    def read_at(self, offset: int, count: int) -> memoryview:
        view = memory.fresh(count).data
        self.read_into(offset, view)
        return view

    def read_into(self, offset: int, buffer: Any) -> None:
        """Fills a buffer of bytes, for those who have made the memory themselves."""
        if self._fd < 0:
            raise ValueError(f"{self.path} is closed")
        count = len(buffer)
        done = os.preadv(self._fd, [buffer], offset)
        while done < count:
            got = os.preadv(self._fd, [memoryview(buffer)[done:]], offset + done)
            if got == 0:
                _check(self, offset, count, offset + done)
            done += got

    def read_bytes(self, offset: int, count: int) -> bytes:
        """The same as bytes, for a little at a time."""
        if self._fd < 0:
            raise ValueError(f"{self.path} is closed")
        data = os.pread(self._fd, count, offset)
        while len(data) < count:
            more = os.pread(self._fd, count - len(data), offset + len(data))
            if not more:
                _check(self, offset, count, offset + len(data))
            data += more
        return data

    def read_some(self, offset: int, buffer: Any) -> int:
        """Fills a buffer as far as the file goes now, which may be further than when it was opened;
        0 at its end.
        """
        if self._fd < 0:
            raise ValueError(f"{self.path} is closed")
        return os.preadv(self._fd, [buffer], offset)

    def close(self) -> None:
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)

    # at the end of the interpreter `os` may be gone
    def __del__(self, close: Any = os.close) -> None:
        if self._fd >= 0:
            close(self._fd)
            self._fd = -1


def read_file(path: str | os.PathLike[str]) -> bytes | memoryview:
    """A whole file in fresh memory; as bytes if it is so small that whatever is decoded from it
    will be a copy anyway.
    """
    fd, size = _opened(path)
    try:
        if size <= SMALL:
            return os.pread(fd, SMALL, 0)
    finally:
        os.close(fd)
    source = FileSource(path)
    try:
        return source.read_at(0, source.size)
    finally:
        source.close()


def map_file(path: str | os.PathLike[str]) -> BytesSource:
    """A private, read-only mapping, for files that nobody truncates meanwhile: touching a page that
    is gone kills the process.
    """
    with open(path, "rb") as file:
        if os.fstat(file.fileno()).st_size == 0:
            return BytesSource(b"", os.fspath(path))
        mapping = _mmap.mmap(file.fileno(), 0, flags=_mmap.MAP_PRIVATE, prot=_mmap.PROT_READ)
    return BytesSource(mapping, os.fspath(path))


class StreamSource:
    """A file object that can seek, one read at a time."""

    def __init__(self, stream: Any) -> None:
        self.path: str | None = None
        self._stream, self._lock = stream, threading.Lock()
        self.size = stream.seek(0, os.SEEK_END)

    def read_at(self, offset: int, count: int) -> memoryview:
        out = memory.fresh(count)
        with self._lock:
            self._stream.seek(offset)
            got = fill(self._stream, out)
        _check(self, offset, count, offset + got)
        return out.data

    def close(self) -> None:
        """The stream belongs to whoever opened it."""


def _check(source: Source, offset: int, count: int, end: int) -> None:
    if offset + count > end:
        raise TruncatedError(
            f"{count} bytes wanted, and the file ends at {end}", path=source.path, offset=offset
        )


def source(where: object, mmap: bool = False) -> Source:
    """The Source for a path, bytes, or a file object."""
    if isinstance(where, (str, os.PathLike)):
        return map_file(where) if mmap else FileSource(where)
    if hasattr(where, "read"):
        check_binary(where, "rb")
        return StreamSource(where)
    return BytesSource(where)


def check_binary(stream: Any, mode: str) -> None:
    """Raise UsageError for a file object that was opened as text; `mode` is the right one."""
    if isinstance(stream, io.TextIOBase):
        raise UsageError(
            "a file object in text mode; tensors are bytes",
            hint=f'open it in binary mode: open(path, "{mode}")',
        )


def fill(stream: Any, buffer: Any) -> int:
    """Reads from a socket or file object until the buffer is full or the stream ends; returns how
    much.
    """
    rest, done = memoryview(buffer), 0
    into = getattr(stream, "recv_into", None) or getattr(stream, "readinto", None)
    while done < len(rest):
        if into is not None:
            count = into(rest[done:])
            if count is None:
                raise BlockingIOError("the stream is not blocking, and had nothing")
        else:
            piece = stream.read(len(rest) - done)
            count = len(piece)
            rest[done : done + count] = piece
        if not count:
            break
        done += count
    return done


def write_all(stream: Any, part: Any) -> None:
    """Writes all of a buffer; raw streams may take less than they are given."""
    rest = memoryview(part)
    while len(rest):
        count = stream.write(rest)
        if count is None:
            raise BlockingIOError("the stream is not blocking, and took nothing")
        rest = rest[count:]


def replace(path: str | os.PathLike[str], chunks: Sequence[Any], durable: bool = True) -> None:
    """Makes `path` hold exactly these bytes, or leaves it as it was; see `replacing`."""
    with replacing(path, durable) as fd:
        write_vector(fd, chunks)


@contextlib.contextmanager
def replacing(
    path: str | os.PathLike[str], durable: bool = True, if_absent: bool = False
) -> Iterator[int]:
    """A descriptor to write a new file through, which takes the place of `path` at the end, and is
    gone after an error.

    A temporary sibling, fsync, rename, fsync of the folder. `durable=False` skips both fsyncs:
    still whole or not at all for every reader, but a power cut may bring the old file back, or an
    empty one on some file systems. `if_absent` raises FileExistsError if there is one.
    """
    # a link stays a link
    target = os.path.realpath(path) if os.path.islink(path) else os.fspath(path)
    with _sibling(target) as (fd, temporary):
        yield fd
        if durable:
            os.fsync(fd)
        with _blaming(target):
            if if_absent:
                _claim(temporary, target)
            else:
                os.replace(temporary, target)
    if durable:
        try:
            sync_folder(target)
        except OSError as error:
            why = (
                f"{error.strerror}; the new file is in place, but a power cut may undo that: its"
                " folder could not be synced"
            )
            raise OSError(error.errno, why, target) from error


@contextlib.contextmanager
def _blaming(target: str) -> Iterator[None]:
    """Name the file that the caller knows in an OSError, not its temporary sibling."""
    try:
        yield
    except OSError as error:
        if error.errno == errno.ENOENT:
            raise FileNotFoundError(
                errno.ENOENT, "no such folder", os.path.dirname(target) or "."
            ) from None
        raise OSError(error.errno, error.strerror, target) from None


def _claim(temporary: str, target: str) -> None:
    """Renames, unless the name is taken. A link fails then, unlike a rename; a file system without
    links is only asked before.
    """
    try:
        os.link(temporary, target)
        os.unlink(temporary)
    except OSError as error:
        if error.errno not in (errno.EPERM, errno.ENOTSUP, errno.EMLINK):
            raise
        if os.path.lexists(target):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), target) from None
        os.replace(temporary, target)


def sync_folder(path: str) -> None:
    """Makes the name of a new file as durable as its bytes."""
    folder = os.open(os.path.dirname(path) or ".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


# Temporary siblings. 1. The name is random and the file is opened exclusively, so nothing that was
# put there before is written to. 2. The mode is what the umask gives, or that of the file to be
# replaced. 3. A living writer holds a lock on its temporary. What has our suffix and no lock was
# left by a killed writer, and the next writer in the same folder removes it. 4. A sweeper may lock
# a file between its creation and its writer's lock: then the writer takes another name.


@contextlib.contextmanager
def _sibling(target: str) -> Iterator[tuple[int, str]]:
    """A locked temporary file next to the target, gone after an error."""
    folder, name = os.path.split(target)
    with _blaming(target):
        mode = _replaceable_mode(target)
        _sweep_sometimes(folder or ".")
        while True:
            path = os.path.join(folder, f".{name[:_NAME]}.{os.urandom(8).hex()}{TEMPORARY}")
            try:
                fd = os.open(
                    path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, 0o666
                )
            except FileExistsError:
                continue
            if _lock(fd, path):
                break
            os.close(fd)
    try:
        if mode is not None:
            os.fchmod(fd, mode)
        yield fd, path
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)
        raise
    finally:
        os.close(fd)


def _replaceable_mode(target: str) -> int | None:
    """The mode of the file that is to be replaced; None if there is none. Devices, pipes and
    folders are not replaced.
    """
    try:
        mode = os.stat(target).st_mode
    except FileNotFoundError:
        return None
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, "a folder, not a file", target)
    if not stat.S_ISREG(mode):
        raise FileExistsError(errno.EEXIST, "not a regular file, so it is not replaced", target)
    return stat.S_IMODE(mode)


def _lock(fd: int, path: str) -> bool:
    """Whether this process now holds the lock, and the file is still the one at that path."""
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return os.path.samestat(os.fstat(fd), os.lstat(path))
    except (BlockingIOError, FileNotFoundError):
        return False


def _sweep_sometimes(folder: str) -> None:
    """`sweep`, unless the last one was just now: a large folder is not listed at every save."""
    start = time.monotonic()
    if start < _next_sweep.get(folder, 0.0):
        return
    sweep(folder)
    end = time.monotonic()
    if len(_next_sweep) >= _FOLDERS:
        _next_sweep.clear()
    _next_sweep[folder] = end + _SWEEP_REST * (end - start)


def sweep(folder: str) -> None:
    """Remove the temporary files that killed writers left in a folder."""
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            if entry.name.endswith(TEMPORARY) and _OURS.fullmatch(entry.name):
                _remove_leftover(entry.path)


def _remove_leftover(path: str) -> None:
    """Remove a temporary unless it is locked, linked elsewhere, another user's, or not a regular
    file.
    """
    with contextlib.suppress(OSError):
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            about = os.fstat(fd)
            ours = (
                stat.S_ISREG(about.st_mode) and about.st_nlink == 1 and about.st_uid == os.geteuid()
            )
            if ours and _lock(fd, path):
                os.unlink(path)
        finally:
            os.close(fd)


def write_vector(fd: int, chunks: Sequence[Any]) -> None:
    """Many buffers in few system calls."""
    for start in range(0, len(chunks), _VECTOR):
        batch = [memoryview(chunk) for chunk in chunks[start : start + _VECTOR]]
        while batch:
            done = os.writev(fd, batch)
            while batch and done >= len(batch[0]):
                done -= len(batch.pop(0))
            if done:
                batch[0] = batch[0][done:]
