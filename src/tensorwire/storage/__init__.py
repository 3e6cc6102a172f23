"""Where bytes live, by path or URL: local files, buckets (`s3://`, `gs://`, `az://`), web servers,
and whatever fsspec knows.

    find is_pattern        which files a pattern means
    stat stats listing     what is there: FileEntry(path, size, stamp)
    source                 reads at any place; of an object by range requests
    reader                 reads in order, with read-ahead in the background for objects
    writer write_bytes     whole or not at all
    read_bytes delete join is_url

All of them take a path as they take a URL. obstore and fsspec are imported when the first URL is
used. Credentials come from the standard places alone (docs/cloud.md), and no message has a secret
in it.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from typing import IO, Any, TypeVar

from .._errors import EncodeError, LimitError
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
    """The store that keeps the bytes behind a URL."""
    from . import remote

    return remote.store(url)


def stat(path: str) -> FileEntry | None:
    """The size and stamp of one file or object; None if there is none.

    >>> stat("no such file") is None
    True
    """
    return local.stat(local_path(path)) if not is_url(path) else _store(path).stat(path)


def stats(paths: Iterable[str]) -> dict[str, FileEntry]:
    """Those of many names that are there; a folder in a bucket is asked once for what it has, if
    more than a few are in it.
    """
    found: dict[str, FileEntry] = {}
    folders: dict[str, list[str]] = {}
    for path in paths:
        folders.setdefault(path.rpartition("/")[0] if is_url(path) else "", []).append(path)
    for folder, names in folders.items():
        if folder and len(names) > _FEW and not folder.startswith(("http:", "https:")):
            wanted = set(names)
            found.update(
                (entry.path, entry)
                for entry in _store(folder).level(folder)[1]
                if entry.path in wanted
            )
        else:
            found.update((path, entry) for path in names if (entry := stat(path)) is not None)
    return found


def check_replaceable(path: str, overwrite: bool) -> None:
    """Raise FileExistsError if a file or object exists at `path` and `overwrite` is False.

    Everything but `tw.save`, which replaces its file by design, asks here before it writes.
    """
    if not overwrite and stat(path) is not None:
        raise FileExistsError(f"{shown(path)} exists already; overwrite=True replaces it")


_FEW = 4
_TOGETHER = 16
_T = TypeVar("_T")


def side_by_side(work: Callable[[str], _T], paths: Sequence[str]) -> list[_T]:
    """What `work` makes of each path. Objects are asked for several at once, as each is a request,
    and mostly waiting.
    """
    if len(paths) < 2 or not is_url(paths[0]):
        return [work(path) for path in paths]
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(min(_TOGETHER, len(paths)), "tensorwire-ask") as pool:
        return list(pool.map(work, paths))


def absolute(path: str) -> str:
    """A path that does not hang on the present folder; a URL is one.

    >>> absolute("/data/a"), absolute("s3://bucket/a")
    ('/data/a', 's3://bucket/a')
    """
    return path if is_url(path) else os.path.join(os.getcwd(), local_path(path))


def names_within(folder: str, suffix: str) -> set[str]:
    """The names in a folder that end so.

    >>> import tempfile
    >>> folder = tempfile.mkdtemp()
    >>> write_bytes(join(folder, "a.json"), b"{}")
    >>> names_within(folder, ".json")
    {'a.json'}
    """
    if is_url(folder):
        found: Iterable[FileEntry] = _store(folder).level(folder)[1]
    else:
        found = local.within(local_path(folder), lambda name: name.endswith(suffix))
    return {entry.path.rpartition("/")[2] for entry in found if entry.path.endswith(suffix)}


def listing(prefix: str) -> list[FileEntry]:
    """Every file below a folder, however deep, sorted by path; nothing is no error."""
    if not is_url(prefix):
        return local.listing(local_path(prefix))
    return sorted(_store(prefix).walk(prefix))


def opened(path: str, *, ahead: bool = False, known: FileEntry | None = None) -> OpenedObject:
    """`source` for those who read in order (`ahead=True`: the next bytes are fetched while these
    are used), or know the entry already.
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
    """Bytes that can be read at any place; of an object by range requests, which fail if it is
    replaced meanwhile.

    >>> import tempfile
    >>> path = join(tempfile.mkdtemp(), "a")
    >>> write_bytes(path, b"0123456789")
    >>> with source(path) as file:
    ...     [bytes(part) for part in file.read_many([(0, 2), (7, 3)])]
    [b'01', b'789']
    """
    return opened(path)


def source_of(where: object, mmap: bool = False) -> files.Source:
    """`files.source`, which takes a path, bytes or a file object, for URLs too."""
    if not is_url(where):
        return files.source(where, mmap)
    if mmap:
        raise EncodeError("mmap=True is for local files", path=shown(where))
    return opened(where)


def read_whole(path: str) -> bytes | memoryview:
    """A whole file in fresh memory, however large; of an object by requests side by side."""
    if not is_url(path):
        return files.read_file(path)
    with opened(path) as file:
        return file.read_at(0, file.size)


def reader(path: str) -> IO[bytes]:
    """A binary file object that reads in order (and can seek)."""
    if not is_url(path):
        return open(local_path(path), "rb")
    from . import object_reader

    return object_reader.file_object(opened(path, ahead=True))


def writer(
    path: str, *, if_absent: bool = False, durable: bool = True
) -> AbstractContextManager[IO[bytes]]:
    """A binary file object for a new file or object, which is there, whole, when the `with` block
    ends; after an error nothing is.

    `if_absent=True` raises FileExistsError if something is there already, also if it came in the
    meantime. Objects past 64 MiB, and stores of fsspec, cannot promise that last part: they are
    looked for before, and again just before the end.
    """
    if not is_url(path):
        return local.writing(local_path(path), if_absent, durable)
    from . import object_writer

    return object_writer.writing(_store(path), path, if_absent)


def read_bytes(path: str, most: int) -> bytes:
    """A whole small file; LimitError if it has more than `most` bytes."""
    with opened(path) as file:
        if file.size > most:
            raise LimitError(
                f"{file.size} bytes, and at most {most} were expected", path=shown(path)
            )
        return bytes(file.read_at(0, file.size)) if file.size else b""


def write_bytes(path: str, data: Any, *, if_absent: bool = False, durable: bool = True) -> None:
    """Makes a file or object hold exactly these bytes: one request for an object."""
    if is_url(path):
        _store(path).put(path, memory.flat(data), if_absent)
        return
    with local.writing(local_path(path), if_absent, durable) as file:
        file.write(data)


def delete(path: str) -> None:
    """Removes one file or object; it is no error if there is none."""
    if is_url(path):
        _store(path).delete(path)
    else:
        local.delete(local_path(path))
