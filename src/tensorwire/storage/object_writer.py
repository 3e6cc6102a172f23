"""Writing objects: a small one by one request, a large one in parts while it is made, and completed
at the end.
"""

from __future__ import annotations

import contextlib
import errno
import io
import os
import queue
import threading
from collections.abc import Iterator
from typing import IO, Any, cast

from ..core import memory
from .urls import Store, shown

PART = 8 << 20
"""Bytes that are held back before parts are sent."""
WHOLE = 64 << 20
"""The same where nothing may be there before: only a single request can be made to fail then."""
_WAIT = 0.2


class _Stopped(Exception):
    """Makes an upload take back what it has sent."""


class _Upload(io.RawIOBase):
    """A file object whose bytes become an object."""

    def __init__(self, store: Store, url: str, if_absent: bool) -> None:
        self._store, self._url, self._if_absent = store, url, if_absent
        self._held = bytearray()
        self._at = 0
        self._queue: queue.Queue[Any] = queue.Queue(1)
        self._thread: threading.Thread | None = None
        self._error: BaseException | None = None

    def writable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def write(self, data: Any) -> int:
        view = memory.flat(data)
        for start in range(0, len(view), PART):
            self._held += view[start : start + PART]
            if len(self._held) >= PART and (
                self._thread is not None or len(self._held) >= (WHOLE if self._if_absent else PART)
            ):
                self._send()
        self._at += len(view)
        return len(view)

    def _send(self) -> None:
        """Hands what is held to the thread that uploads."""
        if self._thread is None:
            self._check_absent()
            self._thread = threading.Thread(target=self._run, name="tensorwire-write", daemon=True)
            self._thread.start()
        held, self._held = self._held, bytearray()
        self._hand(held)

    def _hand(self, item: Any) -> None:
        assert self._thread is not None
        while True:
            if not self._thread.is_alive():
                raise (
                    self._error
                    if self._error is not None
                    else RuntimeError("the upload ended early")
                )
            try:
                return self._queue.put(item, timeout=_WAIT)
            except queue.Full:
                continue

    def _run(self) -> None:
        try:
            self._store.upload(self._url, self._parts())
        except BaseException as error:
            self._error = error

    def _parts(self) -> Iterator[Any]:
        while True:
            item = self._queue.get()
            if item is None:
                return
            if isinstance(item, BaseException):
                raise item
            yield item

    def _check_absent(self) -> None:
        if self._if_absent and self._store.stat(self._url) is not None:
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), shown(self._url))

    def finish(self) -> None:
        if self._thread is None:
            self._store.put(self._url, memory.flat(self._held), self._if_absent)
            return
        if self._held:
            self._send()
        self._check_absent()
        self._hand(None)
        self._thread.join()
        if self._error is not None:
            raise self._error

    def abort(self) -> None:
        if self._thread is not None:
            with contextlib.suppress(BaseException):
                self._hand(_Stopped())
            self._thread.join()


@contextlib.contextmanager
def writing(store: Store, url: str, if_absent: bool) -> Iterator[IO[bytes]]:
    upload = _Upload(store, url, if_absent)
    upload._check_absent()
    try:
        yield cast("IO[bytes]", upload)
        upload.finish()
    except BaseException:
        upload.abort()
        raise
