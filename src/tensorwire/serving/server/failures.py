"""Why a request fails, in TensorFlow Serving's words: one of gRPC's codes, and a message. REST
makes an HTTP status of the code.
"""

from __future__ import annotations

import logging

from ..._errors import LimitError, TensorwireError
from ..rpc import CODES

OK, INVALID, NOT_FOUND, EXHAUSTED, PRECONDITION, INTERNAL, UNAVAILABLE = 0, 3, 5, 8, 9, 13, 14

_log = logging.getLogger("tensorwire.serving")


class Failure(Exception):
    """An error that the client is told.

    >>> Failure(NOT_FOUND, "Servable not found for request: Latest(ranker)").http
    404
    """

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code, self.message = code, message

    @property
    def http(self) -> int:
        return CODES[self.code][1]


def failure(error: Exception) -> Failure:
    """What a client is told of an error that nobody has put in other words; whose fault it is
    decides the code.

    >>> from tensorwire import DecodeError
    >>> failure(DecodeError("a field runs past the end", offset=3)).code == INVALID
    True
    """
    if isinstance(error, Failure):
        return error
    if isinstance(error, TensorwireError):
        return Failure(EXHAUSTED if isinstance(error, LimitError) else INVALID, str(error))
    if isinstance(error, MemoryError):
        return Failure(EXHAUSTED, "there is not enough memory for this request")
    _log.error("a request failed in a way that is not foreseen", exc_info=error)
    return Failure(INTERNAL, f"{type(error).__name__}: {error}")
