"""Each native kernel and its readable twin give the same result, on good bytes, odd bytes and
garbage.
"""

import importlib
import pkgutil
import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tensorwire as tw
from support.protos import tensor_proto
from tensorwire import _native as native
from tensorwire.codecs.safetensors import Safetensors
from tensorwire.core import dtypes, memory
from tensorwire.testing import strategies as tws
from tensorwire.wire import kernels, reference
from tensorwire.wire.reference import crc32c as pure_crc
from tensorwire.wire.reference import dense as pure_dense
from tensorwire.wire.reference import join as pure_join
from tensorwire.wire.reference import named as pure_named
from tensorwire.wire.reference import string_vals as pure_strings
from tensorwire.wire.reference import tensor_scan as pure_scan
from tensorwire.wire.reference import typed_vals as pure_typed

for _row in dtypes.TABLE:  # the side that kernels.py did not choose has none yet
    (native if kernels.PURE else pure_dense).register_dtype(
        _row.numpy,
        _row.tf or 0,
        _row.safetensors or "",
        not _row.reading_only,
        _row.name == "bool" or _row.bits < 8,
    )


@st.composite
def messages(draw):
    """TensorProtos, some of them damaged, and plain garbage."""
    if draw(st.integers(0, 9)) == 0:
        return draw(st.binary(max_size=80))
    data = bytearray(tensor_proto(random.Random(draw(st.integers(0, 1 << 40))))[1])
    for _ in range(draw(st.integers(0, 2))):
        if data:
            data[draw(st.integers(0, len(data) - 1))] ^= 1 << draw(st.integers(0, 7))
    return bytes(data[: draw(st.integers(0, len(data)))] if draw(st.integers(0, 4)) == 0 else data)


def same(a, b):
    assert type(a) is type(b)
    if isinstance(a, tuple):
        assert len(a) == len(b)
        for x, y in zip(a, b, strict=True):
            same(x, y)
    elif isinstance(a, np.ndarray):
        assert (
            a.dtype == b.dtype
            and a.shape == b.shape
            and a.tobytes() == b.tobytes()
            and a.flags.writeable == b.flags.writeable
        )
    else:
        assert a == b


@given(messages(), st.booleans(), st.booleans())
def test_tensor_scan(data, strict, stop):
    same(native.tensor_scan(data, strict, stop), pure_scan.tensor_scan(data, strict, stop))


@given(messages(), st.booleans())
def test_decode_dense(data, copy):
    same(native.decode_dense(data, copy), pure_dense.decode_dense(data, copy))


@given(tws.arrays(), st.booleans())
def test_encode_and_decode_dense(array, transpose):
    array = array.T if transpose else array
    blob = native.encode_dense(array)
    assert blob == pure_dense.encode_dense(array)
    if blob is not None:
        back = native.decode_dense(blob, False)
        same(back, pure_dense.decode_dense(blob, False))
        row = dtypes.of(array.dtype)
        assert (back is None) == (row.name == "bool" or row.bits < 8)


@st.composite
def named(draw):
    """Arrays, dicts of them, and what the fast path leaves to the codec."""
    if draw(st.booleans()):
        return draw(tws.arrays())
    names = st.one_of(st.text(max_size=4), st.sampled_from(["a/b", "é", "__metadata__", "tensor"]))
    return draw(
        st.dictionaries(
            names,
            st.one_of(tws.arrays(), st.just(3)) if draw(st.integers(0, 5)) == 0 else tws.arrays(),
            max_size=4,
        )
    )


SLOW = Safetensors(limits=tw.Limits())  # not the default object, so that the kernel is passed over
METADATA = st.sampled_from([b"", b"{}", b'{"a":"b"}', b'{"\\u00e9":"\\""}'])


@given(st.dictionaries(st.text(max_size=4), tws.arrays(), max_size=4), METADATA)
def test_named_header(arrays, metadata):
    args = (list(arrays), list(arrays.values()), metadata)
    head = native.named_header(*args)
    assert head == pure_named.named_header(*args)
    if head is not None:
        found = native.read_named(
            head + b"".join(array.tobytes() for array in arrays.values()), False
        )
        assert found[0] == metadata and tw.equal(found[1], arrays)


@given(named())
def test_encode_named(value):
    blob = native.encode_named(value)
    assert blob == pure_named.encode_named(value)
    if blob is not None:
        assert blob == b"".join(Safetensors().encode(value))  # the general way
        back = native.decode_named(blob, False)
        assert back is not None and tw.equal(back, value)


@given(named(), st.data(), st.booleans())
def test_decode_named(value, data, copy):
    """On files that are whole, edited and damaged; and whatever the fast path accepts, the codec
    reads the same.
    """
    try:
        blob = bytearray(b"".join(Safetensors().encode(value)))
    except tw.EncodeError:
        return
    for _ in range(data.draw(st.integers(0, 2))):
        at = data.draw(st.integers(0, len(blob) - 1))
        blob[at] = data.draw(
            st.sampled_from([blob[at] ^ 1 << data.draw(st.integers(0, 7)), *b'{}[]:,"\\ \n019-.eE'])
        )
    a, b = native.read_named(bytes(blob), copy), pure_named.read_named(bytes(blob), copy)
    assert (a is None) == (b is None) and (a is None or (a[0] == b[0] and tw.equal(a[1], b[1]))), (
        bytes(blob)
    )
    a, b = native.decode_named(bytes(blob), copy), pure_named.decode_named(bytes(blob), copy)
    assert (a is None) == (b is None), bytes(blob)
    if a is not None:
        general = SLOW.decode(memoryview(bytes(blob)), copy)
        assert tw.equal(a, b) and tw.equal(a, general)
        for x, y in zip(
            *(value.values() if isinstance(value, dict) else [value] for value in (a, general)),
            strict=True,
        ):
            assert x.flags.writeable == y.flags.writeable or not x.size


@given(
    st.sampled_from([1, 7, 33, 127]),
    st.lists(st.integers(0, 1 << 62), max_size=9).map(tuple),
    st.integers(-1, 1 << 40),
)
def test_dense_header(enum, shape, content):
    assert native.dense_header(enum, shape, content) == pure_dense.dense_header(
        enum, shape, content
    )


@given(messages(), st.sampled_from(dtypes.TABLE), st.booleans(), st.integers(0, 12))
def test_typed_vals(data, row, strict, room):
    scan = native.tensor_scan(data, strict, False)
    if scan[0] or row.tf is None:
        return
    width = row.numpy.itemsize // (2 if row.numpy.kind == "c" else 1)
    args = (data, row.field, strict, width, *dtypes.bounds(row), min(room, scan[-1][row.field]))
    a, b = native.typed_vals(*args), pure_typed.typed_vals(*args)
    assert a[:2] == b[:2]
    if a[0] == 0:
        assert a[2] == b[2] and a[3][: a[2] * width].tobytes() == b[3][: b[2] * width].tobytes()


@given(tws.strings(text=False), st.binary(max_size=5))
def test_strings_written(strings, prefix):
    flat = strings.reshape(-1)
    blob = native.string_vals(prefix, flat.data, flat.offsets)
    assert blob == pure_strings.string_vals(prefix, flat.data, flat.offsets)
    assert native.string_lengths(prefix, flat.data, flat.offsets) == pure_strings.string_lengths(
        prefix, flat.data, flat.offsets
    )
    code, _, count, used, data, offsets = native.parse_string_vals(
        blob, len(prefix), True, flat.size, flat.data.size
    )
    assert (code, count, used) == (0, flat.size, flat.data.size)
    assert data.tobytes() == flat.data.tobytes() and offsets.tolist() == flat.offsets.tolist()


@given(messages(), st.booleans(), st.integers(0, 6), st.integers(0, 40))
def test_strings_read(data, only, n, room):
    n, room = min(n, len(data)), min(room, len(data))
    a, b = (
        native.parse_string_vals(data, 0, only, n, room),
        pure_strings.parse_string_vals(data, 0, only, n, room),
    )
    kept = min(a[2], n)
    assert (
        a[:4] == b[:4]
        and a[4][: a[3]].tobytes() == b[4][: b[3]].tobytes()
        and a[5][: kept + 1].tolist() == b[5][: kept + 1].tolist()
    )
    a, b = (
        native.find_string_vals(data, 0, only, n),
        pure_strings.find_string_vals(data, 0, only, n),
    )
    kept = min(a[2], n)
    assert (
        a[:3] == b[:3]
        and a[3][:kept].tolist() == b[3][:kept].tolist()
        and a[4][:kept].tolist() == b[4][:kept].tolist()
    )


@given(st.binary(max_size=60), st.integers(0, 8))
def test_string_lengths_read(data, n):
    n = min(n, len(data))
    a, b = native.parse_string_lengths(data, n), pure_strings.parse_string_lengths(data, n)
    assert a[:2] == b[:2]
    if a[0] == 0:
        assert a[2].tolist() == b[2].tolist()


@given(st.binary(max_size=300), st.binary(max_size=300))
def test_crc32c(a, b):
    assert native.crc32c(a) == native.crc32c_software(a) == pure_crc.crc32c(a)
    assert native.crc32c(b, native.crc32c(a)) == native.crc32c(a + b)


@pytest.mark.parametrize("size", [767, 768, 12287, 12288, 12289, 100_003])
def test_crc32c_of_long_runs(size):
    """Long enough for the three streams."""
    data = np.random.default_rng(size).bytes(size)
    assert native.crc32c(data) == native.crc32c_software(data) == pure_crc.crc32c(data)


def test_crc32c_is_the_known_one():
    assert native.crc32c(b"123456789") == pure_crc.crc32c(b"123456789") == 0xE3069283


@given(st.lists(st.binary(max_size=40), max_size=8))
def test_join(chunks):
    assert (
        native.join(chunks)
        == pure_join.join(chunks)
        == native.join([memory.flat(chunk) for chunk in chunks])
    )


def test_every_kernel_has_a_twin():
    modules = [
        importlib.import_module(f"{reference.__name__}.{info.name}")
        for info in pkgutil.iter_modules(reference.__path__)
    ]
    twins = {name for module in modules for name in vars(module)}
    assert {name for name in dir(native) if not name.startswith("_")} - {"crc32c_software"} <= twins


def test_kernels_refuse_what_they_cannot_hold():
    with pytest.raises(TypeError):
        native.string_vals(b"", b"abc", np.array([0.0, 3.0]))
    with pytest.raises(ValueError):
        native.string_vals(b"", b"abc", np.array([0, 4]))
    with pytest.raises(ValueError):
        native.string_vals(b"", b"abc", np.array([2, 0]))
    with pytest.raises(TypeError):
        native.decode_dense("text", False)
    with pytest.raises(ValueError):
        native.string_lengths(b"", b"abc", np.array([0, 5, 0]))
    with pytest.raises(ValueError):
        native.string_vals(b"", b"abc", np.array([-(1 << 63), (1 << 63) - 1, 0]))
    for call in (
        lambda k, t: t.typed_vals(bytes(8), 6, True, 1, 0, 1, 4),
        lambda k, t: t.typed_vals(bytes(8), 7, True, 8, 0, 1, 1 << 61),
        lambda k, t: k.parse_string_vals(bytes(8), 0, True, 1 << 40, 0),
        lambda k, t: k.parse_string_lengths(bytes(8), (1 << 64) - 1),
        lambda k, t: k.find_string_vals(bytes(8), 0, True, 9),
    ):
        for module, typed in ((native, native), (pure_strings, pure_typed)):
            with pytest.raises((ValueError, TypeError)):
                call(module, typed)
    assert native.encode_dense([1, 2]) is None and native.encode_dense(np.zeros(2, "U3")) is None
