"""Files and objects by path or URL: local files, buckets (`s3://`, `gs://`, `az://`), web servers,
and every file system of fsspec.

    find is_pattern        the files that match a glob pattern
    stat stats listing     metadata: FileEntry(path, size, stamp)
    source                 random access; range requests for objects
    reader                 sequential access, with background prefetch for objects
    writer write_bytes     atomic writes: the whole file or nothing
    read_bytes delete join is_url

All functions accept a local path or a URL. obstore and fsspec are imported when the first URL is
used. Credentials come only from the standard places (docs/cloud.md), and no error message contains
a secret.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from typing import IO, Any, TypeVar

from .._errors import LimitError, UsageError
from ..core import memory
from . import files, local
from .glob import find, is_pattern
from .urls import FileEntry, OpenedObject, Readable, Store, is_url, join, local_path, normal, shown

__all__ = [
    "FileEntry",
    "OpenedObject",
    "Readable",
    "absolute",
    "check_replaceable",
    "delete",
    "find",
    "is_pattern",
    "is_url",
    "join",
    "listing",
    "local_path",
    "names_within",
    "normal",
    "opened",
    "read_bytes",
    "read_whole",
    "reader",
    "shown",
    "side_by_side",
    "source",
    "source_of",
    "stat",
    "stats",
    "write_bytes",
    "writer",
]


def _store(url: str) -> Store:
    """Return the store for a URL."""
    from . import remote

    return remote.store(url)


def stat(path: str) -> FileEntry | None:
    """Return the size and stamp of a file or object, or None if it does not exist.

    >>> stat("no such file") is None
    True
    """
    return local.stat(local_path(path)) if not is_url(path) else _store(path).stat(path)


def stats(paths: Iterable[str]) -> dict[str, FileEntry]:
    """Return the entries of the paths that exist, by path."""
    entries: dict[str, FileEntry] = {}
    folders: dict[str, list[str]] = {}
    for path in paths:
        folders.setdefault(path.rpartition("/")[0] if is_url(path) else "", []).append(path)
    for folder, names in folders.items():
        # One listing of a bucket's folder is cheaper than a request for each of many objects. Web
        # servers cannot list.
        if folder and len(names) > _FEW and not folder.startswith(("http:", "https:")):
            wanted = set(names)
            entries.update(
                (entry.path, entry)
                for entry in _store(folder).level(folder)[1]
                if entry.path in wanted
            )
        else:
            entries.update((path, entry) for path in names if (entry := stat(path)) is not None)
    return entries


def check_replaceable(path: str, overwrite: bool) -> None:
    """Raise FileExistsError if a file or object exists at `path` and `overwrite` is False.

    Every function that writes calls it first, except `tw.save`, which replaces its file by design.
    """
    if not overwrite and stat(path) is not None:
        raise FileExistsError(f"{shown(path)} exists already; overwrite=True replaces it")


_FEW = 4
"""Up to this number of objects in a folder, each is looked up by a request of its own."""
_TOGETHER = 16
"""Concurrent requests of `side_by_side`."""
_T = TypeVar("_T")


def side_by_side(work: Callable[[str], _T], paths: Sequence[str]) -> list[_T]:
    """Return `work(path)` for each path, in order; for objects the calls run in a thread pool."""
    if len(paths) < 2 or not is_url(paths[0]):
        return [work(path) for path in paths]
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(min(_TOGETHER, len(paths)), "tensorwire-ask") as pool:
        return list(pool.map(work, paths))


def absolute(path: str) -> str:
    """Return an absolute path; a URL is returned unchanged.

    >>> absolute("/data/a"), absolute("s3://bucket/a")
    ('/data/a', 's3://bucket/a')
    """
    return path if is_url(path) else os.path.join(os.getcwd(), local_path(path))


def names_within(folder: str, suffix: str) -> set[str]:
    """Return the names in a folder that end with `suffix`.

    >>> import tempfile
    >>> folder = tempfile.mkdtemp()
    >>> write_bytes(join(folder, "a.json"), b"{}")
    >>> names_within(folder, ".json")
    {'a.json'}
    """
    if is_url(folder):
        entries: Iterable[FileEntry] = _store(folder).level(folder)[1]
    else:
        entries = local.within(local_path(folder), lambda name: name.endswith(suffix))
    return {entry.path.rpartition("/")[2] for entry in entries if entry.path.endswith(suffix)}


def listing(prefix: str) -> list[FileEntry]:
    """Return every file below a folder, recursively, sorted by path; empty if it does not exist."""
    if not is_url(prefix):
        return local.listing(local_path(prefix))
    return sorted(_store(prefix).walk(prefix))


def opened(path: str, *, ahead: bool = False, known: FileEntry | None = None) -> OpenedObject:
    """Open a file or object for reading.

    `ahead=True` prefetches in the background, for sequential access. `known` is the entry, if the
    caller has it already: it saves a request.
    """
    if not is_url(path):
        return local.LocalSource(local_path(path))
    from . import object_reader

    store = _store(path)
    entry = known if known is not None else store.stat(path)
    if entry is None:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), shown(path))
    return (
        object_reader.AheadSource(store, entry)
        if ahead
        else object_reader.ObjectSource(store, entry)
    )


def source(path: str) -> OpenedObject:
    """Open a file or object for random access.

    An object is read by range requests, which fail if it is replaced while it is open.

    >>> import tempfile
    >>> path = join(tempfile.mkdtemp(), "a")
    >>> write_bytes(path, b"0123456789")
    >>> with source(path) as file:
    ...     [bytes(part) for part in file.read_many([(0, 2), (7, 3)])]
    [b'01', b'789']
    """
    return opened(path)


def source_of(where: object, mmap: bool = False) -> files.Source:
    """Return the Source for a path, a URL, bytes, or a file object."""
    if not is_url(where):
        return files.source(where, mmap)
    if mmap:
        raise UsageError("mmap=True works for local files only", path=shown(where))
    return opened(where)


def read_whole(path: str) -> bytes | memoryview:
    """Read a whole file into new memory; a large object is read by concurrent range requests."""
    if not is_url(path):
        return files.read_file(path)
    with opened(path) as file:
        return file.read_at(0, file.size)


def reader(path: str) -> IO[bytes]:
    """Return a binary file object for sequential reads; it can seek."""
    if not is_url(path):
        return open(local_path(path), "rb")
    from . import object_reader

    return object_reader.file_object(opened(path, ahead=True))


def writer(
    path: str, *, if_absent: bool = False, durable: bool = True
) -> AbstractContextManager[IO[bytes]]:
    """Return a binary file object for a new file or object.

    The file appears, complete, when the `with` block ends; after an error it does not appear.
    `if_absent=True` raises FileExistsError if the file exists, even if another process has created
    it in the meantime. For objects above 64 MiB, and for stores of fsspec, the check is not atomic:
    it runs at the start and again just before the end.
    """
    if not is_url(path):
        return local.writing(local_path(path), if_absent, durable)
    from . import object_writer

    return object_writer.writing(_store(path), path, if_absent)


def read_bytes(path: str, most: int) -> bytes:
    """Read a whole small file; raise LimitError if it has more than `most` bytes."""
    with opened(path) as file:
        if file.size > most:
            raise LimitError(
                f"the file has {file.size} bytes, the limit is {most}", path=shown(path)
            )
        return bytes(file.read_at(0, file.size)) if file.size else b""


def write_bytes(path: str, data: Any, *, if_absent: bool = False, durable: bool = True) -> None:
    """Write a file or object atomically; an object takes one request."""
    if is_url(path):
        _store(path).put(path, memory.flat(data), if_absent)
        return
    with local.writing(local_path(path), if_absent, durable) as file:
        file.write(data)


def delete(path: str) -> None:
    """Delete a file or object; do nothing if it does not exist."""
    if is_url(path):
        _store(path).delete(path)
    else:
        local.delete(local_path(path))
