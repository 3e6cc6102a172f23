"""Raw Snappy: the native decoder, its readable twin and another library's agree, on sound blocks
and on damaged ones.
"""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

import tensorwire as tw
from support.tiers import require
from tensorwire import _native as native
from tensorwire.wire import snappy, status
from tensorwire.wire.reference import snappy as pure

cramjam = require("cramjam")

NO_LIMIT = 1 << 32


def varint(value):
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def literal(data, width=0):
    if not width and len(data) <= 60:
        return bytes([(len(data) - 1) << 2]) + data
    return bytes([(59 + (width or 4)) << 2]) + (len(data) - 1).to_bytes(width or 4, "little") + data


def copy(offset, size, kind):
    if kind == 1:
        return bytes([offset >> 8 << 5 | (size - 4) << 2 | 1, offset & 255])
    return bytes([(size - 1) << 2 | kind]) + offset.to_bytes(2 if kind == 2 else 4, "little")


@st.composite
def blocks(draw):
    """(block, data): every kind of element in any order, as no compressor would choose them."""
    rng, data, out = random.Random(draw(st.integers(0, 1 << 40))), bytearray(), bytearray()
    for _ in range(draw(st.integers(0, 60))):
        if not data or rng.random() < 0.3:
            piece = rng.randbytes(
                rng.choice([1, 2, 15, 16, 17, 32, 33, 59, 60, 61, 64, 65, 255, 256, 257, 400])
            )
            # cramjam refuses that near the end
            out += literal(piece, rng.choice([0, 0, 2, 3, 4]) if len(piece) > 8 else 0)
            data += piece
        else:
            kind = rng.choice([1, 2, 3])
            most = min(len(data), 2047 if kind == 1 else 65535)
            offset = rng.choice(
                [1, 2, 3, 4, 5, 6, 7, 8, 9, 11, 13, 15, 16, 17, 31, 64, most, rng.randint(1, most)]
            )
            offset, size = (
                min(offset, most),
                rng.randint(4, 11) if kind == 1 else rng.randint(1, 64),
            )
            out += copy(offset, size, kind)
            data += bytes((data[-offset:] * (size // offset + 1))[:size])
    return varint(len(data)) + bytes(out), bytes(data)


def agree(block, limit=NO_LIMIT):
    found = native.snappy_decode(block, limit)
    assert found == pure.snappy_decode(block, limit)
    code, offset, data = found
    assert (code == 0) == (data is not None) and 0 <= offset <= len(block)
    return found


@given(blocks())
def test_every_kind_of_element(pair):
    block, data = pair
    assert agree(block) == (0, len(block), data)
    assert bytes(cramjam.snappy.decompress_raw(block)) == data
    assert snappy.decode(memoryview(block), len(data)) == data
    if data:
        assert agree(block, len(data) - 1) == (status.OVER_LIMIT, 0, None)


@given(blocks(), st.data())
def test_damaged_blocks(pair, data):
    block = bytearray(pair[0])
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(block) - 1))
        block[at] = data.draw(
            st.one_of(st.integers(0, 255), st.just(block[at] ^ 1 << data.draw(st.integers(0, 7))))
        )
    block = bytes(
        block[: data.draw(st.integers(1, len(block)))] if data.draw(st.booleans()) else block
    )
    code, _, found = agree(block, 1 << 20)
    if code != status.OVER_LIMIT:
        try:
            theirs = bytes(cramjam.snappy.decompress_raw(block))
        except cramjam.DecompressionError:
            return
        assert found == theirs


@given(st.binary(max_size=60))
def test_garbage(block):
    agree(block)


@given(st.integers(0, 1 << 40), st.integers(0, 300_000))
def test_what_another_library_compresses(seed, size):
    rng = random.Random(seed)
    words = [rng.randbytes(rng.randint(1, 30)) for _ in range(rng.randint(1, 200))]
    data = b"".join(rng.choices(words, k=size // 10))[:size]
    block = bytes(cramjam.snappy.compress_raw(data))
    assert snappy.decode(block, size) == data
    for count in (0, 1, 12, 100, size):
        assert snappy.prefix(block, len(block), count) == data[:count]
        head = snappy.prefix(block[:80], len(block), count)
        assert data.startswith(head) and len(head) >= min(count, len(data), 12)


def test_every_cut_of_a_block():
    data = b"hello hello hello " * 20 + bytes(range(256))
    block = bytes(cramjam.snappy.compress_raw(data))
    for size in range(len(block)):
        code, _, _ = agree(block[:size])
        assert code == status.TRUNCATED
        with pytest.raises(tw.TruncatedError) as caught:
            snappy.decode(block[:size])
        assert caught.value.format == "snappy" and caught.value.offset is not None
        assert data.startswith(snappy.prefix(block[:size], len(block), len(data)))


@pytest.mark.parametrize(
    ("block", "kind", "offset"),
    [
        (b"", tw.TruncatedError, 0),
        (b"\x05", tw.TruncatedError, 0),
        # so short an input cannot become so much
        (varint(1 << 31) + literal(b"a"), tw.TruncatedError, 0),
        (varint(1 << 32) + literal(b"a"), tw.DecodeError, 0),
        (b"\x81\x80\x80\x80\x80\x00" + literal(b"a"), tw.DecodeError, 0),
        (varint(5) + copy(1, 5, 1), tw.DecodeError, 1),
        (varint(65) + literal(b"a") + copy(0, 64, 2), tw.DecodeError, 3),
        (varint(65) + literal(b"a") + copy(2, 64, 2), tw.DecodeError, 3),
        (varint(64) + literal(b"a") + copy(1, 64, 2), tw.DecodeError, 3),
        (varint(1) + literal(b"ab"), tw.DecodeError, 1),
        (varint(66) + literal(b"a") + copy(1, 64, 2), tw.TruncatedError, 6),
        (varint(9) + b"\xfc\xff\xff\xff\xff12345678", tw.TruncatedError, 1),
    ],
)
def test_what_is_wrong_and_where(block, kind, offset):
    agree(block)
    with pytest.raises(tw.DecodeError) as caught:
        snappy.decode(block)
    assert type(caught.value) is kind and caught.value.offset == offset


def test_the_limit_comes_before_the_allocation():
    # it could become so much, as far as its size says
    block = varint(20 << 20) + copy(1, 64, 2) * (1 << 20)
    with pytest.raises(tw.LimitError):
        snappy.decode(block, 1 << 20)


def test_a_prefix_of_what_is_not_sound():
    assert snappy.prefix(b"\x05\x00a" + copy(9, 4, 1), 5, 4) == b""
    assert snappy.prefix(b"\x09\x20hello", 1 << 30, 4) == b""  # nobody needs a GiB for nine bytes
    assert snappy.prefix(b"\x09\x20hello", 11, 4) == b"hell"
