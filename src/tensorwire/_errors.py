"""The exceptions that tensorwire raises.

    TensorwireError
      EncodeError(ValueError)             the value cannot be written in that format
      DecodeError(ValueError)             the bytes are not valid
        TruncatedError                    the bytes end too early
        ChecksumError                     the bytes do not match their checksum
        LimitError                        the bytes ask for more than `Limits` allows
      SchemaError(ValueError)             the bytes are valid, but hold other tensors than requested
      UnknownFormatError(LookupError)     lists the known names and the nearest one
      UsageError(ValueError, TypeError)   a wrong argument: swapped, of the wrong type, misspelt
      MissingDependencyError(ImportError) contains the pip command
      ServingError
        TransportError                    the server could not be reached, or closed the connection
          DeadlineError(TimeoutError)     the server did not answer before the deadline
        ModelError(status, message)       the server answered with an error

Facts are attributes (`format`, `offset`, `tensor`, `record`, `path`) and are `None` if unknown.
`hint` says what to do, in terms of the arguments of the call that failed. An outer layer adds the
facts that it knows to the same exception with `add`, and may replace the hint by one for its own
arguments. `str(error)` shows the message, the facts and the hint. Every error can be pickled.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Self

FACTS = ("path", "record", "tensor", "format", "offset")


class TensorwireError(Exception):
    """Base class of all exceptions that tensorwire raises on purpose.

    The facts (`path`, `record`, `tensor`, `format`, `offset`) are attributes, None if unknown.

    >>> import tensorwire as tw
    >>> error = tw.DecodeError("a field runs past the end", format="tensorproto", offset=17)
    >>> str(error.add(path="a.pb"))
    'a field runs past the end (path a.pb, format tensorproto, byte 17)'
    """

    path: str | None
    record: int | None
    tensor: str | None
    format: str | None
    offset: int | None
    hint: str | None
    """What the caller can do, in terms of the arguments of the call that failed."""

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
        """The message without the facts and the hint."""
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
        """Fill in facts that are still None, and return the same exception.

        `base` is where an inner buffer begins in the outer one. It is added to an offset that is
        already set.
        """
        self.path = self.path if self.path is not None else path
        self.record = self.record if self.record is not None else record
        self.tensor = self.tensor if self.tensor is not None else tensor
        self.format = self.format if self.format is not None else format
        self.offset = self.offset + base if self.offset is not None else offset
        return self

    def __str__(self) -> str:
        facts = [
            ("byte" if name == "offset" else name, getattr(self, name))
            for name in FACTS
            if getattr(self, name) is not None
        ]
        shown = f" ({', '.join(f'{name} {fact}' for name, fact in facts)})" if facts else ""
        return self.message + shown + (f"; {self.hint}" if self.hint else "")


class EncodeError(TensorwireError, ValueError):
    """The value cannot be written in the requested format.

    >>> import tensorwire as tw
    >>> tw.dumps(object())
    Traceback (most recent call last):
    tensorwire._errors.EncodeError: ...
    """


class DecodeError(TensorwireError, ValueError):
    """The bytes are not valid in their format. `offset` is the byte that is wrong, if known.

    >>> import tensorwire as tw
    >>> tw.loads(b"[1, 2", "json")
    Traceback (most recent call last):
    tensorwire._errors.TruncatedError: ...
    """


class TruncatedError(DecodeError):
    """The bytes end too early.

    >>> import tensorwire as tw
    >>> tw.loads(tw.dumps([1.5, 2.5], "tensorproto")[:-1])
    Traceback (most recent call last):
    tensorwire._errors.TruncatedError: ...
    """


class ChecksumError(DecodeError):
    """The bytes do not match their checksum: they were changed after they were written.

    >>> import tensorwire as tw
    >>> blob = bytearray(tw.dumps([1.5, 2.5], "safetensors", compression="gzip"))
    >>> blob[-8] ^= 1
    >>> tw.loads(blob)
    Traceback (most recent call last):
    tensorwire._errors.ChecksumError: ...
    """


class LimitError(DecodeError):
    """The bytes ask for more memory, names or depth than `Limits` allows.

    >>> import tensorwire as tw
    >>> tw.loads(tw.dumps([[[0]]], "json"), limits=tw.Limits(json_depth=2))
    Traceback (most recent call last):
    tensorwire._errors.LimitError: ...
    """


class SchemaError(TensorwireError, ValueError):
    """The bytes are valid, but do not hold the tensors that were requested."""


class UnknownFormatError(TensorwireError, LookupError):
    """No format has that name, or no format fits the bytes.

    >>> import tensorwire as tw
    >>> tw.dumps([1], "safetensor")
    Traceback (most recent call last):
    tensorwire._errors.UnknownFormatError: ... did you mean 'safetensors'?
    """


class UsageError(TensorwireError, ValueError, TypeError):
    """An argument is swapped with another, of the wrong type, misspelt, or excluded by another.

    >>> import tensorwire as tw
    >>> tw.loads("weights.npy")
    Traceback (most recent call last):
    tensorwire._errors.UsageError: ...; for a file use tw.load(path)
    """


class MissingDependencyError(TensorwireError, ImportError):
    """An optional package is not installed. The message contains the pip command."""


class ServingError(TensorwireError):
    """A request to a model server failed."""


class TransportError(ServingError):
    """The server could not be reached, or closed the connection before the answer was complete."""


class DeadlineError(TransportError, TimeoutError):
    """The server did not answer before the deadline."""


class ModelError(ServingError):
    """The server answered with an error.

    `status` is the HTTP or gRPC status code.

    >>> import tensorwire as tw
    >>> tw.ModelError(404, "Servable not found").status
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
    """Return the end of a message about an unknown name: the known names and the nearest one.

    >>> choices("tensorprot", ["raw", "tensorproto"])
    "; known: raw, tensorproto; did you mean 'tensorproto'?"
    """
    # Imported here because only an error path needs it, and imports cost start-up time.
    import difflib

    names = list(known)
    near = difflib.get_close_matches(str(name), names, 1)
    shown = ", ".join(names[:16]) + (f", ... ({len(names)} in all)" if len(names) > 16 else "")
    return f"; known: {shown}" + (f"; did you mean {near[0]!r}?" if near else "")
