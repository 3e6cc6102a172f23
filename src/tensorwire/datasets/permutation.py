"""A permutation of the first n numbers that a seed gives, computed number by number: the same on
every worker, whatever it knows.

Up to a million numbers, or as many as the caller says, it is the order of their keys. Beyond, it is
a Feistel network of eight rounds over the next even number of bits; a number that falls outside is
sent through again until it is inside. There nothing of the size of n is held.
"""

from __future__ import annotations

import numpy as np

from ..core.tensors import Array

_SMALL = 1 << 20
_ROUNDS = 8
_MASK = (1 << 64) - 1


def mix(values: Array) -> Array:
    """64 bits well stirred (the finisher of splitmix64); every input has its own output.

    >>> hex(int(mix(np.array([1], np.uint64))[0]))
    '0x5692161d100b05e5'
    """
    z = values.astype(np.uint64)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


def keys(seed: int, numbers: Array) -> Array:
    """A number of 64 bits for each number, by seed."""
    start = mix(np.array([seed & _MASK], np.uint64))[0]
    return mix(mix(numbers.astype(np.uint64) + start) + np.uint64(0x9E3779B97F4A7C15))


class Permutation:
    """Where each of the first `count` numbers goes.

    Up to `small` numbers a table is held, of 8 bytes a number. Who holds many permutations asks for
    small tables; all who must agree ask for the same, since a network orders the numbers in another
    way than a table.

    >>> p = Permutation(5, seed=1)
    >>> sorted(p(np.arange(5)).tolist())
    [0, 1, 2, 3, 4]
    >>> sorted(Permutation(5, seed=1, small=0)(np.arange(5)).tolist())
    [0, 1, 2, 3, 4]
    """

    def __init__(self, count: int, seed: int, *, small: int = _SMALL) -> None:
        self.count, self.seed = count, seed
        self._table: Array | None = None
        if count <= small:
            order = np.argsort(keys(seed, np.arange(count)), kind="stable")
            self._table = np.empty(count, np.int64)
            self._table[order] = np.arange(count)
        self._half = np.uint64(max(1, ((count - 1).bit_length() + 1) // 2))

    def __call__(self, numbers: Array) -> Array:
        if self._table is not None:
            return self._table[numbers]
        out = self._rounds(numbers.astype(np.uint64))
        while len(outside := np.flatnonzero(out >= self.count)):
            out[outside] = self._rounds(out[outside])
        return out.astype(np.int64)

    def _rounds(self, values: Array) -> Array:
        low = np.uint64((1 << int(self._half)) - 1)
        left, right = values >> self._half, values & low
        for number in range(_ROUNDS):
            left, right = right, left ^ (keys(self.seed * _ROUNDS + number, right) & low)
        return (left << self._half) | right
