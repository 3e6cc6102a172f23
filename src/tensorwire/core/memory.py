"""The memory rules, in code: when a decoded array is a view and when a copy, and that nobody can
write into what is not theirs.

`copy=None`  read-only; a view where the bytes are aligned for the dtype, an aligned copy elsewhere
             or when tiny
`copy=False` read-only; a view, or an error
`copy=True`  writable, the caller's own
"""

from __future__ import annotations

import math
import sys
import threading
from typing import Any

import numpy as np

from .._errors import DecodeError

INLINE = 4096
"""Up to here a copy is cheaper than one more buffer."""
Buffer = bytes | bytearray | memoryview
Array = np.ndarray[Any, Any]

TINY = 256
"""Up to here a copy is cheaper than keeping the whole input alive. The extension knows the same
number.
"""


def flat(data: Any) -> memoryview:
    """Any object with the buffer protocol as one run of bytes.

    >>> flat(np.zeros((2, 2), np.float32)).nbytes
    16
    """
    view = data if type(data) is memoryview else memoryview(data)
    if view.format == "B" and view.ndim == 1 and view.c_contiguous:
        return view
    if not view.c_contiguous:
        raise DecodeError("the buffer is not contiguous; pass bytes(view)")
    if view.nbytes == 0:
        return memoryview(b"")
    return view.cast("B")


def read_only(array: Array) -> Array:
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
    """The array at `offset`, by the rules above. The caller has checked that the bytes are there;
    `base` is where the view begins.
    """
    count = math.prod(shape)
    # frombuffer keeps the view, and with it the lock on a bytearray's size; np.ndarray(buffer=...)
    # would let go of it.
    array: Array = (
        np.frombuffer(view, dtype, count, offset).reshape(shape)
        if count
        else np.empty(shape, dtype)
    )
    aligned = array.flags.aligned
    if copy is False and not aligned:
        why = (
            f"copy=False, but the {dtype} data is not aligned to {dtype.alignment} bytes; leave"
            " copy out"
        )
        raise DecodeError(why, offset=base + offset)
    if copy or not aligned or (copy is None and array.nbytes <= TINY):
        array = array.copy()
    return array if copy else read_only(array)


def make_writable(value: Any) -> None:
    """Gives arrays over memory that is the caller's own back their flag, however deep they are in a
    value.
    """
    if isinstance(value, np.ndarray):
        if value.flags.writeable:
            return  # NumPy refuses to set the flag again for memory that a kernel allocated.
        # a view of another dtype, as for int4
        if isinstance(value.base, np.ndarray):
            make_writable(value.base)
        value.flags.writeable = True
    elif isinstance(value, (list, tuple)):
        for item in value:
            make_writable(item)
    elif hasattr(value, "values") and callable(value.values):  # a dict or Bundle
        for item in value.values():
            make_writable(item)
    elif hasattr(value, "__slots__"):
        for name in value.__slots__:
            make_writable(getattr(value, name))


def chunk(array: Array) -> Buffer:
    """A C-contiguous array's own memory as bytes, copied only where that is quicker; ml_dtypes have
    no buffer format, hence the view.
    """
    if array.nbytes <= INLINE:
        return array.tobytes()
    return array.reshape(-1).view(np.uint8).data


def fresh(size: int) -> Array:
    """New, writable bytes that start at a multiple of 64, so that any array in a well-made file is
    aligned, for JAX too.
    """
    return _aligned(np.empty(size + 64, np.uint8), size)


class MemoryPool:
    """Buffers that are used again once nobody holds an array over them: fresh memory costs more in
    page faults than filling it does.

    An array keeps the buffer under it alive, and so does every view of it, so a buffer that only
    the pool holds is free. A free-threaded interpreter cannot tell that (`counts_are_exact`): there
    every buffer is a new one.

    >>> pool = MemoryPool()
    >>> first = pool.take(1000)
    >>> first[:8] = 1
    >>> del first
    >>> pool.take(900)[:8].tolist()
    [1, 1, 1, 1, 1, 1, 1, 1]
    """

    _KEPT = 64
    """Buffers of one size class; more than these are not kept."""
    _LEAST = 4096

    def __init__(self) -> None:
        self._buffers: dict[int, list[Array]] = {}
        """By size, which is a power of two: what is not touched of it costs nothing."""
        self._lock = threading.Lock()

    def take(self, size: int) -> Array:
        """Bytes to write on, starting at a multiple of 64; what is in them is left over from
        before.
        """
        room = max(self._LEAST, 1 << (size - 1).bit_length())
        with self._lock:
            buffers = self._buffers.setdefault(room, [])
            for i in range(len(buffers)):
                # One reference is the list's, one the call's own: nobody else has any, so nobody
                # can make more.
                if sys.getrefcount(buffers[i]) <= 2:
                    return _aligned(buffers[i], size)
            buffer: Array = np.empty(room + 64, np.uint8)
            if len(buffers) < self._KEPT and counts_are_exact():
                buffers.append(buffer)
            return _aligned(buffer, size)


def is_mine(array: Array) -> bool:
    """Whether a pool's buffer under an array has no other array over it, so that its holder may
    start over in it.
    """
    # the pool's, the array's, and the call's own
    return counts_are_exact() and sys.getrefcount(array.base) <= 3


def counts_are_exact() -> bool:
    """Whether a reference count says that an object has no other holder. Without the GIL it does
    not, as each thread counts for itself; a `MemoryPool` keeps nothing there.
    """
    return bool(getattr(sys, "_is_gil_enabled", lambda: True)())


def _aligned(raw: Array, size: int) -> Array:
    start = -raw.__array_interface__["data"][0] % 64
    return raw[start : start + size]
