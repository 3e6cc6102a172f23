"""Every error that tensorwire raises on purpose.

    TensorwireError
      EncodeError(ValueError)             your value cannot be written in that format
      DecodeError(ValueError)             those bytes are not valid
        TruncatedError                    they end too early
        ChecksumError                     they were changed on the way
        LimitError                        they ask for more than `Limits` allows
      SchemaError(ValueError)             valid bytes, not the tensors you asked for
      UnknownFormatError(LookupError)     lists the known names and the nearest one
      UsageError(ValueError, TypeError)   a wrong argument: swapped, of another type, misspelt
      MissingDependencyError(ImportError) contains the pip line
      ServingError
        TransportError                    the server could not be reached, or broke off
          DeadlineError(TimeoutError)     it took longer than the deadline allows
        ModelError(status, message)       the server answered, and the answer is an error

Facts are attributes (`format`, `offset`, `tensor`, `record`, `path`), `None` where unknown, and so
is `hint`: what to do, in the words of the call that failed. An outer layer that knows more adds it
to the same exception with `add`, or replaces the hint by one for its own arguments, and the message
shows it. Every error pickles.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Self

FACTS = ("path", "record", "tensor", "format", "offset")


class TensorwireError(Exception):
    """The root of the tree: `except tw.TensorwireError` catches all that tensorwire raises on
    purpose.

    >>> error = DecodeError("a field runs past the end", format="tensorproto", offset=17)
    >>> str(error.add(path="a.pb"))
    'a field runs past the end (path a.pb, format tensorproto, byte 17)'
    """

    path: str | None
    record: int | None
    tensor: str | None
    format: str | None
    offset: int | None
    hint: str | None
    """What to do about it."""

    def __init__(
        self,
        message: str,
        *,
        path: str | None = None,
        record: int | None = None,
        tensor: str | None = None,
        format: str | None = None,
        offset: int | None = None,
        hint: str | None = None,
    ) -> None:
        super().__init__(message)
        self.path, self.record, self.tensor, self.format, self.offset = (
            path,
            record,
            tensor,
            format,
            offset,
        )
        self.hint = hint

    @property
    def message(self) -> str:
        """What was wrong, without the facts and the hint."""
        return str(self.args[0])

    def add(
        self,
        *,
        path: str | None = None,
        record: int | None = None,
        tensor: str | None = None,
        format: str | None = None,
        offset: int | None = None,
        base: int = 0,
    ) -> Self:
        """Fills in facts that are still unknown; `base` moves a known offset of an inner buffer
        into the outer one.
        """
        self.path = self.path if self.path is not None else path
        self.record = self.record if self.record is not None else record
        self.tensor = self.tensor if self.tensor is not None else tensor
        self.format = self.format if self.format is not None else format
        self.offset = self.offset + base if self.offset is not None else offset
        return self

    def __str__(self) -> str:
        known = [
            ("byte" if name == "offset" else name, getattr(self, name))
            for name in FACTS
            if getattr(self, name) is not None
        ]
        facts = f" ({', '.join(f'{name} {fact}' for name, fact in known)})" if known else ""
        return self.message + facts + (f"; {self.hint}" if self.hint else "")


class EncodeError(TensorwireError, ValueError):
    """Your value cannot be written in that format."""


class DecodeError(TensorwireError, ValueError):
    """Those bytes are not valid."""


class TruncatedError(DecodeError):
    """The bytes end too early."""


class ChecksumError(DecodeError):
    """The bytes were changed on the way."""


class LimitError(DecodeError):
    """The bytes ask for more than `Limits` allows."""


class SchemaError(TensorwireError, ValueError):
    """Valid bytes, but not the tensors you asked for."""


class UnknownFormatError(TensorwireError, LookupError):
    """No format of that name, or none that fits the bytes."""


class UsageError(TensorwireError, ValueError, TypeError):
    """A wrong argument: swapped with another, of another type, misspelt, or impossible beside
    another.
    """


class MissingDependencyError(TensorwireError, ImportError):
    """An optional package is not installed; the message has the pip line."""


class ServingError(TensorwireError):
    """A request to a model server failed."""


class TransportError(ServingError):
    """The server could not be reached, or broke off."""


class DeadlineError(TransportError, TimeoutError):
    """No answer within the deadline."""


class ModelError(ServingError):
    """The server answered with an error.

    >>> ModelError(404, "Servable not found").status
    404
    """

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.args = (status, message)
        self.status = status

    @property
    def message(self) -> str:
        return f"{self.args[0]}: {self.args[1]}"


def choices(name: object, known: Iterable[str]) -> str:
    """The end of a message about a name that is not known: the known ones, as far as they fit, and
    the nearest.

    >>> choices("tensorprot", ["raw", "tensorproto"])
    "; known: raw, tensorproto; did you mean 'tensorproto'?"
    """
    import difflib  # only a program that has gone wrong needs it

    names = list(known)
    near = difflib.get_close_matches(str(name), names, 1)
    shown = ", ".join(names[:16]) + (f", ... ({len(names)} in all)" if len(names) > 16 else "")
    return f"; known: {shown}" + (f"; did you mean {near[0]!r}?" if near else "")
