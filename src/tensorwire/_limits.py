"""Every ceiling on what untrusted bytes may make us allocate, named, with its default.

Rules of the budget:
1. Whatever becomes more memory than the input has bytes draws on it before it allocates: repeated
   values, compressed streams, packed parts, zip members, pages and runs, dequantized floats.
2. One call has one `Budget`. The outermost function that knows the size of the input starts it, and
   passes it on in place of its `Limits`; a function that is given a Budget keeps to that one.
3. Reading from an open file is a call each time: `start` sets what was drawn back to zero. The sum
   belongs to the thread, because any number of threads may read from one file.
"""

from __future__ import annotations

import threading
from collections.abc import Hashable
from dataclasses import dataclass, fields

from ._errors import LimitError

MiB = 1 << 20


@dataclass(frozen=True, slots=True)
class Limits:
    """What bytes from a stranger may ask for. Pass `limits=` to any reading function.

    >>> Limits(record=4 << 30).record
    4294967296
    """

    tensor: int = 2048 * MiB
    """Bytes of one tensor that the input does not itself carry (varints that widen, offsets)."""
    expansion: int = 128 * MiB
    """Bytes that all data of one call may expand to (repeated values, runs, compressed data) ..."""
    expansion_ratio: int = 200
    """... and this many times the size of the input besides."""
    record: int = 1024 * MiB
    """Bytes of one record, or of one value on a stream."""
    safetensors_header: int = 100_000_000
    npy_header: int = 64 << 10
    json_depth: int = 64
    """How deep lists and dicts may nest."""
    names: int = 1_000_000
    """Tensors in one container."""
    answer: int = 256 * MiB
    """Bytes of a server's answer, as they come and decoded."""

    def allowed(self, size: int) -> int:
        """Bytes that an input of this size may expand to.

        >>> Limits(expansion=1000).allowed(2)
        1400
        """
        return self.expansion + self.expansion_ratio * size

    def check(self, expanded: int, size: int, format: str | None = None, offset: int = 0) -> None:
        """Raises LimitError if an input of `size` bytes may not become `expanded` bytes.

        >>> Limits().check(1 << 30, 1000)
        Traceback (most recent call last):
        tensorwire._errors.LimitError: 1,000 bytes expand to 1,073,741,824, and 134,417,728 are \
allowed; a larger Limits(expansion=...) allows more (byte 0)
        """
        if expanded > (allowed := self.allowed(size)):
            raise _beyond(expanded, size, allowed, format, offset)

    @property
    def is_default(self) -> bool:
        """Whether kernels, which know the default limits only, may be used."""
        return self is DEFAULT

    def call(self, size: int, most: int | None = None) -> Budget:
        """The budget of a call whose input has `size` bytes; `most` is another ceiling on it."""
        return Budget(self, size, most)


class Budget(Limits):
    """The limits of one call, and what is left of its expansion."""

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
        """This budget: the call has begun further out."""
        return self

    def start(self) -> None:
        """Begins another call on the same input."""
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
        """Takes so many bytes, before they are allocated. Raises LimitError if too few are left.

        What has a key `once` counts only the first time in a call.

        >>> budget = Limits(expansion=1000).call(0)
        >>> budget.draw(600)
        >>> budget.draw(600)
        Traceback (most recent call last):
        tensorwire._errors.LimitError: 0 bytes expand to 1,200, and 1,000 are allowed; \
a larger Limits(expansion=...) allows more
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
    expanded: int, size: int, allowed: int, format: str | None, at: int | None
) -> LimitError:
    what = f"{size:,} bytes expand to {expanded:,}, and {allowed:,} are allowed"
    more = "a larger Limits(expansion=...) allows more"
    return LimitError(f"{what}; {more}", format=format, offset=at)


DEFAULT = Limits()
