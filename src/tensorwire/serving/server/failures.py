"""Failures of requests: a gRPC status code and a message, as in TensorFlow Serving. REST answers
use the HTTP status for that code.
"""

from __future__ import annotations

import logging

from ..._errors import LimitError, TensorwireError
from ..rpc import CODES

OK, INVALID, NOT_FOUND, EXHAUSTED, PRECONDITION, INTERNAL, UNAVAILABLE = 0, 3, 5, 8, 9, 13, 14

_log = logging.getLogger("tensorwire.serving")


class Failure(Exception):
    """An error that is sent to the client.

    >>> Failure(NOT_FOUND, "Servable not found for request: Latest(ranker)").http
    404
    """

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code, self.message = code, message

    @property
    def http(self) -> int:
        """The HTTP status for the code."""
        return CODES[self.code][1]


def failure(error: Exception) -> Failure:
    """Return the failure to send to the client for an exception.

    The code says whether the request or the server is at fault.

    >>> from tensorwire import DecodeError
    >>> failure(DecodeError("a field runs past the end", offset=3)).code == INVALID
    True
    """
    if isinstance(error, Failure):
        return error
    if isinstance(error, TensorwireError):
        return Failure(EXHAUSTED if isinstance(error, LimitError) else INVALID, str(error))
    if isinstance(error, MemoryError):
        return Failure(EXHAUSTED, "not enough memory for this request")
    _log.error("a request failed with an unexpected exception", exc_info=error)
    return Failure(INTERNAL, f"{type(error).__name__}: {error}")
