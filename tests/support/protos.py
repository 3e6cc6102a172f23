"""Random TensorProtos, well-formed and odd, as bytes: the forms that TensorFlow reads, whoever
wrote them.
"""

import random
import struct

from tensorwire.core import dtypes
from tensorwire.wire.protobuf import varint

FIXED = {5: "<f", 6: "<d", 9: "<f", 12: "<d"}


def field(number: int, wire: int, payload: bytes) -> bytes:
    return varint(number << 3 | wire) + payload


def block(number: int, payload: bytes) -> bytes:
    return field(number, 2, varint(len(payload)) + payload)


def signed(value: int) -> bytes:
    return varint(value & 0xFFFFFFFFFFFFFFFF)


def shape_field(dims, names=None) -> bytes:
    body = b""
    for i, dim in enumerate(dims):
        inner = (field(1, 0, signed(dim)) if dim else b"") + (
            block(2, names[i].encode()) if names else b""
        )
        body += block(2, inner)
    return block(2, body)


def typed(rng: random.Random, number: int, count: int, wild: bool) -> bytes:
    """`count` values of a typed field, packed, unpacked, or both."""
    values = []
    for _ in range(count):
        if number in FIXED:
            values.append(
                rng.choice(
                    [
                        struct.pack(FIXED[number], rng.uniform(-9, 9)),
                        rng.randbytes(struct.calcsize(FIXED[number])),
                    ]
                )
            )
        elif number == 11:
            values.append(signed(rng.choice([0, 1, 7]) if wild else rng.randrange(2)))
        elif number == 13:
            values.append(signed(rng.randrange(1 << 20) if wild else rng.randrange(1 << 16)))
        else:
            values.append(
                signed(
                    rng.choice([rng.randrange(-300, 300), rng.randrange(-(1 << 63), 1 << 63)])
                    if wild
                    else rng.randrange(2)
                )
            )
    if number == 8:
        return b"".join(block(8, rng.randbytes(rng.randrange(6))) for _ in range(count))
    if number == 18:
        return block(18, rng.randbytes(count)) if count else b""
    wire = {5: 5, 9: 5, 6: 1, 12: 1}.get(number, 0)
    cut = rng.choice([0, len(values), rng.randint(0, len(values))])
    packed = block(number, b"".join(values[:cut])) if cut or rng.random() < 0.1 else b""
    return packed + b"".join(field(number, wire, value) for value in values[cut:])


def content(rng: random.Random, row, count: int, off: bool) -> bytes:
    if row is None:
        items = [
            rng.randbytes(rng.choice([0, 1, 5, 130]))
            for _ in range(count + (rng.choice([-1, 1]) if off and count else 0))
        ]
        return b"".join(varint(len(item)) for item in items) + b"".join(items)
    size = count * row.numpy.itemsize + (rng.choice([-1, 1, row.numpy.itemsize]) if off else 0)
    data = rng.randbytes(max(size, 0))
    if row.name == "bool" and rng.random() < 0.8:
        data = bytes(byte & 1 for byte in data)
    elif row.bits < 8 and rng.random() < 0.8:
        data = bytes(byte & (1 << row.bits) - 1 for byte in data)
    return data


def tensor_proto(rng: random.Random) -> tuple[int, bytes]:
    """(enum, bytes)"""
    row = rng.choice([*(row for row in dtypes.TABLE if row.tf is not None), None, None, None])
    enum, own = (row.tf, row.field) if row else (dtypes.STRING, 8)
    dims = [rng.choice([0, 1, 2, 3, 4]) for _ in range(rng.choice([0, 1, 1, 2, 3, 6]))]
    count = 1
    for dim in dims:
        count *= dim
    pair = 2 if row and row.numpy.kind == "c" else 1
    names = [rng.choice(["", "batch", "é"]) for _ in dims] if rng.random() < 0.1 else None
    parts = [field(1, 0, varint(enum)), shape_field(dims, names)]
    if rng.random() < 0.03:
        parts.pop()
    form = rng.choice(
        [
            "content",
            "content",
            "typed",
            "typed",
            "splat",
            "few",
            "many",
            "none",
            "wrong",
            "both",
            "off",
        ]
    )
    wild = rng.random() < 0.3
    if form in ("content", "both", "off"):
        parts.append(block(4, content(rng, row, count, form == "off")))
    if form in ("typed", "both"):
        parts.append(typed(rng, own, count * pair, wild))
    elif form == "splat":
        parts.append(typed(rng, own, pair, wild))
    elif form == "few":
        parts.append(typed(rng, own, rng.randint(0, count * pair), wild))
    elif form == "many":
        parts.append(typed(rng, own, count * pair + rng.randint(1, 3), wild))
    elif form == "wrong":
        parts.append(
            typed(
                rng,
                rng.choice([n for n in (5, 6, 7, 8, 9, 10, 11, 12, 13, 16, 17, 18) if n != own]),
                count,
                wild,
            )
        )
    if rng.random() < 0.05:
        parts.append(field(3, 0, varint(rng.randrange(5))))
    if rng.random() < 0.03:
        parts.append(block(rng.choice([19, 100, 5000]), b"xyz"))
    if rng.random() < 0.03:
        parts.append(rng.choice(parts))  # a singular field twice, or more values
    if rng.random() < 0.1:
        rng.shuffle(parts)
    data = b"".join(parts)
    if rng.random() < 0.03 and data:
        data = data[: rng.randrange(len(data))]
    return enum, data
