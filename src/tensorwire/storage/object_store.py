"""The store for buckets and web servers, by obstore."""

from __future__ import annotations

import contextlib
import itertools
import os
from collections.abc import Iterable, Iterator
from datetime import timedelta
from typing import Any
from urllib.parse import quote, unquote

from .._errors import TransportError, UsageError
from .._optional import require
from . import aws_config
from .errors import BrokenOff, translated, translating
from .urls import FileEntry, shown

PART = 8 << 20
"""Bytes of one part of a multipart upload. S3 allows 10,000 parts, so an object has up to 80 GB."""
_PIECE = 1 << 20
"""Bytes of an answer that are copied at a time."""
_PAGE = 1000
_TRIES = 4
"""Attempts to list a folder, if the answer breaks off."""
_TOGETHER = 2
"""Parts of one upload that are sent concurrently."""


class ObjectStore:
    """One bucket, or one web server, which is read-only."""

    def __init__(self, kind: str, root: str, patience: float) -> None:
        _check_process(root)
        self._obs, self._root, self._web = (
            require("obstore", extra="cloud"),
            root,
            kind == "HTTPStore",
        )
        settings = aws_config.settings(kind)
        client = {
            "allow_http": aws_config.allows_http(kind, root, settings),
            "connect_timeout": timedelta(seconds=5),
            "read_timeout": timedelta(seconds=30),
            "timeout": timedelta(seconds=300),
        }
        backoff = {
            "init_backoff": timedelta(milliseconds=100),
            "max_backoff": timedelta(seconds=5),
            "base": 2,
        }
        retry = {
            "max_retries": 12,
            "retry_timeout": timedelta(seconds=patience),
            "backoff": backoff,
        }
        with translating(root):
            maker = getattr(require("obstore.store", extra="cloud"), kind)
            self._store = maker.from_url(
                root, client_options=client, retry_config=retry, **settings
            )

    def _key(self, url: str) -> str:
        """Return the key of an object in this bucket, or its path on this web server."""
        _check_process(url)
        key = url[len(self._root) + 1 :]
        if not self._web:
            return key
        if "?" in key or "#" in key:
            raise UsageError(
                "URLs with a query or a fragment, such as signed URLs, are not supported",
                path=shown(url),
                hint="use the store's own URL, such as s3://bucket/key",
            )
        return unquote(key)

    def _entry(self, meta: Any) -> FileEntry:
        path = meta["path"]
        return FileEntry(
            f"{self._root}/{quote(path) if self._web else path}", meta["size"], _stamp(meta)
        )

    def stat(self, url: str) -> FileEntry | None:
        try:
            with translating(url):
                return self._entry(self._obs.head(self._store, self._key(url)))._replace(path=url)
        except FileNotFoundError:
            return None

    def get_into(self, entry: FileEntry, start: int, buffer: memoryview) -> int:
        with translating(entry.path):
            options = {"range": (start, start + len(buffer))}
            answer = self._obs.get(self._store, self._key(entry.path), options=options)
            check(entry, answer.meta["size"], _stamp(answer.meta))
            return _take(answer, buffer)

    def get_all(self, entry: FileEntry) -> Iterator[Any]:
        """Yield the whole object in pieces, for servers without range requests."""
        with translating(entry.path):
            answer = self._obs.get(self._store, self._key(entry.path))
            check(entry, answer.meta["size"], _stamp(answer.meta))
            yield from answer.stream(min_chunk_size=_PIECE)

    def put(self, url: str, data: memoryview, if_absent: bool) -> None:
        self._check_writable(url)
        mode = "create" if if_absent else "overwrite"
        with translating(url):
            self._obs.put(self._store, self._key(url), data, mode=mode, use_multipart=False)

    def upload(self, url: str, parts: Iterable[Any]) -> None:
        self._check_writable(url)
        # The parts come from an iterable of ours, which obstore drains. If the iterable raises,
        # obstore aborts the multipart upload, so that no parts are left, and raises an error of its
        # own. The original error is kept here, to be raised instead.
        stopped: list[BaseException] = []

        def noted() -> Iterator[Any]:
            try:
                yield from parts
            except GeneratorExit:
                # obstore has failed and closes the iterable: its own error counts.
                raise
            except BaseException as error:
                stopped.append(error)
                raise

        try:
            self._obs.put(
                self._store,
                self._key(url),
                noted(),
                use_multipart=True,
                chunk_size=PART,
                max_concurrency=_TOGETHER,
            )
        except BaseException as error:
            raise stopped[0] if stopped else translated(error, url) from None

    def delete(self, url: str) -> None:
        self._check_writable(url)
        try:
            with translating(url):
                self._obs.delete(self._store, self._key(url))
        except FileNotFoundError:
            pass

    def level(self, url: str) -> tuple[list[str], list[FileEntry]]:
        self._check_listable(url)
        tries = itertools.count(1)
        while True:
            with _retrying(tries), translating(url):
                result = self._obs.list_with_delimiter(
                    self._store, self._key(url.rstrip("/") + "/") or None
                )
                return [f"{self._root}/{path}" for path in result["common_prefixes"]], [
                    self._entry(meta) for meta in result["objects"]
                ]

    def walk(self, url: str) -> Iterator[FileEntry]:
        self._check_listable(url)
        last, tries = None, itertools.count(1)
        while True:
            with _retrying(tries), translating(url):
                for page in self._obs.list(
                    self._store,
                    self._key(url.rstrip("/") + "/") or None,
                    chunk_size=_PAGE,
                    offset=last,
                ):
                    yield from map(self._entry, page)
                    last, tries = page[-1]["path"], itertools.count(1)
                return

    def _check_writable(self, url: str) -> None:
        if self._web:
            raise UsageError("cannot write to a web server", path=shown(url))

    def _check_listable(self, url: str) -> None:
        if self._web:
            raise UsageError(
                "cannot list files on a web server",
                path=shown(url),
                hint="pass the URL of each file",
            )


@contextlib.contextmanager
def _retrying(tries: Iterator[int]) -> Iterator[None]:
    """Suppress BrokenOff, except at the last attempt: obstore does not retry broken listings."""
    try:
        yield
    except BrokenOff:
        if next(tries) == _TRIES:
            raise


_process = 0
"""The ID of the process in which obstore was used first."""


def _check_process(url: str) -> None:
    """Raise TransportError in a forked process.

    obstore's threads do not survive a fork, and a request in the child would wait for them forever.
    """
    global _process
    _process = _process or os.getpid()
    if _process != os.getpid():
        raise TransportError(
            "obstore cannot be used in a forked process if its parent has used it before",
            path=shown(url),
            hint='use the start method "spawn" or "forkserver"',
        )


def _stamp(meta: Any) -> str:
    """Return the stamp of an object.

    Quotes are removed: Azure has them around the etag of a single object, but not in listings.
    """
    etag = (meta["e_tag"] or "").strip('"')
    return str(etag or meta["version"] or meta["last_modified"].timestamp())


def check(entry: FileEntry, size: int, stamp: str) -> None:
    """Raise TransportError if an answer is not for the version of the object that was opened."""
    if (size, stamp) != (entry.size, entry.stamp):
        raise TransportError(
            "the object was replaced while it was read",
            path=shown(entry.path),
            hint="open it again",
        )


def _take(answer: Any, buffer: memoryview) -> int:
    """Fill a buffer from an answer; return how many bytes came before it ended or broke off."""
    done = 0
    try:
        for piece in answer.stream(min_chunk_size=_PIECE):
            count = min(len(piece), len(buffer) - done)
            buffer[done : done + count] = memoryview(piece)[:count]
            done += count
    except Exception:
        # The caller requests the rest, and that request reports the error if it persists.
        pass
    return done
