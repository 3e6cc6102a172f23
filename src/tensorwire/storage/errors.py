"""What goes wrong at a store, as our errors: OSError for names, as for local paths, and
TransportError for the way there.

Messages are our own: those of a store may quote headers and signed URLs.
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
_WORDS = (
    ("refused", "the connection was refused"),
    ("dns error", "the host's name could not be resolved"),
    ("timed out", "it took too long"),
    ("timeout", "it took too long"),
    ("certificate", "its certificate does not hold"),
    ("reset", "the connection was reset"),
    ("body", "the connection broke off"),
)


_CREDENTIALS = (
    "status code: 401",
    "status code: 403",
    # where a machine in a cloud is asked for its credentials, if there are no others
    "http://169.254.169.254/",
    "Error performing token request",
    "Account must be specified",
    "Missing AccessKeyId",
    "Missing SecretAccessKey",
)
"""What obstore says when credentials are refused, or there are none."""


class NoRanges(TransportError):
    """A web server that sends whole files only."""


@contextlib.contextmanager
def told(url: str) -> Iterator[None]:
    """Turns what obstore and fsspec raise into our errors."""
    try:
        yield
    except (TensorwireError, KeyboardInterrupt, SystemExit, GeneratorExit):
        raise
    except BaseException as error:
        raise translated(error, url) from None


def translated(error: BaseException, url: str) -> BaseException:
    """The error to raise in place of a store's own."""
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
            f"the store refuses it{_status(text)}; which credentials are used: docs/cloud.md",
            path,
        )
    if isinstance(error, IsADirectoryError):
        return IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
    if isinstance(error, ImportError):
        return MissingDependencyError(
            f"{url.partition('://')[0]}:// needs a package that is not installed: {text:.200}",
            path=path,
        )
    if name == "InvalidPathError":
        return EncodeError("this is no name that an object can have", path=path)
    if name == "NotSupportedError":
        return NoRanges("the server sends no parts of files", path=path)
    if not isinstance(error, Exception) and name != "PanicException":
        return error
    return TransportError(f"the store could not be used: {_reason(name, text)}", path=path)


def _asks_for_credentials(text: str) -> bool:
    head = text.partition("Debug source")[0]
    return any(mark in head for mark in _CREDENTIALS)


def _status(text: str) -> str:
    status, code = _STATUS.search(text), _CODE.search(text)
    words = [match[1].strip() for match in (status, code) if match]
    return f" ({', '.join(words)})" if words else ""


def _reason(name: str, text: str) -> str:
    status = _status(text)
    if status:
        return f"it answered{status}"
    lower = text.lower()
    return next((words for mark, words in _WORDS if mark in lower), name)
