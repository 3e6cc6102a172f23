"""HTTP for threads."""

from __future__ import annotations

from typing import Self

from . import Answer, Call, Deadline
from .drivers import run
from .http_client import FAILURES, HttpConnection


class HttpTransport(HttpConnection):
    """One call, one answer; for any number of threads at once. Arguments are those of HttpServer.

    >>> with HttpTransport("http://127.0.0.1:1", connect=0.5) as transport:
    ...     transport.send(Call("GET", "/v1/models/m"), Deadline.after(1))
    Traceback (most recent call last):
    tensorwire.serving.transports.ConnectError: no connection to 127.0.0.1:1 (... refused); does it
    run there? ...
    """

    def send(self, call: Call, deadline: Deadline) -> Answer:
        try:
            return run(self._exchange(call, deadline), deadline)
        except FAILURES as error:
            error.add(path=self._where(call))
            raise

    def close(self) -> None:
        """Closes what is kept; a call that is on its way is finished."""
        self._pool.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()
