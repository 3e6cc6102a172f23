"""JSON numbers: the native kernels, their readable twins, Python's own repr and float, and exact
arithmetic all agree.
"""

import random
import re
import struct
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tensorwire import _native as native
from tensorwire.core import dtypes
from tensorwire.testing.sampling import DTYPES
from tensorwire.wire import kernels, status
from tensorwire.wire.reference import json_numbers, json_read, json_skip, json_write

KINDS = json_numbers.KINDS
FLOAT64, FLOAT32 = KINDS.index("float64"), KINDS.index("float32")
ALL = 1 << 40


def unsigned(kind):
    return np.dtype(f"u{json_numbers.WIDTHS[kind]}")


def write(kernel, kind, bits, levels=None, bare=False, indent=-1, margin=0):
    raw = bits.reshape(-1).view(np.uint8)
    return kernel.json_write_numbers(
        b"", raw, kind, (len(bits),) if levels is None else levels, bare, indent, margin, b""
    )


def texts(kind, bits):
    return write(native, kind, bits).decode()[1:-1].split(",")


def read(kernel, text, kind, shape=None, ragged=False, most=ALL, at=0):
    code, offset, end, dims, values, splits = kernel.json_read_numbers(
        text, at, kind, shape, ragged, most
    )
    return (
        code,
        offset,
        end,
        dims,
        None if values is None else values.tobytes(),
        [part.tolist() for part in splits],
    )


def bits_of(kind, text):
    """What a list of numbers is read as."""
    code, offset, end, _, values, _ = native.json_read_numbers(text, 0, kind, None, False, ALL)
    assert (code, end) == (0, len(text)), (code, offset, text[max(offset - 20, 0) : offset + 40])
    return values.view(unsigned(kind))


def patterns(kind, count, seed=0):
    """Bits that matter: all of them for small types; else random ones, around powers of two and
    ten, short decimals, extremes.
    """
    size = min(dtypes.BY_NAME[KINDS[kind]].bits, 8 * json_numbers.WIDTHS[kind])
    if size <= 16:
        return np.arange(2 if KINDS[kind] == "bool" else 1 << size).astype(unsigned(kind))
    rng = np.random.default_rng(seed)
    found = [rng.integers(0, 1 << size, count // 2, dtype=unsigned(kind), endpoint=False)]
    if kind in (FLOAT64, FLOAT32):
        real = np.dtype(f"f{size // 8}")
        mantissa = 52 if kind == FLOAT64 else 23
        powers = (np.arange(1 << (size - 1 - mantissa), dtype=np.uint64) << mantissa).astype(
            unsigned(kind)
        )
        found += [powers + np.array(step).astype(unsigned(kind)) for step in (0, 1, 2, -1, -2)]
        found.append((10.0 ** np.arange(-37, 38)).astype(real).view(unsigned(kind)))
        found.append(rng.standard_normal(count // 8).astype(real).view(unsigned(kind)))
        found.append(
            (rng.integers(-999, 999, count // 8) / 10.0 ** rng.integers(0, 8, count // 8))
            .astype(real)
            .view(unsigned(kind))
        )
        found.append(rng.integers(0, 1 << 60, count // 8).astype(real).view(unsigned(kind)))
        # few bits, hence ties
        found.append(
            found[0][: count // 8] & np.array(-1 << (mantissa // 2)).astype(unsigned(kind))
        )
        found.append(np.arange(1000, dtype=unsigned(kind)))  # subnormals
        found.append(
            np.array([KINDS and json_numbers.FORMS[kind].most], unsigned(kind))
            - np.arange(1000, dtype=unsigned(kind))
        )
    return np.concatenate(found)


def is_nan(kind, bits):
    form = json_numbers.FORMS[kind]
    size = bits & np.array(form.sign - 1 if form.sign else -1).astype(bits.dtype)
    return ((size > form.most) & (size != form.infinity)) | (
        (bits == form.nan) if form.nan == form.sign and form.nan else False
    )


def test_kinds_are_the_dtypes():
    known = [row.name for row in DTYPES if row.numpy.kind != "c"]
    assert sorted(known) == sorted(KINDS)
    assert [dtypes.BY_NAME[name].numpy.itemsize for name in KINDS] == list(json_numbers.WIDTHS)
    for name, form in zip(KINDS, json_numbers.FORMS, strict=False):
        bits = np.array([form.most, form.nan], f"u{dtypes.BY_NAME[name].numpy.itemsize}").view(
            dtypes.BY_NAME[name].numpy
        )
        assert np.isfinite(bits[0].astype(float)) and (form.nan == 0 or np.isnan(bits[1]))
        assert (
            form.nan == 0
            or np.array(np.nan).astype(bits.dtype).view(unsigned(KINDS.index(name))) == form.nan
        )


@pytest.mark.slow
@pytest.mark.parametrize("kind", range(len(KINDS)), ids=KINDS)
def test_written_as_the_twin_writes_and_read_back(kind):
    """All bits of the small types."""
    bits = patterns(kind, 4000)
    found = texts(kind, bits)
    assert found == [json_write.text(kind, int(one)) for one in bits]
    text = f"[{','.join(found)}]".encode()
    back = bits_of(kind, text)
    if kind < len(json_numbers.FORMS):
        usual = np.array(json_numbers.FORMS[kind].nan, unsigned(kind))
        bits = np.where(is_nan(kind, bits), usual, bits)
    assert (back == bits).all()
    assert read(native, text, kind) == read(json_read, text, kind)
    assert read(native, text, kind, (len(bits),)) == read(json_read, text, kind, (len(bits),))


def test_float64_is_written_as_repr_and_read_as_float():
    bits = patterns(FLOAT64, 1_000_000)
    bits = bits[np.isfinite(bits.view(np.float64))]
    found = texts(FLOAT64, bits)
    assert found == list(map(repr, bits.view(np.float64).tolist()))
    assert (bits_of(FLOAT64, f"[{','.join(found)}]".encode()) == bits).all()


def digits(text):
    """(sign, digits, exponent) of a decimal, however it is laid out."""
    sign, whole, part, exponent = re.fullmatch(r"(-?)(\d+)\.?(\d*)(?:e([-+]\d+))?", text).groups()
    found = (whole + part).lstrip("0")
    return (
        sign,
        found.rstrip("0"),
        int(exponent or 0) - len(part) + len(found) - len(found.rstrip("0")),
    )


def test_float32_has_the_digits_that_numpy_finds():
    """NumPy lays them out in another way from 1e8 on."""
    bits = patterns(FLOAT32, 1_000_000)
    bits = bits[np.isfinite(bits.view(np.float32))]
    found = texts(FLOAT32, bits)
    assert (bits_of(FLOAT32, f"[{','.join(found)}]".encode()) == bits).all()
    theirs = bits.view(np.float32).astype("U32").tolist()
    odd = [i for i in range(len(bits)) if found[i] != theirs[i]]
    assert len(odd) < len(bits) // 10
    assert [digits(found[i]) for i in odd] == [digits(theirs[i]) for i in odd]


def test_scalars_are_written_as_in_lists():
    for kind in (FLOAT64, FLOAT32):
        bits = patterns(kind, 2000, 1)
        assert [
            write(native, kind, bits[i : i + 1], ()).decode() for i in range(len(bits))
        ] == texts(kind, bits)


def exact(text, mantissa, least, bias, infinity):
    """A decimal to the nearest float by fractions alone, ties to even."""
    value = Fraction(text)
    if value == 0:
        return 0
    two = 0
    while value >= Fraction(2) ** (two + 1):
        two += 1
    while value < Fraction(2) ** two:
        two -= 1
    unit = Fraction(2) ** (max(two, least) - mantissa)
    count = round(value / unit)  # half to even
    bits = count if two < least else (two + bias - 1 << mantissa) + count
    return min(bits, infinity)


def decimals(seed, count):
    rng = random.Random(seed)
    for _ in range(count):
        digits = str(
            rng.randrange(10 ** rng.choice([1, 2, 5, 8, 9, 15, 16, 17, 18, 19, 20, 25, 40]))
        )
        point = rng.randint(0, len(digits))
        text = f"{digits[:point].lstrip('0') or '0'}{'.' if point < len(digits) else ''}{digits[point:]}"
        yield text + (
            f"e{rng.randint(-60, 60) if rng.random() < 0.8 else rng.randint(-360, 330)}"
            if rng.random() < 0.5
            else ""
        )


def halves(seed, count):
    """Decimals at the middle between two floats, and next to it."""
    rng = random.Random(seed)
    for _ in range(count):
        mantissa, least, most = rng.choice(
            [(53, -60, 60), (24, -60, 60), (24, -149, 80), (53, -1074, 900)]
        )
        q = rng.randint(least, most)
        middle = Fraction(2 * rng.randrange(1 << (mantissa - 1), 1 << mantissa) + 1) * Fraction(
            2
        ) ** (q - 1)
        scale = 10 ** max(1 - q, 0)
        digits = str(middle * scale // 1)
        for text in (
            digits,
            f"{digits}000000000000000001",
            f"{int(digits) - 1}99999999999999999999",
        ):
            yield f"{text}e{-len(text) + len(digits) - max(1 - q, 0)}"


@pytest.mark.parametrize(("make", "count"), [(decimals, 3000), (halves, 600)])
def test_reading_rounds_once(make, count):
    for text in make(7, count):
        for kind, form, real in (
            (FLOAT64, json_numbers.FORMS[0], "d"),
            (FLOAT32, json_numbers.FORMS[1], "f"),
        ):
            bits = exact(text, form.mantissa, 1 - form.bias, form.bias, form.infinity)
            a, b = read(native, text.encode(), kind), read(json_read, text.encode(), kind)
            assert a == b, text
            if bits == form.infinity:
                assert a[0] == status.OUT_OF_RANGE
            else:
                assert a[0] == 0 and int.from_bytes(a[4], "little") == bits, text
            if real == "d" and bits != form.infinity:
                assert struct.pack("<d", float(text)) == a[4]
            # far from the end: the fast way
            listed = read(native, b"[1.5, " + text.encode() + b", 2.25, 3" + b" " * 60 + b"]", kind)
            assert (listed[0] == 0) == (a[0] == 0)
            if a[0] == 0:
                width = json_numbers.WIDTHS[kind]
                assert listed[4][width : 2 * width] == a[4], text


def test_reading_very_long_numbers():
    thirds, near_half = "0." + "3" * 2000, "9007199254740993" + "0" * 800 + "1e-801"
    for text in (
        thirds,
        "1" + "0" * 300 + "." + "0" * 900 + "1",
        near_half,
        "5" + "0" * 1200 + "e-1524",
    ):
        for kind in (FLOAT64, FLOAT32):
            assert read(native, text.encode(), kind) == read(json_read, text.encode(), kind)
    assert struct.unpack("<d", read(native, thirds.encode(), FLOAT64)[4])[0] == 1 / 3


@pytest.mark.parametrize("kind", range(2, len(json_numbers.FORMS)), ids=KINDS[2:15])
def test_small_floats_are_the_nearest(kind):
    """Of random decimals around all that there are, by exact comparison."""
    form, rng = json_numbers.FORMS[kind], random.Random(kind)
    values = [
        Fraction(c) * Fraction(2) ** q
        for c, q in (json_numbers.binary(form, size) for size in range(form.most + 1))
    ]
    for _ in range(300):
        size = rng.randrange(1, form.most + 1)
        low, high = values[size - 1], values[size]
        for value in (
            low + (high - low) * Fraction(rng.randrange(1001), 1000),
            (low + high) / 2,
            high,
        ):
            text = repr(float(value))
            value = Fraction(float(value))
            near = min((size - 1, size), key=lambda one: (abs(values[one] - value), one & 1))
            code, _, _, _, found, _ = read(native, text.encode(), kind)
            assert (code, found) == read(json_read, text.encode(), kind)[::4], text
            assert code == 0 and int.from_bytes(found, "little") == near, text


PIECES = st.sampled_from([
    "[", "]", ",", " ", "\n", "1", "0", "-", "7", "1.5", "-0.25", "1e5", "1e400", "0.1234567", "-0.123456789012345", "01", "1.", ".5", "e",
    "E+", "true", "false", "NaN", '"NaN"', "Infinity", '"-Infinity"', "-Infinity", '"', "null", "{", "}", "255", "256", "-128",
    "18446744073709551615", "18446744073709551616", "[]", "[1,2]", "x",
])  # fmt: skip


@st.composite
def documents(draw):
    """Lists that are right, nearly right, and rubbish."""
    if draw(st.booleans()):
        return "".join(draw(st.lists(PIECES, max_size=14))).encode()
    rng = random.Random(draw(st.integers(0, 1 << 40)))
    leaf = rng.choice(
        ["1", "0", "-1", "2.5", "0.1234567", "-3.25e-3", "true", '"NaN"', "0.12345678901234567"]
    )

    def nest(depth):
        if depth == 0:
            return (
                leaf
                if rng.random() < 0.9
                else rng.choice(["1", "1.5", "[]", "", "-0.0", "123456789"])
            )
        space = rng.choice(["", "", " ", "\n  "])
        count = rng.choice([0, 1, 2, 3, 40]) if depth == 1 and rng.random() < 0.3 else 2
        return f"[{space}" + f",{space}".join(nest(depth - 1) for _ in range(count)) + f"{space}]"

    text = nest(rng.randint(0, 3)) + rng.choice(["", "", " ", ",", "]"])
    return text.encode()[: rng.randint(0, len(text)) if rng.random() < 0.2 else len(text)]


@given(
    documents(), st.integers(0, len(KINDS) - 1), st.booleans(), st.sampled_from([ALL, ALL, 0, 1, 3])
)
def test_read(text, kind, ragged, most):
    found = read(native, text, kind, None, ragged, most)
    assert found == read(json_read, text, kind, None, ragged, most)
    assert found[0] in (
        0,
        *range(status.BAD_JSON, status.TOO_DEEP + 1),
        status.TRUNCATED,
        status.OUT_OF_RANGE,
        status.OVER_LIMIT,
    )
    assert found[1] <= len(text) and found[2] <= len(text)


@given(
    documents(),
    st.integers(0, len(KINDS) - 1),
    st.lists(st.integers(1, 3), max_size=3).map(tuple),
    st.integers(0, 3),
)
def test_read_with_a_shape(text, kind, shape, at):
    at = min(at, len(text))
    found = read(native, text, kind, shape, at=at)
    assert found == read(json_read, text, kind, shape, at=at)
    free = read(native, text, kind, at=at)
    if found[0] == 0 or (free[0] == 0 and free[3] == shape):
        assert found == free


@given(
    st.text(st.sampled_from('[]{}"\\$ax1,: \n'), max_size=30),
    st.integers(0, 3),
    st.integers(0, 5),
    st.booleans(),
)
def test_skip(text, at, depth, past):
    data = text.encode()
    at = min(at, len(data))
    assert native.json_skip(data, at, depth, past) == json_skip.json_skip(data, at, depth, past)


@st.composite
def nested(draw):
    """(levels, how many numbers they hold)"""
    lists, levels = 1, []
    for _ in range(draw(st.integers(0, 4))):
        if levels and draw(st.booleans()):
            lengths = [draw(st.integers(0, 3)) for _ in range(lists)]
            levels.append(np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64))
            lists = sum(lengths)
        else:
            levels.append(draw(st.integers(0, 3)))
            lists *= levels[-1]
    return tuple(levels), lists


@given(
    nested(),
    st.integers(0, len(KINDS) - 1),
    st.integers(0, 1 << 40),
    st.booleans(),
    st.integers(-1, 3),
    st.integers(0, 5),
)
def test_write(levels, kind, seed, bare, indent, margin):
    levels, count = levels
    bits = np.frombuffer(
        random.Random(seed).randbytes(count * json_numbers.WIDTHS[kind]), unsigned(kind)
    )
    found = write(native, kind, bits, levels, bare, indent, margin)
    assert found == write(json_write, kind, bits, levels, bare, indent, margin)
    code, _, end, _, values, _ = native.json_read_numbers(found, 0, kind, None, True, ALL)
    assert code == 0 and end == len(found) and len(values) == bits.nbytes


@given(st.binary(max_size=9), st.binary(max_size=9))
def test_what_stands_around(before, after):
    args = (before, np.zeros(2, np.uint8), KINDS.index("uint8"), (2,), False, -1, 0, after)
    assert (
        native.json_write_numbers(*args)
        == json_write.json_write_numbers(*args)
        == before + b"[0,0]" + after
    )


def test_large_arrays_of_a_few_megabytes():
    """Past the size from which the text is written where it stays."""
    x = np.random.default_rng(3).standard_normal(300_000)
    text = write(native, FLOAT64, x.view(np.uint64), (300, 1000))
    assert len(text) > 4 << 20
    assert (bits_of(FLOAT64, text) == x.view(np.uint64)).all()
    assert (
        text.decode().replace("]", "").replace("[", "").split(",")[::997]
        == list(map(repr, x.tolist()))[::997]
    )


def test_kernels_refuse_what_they_cannot_hold():
    one = np.zeros(8, np.uint8)
    for kernel in (native, json_write):
        for levels in (
            (3,),
            (2, 2),
            (0, np.array([2])),
            (1, np.array([0, 1, 2])),
            (1, np.array([0, 9])),
            (2, np.array([0, 2, 1])),
            (),
            (2, np.array([1, 1, 2])),
        ):
            with pytest.raises(ValueError):
                kernel.json_write_numbers(
                    b"", np.zeros(2, np.uint8), KINDS.index("uint8"), levels, False, -1, 0, b""
                )
        with pytest.raises(ValueError):
            kernel.json_write_numbers(b"", one[:7], FLOAT64, (1,), False, -1, 0, b"")
        with pytest.raises(ValueError):
            kernel.json_write_numbers(b"", one, len(KINDS), (1,), False, -1, 0, b"")
        with pytest.raises(TypeError):
            kernel.json_write_numbers(
                b"", one, FLOAT64, (1, np.array([0.0, 1.0])), False, -1, 0, b""
            )
    for kernel in (native, json_read):
        for args in ((b"[1]", 4, FLOAT64, None), (b"[1]", 0, -1, None), (b"[]", 0, FLOAT64, (0,))):
            with pytest.raises(ValueError):
                kernel.json_read_numbers(*args, False, ALL)
        # before anything is allocated
        assert (
            kernel.json_read_numbers(b"[1]", 0, FLOAT64, (1 << 40,), False, ALL)[0]
            == status.WRONG_SHAPE
        )
        assert (
            kernel.json_read_numbers(b"[1,2]", 0, FLOAT64, (2,), False, 1)[0] == status.OVER_LIMIT
        )
    with pytest.raises(ValueError):
        native.json_skip(b"[]", 3, 1, False)
    with pytest.raises(ValueError):
        native.json_write_numbers(b"", one[:0], FLOAT64, (1 << 60, 0), False, 4, 0, b"")


def test_kernels_are_there():
    assert kernels.json_write_numbers and kernels.json_read_numbers and kernels.json_skip
