"""Sources of bytes (files, memory, file objects), and atomic replacement of files.

A Source has `size`, `read_at(offset, n)` and `close()`; any number of threads may read from it
concurrently.

A file is replaced atomically (`replacing`):

1. A temporary file is created in the same folder, under a random name, and locked.
2. The caller writes to it, and its bytes are synced to disk.
3. A rename puts it in the place of the old file. Readers see the old bytes or the new bytes; a
   reader that has the old file open or mapped keeps it.
4. The folder is synced, so that the rename survives a power cut.

After an error the temporary file is removed. If the process is killed, the next writer in the same
folder removes it: see "Temporary files" below.
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
"""A file of this size has tiny tensors only, because no header that we write is below 64 bytes."""
_VECTOR = 1000
"""Buffers in one system call; the kernel's limit is 1024."""
TEMPORARY = ".tensorwire"
"""The suffix of temporary files."""
_OURS = re.compile(r"\..*\.[0-9a-f]{16}" + re.escape(TEMPORARY), re.S)
_NAME = 50
"""Characters of the target's name in the temporary name: at most 200 bytes in UTF-8, so that the
whole name stays below the limit of 255 bytes.
"""
_SWEEP_REST = 20
"""The pause between two sweeps of a folder, as a multiple of the time that the last one took."""
_FOLDERS = 1000
_next_sweep: dict[str, float] = {}
"""The earliest time of the next sweep, by folder; cleared when it has `_FOLDERS` entries."""


class Source(Protocol):
    """Bytes with random access."""

    size: int
    path: str | None

    def read_at(self, offset: int, count: int) -> memoryview:
        """Read exactly `count` bytes; raise TruncatedError if the source ends before."""

    def close(self) -> None: ...


class BytesSource:
    """Bytes in memory; reading returns a view."""

    def __init__(self, data: Any, path: str | None = None) -> None:
        self.view, self.path = memory.flat(data), path
        self.size = len(self.view)

    def read_at(self, offset: int, count: int) -> memoryview:
        _check(self, offset, count, self.size)
        return self.view[offset : offset + count]

    def close(self) -> None:
        """Do nothing: arrays keep the memory alive as long as they need it."""


def _opened(path: str | os.PathLike[str]) -> tuple[int, int]:
    """Open a file and return (descriptor, size)."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    status = os.fstat(fd)
    # A folder can be opened too, and would fail at the first read, with an error without a path.
    if stat.S_ISDIR(status.st_mode):
        os.close(fd)
        raise IsADirectoryError(
            errno.EISDIR, "expected a file, found a folder; pass a file in it", os.fspath(path)
        )
    return fd, status.st_size


class FileSource:
    """A file that is read by `pread` into new memory, aligned to 64 bytes."""

    _fd = -1

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path: str | None = os.fspath(path)
        self._fd, self.size = _opened(path)

    def read_at(self, offset: int, count: int) -> memoryview:
        view = memory.fresh(count).data
        self.read_into(offset, view)
        return view

    def read_into(self, offset: int, buffer: Any) -> None:
        """Fill a buffer that the caller has allocated."""
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
        """Read exactly `count` bytes as a bytes object: faster than `read_at` for a few bytes."""
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
        """Read into a buffer up to the current end of the file; return the count, 0 at the end.

        The file may have grown since it was opened.
        """
        if self._fd < 0:
            raise ValueError(f"{self.path} is closed")
        return os.preadv(self._fd, [buffer], offset)

    def close(self) -> None:
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)

    # At interpreter shutdown `os` may be gone, so `close` is bound when the class is created.
    def __del__(self, close: Any = os.close) -> None:
        if self._fd >= 0:
            close(self._fd)
            self._fd = -1


def read_file(path: str | os.PathLike[str]) -> bytes | memoryview:
    """Read a whole file into new memory.

    A small file comes as bytes, since values decoded from it are copies anyway.
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
    """Map a file into memory, private and read-only.

    The file must not be truncated meanwhile: access to a page beyond its end kills the process.
    """
    with open(path, "rb") as file:
        # The system refuses to map an empty file.
        if os.fstat(file.fileno()).st_size == 0:
            return BytesSource(b"", os.fspath(path))
        mapping = _mmap.mmap(file.fileno(), 0, flags=_mmap.MAP_PRIVATE, prot=_mmap.PROT_READ)
    return BytesSource(mapping, os.fspath(path))


class StreamSource:
    """A seekable file object; a lock lets one thread at a time seek and read."""

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
        """Do nothing: the caller closes the stream."""


def _check(source: Source, offset: int, count: int, end: int) -> None:
    """Raise TruncatedError if a read goes beyond the end."""
    if offset + count > end:
        raise TruncatedError(
            f"expected {count} bytes, but the file ends at byte {end}",
            path=source.path,
            offset=offset,
        )


def source(where: object, mmap: bool = False) -> Source:
    """Return the Source for a path, bytes, or a file object."""
    if isinstance(where, (str, os.PathLike)):
        return map_file(where) if mmap else FileSource(where)
    if hasattr(where, "read"):
        check_binary(where, "rb")
        return StreamSource(where)
    return BytesSource(where)


def check_binary(stream: Any, mode: str) -> None:
    """Raise UsageError for a file object in text mode; `mode` is the right one."""
    if isinstance(stream, io.TextIOBase):
        raise UsageError(
            "expected a binary file object, found one in text mode",
            hint=f'open it in binary mode: open(path, "{mode}")',
        )


def fill(stream: Any, buffer: Any) -> int:
    """Read from a socket or file object until the buffer is full or the stream ends.

    Returns the number of bytes read.
    """
    rest, done = memoryview(buffer), 0
    into = getattr(stream, "recv_into", None) or getattr(stream, "readinto", None)
    while done < len(rest):
        if into is not None:
            count = into(rest[done:])
            if count is None:
                raise BlockingIOError("expected a blocking stream: a non-blocking read had no data")
        else:
            piece = stream.read(len(rest) - done)
            count = len(piece)
            rest[done : done + count] = piece
        if not count:
            break
        done += count
    return done


def write_all(stream: Any, part: Any) -> None:
    """Write a whole buffer; raw streams may accept only a part of it at a time."""
    rest = memoryview(part)
    while len(rest):
        count = stream.write(rest)
        if count is None:
            raise BlockingIOError("expected a blocking stream: a non-blocking write took no data")
        rest = rest[count:]


def replace(path: str | os.PathLike[str], chunks: Sequence[Any], durable: bool = True) -> None:
    """Replace the contents of `path` atomically; see `replacing`."""
    with replacing(path, durable) as fd:
        write_vector(fd, chunks)


@contextlib.contextmanager
def replacing(
    path: str | os.PathLike[str], durable: bool = True, if_absent: bool = False
) -> Iterator[int]:
    """Yield a descriptor of a temporary file that replaces `path` when the `with` block ends.

    After an error the temporary file is removed and `path` is unchanged. `durable=False` skips both
    fsync calls: readers still see the old file or the new one, but a power cut may bring the old
    file back, or an empty one on some file systems. `if_absent=True` raises FileExistsError if the
    file exists.
    """
    # A symbolic link stays one: its target is replaced.
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
            reason = (
                f"{error.strerror}: the new file is in place, but its folder could not be synced,"
                " so a power cut may bring the old file back"
            )
            raise OSError(error.errno, reason, target) from error


@contextlib.contextmanager
def _blaming(target: str) -> Iterator[None]:
    """Replace the temporary file's path in an OSError by the path that the caller has passed."""
    try:
        yield
    except OSError as error:
        if error.errno == errno.ENOENT:
            raise FileNotFoundError(
                errno.ENOENT, "folder does not exist", os.path.dirname(target) or "."
            ) from None
        raise OSError(error.errno, error.strerror, target) from None


def _claim(temporary: str, target: str) -> None:
    """Rename a temporary file; raise FileExistsError if the target exists.

    A rename would replace the target, but creating a hard link fails if it exists. On file systems
    without hard links the check is not atomic.
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
    """Sync the folder of a file, so that its name is as durable as its bytes."""
    folder = os.open(os.path.dirname(path) or ".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


# Temporary files
#
# 1. The name is random and the file is opened exclusively, so no existing file or link is written
#    to.
# 2. The mode is that of the file to be replaced; for a new file the umask decides.
# 3. A writer holds a lock on its temporary file. A file with our suffix and without a lock was left
#    by a killed writer, and the next writer in the same folder removes it (`sweep`).
# 4. A sweep may lock and remove a new file before its writer locks it. Then the writer's lock
#    fails, or the file is no longer at its path, and the writer tries another name.


@contextlib.contextmanager
def _sibling(target: str) -> Iterator[tuple[int, str]]:
    """Yield (descriptor, path) of a locked temporary file; remove it after an error."""
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
    """Return the mode of the file to be replaced, or None if it does not exist.

    Raises OSError for folders, devices and pipes, which are never replaced.
    """
    try:
        mode = os.stat(target).st_mode
    except FileNotFoundError:
        return None
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, "cannot replace a folder by a file", target)
    if not stat.S_ISREG(mode):
        raise FileExistsError(
            errno.EEXIST, "cannot replace a device, pipe or socket by a file", target
        )
    return stat.S_IMODE(mode)


def _lock(fd: int, path: str) -> bool:
    """Lock a file without waiting; return whether it is locked and still the file at that path."""
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return os.path.samestat(os.fstat(fd), os.lstat(path))
    except (BlockingIOError, FileNotFoundError):
        return False


def _sweep_sometimes(folder: str) -> None:
    """Sweep a folder, but not at every save: listing a large folder takes time."""
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
    """Remove a temporary file, unless it is locked, has other links, belongs to another user, or is
    not a regular file.
    """
    with contextlib.suppress(OSError):
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            status = os.fstat(fd)
            ours = (
                stat.S_ISREG(status.st_mode)
                and status.st_nlink == 1
                and status.st_uid == os.geteuid()
            )
            if ours and _lock(fd, path):
                os.unlink(path)
        finally:
            os.close(fd)


def write_vector(fd: int, chunks: Sequence[Any]) -> None:
    """Write many buffers with few system calls."""
    for start in range(0, len(chunks), _VECTOR):
        batch = [memoryview(chunk) for chunk in chunks[start : start + _VECTOR]]
        while batch:
            done = os.writev(fd, batch)
            while batch and done >= len(batch[0]):
                done -= len(batch.pop(0))
            if done:
                batch[0] = batch[0][done:]
