"""Translation of errors of obstore and fsspec: OSError for names, as with local paths, and
TransportError for the network and the server.

The messages are our own, because those of a store may quote headers and signed URLs.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
from collections.abc import Iterator

from .._errors import EncodeError, MissingDependencyError, TensorwireError, TransportError
from .urls import shown

_STATUS = re.compile(r"status code: (\d{3}[A-Za-z -]*)")
_CODE = re.compile(r"<Code>(\w{1,60})</Code>")
_BROKE_OFF = "the connection broke off"
# The first mark that obstore's text contains, in lower case, decides: obstore has one exception
# class for all of these.
_REASONS = (
    ("refused", "the connection was refused"),
    ("dns error", "the host name could not be resolved"),
    ("timed out", "the request timed out"),
    ("timeout", "the request timed out"),
    ("certificate", "the TLS certificate is not valid"),
    ("reset", "the connection was reset"),
    ("body", _BROKE_OFF),
)


_CREDENTIALS = (
    "status code: 401",
    "status code: 403",
    # The metadata service of a cloud machine, which is asked if there are no other credentials.
    "http://169.254.169.254/",
    "Error performing token request",
    "Account must be specified",
    "Missing AccessKeyId",
    "Missing SecretAccessKey",
)
"""Texts of obstore's errors when credentials are refused or missing."""


class NoRanges(TransportError):
    """The web server does not support range requests."""


class BrokenOff(TransportError):
    """The connection broke off in the middle of an answer."""


@contextlib.contextmanager
def translating(url: str) -> Iterator[None]:
    """Turn exceptions of obstore and fsspec into our errors."""
    try:
        yield
    except (TensorwireError, KeyboardInterrupt, SystemExit, GeneratorExit):
        raise
    except BaseException as error:
        raise translated(error, url) from None


def translated(error: BaseException, url: str) -> BaseException:
    """Return the error to raise in place of an exception of obstore or fsspec."""
    name, text, path = type(error).__name__, str(error), shown(url)
    if isinstance(error, FileNotFoundError) or name == "NotFoundError":
        return FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
    if isinstance(error, FileExistsError) or name == "AlreadyExistsError":
        return FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path)
    if (
        isinstance(error, PermissionError)
        or name in ("PermissionDeniedError", "UnauthenticatedError")
        or _asks_for_credentials(text)
    ):
        return PermissionError(
            errno.EACCES,
            f"the store refused access{_status(text)}; docs/cloud.md lists the credentials in use",
            path,
        )
    if isinstance(error, IsADirectoryError):
        return IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
    if isinstance(error, ImportError):
        return MissingDependencyError(
            f"{url.partition('://')[0]}:// URLs need a package that is not installed: {text:.200}",
            path=path,
        )
    if name == "InvalidPathError":
        return EncodeError("invalid object name", path=path)
    if name == "NotSupportedError":
        return NoRanges("the server does not support range requests", path=path)
    # A panic of obstore's Rust code is a BaseException, and yet an ordinary failure.
    if not isinstance(error, Exception) and name != "PanicException":
        return error
    reason = _reason(name, text)
    kind = BrokenOff if reason == _BROKE_OFF else TransportError
    return kind(f"the request to the store failed: {reason}", path=path)


def _asks_for_credentials(text: str) -> bool:
    """Return whether obstore's text means that credentials were refused or are missing."""
    head = text.partition("Debug source")[0]
    return any(mark in head for mark in _CREDENTIALS)


def _status(text: str) -> str:
    """Return the HTTP status and the store's error code in parentheses, if the text has them."""
    status, code = _STATUS.search(text), _CODE.search(text)
    facts = [match[1].strip() for match in (status, code) if match]
    return f" ({', '.join(facts)})" if facts else ""


def _reason(name: str, text: str) -> str:
    """Return the reason of a failure in our own words, so that no secret is quoted."""
    status = _status(text)
    if status:
        return f"error status{status}"
    lower = text.lower()
    return next((reason for mark, reason in _REASONS if mark in lower), name)
