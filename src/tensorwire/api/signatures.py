"""The public signatures of the main functions: every option by its name, with its type.

`dumps` of a small array takes less than a microsecond, and thirty defaults would be a third of it.
So the functions take their options as one dict, which costs nothing if there are none, and
`spelled` gives them the signatures of this module, for `help()`, completion, mypy and pyright. With
`**unknown: Never` a type checker accepts no other option; at run time the error names the nearest
one.
"""

from __future__ import annotations

import inspect as inspection
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Literal, Never, Protocol, TypeVar, overload

from .._limits import Limits
from ..core.literals import (
    ByteOrder,
    CompressionName,
    FileFormatName,
    FormatCompressionName,
    FormatName,
    FrameworkName,
    Nonfinite,
    PathLike,
    SchemeName,
)

if TYPE_CHECKING:
    from ..codecs.saved_model.summary import SavedModelSummary
    from ..core.tensors import Tensor
    from ..records.summary import RecordSummary, RecordVerification
    from .lazy import File
    from .summary import Summary, Verification

ForeignName = Literal["tensorflow", "torch", "jax", "scipy", "arrow"]
FormatNames = FileFormatName | tuple[FileFormatName, ...] | None
Value = Any
"""A tensor, a Python value, or dicts, lists and tuples of them."""
Foreign = Any
"""The same with tensors of another framework."""


class Bytes(Protocol):
    """An object with a buffer: bytes, bytearray, memoryview, mmap, an array."""

    def __buffer__(self, flags: int, /) -> memoryview: ...


Quantize = SchemeName | Mapping[str, SchemeName] | None
"""A scheme for all float tensors, or schemes by name or pattern."""


class WritableFile(Protocol):
    """A binary file object for writing."""

    def write(self, data: Any, /) -> object: ...


class ReadableFile(Protocol):
    """A binary file object for reading."""

    def read(self, size: int = -1, /) -> bytes: ...


_F = TypeVar("_F", bound=Callable[..., Any])


def spelled(signature: _F) -> Callable[[Callable[..., Any]], _F]:
    """Gives a function the signature of another one."""

    def decorate(function: Callable[..., Any]) -> Any:
        function.__signature__ = inspection.signature(signature)  # type: ignore[attr-defined]
        function.__annotations__ = signature.__annotations__
        return function

    return decorate


def dumps(
    value: object,
    format: FormatName = "safetensors",
    *,
    compression: FormatCompressionName | None = None,
    level: int | None = None,
    threads: int | None = None,
    per_tensor: bool = False,
    shuffle: bool = False,
    quantize: Quantize = None,
    axis: int | None = None,
    nonfinite: Nonfinite = "raise",
    metadata: Mapping[str, str] | None = None,
    drop_metadata: bool = False,
    keep_device: bool = False,
    checksum: bool = False,
    stream: bool = False,
    tf_compat: bool = False,
    text: bool = False,
    variant: bool = False,
    plain: bool = False,
    indent: int | None = None,
    bare_nonfinite: bool = False,
    graph: bool = True,
    shards: int = 1,
    dtype: object = None,
    shape: tuple[int, ...] | int | None = None,
    byteorder: ByteOrder = "little",
    **unknown: Never,
) -> bytes:
    raise NotImplementedError


def buffers(
    value: object,
    format: FormatName = "safetensors",
    *,
    compression: FormatCompressionName | None = None,
    level: int | None = None,
    threads: int | None = None,
    per_tensor: bool = False,
    shuffle: bool = False,
    quantize: Quantize = None,
    axis: int | None = None,
    nonfinite: Nonfinite = "raise",
    metadata: Mapping[str, str] | None = None,
    drop_metadata: bool = False,
    keep_device: bool = False,
    checksum: bool = False,
    stream: bool = False,
    tf_compat: bool = False,
    text: bool = False,
    variant: bool = False,
    plain: bool = False,
    indent: int | None = None,
    bare_nonfinite: bool = False,
    graph: bool = True,
    shards: int = 1,
    dtype: object = None,
    shape: tuple[int, ...] | int | None = None,
    byteorder: ByteOrder = "little",
    **unknown: Never,
) -> list[bytes | memoryview]:
    raise NotImplementedError


def save(
    where: PathLike | WritableFile,
    value: object,
    format: FormatName | None = None,
    *,
    durable: bool = True,
    compression: FormatCompressionName | None = None,
    level: int | None = None,
    threads: int | None = None,
    per_tensor: bool = False,
    shuffle: bool = False,
    quantize: Quantize = None,
    axis: int | None = None,
    nonfinite: Nonfinite = "raise",
    metadata: Mapping[str, str] | None = None,
    drop_metadata: bool = False,
    keep_device: bool = False,
    checksum: bool = False,
    stream: bool = False,
    tf_compat: bool = False,
    text: bool = False,
    variant: bool = False,
    plain: bool = False,
    indent: int | None = None,
    bare_nonfinite: bool = False,
    graph: bool = True,
    shards: int = 1,
    dtype: object = None,
    shape: tuple[int, ...] | int | None = None,
    byteorder: ByteOrder = "little",
    **unknown: Never,
) -> None:
    raise NotImplementedError


@overload
def loads(
    data: Bytes,
    format: FormatName | tuple[FormatName, ...] | None = None,
    compression: CompressionName | None = None,
    *,
    to: Literal["numpy", "object"] = "numpy",
    device: object = None,
    cast: bool = False,
    copy: bool | None = None,
    dequantize: bool = True,
    limits: Limits | None = None,
    tf_compat: bool = False,
    text: bool = False,
    dtype: object = None,
    shape: tuple[int, ...] | int | None = None,
    byteorder: ByteOrder = "little",
    ragged: bool = False,
    readable: bool = True,
    **unknown: Never,
) -> Value: ...


@overload
def loads(
    data: Bytes,
    format: FormatName | tuple[FormatName, ...] | None = None,
    compression: CompressionName | None = None,
    *,
    to: ForeignName,
    device: object = None,
    cast: bool = False,
    copy: bool | None = None,
    dequantize: bool = True,
    limits: Limits | None = None,
    tf_compat: bool = False,
    text: bool = False,
    dtype: object = None,
    shape: tuple[int, ...] | int | None = None,
    byteorder: ByteOrder = "little",
    ragged: bool = False,
    readable: bool = True,
    **unknown: Never,
) -> Foreign: ...


def loads(
    data: Bytes,
    format: FormatName | tuple[FormatName, ...] | None = None,
    compression: CompressionName | None = None,
    *,
    to: FrameworkName = "numpy",
    device: object = None,
    cast: bool = False,
    copy: bool | None = None,
    dequantize: bool = True,
    limits: Limits | None = None,
    tf_compat: bool = False,
    text: bool = False,
    dtype: object = None,
    shape: tuple[int, ...] | int | None = None,
    byteorder: ByteOrder = "little",
    ragged: bool = False,
    readable: bool = True,
    **unknown: Never,
) -> Value | Foreign:
    raise NotImplementedError


@overload
def load(
    where: PathLike | Bytes | ReadableFile,
    format: FormatNames = None,
    to: Literal["numpy", "object"] = "numpy",
    names: None = None,
    *,
    compression: CompressionName | None = None,
    device: object = None,
    cast: bool = False,
    dequantize: bool = True,
    limits: Limits | None = None,
    tf_compat: bool = False,
    text: bool = False,
    dtype: object = None,
    shape: tuple[int, ...] | int | None = None,
    byteorder: ByteOrder = "little",
    ragged: bool = False,
    readable: bool = True,
    **unknown: Never,
) -> Value: ...


@overload
def load(
    where: PathLike | Bytes | ReadableFile,
    format: FormatNames = None,
    to: Literal["numpy", "object"] = "numpy",
    *,
    names: Iterable[str],
    compression: CompressionName | None = None,
    device: object = None,
    cast: bool = False,
    dequantize: bool = True,
    limits: Limits | None = None,
    tf_compat: bool = False,
    text: bool = False,
    dtype: object = None,
    shape: tuple[int, ...] | int | None = None,
    byteorder: ByteOrder = "little",
    ragged: bool = False,
    readable: bool = True,
    **unknown: Never,
) -> dict[str, Tensor]: ...


@overload
def load(
    where: PathLike | Bytes | ReadableFile,
    format: FormatNames = None,
    *,
    to: ForeignName,
    names: Iterable[str] | None = None,
    compression: CompressionName | None = None,
    device: object = None,
    cast: bool = False,
    dequantize: bool = True,
    limits: Limits | None = None,
    tf_compat: bool = False,
    text: bool = False,
    dtype: object = None,
    shape: tuple[int, ...] | int | None = None,
    byteorder: ByteOrder = "little",
    ragged: bool = False,
    readable: bool = True,
    **unknown: Never,
) -> Foreign: ...


def load(
    where: PathLike | Bytes | ReadableFile,
    format: FormatNames = None,
    to: FrameworkName = "numpy",
    names: Iterable[str] | None = None,
    *,
    compression: CompressionName | None = None,
    device: object = None,
    cast: bool = False,
    dequantize: bool = True,
    limits: Limits | None = None,
    tf_compat: bool = False,
    text: bool = False,
    dtype: object = None,
    shape: tuple[int, ...] | int | None = None,
    byteorder: ByteOrder = "little",
    ragged: bool = False,
    readable: bool = True,
    **unknown: Never,
) -> Value | Foreign:
    raise NotImplementedError


def open(
    where: PathLike | Bytes | ReadableFile,
    format: FormatNames = None,
    compression: CompressionName | None = None,
    *,
    mmap: bool = False,
    dequantize: bool = True,
    limits: Limits | None = None,
    tf_compat: bool = False,
    text: bool = False,
    dtype: object = None,
    shape: tuple[int, ...] | int | None = None,
    byteorder: ByteOrder = "little",
    ragged: bool = False,
    readable: bool = True,
    **unknown: Never,
) -> File:
    raise NotImplementedError


def inspect(
    where: PathLike | Bytes | ReadableFile,
    format: FormatNames = None,
    *,
    limits: Limits | None = None,
    compression: CompressionName | None = None,
    tf_compat: bool = False,
    text: bool = False,
    dtype: object = None,
    shape: tuple[int, ...] | int | None = None,
    byteorder: ByteOrder = "little",
    ragged: bool = False,
    readable: bool = True,
    **unknown: Never,
) -> Summary | RecordSummary | SavedModelSummary:
    raise NotImplementedError


def verify(
    where: PathLike | Bytes | ReadableFile,
    format: FormatNames = None,
    *,
    limits: Limits | None = None,
    progress: Callable[[int, int], None] | None = None,
    compression: CompressionName | None = None,
    tf_compat: bool = False,
    text: bool = False,
    dtype: object = None,
    shape: tuple[int, ...] | int | None = None,
    byteorder: ByteOrder = "little",
    ragged: bool = False,
    readable: bool = True,
    **unknown: Never,
) -> Verification | RecordVerification:
    raise NotImplementedError


def read(
    stream: object,
    format: FormatNames = None,
    *,
    to: FrameworkName = "numpy",
    device: object = None,
    cast: bool = False,
    copy: bool | None = None,
    dequantize: bool = True,
    limits: Limits | None = None,
    tf_compat: bool = False,
    text: bool = False,
    dtype: object = None,
    shape: tuple[int, ...] | int | None = None,
    byteorder: ByteOrder = "little",
    ragged: bool = False,
    readable: bool = True,
    **unknown: Never,
) -> Value:
    raise NotImplementedError


def write(
    stream: object,
    value: object,
    format: FormatName = "safetensors",
    *,
    compression: FormatCompressionName | None = None,
    level: int | None = None,
    threads: int | None = None,
    per_tensor: bool = False,
    shuffle: bool = False,
    quantize: Quantize = None,
    axis: int | None = None,
    nonfinite: Nonfinite = "raise",
    metadata: Mapping[str, str] | None = None,
    drop_metadata: bool = False,
    keep_device: bool = False,
    checksum: bool = False,
    tf_compat: bool = False,
    text: bool = False,
    variant: bool = False,
    plain: bool = False,
    indent: int | None = None,
    bare_nonfinite: bool = False,
    graph: bool = True,
    shards: int = 1,
    dtype: object = None,
    shape: tuple[int, ...] | int | None = None,
    byteorder: ByteOrder = "little",
    **unknown: Never,
) -> int:
    raise NotImplementedError
