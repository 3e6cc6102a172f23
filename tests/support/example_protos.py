"""Random tf.train.Example and SequenceExample messages as bytes: the usual form, and every other
that protobuf's rules allow.
"""

import random
import struct

from support.protos import block, field
from tensorwire.wire.protobuf import varint

BYTES, FLOAT, INT64 = 1, 2, 3
NAMES = [b"a", b"b", b"aa", b"image/height", b"", b"x" * 130, "höhe".encode()]


class Messages:
    """`odd` is how likely each departure from the usual form is; `counts` are the kinds whose lists
    mostly have a fixed number of them.
    """

    def __init__(
        self, rng: random.Random, odd: float, counts: dict[int, int] | None = None
    ) -> None:
        self.rng, self.odd, self.counts = rng, odd, counts or {}

    def chance(self) -> bool:
        return self.rng.random() < self.odd

    def varint(self, value: int, longest: int) -> bytes:
        """Sometimes padded with zero bits, up to `longest` bytes."""
        data = bytearray(varint(value))
        if self.chance() and len(data) < longest:
            data[-1] |= 0x80
            data += b"\x80" * self.rng.randrange(longest - len(data)) + b"\0"
        return bytes(data)

    def block(self, number: int, data: bytes) -> bytes:
        return self.varint(number << 3 | 2, 5) + self.varint(len(data), 5) + data

    def noise(self, known: dict[int, int]) -> bytes:
        """A field that counts for nothing: of another number, or of a known one (number -> wire
        types that it has) in another wire type.
        """
        rng = self.rng
        number = rng.choice([*known, 4, 9, 15, 16, 1000, (1 << 29) - 1])
        wire = rng.choice(
            [
                wire
                for wire in (0, 1, 2, 3, 5)
                if number not in known or not known[number] >> wire & 1
            ]
        )
        if wire == 3:
            inside = b"".join(self.noise({}) for _ in range(rng.randrange(3)))
            return varint(number << 3 | 3) + inside + varint(number << 3 | 4)
        if wire == 2:
            return block(number, rng.randbytes(rng.randrange(5)))
        return field(
            number,
            wire,
            (
                self.varint(rng.randrange(1 << 64), 10)
                if wire == 0
                else rng.randbytes(8 if wire == 1 else 4)
            ),
        )

    def around(self, parts: list[bytes], known: dict[int, int]) -> bytes:
        parts = list(parts)
        while self.chance():
            parts.insert(self.rng.randint(0, len(parts)), self.noise(known))
        return b"".join(parts)

    def integer(self) -> bytes:
        rng = self.rng
        value = rng.choice(
            [
                rng.randrange(128),
                rng.randrange(1 << 14),
                rng.getrandbits(rng.randrange(1, 65)),
                rng.randrange(-300, 0),
            ]
        )
        data = bytearray(self.varint(value & (1 << 64) - 1, 10))
        if len(data) == 10 and self.chance():
            data[-1] |= rng.randrange(0x80) & ~1  # past 64 bits: dropped
        return bytes(data)

    def values(self, kind: int) -> bytes:
        rng = self.rng
        count = rng.choice(
            [0, 1, 1, 2, 2, 3, rng.randrange(40), rng.randrange(150) if self.chance() else 2]
        )
        count = self.counts.get(kind, count) if rng.random() < 0.98 else count
        if kind == BYTES:
            sizes = [
                rng.choice([0, 3, 15, 16, 17, rng.randrange(40), 130 if self.chance() else 1])
                for _ in range(count)
            ]
            return self.around([self.block(1, rng.randbytes(size)) for size in sizes], {1: 1 << 2})
        number = (
            self.integer
            if kind == INT64
            else lambda: rng.choice([struct.pack("<f", rng.uniform(-9, 9)), rng.randbytes(4)])
        )
        wire, runs = (0 if kind == INT64 else 5), []
        left = [number() for _ in range(count)]
        while left or self.chance():
            cut = rng.randint(0, len(left)) if self.chance() else len(left)
            run, left = left[:cut], left[cut:]
            packed = not self.chance()
            runs += (
                [self.block(1, b"".join(run))]
                if packed
                else [self.varint(1 << 3 | wire, 5) + value for value in run]
            )
        return self.around(runs, {1: 1 << 2 | 1 << wire})

    def feature(self, kind: int) -> bytes:
        kinds = (
            [self.rng.randint(1, 3) for _ in range(self.rng.randrange(4))]
            if self.chance()
            else [kind]
        )
        return self.around(
            [self.block(kind, self.values(kind)) for kind in kinds],
            {1: 1 << 2, 2: 1 << 2, 3: 1 << 2},
        )

    def feature_list(self, kind: int) -> bytes:
        steps = [self.feature(kind) for _ in range(self.rng.choice([0, 1, 2, 3, 9]))]
        return self.around([self.block(1, step) for step in steps], {1: 1 << 2})

    def entry(self, name: bytes, value: bytes, again: bytes) -> bytes:
        parts = [self.block(1, name), self.block(2, value)]
        if self.chance():
            parts = self.rng.choice(
                [
                    parts[::-1],
                    parts[:1],
                    parts[1:],
                    [],
                    [*parts, self.block(2, again)],
                    [self.block(1, b"a"), *parts],
                ]
            )
        return self.around(parts, {1: 1 << 2, 2: 1 << 2})

    def entries(self, kinds: dict[bytes, int], make) -> bytes:
        names = [name for name in kinds if not self.chance()]
        while self.chance() and names:
            names.append(self.rng.choice(names))
        if self.chance():
            self.rng.shuffle(names)
        kind = {name: self.rng.randint(1, 3) if self.chance() else kinds[name] for name in kinds}
        return self.around(
            [self.block(1, self.entry(name, make(kind[name]), make(kind[name]))) for name in names],
            {1: 1 << 2},
        )

    def message(self, kinds: dict[bytes, int], lists: dict[bytes, int] | None) -> bytes:
        """`kinds` of the features, and of the feature lists if it is a SequenceExample."""
        parts = [self.block(1, self.entries(kinds, self.feature))]
        if lists is not None:
            parts.append(self.block(2, self.entries(lists, self.feature_list)))
        if self.chance():
            parts += [self.block(1, self.entries(kinds, self.feature))]
            parts = self.rng.choice([parts, parts[:1], parts[1:], parts[::-1]])
        return self.around(parts, {1: 1 << 2} if lists is None else {1: 1 << 2, 2: 1 << 2})
