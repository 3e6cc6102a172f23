"""Paths and URLs: how they are recognized, normalized and shown; and the protocols of stores."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple, Protocol, Self, TypeGuard

from ..core import memory

_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.:-]*://")
_FILE = "file://"
_NAMED = ("abfs", "abfss")
"""Schemes whose URLs have a container before the @ instead of a user name."""


class FileEntry(NamedTuple):
    """A file or object. The stamp changes when the bytes change: an etag, or the modification time
    in ns, as text.
    """

    path: str
    size: int
    stamp: str


class Readable(Protocol):
    """A files.Source that can also read into a buffer, as files.FileSource does."""

    size: int
    path: str | None

    def read_at(self, offset: int, count: int) -> memoryview: ...
    def read_bytes(self, offset: int, count: int) -> bytes: ...
    def read_into(self, offset: int, buffer: memory.Buffer | memory.Array) -> None: ...
    def read_some(self, offset: int, buffer: memory.Buffer | memory.Array) -> int: ...
    def close(self) -> None: ...


class OpenedObject(Readable, Protocol):
    """A file or object that was opened by path or URL."""

    @property
    def stamp(self) -> str: ...
    def read_many(self, ranges: Sequence[tuple[int, int]]) -> list[memoryview]:
        """Read many ranges (offset, count).

        For an object, neighbouring ranges share a request, and requests run concurrently.
        """

    def __enter__(self) -> Self: ...
    def __exit__(self, *error: object) -> None: ...


class Store(Protocol):
    """A store of objects. Every method takes full URLs, and raises OSError or a TensorwireError."""

    def stat(self, url: str) -> FileEntry | None: ...
    def get_into(self, entry: FileEntry, start: int, buffer: memoryview) -> int:
        """Fill a buffer with the bytes from `start` on and return how many bytes were read: fewer
        than the buffer's size if the connection broke off.
        """

    def put(self, url: str, data: memoryview, if_absent: bool) -> None: ...
    def upload(self, url: str, parts: Iterable[Any]) -> None:
        """Write an object of any size; if the iterable raises, no object and no parts are left."""

    def delete(self, url: str) -> None: ...
    def level(self, url: str) -> tuple[list[str], list[FileEntry]]:
        """List a folder, not recursively: (folders, entries)."""

    def walk(self, url: str) -> Iterator[FileEntry]:
        """List a folder recursively."""


def is_url(path: object) -> TypeGuard[str]:
    """Return whether a path is a URL, `scheme://...`; `file:///...` counts as a local path.

    >>> is_url("s3://bucket/a"), is_url("/data/a"), is_url("file:///data/a"), is_url(b"s3://bucket/a")
    (True, False, False, False)
    """
    return (
        isinstance(path, str)
        and "://" in path
        and _URL.match(path) is not None
        and not path.startswith(_FILE)
    )


def local_path(path: str | os.PathLike[str]) -> str:
    """Return a local path without its `file://` prefix, if it has one.

    >>> local_path("file:///data/a%20b"), local_path("a%20b")
    ('/data/a b', 'a%20b')
    """
    text = os.fspath(path)
    if not text.startswith(_FILE):
        return text
    # urllib.parse takes longer to import than this whole package, and few paths need it.
    from urllib.parse import unquote

    return unquote(text[len(_FILE) :])


def normal(path: str) -> str:
    """Return the normal form of a path or URL: no `file://`, no redundant slashes.

    >>> normal("file:///data//a/"), normal("./data/../b"), normal("s3://bucket/a//")
    ('/data/a', 'b', 's3://bucket/a')
    """
    return path.rstrip("/") if is_url(path) else os.path.normpath(local_path(path))


def shown(url: str) -> str:
    """Return a URL without user name, password and query, so that messages show no secrets.

    >>> shown("https://me:word@host/a?X-Amz-Signature=1"), shown("a?b")
    ('https://host/a', 'a?b')
    """
    if not is_url(url):
        return url
    scheme, _, rest = url.partition("://")
    if scheme.lower() in ("http", "https"):
        rest = re.split(r"[?#]", rest, maxsplit=1)[0]
    host, slash, path = rest.partition("/")
    return (
        f"{scheme}://{host if scheme.lower() in _NAMED else host.rpartition('@')[2]}{slash}{path}"
    )


def join(base: str, name: str) -> str:
    """Join a folder and a name.

    >>> join("s3://bucket/data/", "a"), join("data", "a")
    ('s3://bucket/data/a', 'data/a')
    """
    return f"{base.rstrip('/')}/{name}" if is_url(base) else os.path.join(local_path(base), name)
