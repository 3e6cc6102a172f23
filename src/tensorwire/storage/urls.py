"""Names of places: what is a URL, how it is shown, and what every store can do."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple, Protocol, Self, TypeGuard

from ..core import memory

_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.:-]*://")
_FILE = "file://"
_NAMED = ("abfs", "abfss")
"""Schemes whose URLs have a container before the @, not a user."""


class FileEntry(NamedTuple):
    """A file or object. The stamp is another one when its bytes have changed: an etag, or the time
    of change in ns, as text.
    """

    path: str
    size: int
    stamp: str


class Readable(Protocol):
    """A files.Source with more ways to read, as files.FileSource has them."""

    size: int
    path: str | None

    def read_at(self, offset: int, count: int) -> memoryview: ...
    def read_bytes(self, offset: int, count: int) -> bytes: ...
    def read_into(self, offset: int, buffer: memory.Buffer | memory.Array) -> None: ...
    def read_some(self, offset: int, buffer: memory.Buffer | memory.Array) -> int: ...
    def close(self) -> None: ...


class OpenedObject(Readable, Protocol):
    """A file or object that was opened by its name."""

    @property
    def stamp(self) -> str: ...
    def read_many(self, ranges: Sequence[tuple[int, int]]) -> list[memoryview]:
        """Many ranges (offset, count) at once; of an object, near ones by one request, and requests
        side by side.
        """

    def __enter__(self) -> Self: ...
    def __exit__(self, *error: object) -> None: ...


class Store(Protocol):
    """What keeps objects. Every method takes whole URLs, and raises OSError, TransportError, or
    what _errors.py has.
    """

    def stat(self, url: str) -> FileEntry | None: ...
    def get_into(self, entry: FileEntry, start: int, buffer: memoryview) -> int:
        """Fills a buffer with the bytes from `start` on; how many came before the connection broke
        off, if it did.
        """

    def put(self, url: str, data: memoryview, if_absent: bool) -> None: ...
    def upload(self, url: str, parts: Iterable[Any]) -> None:
        """An object of any size; if the iterable raises, there is none, and no leftovers."""

    def delete(self, url: str) -> None: ...
    def level(self, url: str) -> tuple[list[str], list[FileEntry]]:
        """What is directly in a folder: (folders, entries)."""

    def walk(self, url: str) -> Iterator[FileEntry]:
        """Everything below a folder."""


def is_url(path: object) -> TypeGuard[str]:
    """Whether a path is `scheme://...`; `file:///...` is a local path.

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
    """A local path without the `file://` that it may have.

    >>> local_path("file:///data/a%20b"), local_path("a%20b")
    ('/data/a b', 'a%20b')
    """
    text = os.fspath(path)
    if not text.startswith(_FILE):
        return text
    from urllib.parse import unquote  # which takes longer to import than all of this package

    return unquote(text[len(_FILE) :])


def normal(path: str) -> str:
    """One form for each place: a local path without `file://`, and no slashes too many.

    >>> normal("file:///data//a/"), normal("./data/../b"), normal("s3://bucket/a//")
    ('/data/a', 'b', 's3://bucket/a')
    """
    return path.rstrip("/") if is_url(path) else os.path.normpath(local_path(path))


def shown(url: str) -> str:
    """A URL as it may stand in a message: without a user's name and password, and without a query,
    which may be a signature.

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
    """A name in a folder.

    >>> join("s3://bucket/data/", "a"), join("data", "a")
    ('s3://bucket/data/a', 'data/a')
    """
    return f"{base.rstrip('/')}/{name}" if is_url(base) else os.path.join(local_path(base), name)
