"""Writing objects: small ones by one request, large ones by a multipart upload.

1. Bytes are collected in memory up to PART, or up to WHOLE with `if_absent`: only a single request
   can fail atomically if the object exists.
2. An object that ends before that is written by one request.
3. Otherwise a thread runs the store's upload. It takes the collected bytes from a queue of length
   1, so that a fast writer waits for the network and memory stays bounded.
4. None in the queue completes the upload: the object appears. An exception in the queue makes the
   store abort it, so that neither the object nor its parts are left.
5. The upload may fail at any time. So every put into the queue has a timeout, and checks that the
   thread is alive: its error is then raised in the writer.
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
"""Bytes that are collected before the upload starts, and bytes of each part after that."""
WHOLE = 64 << 20
"""The same for the start with `if_absent`."""
_WAIT = 0.2
"""Seconds between two checks that the uploading thread is alive."""


class _Stopped(Exception):
    """Makes the store abort an upload."""


class _Upload(io.RawIOBase):
    """A write-only file object whose bytes become an object."""

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
        """Pass the collected bytes to the uploading thread; start it at the first call."""
        if self._thread is None:
            self._check_absent()
            self._thread = threading.Thread(target=self._run, name="tensorwire-write", daemon=True)
            self._thread.start()
        part, self._held = self._held, bytearray()
        self._hand(part)

    def _hand(self, item: Any) -> None:
        """Put an item into the queue; raise the upload's error if the thread has ended."""
        assert self._thread is not None
        while True:
            if not self._thread.is_alive():
                raise (
                    self._error
                    if self._error is not None
                    else RuntimeError("the upload ended before all bytes were written")
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
        """Yield the parts from the queue, in the uploading thread."""
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
        """Complete the object."""
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
        """Abort the upload, if one was started, and wait until the store has removed its parts."""
        if self._thread is not None:
            with contextlib.suppress(BaseException):
                self._hand(_Stopped())
            self._thread.join()


@contextlib.contextmanager
def writing(store: Store, url: str, if_absent: bool) -> Iterator[IO[bytes]]:
    """Yield a file object whose bytes become an object when the `with` block ends."""
    upload = _Upload(store, url, if_absent)
    upload._check_absent()
    try:
        yield cast("IO[bytes]", upload)
        upload.finish()
    except BaseException:
        upload.abort()
        raise
