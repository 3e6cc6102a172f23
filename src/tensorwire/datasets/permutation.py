"""A seeded permutation of the numbers below n: the random order of a shuffle.

1. Any worker can compute the position of any record by itself. The result depends on n, the seed
   and the number, not on the order of calls.
2. Small permutations (up to a million numbers, or `small`) sort the numbers by a 64-bit hash key,
   and hold the result as a table.
3. Larger ones are a Feistel network of eight rounds, which is a bijection for any round function.
   It needs an even number of bits, so it permutes the numbers below the next power of 4, and holds
   nothing of the size of n.
4. A result of n or more goes through the network again until it is below n ("cycle walking").
   Every start below n reaches such a number, and no two the same one, so the result is a
   permutation of the numbers below n.
"""

from __future__ import annotations

import numpy as np

from ..core.tensors import Array

_SMALL = 1 << 20
_ROUNDS = 8
_MASK = (1 << 64) - 1


def mix(values: Array) -> Array:
    """Mixes the bits of 64-bit numbers, one to one: the finalizer of splitmix64.

    >>> hex(int(mix(np.array([1], np.uint64))[0]))
    '0x5692161d100b05e5'
    """
    z = values.astype(np.uint64)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


def keys(seed: int, numbers: Array) -> Array:
    """A 64-bit hash of each number, by seed."""
    start = mix(np.array([seed & _MASK], np.uint64))[0]
    return mix(mix(numbers.astype(np.uint64) + start) + np.uint64(0x9E3779B97F4A7C15))


class Permutation:
    """A permutation of the numbers below `count`, called with an array of numbers.

    Up to `small` numbers it holds a table of 8 bytes a number. A caller with many permutations
    passes a lower `small`. All callers that must agree pass the same one, because a table and a
    network order the numbers differently.

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
        # The network works on two halves of this many bits each.
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
