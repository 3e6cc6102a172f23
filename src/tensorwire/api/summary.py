"""Summaries of files (`inspect`), and verification that they are intact (`verify`)."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from .._errors import LimitError, TensorwireError, TransportError
from .._limits import Limits
from ..codecs.container import UnsupportedTensor
from ..codecs.identify import identify
from ..core import display
from ..records.summary import (
    RecordSummary,
    RecordVerification,
    inspect_records,
    verify_records,
)
from . import lazy, signatures
from .signatures import spelled

if TYPE_CHECKING:
    from ..codecs.saved_model.summary import SavedModelSummary

_SHOWN = 200
"""The characters of a metadata entry that `str()` shows; `json()` has all of it."""


@dataclass(frozen=True)
class TensorSummary:
    """The summary of one tensor."""

    name: str
    kind: str
    dtype: str
    shape: tuple[int | None, ...]
    nbytes: int
    """The size in the file."""
    metadata: dict[str, str] = field(default_factory=dict)
    quantized: str | None = None
    """The quantization scheme, if the floats are quantized; `dtype` is the original one."""
    compression: str | None = None
    """The compression, if the tensors are compressed one by one."""


@dataclass(frozen=True)
class Summary:
    """The summary of a tensor file. `json()` is for machines, `str()` for people."""

    path: str | None
    format: str
    size: int
    checksums: bool
    metadata: dict[str, str]
    tensors: list[TensorSummary]
    compression: str | None = None
    """The compression of the whole file."""

    def json(self) -> dict[str, Any]:
        """Returns plain dicts and lists."""
        return asdict(self)

    def __str__(self) -> str:
        sums = ", checksums" if self.checksums else ""
        packed = f" in {self.compression}" if self.compression else ""
        lines = [
            f"{self.path or 'bytes'}: {self.format}{packed}, {self.size:,} bytes,"
            f" {len(self.tensors)} tensors{sums}"
        ]
        lines += [
            f"  {key}: {text[:_SHOWN]}{' ...' if len(text) > _SHOWN else ''}"
            for key, text in self.metadata.items()
        ]
        width = max((len(tensor.name) for tensor in self.tensors), default=0)
        for tensor in self.tensors:
            shape = ", ".join(map(str, tensor.shape))
            texts = "".join(f", {how}" for how in (tensor.quantized, tensor.compression) if how)
            texts += "".join(f"  {key}={text}" for key, text in tensor.metadata.items())
            lines.append(
                f"  {tensor.name:{width}}  {tensor.kind:7}  {tensor.dtype} ({shape}) "
                f" {tensor.nbytes:,} bytes{texts}"
            )
        return "\n".join(lines)

    _repr_html_ = display.html


@dataclass(frozen=True)
class Verification:
    """The result of `tw.verify` for a tensor file: `ok`, and the problems if it is not intact. It
    is true if the file is intact.
    """

    ok: bool
    path: str | None
    format: str | None
    tensors: int
    """The number of tensors that were read."""
    nbytes: int
    checksums: bool
    """Whether the file has checksums. Without them only its structure is verified."""
    problems: list[str]
    beyond_limits: bool = False
    """Whether the only problem is that `limits` are too low to read the file."""
    unsupported: list[str] = field(default_factory=list)
    """Tensors of unknown types, which were not read. They are not problems of the file."""

    def __bool__(self) -> bool:
        return self.ok

    def json(self) -> dict[str, Any]:
        """Returns plain dicts and lists."""
        return asdict(self)

    def __str__(self) -> str:
        how = (
            "with checksums" if self.checksums else "the structure only: the file has no checksums"
        )
        state = "whole" if self.ok else "beyond the limits" if self.beyond_limits else "NOT whole"
        head = (
            f"{self.path or 'bytes'}: {state}, {self.tensors} tensors, {self.nbytes:,} bytes read,"
            f" {how}"
        )
        return "\n  ".join(
            [head, *self.problems, *(f"not read: {reason}" for reason in self.unsupported)]
        )


@spelled(signatures.inspect)
def inspect(
    where: Any,
    format: str | tuple[str, ...] | None = None,
    *,
    limits: Limits | None = None,
    **options: Any,
) -> Summary | RecordSummary | SavedModelSummary:
    """Returns a summary of a file without reading its tensors. Print it, or use its `json()`.

    For a tensor file it has the names, kinds, dtypes, shapes, sizes and metadata of all tensors;
    for a record file the number of records and the schema; for a SavedModel the signatures, as
    `saved_model_cli show --all` prints them, variables and assets.

    Raises `DecodeError` for damaged files, `UnknownFormatError` if the format is not recognized,
    and `FileNotFoundError`.

    >>> import numpy as np, tensorwire as tw
    >>> print(tw.inspect(tw.dumps({"x": np.zeros((2, 3), np.float32)})))
    bytes: safetensors, 152 bytes, 1 tensors
      x  dense    float32 (2, 3)  24 bytes
    """
    with identify(where, format) as identified:
        if identified.holds_records:
            return inspect_records(where, limits)
        if identified.kind == "model":
            from ..codecs.saved_model.summary import describe

            return describe(where, limits)
        with lazy.open_identified(where, identified, format, limits, options) as file:
            return _summary(file)


def _summary(file: lazy.File) -> Summary:
    texts = file.tensor_metadata
    tensors = [
        TensorSummary(
            t.name,
            t.kind,
            str(t.dtype),
            t.shape,
            t.nbytes,
            texts.get(t.name, {}),
            t.quantized,
            t.compression,
        )
        for t in file.values()
    ]
    return Summary(
        file.path,
        file.format,
        file.size,
        file.checksums,
        file.metadata,
        tensors,
        file.compression,
    )


@spelled(signatures.verify)
def verify(
    where: Any,
    format: str | tuple[str, ...] | None = None,
    *,
    limits: Limits | None = None,
    progress: Callable[[int, int], None] | None = None,
    **options: Any,
) -> Verification | RecordVerification:
    """Reads all of a file, one tensor or block of records at a time, and returns whether it is
    intact.

    `progress` is called with (bytes done, bytes in total).

    >>> import numpy as np, tensorwire as tw
    >>> blob = bytearray(tw.dumps({"x": np.zeros(9)}, checksum=True))
    >>> bool(tw.verify(blob))
    True
    >>> blob.append(0)
    >>> len(tw.verify(blob).problems)
    1
    """
    with contextlib.ExitStack() as stack:
        try:
            identified = stack.enter_context(identify(where, format))
            if identified.holds_records:
                return verify_records(where, limits, progress)
            file = lazy.open_identified(where, identified, format, limits, options)
        except TransportError:
            # A connection that breaks says nothing about the file.
            raise
        except TensorwireError as error:
            limited = isinstance(error, LimitError)
            return Verification(False, error.path, error.format, 0, 0, False, [str(error)], limited)
        stack.pop_all()
    return _verify_tensors(file, progress)


def _verify_tensors(file: lazy.File, progress: Callable[[int, int], None] | None) -> Verification:
    problems: list[str] = []
    unsupported: list[str] = []
    count = nbytes = beyond = 0
    with file:
        names = [*file, *file.unlisted]
        total = sum(tensor.nbytes for tensor in file.values()) if progress is not None else 0
        for name in names:
            supported = True
            try:
                tensor = file[name]
                supported = tensor.kind != "unreadable"
                tensor.read()
                count, nbytes = count + 1, nbytes + tensor.nbytes
                if progress is not None:
                    progress(nbytes, max(total, nbytes))
            except TransportError:
                raise
            except TensorwireError as error:
                if not supported or isinstance(error, UnsupportedTensor):
                    unsupported.append(str(error))
                    continue
                problems.append(str(error))
                beyond += isinstance(error, LimitError)
        only_limits = 0 < beyond == len(problems)
        return Verification(
            not problems,
            file.path,
            file.format,
            count,
            nbytes,
            file.checksums,
            problems,
            only_limits,
            unsupported,
        )
