"""Random feature specs, and records for them made byte by byte: every encoding that a writer may
choose, and some that none should.
"""

import random
import struct

from support.protos import block, field, signed, varint

BYTES, FLOAT, INT64 = 1, 2, 3
DTYPES = {BYTES: "string", FLOAT: "float32", INT64: "int64"}
PARTITIONS = [
    "RowSplits",
    "RowLengths",
    "RowStarts",
    "RowLimits",
    "ValueRowIds",
    "UniformRowLength",
]


def values(rng, kind, count):
    if kind == BYTES:
        return [bytes(rng.choices(b"abc ", k=rng.choice([0, 1, 3, 9]))) for _ in range(count)]
    if kind == FLOAT:
        return [rng.choice([0.0, -1.5, 2.25, 1e10, float("nan")]) for _ in range(count)]
    return [rng.choice([0, 1, 5, 100, 300, -1, (1 << 62) + 1]) for _ in range(count)]


def run(kind, items, packed):
    """Values of one list, in one packed run or each by itself."""
    if kind == BYTES:
        return b"".join(block(1, item) for item in items)
    coded = [struct.pack("<f", item) if kind == FLOAT else signed(item) for item in items]
    return (
        block(1, b"".join(coded))
        if packed
        else b"".join(field(1, 5 if kind == FLOAT else 0, item) for item in coded)
    )


def feature(rng, kind, items, wild=False):
    """A Feature. `wild` ones need protobuf's rules for merging, or have fields that nobody knows."""
    packed = rng.random() < 0.7
    form = (
        rng.choice(["runs", "lists", "kinds", "unknown", "inside", "empty run", "padded", "plain"])
        if wild
        else "plain"
    )
    cut = rng.randint(0, len(items))
    body = run(kind, items, packed)
    if form == "runs":
        body = run(kind, items[:cut], packed) + run(kind, items[cut:], rng.random() < 0.5)
    elif form == "empty run" and kind != BYTES:
        body = block(1, b"") + body
    elif form == "inside":
        body += rng.choice([field(1, 1, bytes(8)), field(2, 0, b"\1"), block(3, b"x"), b"\x0b\x0c"])
    out = block(kind, body)
    if form == "lists":
        out = block(kind, run(kind, items[:cut], packed)) + block(
            kind, run(kind, items[cut:], packed)
        )
    elif form == "kinds":
        other = rng.choice([BYTES, FLOAT, INT64])
        out = rng.choice(
            [block(other, run(other, values(rng, other, 2), True)) + out, out + block(other, b"")]
        )
    elif form == "unknown":
        extra = rng.choice(
            [field(1, 0, b"\5"), block(4, b"xy"), field(9, 5, bytes(4)), b"\x23\x24"]
        )
        out = rng.choice([extra + out, out + extra])
    elif form == "padded":
        out = (
            varint(kind << 3 | 2)
            + bytes([len(body) & 127 | 128, len(body) >> 7 & 127 | 128, 0])
            + body
        )
    return out


def entry(rng, key, value, wild=False):
    name, body = block(1, key), block(2, value)
    form = (
        rng.choice(["order", "twice", "keyless", "valueless", "unknown", "keys"])
        if wild
        else "plain"
    )
    return block(
        1,
        {
            "plain": name + body,
            "order": body + name,
            "twice": name + body + block(2, b""),
            "keys": block(1, b"other") + body + name,
            "keyless": body,
            "valueless": name,
            "unknown": name + body + rng.choice([field(3, 0, b"\1"), block(7, b""), b"\x1b\x1c"]),
        }[form],
    )


def nested(rng, partitions):
    """(number of values, numbers of each partition), outer to inner, that fit each other."""
    rows, numbers = rng.choice([0, 1, 1, 2, 3]), []
    for kind, length in partitions:
        if kind == "UniformRowLength":
            rows, found = rows * length, None
        else:
            lengths = [rng.choice([0, 1, 2]) for _ in range(rows)]
            if kind == "ValueRowIds" and lengths:
                lengths[-1] = 1
            ends = [sum(lengths[: i + 1]) for i in range(rows)]
            found = {
                "RowSplits": [0, *ends],
                "RowLengths": lengths,
                "RowStarts": [end - size for end, size in zip(ends, lengths, strict=True)],
                "RowLimits": ends,
                "ValueRowIds": [row for row, size in enumerate(lengths) for _ in range(size)],
            }[kind]
            rows = sum(lengths)
        numbers.append(found)
    return rows, numbers


class Spec:
    """What to ask for (`features`, made of the classes in `io`), and records that mostly answer it.

    `part` is "example", or "context" or "lists" of a SequenceExample.
    """

    def __init__(self, rng, io, part, sparse_strings=True):
        self.rng, self.io, self.part = rng, io, part
        self.features = {}
        self.writers = []
        """Each gives (key, kind, values) of the features that one tensor is made of."""
        choices = {
            "example": [self.fixed, self.blocks, self.var, self.ragged, self.sparse],
            "context": [self.fixed, self.var, self.ragged],
            "lists": [self.blocks, self.var, self.ragged],
        }[part]
        for key in rng.sample("abcd", rng.randint(1, 3)):
            kind = rng.choice([BYTES, FLOAT, INT64])
            make = rng.choice(choices)
            (
                self.ragged
                if kind == BYTES and not sparse_strings and make in (self.var, self.sparse)
                else make
            )(key, kind)

    def simple(self, key, kind, count):
        self.writers.append(lambda: [(key, kind, values(self.rng, kind, count()))])

    def fixed(self, key, kind):
        shape = self.rng.choice([[], [1], [2], [1, 2], [0]])
        size = shape[-1] if shape else 1
        default = values(self.rng, kind, size) if size and self.rng.random() < 0.5 else None
        self.features[key] = self.io.FixedLenFeature(
            shape, DTYPES[kind], default[0] if default and not shape else default
        )
        self.simple(key, kind, lambda: size)

    def blocks(self, key, kind):
        rng, shape = self.rng, self.rng.choice([[], [1], [2]])
        size = shape[0] if shape else 1
        if self.part == "lists":
            self.features[key] = self.io.FixedLenSequenceFeature(
                shape, DTYPES[kind], rng.random() < 0.6
            )
            self.simple(key, kind, lambda: size)
        else:
            default = values(rng, kind, 1)[0] if rng.random() < 0.5 else None
            self.features[key] = self.io.FixedLenSequenceFeature(shape, DTYPES[kind], True, default)
            self.simple(key, kind, lambda: size * rng.choice([0, 1, 2, 3]))

    def var(self, key, kind):
        self.features[key] = self.io.VarLenFeature(DTYPES[kind])
        self.simple(key, kind, lambda: self.rng.choice([0, 1, 2, 4]))

    def sparse(self, key, kind):
        rng = self.rng
        indices = rng.choice([f"{key}i", [f"{key}i"], [f"{key}i", f"{key}j"]])
        names, size = ([indices], 5) if isinstance(indices, str) else (indices, [5] * len(indices))
        self.features[key] = self.io.SparseFeature(
            indices, f"{key}v", DTYPES[kind], size, rng.random() < 0.3
        )

        def write():
            count = rng.choice([0, 1, 2, 3])
            return [
                *((name, INT64, rng.sample(range(5), count)) for name in names),
                (f"{key}v", kind, values(rng, kind, count + (rng.random() < 0.05))),
            ]

        self.writers.append(write)

    def ragged(self, key, kind):
        rng, ragged = self.rng, self.io.RaggedFeature
        partitions = [
            (rng.choice(PARTITIONS), rng.choice([1, 2, 3]))
            for _ in range(rng.choice([0, 0, 1, 2, 3]))
        ]
        parts = [
            getattr(ragged, name)(n if name == "UniformRowLength" else f"{key}p{i}")
            for i, (name, n) in enumerate(partitions)
        ]
        value = rng.choice([None, f"{key}v"])
        # Without validate TensorFlow makes ragged tensors that are none.
        self.features[key] = ragged(
            DTYPES[kind], value, parts, rng.choice(["int32", "int64"]), True
        )

        def write():
            count, numbers = nested(rng, partitions) if partitions else (rng.choice([0, 1, 3]), [])
            found = [
                (f"{key}p{i}", INT64, part) for i, part in enumerate(numbers) if part is not None
            ]
            if rng.random() < 0.1 and found:
                found[-1][2].append(rng.choice([0, 1, 7, -1]))
            return [(value or key, kind, values(rng, kind, count)), *found]

        self.writers.append(write)

    def contents(self, writer, odd):
        """What a writer gives, or sometimes something else."""
        rng, out = self.rng, []
        for key, kind, items in writer():
            chance = rng.random() / odd
            if chance < 0.4:
                continue
            if chance < 0.55:
                other = rng.choice([BYTES, FLOAT, INT64])
                out.append((key, other, values(rng, other, len(items))))
            elif chance < 0.7 and not (
                kind == FLOAT and hasattr(self.features.get(key), "default_value")
            ):
                # TensorFlow writes past its buffer when a dense feature has too many unpacked
                # floats
                out.append((key, kind, [*items, *values(rng, kind, 1)]))
            else:
                out.append((key, kind, items[:-1] if chance < 0.8 else items))
        return out

    def maps(self, wild):
        """(key, message) of each feature, or feature list."""
        rng, out = self.rng, []

        def body(kind, items):
            return (
                b""
                if rng.random() < 0.04
                else feature(rng, kind, items, wild and rng.random() < 0.2)
            )

        for writer in self.writers:
            if self.part != "lists":
                out += [
                    (key, body(kind, items)) for key, kind, items in self.contents(writer, 0.12)
                ]
                continue
            lists = {}
            for _ in range(rng.choice([0, 1, 2, 3])):
                for key, kind, items in self.contents(writer, 0.05):
                    lists.setdefault(key, []).append(block(1, body(kind, items)))
            out += [(key, b"".join(steps)) for key, steps in lists.items()]
        return out

    def entries(self, wild):
        """The entries of a map, in any order, some twice, some that nobody asked for."""
        rng = self.rng
        out = [
            entry(rng, key.encode(), value, wild and rng.random() < 0.08)
            for key, value in self.maps(wild)
        ]
        if rng.random() < 0.1:
            out += [
                entry(rng, key.encode(), rng.choice([value, value, b""]))
                for key, value in self.maps(wild)
            ]
        if rng.random() < 0.3:
            out.append(entry(rng, b"zz", rng.choice([b"\x0a\x00", b"", feature(rng, INT64, [1])])))
        if rng.random() < 0.5:
            rng.shuffle(out)
        return out


def message(rng, parts, wild):
    """Entries of each part, in one or two messages, with fields that nobody knows between them."""
    out = []
    for number, entries in enumerate(parts, 1):
        cut = rng.randint(0, len(entries)) if rng.random() < 0.1 else len(entries)
        out.append(block(number, b"".join(entries[:cut])))
        if cut < len(entries):
            out.append(block(number, b"".join(entries[cut:])))
    if wild and rng.random() < 0.15:
        extra = [
            field(5, 0, b"\x96\x01"),
            block(3, b"abc"),
            field(1, 5, bytes(4)),
            field(6, 1, bytes(8)),
            b"\x2b\x2c",
            block(15, b""),
        ]
        out.insert(rng.randint(0, len(out)), rng.choice(extra))
    return b"".join(out)


def damaged(rng, data):
    changed = bytearray(data)
    for _ in range(rng.choice([1, 1, 2]) if data else 0):
        changed[rng.randrange(len(changed))] ^= 1 << rng.randrange(8)
    return bytes(changed[: rng.randrange(len(changed) + 1)] if rng.random() < 0.2 else changed)


def generator(seed):
    return random.Random(seed)
