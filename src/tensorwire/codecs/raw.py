"""The raw format: the numbers of one tensor without a header, for systems that read plain bytes.

The bytes do not contain dtype, shape and byte order, so the reader must pass them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from .. import frameworks
from .._errors import DecodeError, EncodeError, TruncatedError
from .._limits import DEFAULT, Limits
from ..core import dtypes, memory, validate
from ..core.memory import Buffer
from ..core.tensors import KINDS, Array, describe
from .protocol import Metadata, WholeFormat, refuse_metadata

FORMAT = "raw"


@dataclass(frozen=True, slots=True)
class Raw(WholeFormat):
    """The codec of bare numbers in C order.

    >>> codec = Raw(dtype="float32", shape=(2,), byteorder="big")
    >>> b"".join(codec.encode(np.float32([1, 2]))).hex()
    '3f80000040000000'
    """

    dtype: Any = None
    """A name, NumPy dtype or tf.DType. Required for reading. For writing, it must match the tensor.
    """
    shape: tuple[int, ...] | int | None = None
    """The shape to read, in which one dimension may be -1; the default is (-1,). For writing, it
    must match the tensor.
    """
    byteorder: str = "little"
    """"little", "big" or "native"."""
    limits: Limits = DEFAULT

    def encode(self, value: Any, metadata: Metadata | None = None) -> list[Buffer]:
        refuse_metadata(metadata, FORMAT)
        tensor = None if frameworks.is_python(value) else frameworks.leaf(value)
        if not isinstance(tensor, np.ndarray):
            what = describe(tensor) if isinstance(tensor, KINDS) else type(value).__name__
            raise EncodeError(
                f"raw holds one dense tensor, not {what}",
                format=FORMAT,
                hint="safetensors holds any value",
            )
        if self.dtype is not None and dtypes.named(self.dtype).numpy != tensor.dtype:
            raise EncodeError(
                f"dtype={dtypes.named(self.dtype).name}, but the tensor is {tensor.dtype}",
                format=FORMAT,
                hint="convert it with x.astype(...)",
            )
        if self.shape is not None and self._dims(tensor.size) != tensor.shape:
            raise EncodeError(
                f"shape={self.shape}, but the tensor has shape {tensor.shape}", format=FORMAT
            )
        return [memory.chunk(tensor if self._native() else tensor.byteswap())]

    def decode(self, data: memoryview, copy: bool | None = None) -> Array:
        if self.dtype is None:
            raise DecodeError(
                "raw bytes do not contain their dtype",
                format=FORMAT,
                offset=0,
                hint="pass dtype=, and shape= unless the tensor is one-dimensional",
            )
        row = dtypes.named(self.dtype)
        item = row.numpy.itemsize
        if len(data) % item:
            raise TruncatedError(
                f"{len(data)} bytes are not a multiple of {item}, the size of {row.name}",
                format=FORMAT,
                offset=len(data) - len(data) % item,
            )
        shape = self._dims(len(data) // item)
        size = validate.elements(shape, DecodeError, item) * item
        if size != len(data):
            kind = TruncatedError if len(data) < size else DecodeError
            raise kind(
                f"expected {size} bytes for {row.name} {shape}, found {len(data)}",
                format=FORMAT,
                offset=min(size, len(data)),
            )
        bad = dtypes.noncanonical(row, np.frombuffer(data, np.uint8)) if size else None
        if bad is not None:
            raise DecodeError(f"invalid byte in {row.name} data", format=FORMAT, offset=bad)
        if self._native():
            return memory.dense(data, 0, row.numpy, shape, copy)
        if copy is False:
            raise DecodeError(
                "copy=False, but the bytes must be swapped",
                format=FORMAT,
                offset=0,
                hint="leave copy= out",
            )
        swapped = memory.dense(data, 0, row.numpy, shape, True).byteswap(inplace=True)
        return swapped if copy else memory.read_only(swapped)

    def _native(self) -> bool:
        if self.byteorder not in ("little", "big", "native"):
            raise EncodeError(
                f"byteorder must be 'little', 'big' or 'native', not {self.byteorder!r}",
                format=FORMAT,
            )
        # tensorwire runs on little-endian hosts only, so "native" means "little".
        return self.byteorder != "big"

    def _dims(self, count: int) -> tuple[int, ...]:
        shape = (
            (-1,)
            if self.shape is None
            else (
                (self.shape,)
                if isinstance(self.shape, int)
                else tuple(int(dim) for dim in self.shape)
            )
        )
        if shape.count(-1) != 1:
            return shape
        product = validate.elements([dim for dim in shape if dim != -1])
        return tuple((count // product if product else 0) if dim == -1 else dim for dim in shape)
