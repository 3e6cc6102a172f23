"""Memory of decoded arrays: when an array is a view of the input, and when it is a copy.

`copy=None`  read-only: a view if the bytes are aligned for the dtype and not tiny, else a copy
`copy=False` read-only: a view, or an error if the bytes are not aligned
`copy=True`  writable: a copy that belongs to the caller

A view of the caller's input is never writable.
"""

from __future__ import annotations

import math
import sys
import threading
from typing import Any

import numpy as np

from .._errors import DecodeError

INLINE = 4096
"""Up to this many bytes, a copy is cheaper than one more buffer in a list of chunks."""
Buffer = bytes | bytearray | memoryview
Array = np.ndarray[Any, Any]

TINY = 256
"""Up to this many bytes, an array is copied rather than keeping the whole input alive. The native
extension uses the same number.
"""


def flat(data: Any) -> memoryview:
    """Return a flat view of the bytes of any object with the buffer protocol.

    >>> flat(np.zeros((2, 2), np.float32)).nbytes
    16
    """
    view = data if type(data) is memoryview else memoryview(data)
    if view.format == "B" and view.ndim == 1 and view.c_contiguous:
        return view
    if not view.c_contiguous:
        raise DecodeError("the buffer is not contiguous", hint="pass bytes(view)")
    if view.nbytes == 0:
        return memoryview(b"")
    return view.cast("B")


def read_only(array: Array) -> Array:
    """Make an array read-only and return it."""
    array.flags.writeable = False
    return array


def dense(
    view: memoryview,
    offset: int,
    dtype: np.dtype[Any],
    shape: tuple[int, ...],
    copy: bool | None,
    base: int = 0,
) -> Array:
    """Return the array at `offset` as a view or a copy, by the rules of this module.

    The caller has checked that the bytes are there. `base` is where the view begins in the input.
    """
    count = math.prod(shape)
    # frombuffer keeps a reference to the view, which stops a bytearray from being resized.
    # np.ndarray(buffer=...) would not keep it.
    array: Array = (
        np.frombuffer(view, dtype, count, offset).reshape(shape)
        if count
        else np.empty(shape, dtype)
    )
    aligned = array.flags.aligned
    if copy is False and not aligned:
        raise DecodeError(
            f"copy=False, but the {dtype} data is not aligned to {dtype.alignment} bytes",
            offset=base + offset,
            hint="omit copy=",
        )
    if copy or not aligned or (copy is None and array.nbytes <= TINY):
        array = array.copy()
    return array if copy else read_only(array)


def make_writable(value: Any) -> None:
    """Make all arrays in a nested value writable. Their memory must belong to the caller."""
    if isinstance(value, np.ndarray):
        # NumPy refuses to set the flag again for memory that a kernel allocated.
        if value.flags.writeable:
            return
        # A view of another dtype (int4 is read as uint8) is writable only if its base is.
        if isinstance(value.base, np.ndarray):
            make_writable(value.base)
        value.flags.writeable = True
    elif isinstance(value, (list, tuple)):
        for item in value:
            make_writable(item)
    # A dict or Bundle: Sparse and Ragged have an array `values`.
    elif hasattr(value, "values") and callable(value.values):
        for item in value.values():
            make_writable(item)
    elif hasattr(value, "__slots__"):
        for name in value.__slots__:
            make_writable(getattr(value, name))


def chunk(array: Array) -> Buffer:
    """Return the bytes of a C-contiguous array, copied only if that is faster."""
    if array.nbytes <= INLINE:
        return array.tobytes()
    # The dtypes of ml_dtypes have no buffer format, so the memory is viewed as uint8 first.
    return array.reshape(-1).view(np.uint8).data


def fresh(size: int) -> Array:
    """Return new, writable bytes that start at a multiple of 64.

    Arrays at aligned offsets of a file are then aligned in memory too, also for JAX, which requires
    64 bytes.
    """
    return _aligned(np.empty(size + 64, np.uint8), size)


class MemoryPool:
    """A pool of buffers that are reused as soon as no array refers to them.

    Page faults of new memory take longer than filling it. An array and all its views keep the
    buffer under them alive, so a buffer that only the pool refers to is free. In a free-threaded
    interpreter reference counts do not show that (`counts_are_exact`), and every buffer is new.

    >>> pool = MemoryPool()
    >>> first = pool.take(1000)
    >>> first[:8] = 1
    >>> del first
    >>> pool.take(900)[:8].tolist()
    [1, 1, 1, 1, 1, 1, 1, 1]
    """

    _KEPT = 64
    """Buffers that are kept of one size class."""
    _LEAST = 4096
    """Bytes of the smallest size class."""

    def __init__(self) -> None:
        self._buffers: dict[int, list[Array]] = {}
        """Buffers by size, a power of two. The pages of a buffer that are not touched cost
        nothing.
        """
        self._lock = threading.Lock()

    def take(self, size: int) -> Array:
        """Return writable, uninitialized bytes that start at a multiple of 64."""
        room = max(self._LEAST, 1 << (size - 1).bit_length())
        with self._lock:
            buffers = self._buffers.setdefault(room, [])
            for i in range(len(buffers)):
                # One reference belongs to the list and one to this call. There is no other, so no
                # other thread can create one while the lock is held.
                if sys.getrefcount(buffers[i]) <= 2:
                    return _aligned(buffers[i], size)
            buffer: Array = np.empty(room + 64, np.uint8)
            if len(buffers) < self._KEPT and counts_are_exact():
                buffers.append(buffer)
            return _aligned(buffer, size)


def is_mine(array: Array) -> bool:
    """Return whether an array is the only one over its pool buffer, so that it may be reused."""
    # The three references are those of the pool, of the array, and of this call.
    return counts_are_exact() and sys.getrefcount(array.base) <= 3


def counts_are_exact() -> bool:
    """Return whether reference counts are exact.

    Without the GIL each thread counts for itself, so a `MemoryPool` keeps nothing.
    """
    return bool(getattr(sys, "_is_gil_enabled", lambda: True)())


def _aligned(raw: Array, size: int) -> Array:
    start = -raw.__array_interface__["data"][0] % 64
    return raw[start : start + size]
