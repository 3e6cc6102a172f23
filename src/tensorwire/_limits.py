"""Limits on the memory that untrusted bytes may make a reader allocate.

Rules of the budget:
1. Code that allocates more memory than the input has bytes draws on the budget first. This concerns
   repeated values, compressed streams, packed parts, zip members, pages, runs and dequantized
   floats.
2. One call has one `Budget`. The outermost function that knows the size of the input creates it and
   passes it on in place of its `Limits`. A function that receives a Budget uses that one.
3. Each read from an open file is a call: `start` sets the sum back to zero. The sum is per thread,
   because any number of threads may read from one file.
"""

from __future__ import annotations

import threading
from collections.abc import Hashable
from dataclasses import dataclass, fields

from ._errors import LimitError

MiB = 1 << 20


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits on what untrusted bytes may ask for. Pass `limits=` to any function that reads.

    A reader raises `LimitError` before it allocates more.

    >>> import tensorwire as tw
    >>> blob = tw.dumps([1.5] * 1000, "npy", compression="gzip")
    >>> tw.loads(blob, limits=tw.Limits(expansion=100, expansion_ratio=1))
    Traceback (most recent call last):
    tensorwire._errors.LimitError: ...; pass a larger Limits(expansion=...)
    """

    tensor: int = 2048 * MiB
    """Bytes of one tensor beyond those in the input (varints that widen, offsets)."""
    expansion: int = 128 * MiB
    """Bytes that one call may expand its input to (repeated values, runs, compressed data). The sum
    of this and `expansion_ratio` times the size of the input is allowed.
    """
    expansion_ratio: int = 200
    """Bytes of expanded data allowed for each byte of the input, in addition to `expansion`."""
    record: int = 1024 * MiB
    """Bytes of one record, or of one value on a stream."""
    safetensors_header: int = 100_000_000
    """Bytes of a safetensors header."""
    npy_header: int = 64 << 10
    """Bytes of an npy header."""
    json_depth: int = 64
    """How deep lists and dicts may nest."""
    names: int = 1_000_000
    """Tensors in one container."""
    answer: int = 256 * MiB
    """Bytes of a server's answer, both compressed and decompressed."""

    def allowed(self, size: int) -> int:
        """Return how many bytes an input of this size may expand to.

        >>> Limits(expansion=1000).allowed(2)
        1400
        """
        return self.expansion + self.expansion_ratio * size

    def check(self, expanded: int, size: int, format: str | None = None, offset: int = 0) -> None:
        """Raise LimitError if an input of `size` bytes must not expand to `expanded` bytes.

        >>> Limits().check(1 << 30, 1000)
        Traceback (most recent call last):
        tensorwire._errors.LimitError: 1,000 bytes expand to 1,073,741,824 bytes, and the limit is \
134,417,728 (byte 0); pass a larger Limits(expansion=...)
        """
        if expanded > (allowed := self.allowed(size)):
            raise _beyond(expanded, size, allowed, format, offset)

    @property
    def is_default(self) -> bool:
        """Whether these are the default limits, which are the only ones that kernels implement."""
        return self is DEFAULT

    def call(self, size: int, most: int | None = None) -> Budget:
        """Return the budget of a call whose input has `size` bytes, at most `most`."""
        return Budget(self, size, most)


class Budget(Limits):
    """The limits of one call, with the sum of the bytes that it has expanded to so far."""

    __slots__ = ("_default", "_most", "_sum", "input")
    input: int
    _default: bool
    _most: int
    _sum: _Sum

    def __init__(self, limits: Limits, size: int, most: int | None = None) -> None:
        for field in fields(Limits):
            object.__setattr__(self, field.name, getattr(limits, field.name))
        allowed = limits.allowed(size)
        object.__setattr__(self, "_default", limits.is_default)
        object.__setattr__(self, "input", size)
        object.__setattr__(self, "_most", allowed if most is None else min(most, allowed))
        object.__setattr__(self, "_sum", _Sum())

    @property
    def is_default(self) -> bool:
        return self._default

    def call(self, size: int, most: int | None = None) -> Budget:
        """Return this budget, because an outer function has started the call."""
        return self

    def start(self) -> None:
        """Start another call on the same input: set the sum back to zero."""
        self._sum.drawn = 0
        self._sum.keys.clear()

    def draw(
        self,
        size: int,
        format: str | None = None,
        offset: int | None = None,
        *,
        once: Hashable = None,
    ) -> None:
        """Count `size` bytes before they are allocated. Raises LimitError if too few are left.

        Bytes with the same key `once` are counted once in a call.

        >>> budget = Limits(expansion=1000).call(0)
        >>> budget.draw(600)
        >>> budget.draw(600)
        Traceback (most recent call last):
        tensorwire._errors.LimitError: 0 bytes expand to 1,200 bytes, and the limit is 1,000; \
pass a larger Limits(expansion=...)
        """
        if once is not None:
            if once in self._sum.keys:
                return
            self._sum.keys.add(once)
        drawn = self._sum.drawn + size
        if drawn > self._most:
            raise _beyond(drawn, self.input, self._most, format, offset)
        self._sum.drawn = drawn

    @property
    def left(self) -> int:
        """Bytes that may still be drawn."""
        return self._most - self._sum.drawn


class _Sum(threading.local):
    def __init__(self) -> None:
        self.drawn = 0
        self.keys: set[Hashable] = set()


def _beyond(
    expanded: int, size: int, allowed: int, format: str | None, offset: int | None
) -> LimitError:
    message = f"{size:,} bytes expand to {expanded:,} bytes, and the limit is {allowed:,}"
    hint = "pass a larger Limits(expansion=...)"
    return LimitError(message, format=format, offset=offset, hint=hint)


DEFAULT = Limits()
