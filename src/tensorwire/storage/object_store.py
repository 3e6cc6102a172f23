"""Buckets and web servers, by obstore."""

from __future__ import annotations

import contextlib
import itertools
import os
from collections.abc import Iterable, Iterator
from datetime import timedelta
from typing import Any
from urllib.parse import quote, unquote

from .._errors import EncodeError, TransportError
from .._optional import require
from . import aws_config
from .errors import told, translated
from .urls import FileEntry, shown

PART = 8 << 20
"""Bytes of one part of a large upload: ten thousand parts, which is all that S3 takes, are 80 GB.
"""
_PIECE = 1 << 20
"""Bytes of an answer that are taken over together."""
_PAGE = 1000
_TRIES = 4
"""Answers to a question of what there is, before we give up."""
_TOGETHER = 2
"""Parts of one upload that are under way at once."""


class ObjectStore:
    """One bucket, or one web server, which can only be read."""

    def __init__(self, kind: str, root: str, patience: float) -> None:
        _check_process(root)
        self._obs, self._root, self._web = (
            require("obstore", extra="cloud"),
            root,
            kind == "HTTPStore",
        )
        said = aws_config.settings(kind)
        client = {
            "allow_http": aws_config.allows_http(kind, root, said),
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
        with told(root):
            maker = getattr(require("obstore.store", extra="cloud"), kind)
            self._store = maker.from_url(root, client_options=client, retry_config=retry, **said)

    def _key(self, url: str) -> str:
        _check_process(url)
        key = url[len(self._root) + 1 :]
        if not self._web:
            return key
        if "?" in key or "#" in key:
            raise EncodeError(
                "a URL with a query, such as a signed one, cannot be read; use the store's own URL",
                path=shown(url),
            )
        return unquote(key)

    def _entry(self, meta: Any) -> FileEntry:
        path = meta["path"]
        return FileEntry(
            f"{self._root}/{quote(path) if self._web else path}", meta["size"], _stamp(meta)
        )

    def stat(self, url: str) -> FileEntry | None:
        try:
            with told(url):
                return self._entry(self._obs.head(self._store, self._key(url)))._replace(path=url)
        except FileNotFoundError:
            return None

    def get_into(self, entry: FileEntry, start: int, buffer: memoryview) -> int:
        with told(entry.path):
            options = {"range": (start, start + len(buffer))}
            answer = self._obs.get(self._store, self._key(entry.path), options=options)
            check(entry, answer.meta["size"], _stamp(answer.meta))
            return _take(answer, buffer)

    def get_all(self, entry: FileEntry) -> Iterator[Any]:
        """The whole object in pieces, for servers that send no parts."""
        with told(entry.path):
            answer = self._obs.get(self._store, self._key(entry.path))
            check(entry, answer.meta["size"], _stamp(answer.meta))
            yield from answer.stream(min_chunk_size=_PIECE)

    def put(self, url: str, data: memoryview, if_absent: bool) -> None:
        self._check_writable(url)
        mode = "create" if if_absent else "overwrite"
        with told(url):
            self._obs.put(self._store, self._key(url), data, mode=mode, use_multipart=False)

    def upload(self, url: str, parts: Iterable[Any]) -> None:
        self._check_writable(url)
        stopped: list[BaseException] = []

        def noted() -> Iterator[Any]:
            try:
                yield from parts
            except GeneratorExit:  # obstore has given up by itself
                raise
            except BaseException as error:
                stopped.append(error)
                raise

        try:  # if the iterable raises, obstore takes back what it has sent
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
            with told(url):
                self._obs.delete(self._store, self._key(url))
        except FileNotFoundError:
            pass

    def level(self, url: str) -> tuple[list[str], list[FileEntry]]:
        self._check_listable(url)
        tries = itertools.count(1)
        while True:
            with _asked_again(tries), told(url):
                found = self._obs.list_with_delimiter(
                    self._store, self._key(url.rstrip("/") + "/") or None
                )
                return [f"{self._root}/{path}" for path in found["common_prefixes"]], [
                    self._entry(meta) for meta in found["objects"]
                ]

    def walk(self, url: str) -> Iterator[FileEntry]:
        self._check_listable(url)
        last, tries = None, itertools.count(1)
        while True:
            with _asked_again(tries), told(url):
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
            raise EncodeError("web servers are read, not written to", path=shown(url))

    def _check_listable(self, url: str) -> None:
        if self._web:
            raise EncodeError(
                "a web server does not say what it has: name each file", path=shown(url)
            )


@contextlib.contextmanager
def _asked_again(tries: Iterator[int]) -> Iterator[None]:
    """Passes over an answer that breaks off in the middle, some times: obstore does not ask for it
    again.
    """
    try:
        yield
    except TransportError as error:
        if next(tries) == _TRIES or "broke off" not in error.message:
            raise


_process = 0
"""The one in which obstore was used first."""


def _check_process(url: str) -> None:
    """obstore's threads do not survive a fork, and a request in the child would wait for them
    forever.
    """
    global _process
    _process = _process or os.getpid()
    if _process != os.getpid():
        what = (
            "this process was forked from one that had used a bucket already, which obstore"
            " cannot do"
        )
        raise TransportError(f'{what}; start processes by "spawn" or "forkserver"', path=shown(url))


def _stamp(meta: Any) -> str:
    """The same whoever says it: Azure puts an etag in quotes where it is asked for one object, and
    not where it lists them.
    """
    etag = (meta["e_tag"] or "").strip('"')
    return str(etag or meta["version"] or meta["last_modified"].timestamp())


def check(entry: FileEntry, size: int, stamp: str) -> None:
    """Whether an answer is about the object that was opened."""
    if (size, stamp) != (entry.size, entry.stamp):
        raise TransportError(
            "the object was replaced while it was read; open it again", path=shown(entry.path)
        )


def _take(answer: Any, buffer: memoryview) -> int:
    """Fills a buffer from an answer, as far as that comes."""
    done = 0
    try:
        for piece in answer.stream(min_chunk_size=_PIECE):
            count = min(len(piece), len(buffer) - done)
            buffer[done : done + count] = memoryview(piece)[:count]
            done += count
    except Exception:  # the caller asks for the rest, and so finds out what it is
        pass
    return done
