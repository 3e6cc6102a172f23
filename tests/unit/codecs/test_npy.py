"""npy against the real NumPy, both ways; headers of strangers; the trailer that NumPy does not see."""

import io
import json
import zlib

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tensorwire as tw
from tensorwire.codecs.npy import Npy
from tensorwire.storage import files
from tensorwire.testing import check_codec
from tensorwire.testing import strategies as tws
from tensorwire.testing.sampling import DTYPES, SHAPES, numbers
from tensorwire.wire import npy as wire
from tensorwire.wire.crc import crc32c

NATIVE = [row for row in DTYPES if row.numpy.isbuiltin == 1]
OTHERS = [row for row in DTYPES if row.numpy.isbuiltin != 1]
named = pytest.mark.parametrize("row", NATIVE, ids=lambda row: row.name)


def saved(array, **options):
    out = io.BytesIO()
    np.save(out, array, **options)
    return out.getvalue()


def loaded(blob):
    return np.load(io.BytesIO(blob))


def file(header, data=b"", version=1):
    """An npy file with any header."""
    text = header.encode("utf-8" if version == 3 else "latin-1")
    size = len(text).to_bytes(2 if version == 1 else 4, "little")
    return b"\x93NUMPY" + bytes([version, 0]) + size + text + data


def header(descr="<i2", order=False, shape="(2,)"):
    return f"{{'descr': {descr!r}, 'fortran_order': {order}, 'shape': {shape}, }}\n"


def trailer(blob):
    assert blob.endswith(b"\x93TWIRE1\n")
    size = int.from_bytes(blob[-20:-12], "little")
    return json.loads(blob[-20 - size : -20])


class TestWithNumPy:
    @pytest.mark.parametrize("shape", SHAPES, ids=str)
    @named
    def test_the_same_bytes(self, row, shape):
        array = numbers(row, shape)
        assert tw.dumps(array, "npy") == saved(array)
        assert tw.equal(tw.loads(saved(array)), array)

    @given(tws.arrays(), st.integers(0, 10**12))
    def test_the_same_header_for_any_shape(self, array, first):
        """The room that NumPy leaves depends on the digits of the first dimension."""
        shape = (first, *array.shape[1:])
        out = io.BytesIO()
        np.lib.format.write_array_header_1_0(
            out, {"descr": "<f4", "fortran_order": False, "shape": shape}
        )
        assert wire.write("<f4", shape) == out.getvalue()

    @pytest.mark.parametrize("row", OTHERS, ids=lambda row: row.name)
    def test_numpy_opens_dtypes_that_it_lacks(self, row):
        for shape in SHAPES:
            array = numbers(row, shape)
            blob = tw.dumps(array, "npy")
            assert tw.equal(loaded(blob), array.view(f"u{row.numpy.itemsize}")) and tw.equal(
                tw.loads(blob), array
            )
            assert trailer(blob) == {"version": 1, "dtype": row.name, "shape": list(shape)}

    @pytest.mark.parametrize(
        "array", [np.arange(3), np.ones((2, 2), ml_dtypes.bfloat16), np.array(1.5)]
    )
    def test_numpy_sees_a_bundle_of_one_as_its_array(self, array):
        bundle = tw.Bundle({"kernel": array}, {"model": "nmt"}, {"kernel": {"device": "gpu:0"}})
        for value in (bundle, tw.Bundle({"": array})):
            for checksum in (False, True):
                blob = tw.dumps(value, "npy", checksum=checksum)
                assert (
                    loaded(blob).tobytes() == array.tobytes() and loaded(blob).shape == array.shape
                )
                assert tw.equal(tw.loads(blob), value)
        with tw.open(tw.dumps(bundle, "npy")) as file:
            assert file.metadata == {"model": "nmt"} and file.tensor_metadata == {
                "kernel": {"device": "gpu:0"}
            }
            assert list(file) == ["kernel"]
        lies = (
            {"name": 7},
            {"about": {"a": "b"}},
            {"name": "x", "about": {"a": 1}},
            {"name": "x", "about": []},
        )
        for lie in lies:
            fields = {"version": 1, "dtype": "int64", "shape": [3]} | lie
            head = tw.dumps(np.arange(3), "npy", checksum=True)[: 128 + 24]
            with pytest.raises(tw.DecodeError, match="invalid trailer"):
                tw.loads(head + wire.write_trailer(fields))

    @pytest.mark.parametrize("checksum", [False, True])
    @pytest.mark.parametrize(
        "value",
        [
            tw.Ragged.of([[1], [2, 3]]),
            tw.Sparse([[0, 1]], [2.5], (2, 2)),
            tw.Strings.of(["é", "x"]),
            {"a": np.arange(3), "n": [7, None]},
            [np.zeros(2), "x"],
            (np.ones(2, ml_dtypes.bfloat16),),
            tw.Bundle(
                {"x": np.arange(3), "y": np.arange(2)}, {"model": "nmt"}, {"x": {"device": "gpu:0"}}
            ),
            {},
            3.5,
            None,
        ],
        ids=[
            "ragged",
            "sparse",
            "strings",
            "dict",
            "list",
            "tuple",
            "bundle",
            "empty dict",
            "python",
            "none",
        ],
    )
    def test_numpy_opens_every_other_kind_as_bytes(self, value, checksum):
        blob = tw.dumps(value, "npy", checksum=checksum)
        inside = loaded(blob)
        assert inside.dtype == np.uint8 and inside.ndim == 1
        assert tw.equal(tw.loads(inside.tobytes(), "safetensors"), value) and tw.equal(
            tw.loads(blob), value
        )
        kind = {
            "Ragged": "ragged",
            "Sparse": "sparse",
            "Strings": "strings",
            "Bundle": "bundle",
            "float": "python",
            "NoneType": "python",
        }
        assert trailer(blob)["kind"] == kind.get(type(value).__name__, type(value).__name__)

    def test_numpy_maps_it(self, tmp_path):
        array = np.arange(2000).astype(ml_dtypes.bfloat16)
        tw.save(tmp_path / "x.npy", array, metadata={"a": "b"}, checksum=True)
        assert tw.equal(
            np.asarray(np.load(tmp_path / "x.npy", mmap_mode="r")), array.view(np.uint16)
        )

    @named
    def test_fortran_order(self, row):
        array = numbers(row, (3, 4, 2))
        blob = saved(np.asfortranarray(array))
        assert b"'fortran_order': True" in blob
        found = tw.loads(blob)
        assert tw.equal(found, array) and found.flags.c_contiguous and not found.flags.writeable
        assert tw.loads(blob, copy=True).flags.writeable
        with pytest.raises(tw.DecodeError, match="Fortran") as caught:
            tw.loads(blob, copy=False)
        assert caught.value.offset == 128
        with tw.open(blob) as f:
            assert tw.equal(f["tensor"][1:3], array[1:3]) and f["tensor"].shape == (3, 4, 2)
        row_vector = np.asfortranarray(array[:1, :, :1])  # in both orders at once
        assert tw.equal(
            tw.loads(
                file(header(array.dtype.str, True, "(1, 4, 1)"), row_vector.tobytes()), copy=None
            ),
            row_vector,
        )

    @named
    def test_big_endian(self, row):
        for shape in SHAPES:
            array = numbers(row, shape)
            swapped = array.astype(array.dtype.newbyteorder(">"))
            found = tw.loads(saved(swapped))
            assert tw.equal(found, array) and found.dtype.isnative
            assert tw.equal(
                tw.loads(saved(np.asfortranarray(swapped).reshape(shape, order="F"))), array
            )
        if row.numpy.itemsize > 1:
            array = numbers(row, (10, 3))
            blob = saved(array.astype(array.dtype.newbyteorder(">")))
            with tw.open(blob) as f:
                assert tw.equal(f["tensor"][4:7], array[4:7])
            with pytest.raises(tw.DecodeError, match="copy=False"):
                tw.loads(blob, copy=False)

    @pytest.mark.parametrize(
        "words",
        [
            ["a", "bcd", ""],
            ["é", "中文", "🙂x"],
            [["a", "b"], ["", "dd"]],
            "alone",
            [b"a\0b", b"\xff", b""],
            [[b"x"], [b"yy"]],
            b"z",
        ],
        ids=repr,
    )
    @pytest.mark.parametrize("order", ["C", "F"])
    def test_strings_of_fixed_width(self, words, order):
        array = np.array(words, order=order)
        for stored in (array, array.astype(array.dtype.newbyteorder(">"))):
            found = tw.loads(saved(stored))
            assert (
                isinstance(found, tw.Strings)
                and found.text == (array.dtype.kind == "U")
                and found.tolist() == array.tolist()
            )
            assert (
                not found.data.flags.writeable
                and tw.loads(saved(stored), copy=True).offsets.flags.writeable
            )
        with tw.open(saved(array)) as f:
            lazy = f["tensor"]
            assert (lazy.kind, lazy.dtype, lazy.shape) == (
                "strings",
                "text" if array.dtype.kind == "U" else "bytes",
                array.shape,
            )
            if array.ndim:
                assert lazy[1:].tolist() == array[1:].tolist()
        with pytest.raises(tw.DecodeError, match="copy=False"):
            tw.loads(saved(array), copy=False)

    def test_trailing_nuls_are_padding_as_for_numpy(self):
        array = np.array([b"a\0", b"\0b\0\0"])
        assert tw.loads(saved(array)).tolist() == array.tolist() == [b"a", b"\0b"]

    def test_empty_strings(self):
        for array in (
            np.zeros(0, "U5"),
            np.zeros((2, 0), "S3"),
            np.zeros(3, "U0"),
            np.array(["", ""]),
        ):
            assert (
                tw.loads(saved(array)).shape == array.shape
                and tw.loads(saved(array)).tolist() == array.tolist()
            )

    @pytest.mark.parametrize("version", [(1, 0), (2, 0), (3, 0)])
    def test_versions(self, version):
        out = io.BytesIO()
        np.lib.format.write_array(out, np.arange(5), version)
        assert tw.equal(tw.loads(out.getvalue()), np.arange(5))

    @pytest.mark.parametrize(
        ("array", "way_out"),
        [
            (np.array([(1, 2.0)], [("a", "i4"), ("b", "f8")]), "each field"),
            (np.zeros(2, [("é", "i4")]), "each field"),
            (np.array(["2020-01-01"], "M8[D]"), "view\\('int64'\\)"),
            (np.array([3], "m8[s]"), "view\\('int64'\\)"),
            (np.zeros(2, np.longdouble), "float64"),
            (np.zeros(2, np.clongdouble), "complex128"),
            (np.zeros(2, "V3"), "view\\(dtype\\)"),
            (np.zeros(2, ml_dtypes.bfloat16), "ml_dtypes"),
        ],
        ids=[
            "structured",
            "structured, version 3",
            "datetime64",
            "timedelta64",
            "float128",
            "complex256",
            "void",
            "bfloat16",
        ],
    )
    def test_what_is_no_tensor_names_the_way_out(self, array, way_out):
        with pytest.raises(tw.DecodeError, match=way_out) as caught:
            tw.loads(saved(array))
        assert caught.value.format == "npy" and caught.value.offset is not None

    def test_never_pickle(self):
        class Bomb:
            def __reduce__(self):
                return exec, ("raise SystemExit('it ran')",)

        blob = saved(np.array([Bomb()], object), allow_pickle=True)
        with pytest.raises(tw.DecodeError, match="need pickle"):
            tw.loads(blob)


def test_conformance():
    assert set(check_codec("npy").values()) == {"exact"}


def test_conformance_with_checksums():
    assert set(check_codec(Npy(checksum=True), hostile=10).values()) == {"exact"}


class TestMetadata:
    def test_of_one_array(self, tmp_path):
        """Seed 003, example 1: one file, no pickle, and the metadata is JSON text."""
        array = np.arange(6, dtype=np.float32).reshape(2, 3)
        texts = {"name": "logits", "device": "/job:localhost/device:GPU:0", "é": "日本"}
        tw.save(tmp_path / "x.npy", array, metadata=texts)
        assert tw.equal(tw.load(tmp_path / "x.npy"), array) and tw.equal(
            np.load(tmp_path / "x.npy"), array
        )
        with tw.open(tmp_path / "x.npy") as f:
            assert f.metadata == texts and f.keys() == {"tensor"} and f["tensor"].shape == (2, 3)
        blob = (tmp_path / "x.npy").read_bytes()
        assert trailer(blob) == {
            "version": 1,
            "dtype": "float32",
            "shape": [2, 3],
            "metadata": texts,
        }
        assert tw.inspect(blob).json()["metadata"] == texts

    @pytest.mark.tensorflow
    def test_of_an_eager_tensor(self, tf, tmp_path):
        """The same with TensorFlow's own object, and what it knows of itself."""
        tensor = tf.constant([[1.0, 2.0], [3.0, 4.0]])
        tw.save(tmp_path / "plain.npy", tensor)
        assert (
            tw.equal(np.load(tmp_path / "plain.npy"), tensor.numpy())
            and tw.load(tmp_path / "plain.npy", to="tensorflow").dtype == tf.float32
        )
        tw.save(tmp_path / "kept.npy", tensor, keep_device=True)
        (texts,) = tw.load(tmp_path / "kept.npy").tensor_metadata.values()
        assert "CPU:0" in texts["device"] or "GPU:0" in texts["device"]

    def test_of_other_kinds(self):
        for value in (
            {"a": np.arange(3)},
            tw.Ragged.of([[1], []]),
            tw.Bundle({"x": np.zeros(2)}, {"m": "1"}),
        ):
            blob = tw.dumps(value, "npy", metadata={"model": "nmt"})
            with tw.open(blob) as f:
                assert f.metadata["model"] == "nmt"
            if not isinstance(value, tw.Bundle):
                assert tw.equal(tw.loads(blob), value)

    def test_a_bundle_stays_one(self):
        bundle = tw.Bundle({"x": np.zeros(2, ml_dtypes.int4)}, {"m": "1"}, {"x": {"device": "cpu"}})
        assert tw.equal(tw.loads(tw.dumps(bundle, "npy")), bundle)
        kept = tw.loads(tw.dumps(np.zeros(3), "npy", keep_device=True))
        assert isinstance(kept, tw.Bundle) and kept.tensor_metadata == {"tensor": {"device": "cpu"}}

    @pytest.mark.parametrize("texts", [{"a": 1}, {1: "a"}, {"a": "\ud800"}, {"\udfff": "a"}])
    def test_is_text(self, texts):
        with pytest.raises(tw.EncodeError):
            tw.dumps(np.zeros(2), "npy", metadata=texts)
        with pytest.raises(tw.EncodeError):
            tw.dumps([np.zeros(2)], "npy", metadata=texts)
        with pytest.raises(tw.EncodeError):
            tw.dumps(tw.Bundle({"x": np.zeros(2)}, texts), "npy")
        with pytest.raises(tw.EncodeError):
            tw.dumps(tw.Bundle({"x": np.zeros(2)}, {}, {"x": texts}), "npy")


class Counting(files.BytesSource):
    def __init__(self, data):
        super().__init__(data)
        self.read = 0

    def read_at(self, offset, count):
        self.read += count
        return super().read_at(offset, count)


class TestLazy:
    @pytest.mark.parametrize("where", ["path", "mmap", "bytes", "file object"])
    @pytest.mark.parametrize("dtype", ["float64", "bfloat16", "int4", "bool", ">f4"])
    def test_rows(self, tmp_path, where, dtype):
        array = (
            (np.arange(300) % 7 == 0)
            .astype(ml_dtypes.int4 if dtype == "int4" else getattr(ml_dtypes, dtype, dtype))
            .reshape(100, 3)
        )
        path = tmp_path / "x.npy"
        (
            path.write_bytes(saved(array))
            if dtype == ">f4"
            else tw.save(path, array, metadata={"a": "b"}, checksum=True)
        )
        native = array.astype("f4") if dtype == ">f4" else array
        source = {
            "bytes": path.read_bytes,
            "file object": lambda: io.BytesIO(path.read_bytes()),
        }.get(where, lambda: path)()
        with tw.open(source, mmap=where == "mmap") as f:
            x = f["tensor"]
            assert x.shape == (100, 3) and x.dtype == native.dtype and len(x) == 100
            for rows in (slice(10, 20), slice(0, 0), slice(99, 100), slice(None), slice(50, 5, -3)):
                assert tw.equal(np.ascontiguousarray(x[rows]), np.ascontiguousarray(native[rows]))
            assert (
                tw.equal(x[7], native[7])
                and tw.equal(x.read(), native)
                and tw.equal(f.load(), native)
            )
            with pytest.raises(IndexError):
                x[100]

    def test_other_kinds_are_lazy_too(self):
        value = {
            "r": tw.Ragged.of([[i] * (i % 4) for i in range(1000)]),
            "x": np.arange(20000.0).reshape(1000, 20),
        }
        source = Counting(tw.dumps(value, "npy", checksum=True))
        container = Npy().open(source)
        source.read = 0
        assert tw.equal(container.read("x", (10, 12)), value["x"][10:12]) and container.read(
            "r", (3, 5)
        ).tolist() == [[3] * 3, []]
        assert source.read < 1000 and container.checksums

    def test_opening_reads_nothing_of_the_data(self):
        small, large = (
            Counting(tw.dumps(np.zeros(count), "npy", checksum=True)) for count in (1000, 1_000_000)
        )
        Npy().open(small), Npy().open(large)
        assert small.read <= large.read <= small.read + 64 < 2000

    def test_views(self):
        blob = tw.dumps(np.arange(1000.0), "npy")
        found = tw.loads(blob, copy=False)
        assert np.shares_memory(found, np.frombuffer(blob, np.uint8)) and not found.flags.writeable
        bfloat = tw.dumps(np.ones(1000, ml_dtypes.bfloat16), "npy", checksum=True)
        assert np.shares_memory(tw.loads(bfloat, copy=False), np.frombuffer(bfloat, np.uint8))
        data = np.arange(1000.0)
        assert any(
            np.shares_memory(data, np.frombuffer(part, np.uint8))
            for part in tw.buffers(data, "npy")
        )

    def test_load_gives_writable_memory(self, tmp_path):
        for array in (
            np.arange(1000),
            np.asfortranarray(np.ones((30, 30))),
            np.arange(1000, dtype=">i4"),
            np.array(["a", "é"]),
        ):
            np.save(tmp_path / "x.npy", array)
            found = tw.load(tmp_path / "x.npy")
            assert (found.data if isinstance(found, tw.Strings) else found).flags.writeable


GOOD = {
    "spaces and other quotes": file(
        '{ "shape" :(2 , ) ,\t"descr":"<i2", "fortran_order" : False}', b"abcd"
    ),
    "keys in another order": file(
        "{'shape': (2,), 'fortran_order': False, 'descr': '<i2'}\n", b"abcd"
    ),
    "no comma at the end": file("{'descr': '<i2', 'fortran_order': False, 'shape': (2,)}", b"abcd"),
    "long integers of Python 2": file(
        "{'descr': '<i2', 'fortran_order': False, 'shape': (2L,), }        \n", b"abcd"
    ),
    "two commas in the shape": file(header(shape="(1, 2,)"), b"abcd"),
    "no byte order": file(header("i2"), b"abcd"),
    "the machine's byte order": file(header("=i2"), b"abcd"),
    "a comment at the end": file(header() + "# hello", b"abcd"),
    "comments": file(
        "{ # a\n'descr': '<i2', # b\n'fortran_order': False, 'shape': (#c\n2,#d\n)}", b"abcd"
    ),
    "text of Python 2": file(
        "{u'descr': u'<i2', u'fortran_order': False, U'shape': (2,)}", b"abcd"
    ),
    "raw strings": file("{r'descr': r'<i2', 'fortran_order': False, 'shape': (2,)}", b"abcd"),
    "hexadecimal": file(header(shape="(0x2,)"), b"abcd"),
    "octal and binary": file(header(shape="(0o1, 0B10)"), b"abcd"),
    "underscores": file(header(shape="(0x0_2,)"), b"abcd"),
    "zeros": file(header(shape="(0x1, 2)"), b"abcd"),
    "version 2": file(header(), b"abcd", 2),
    "version 3": file(header(), b"abcd", 3),
}


@given(st.data())
def test_the_quick_way_and_the_careful_way_agree(data):
    """On what NumPy writes, and on what damage makes of it, wherever the quick way takes it at all."""
    shape = tuple(data.draw(st.lists(st.integers(0, 10**18), max_size=4)))
    text = bytearray(
        wire.write(
            data.draw(st.sampled_from(["<f4", "|u1", ">c16", "<U5"])),
            shape,
            data.draw(st.booleans()),
        )
    )
    if data.draw(st.booleans()):
        text = bytearray(text.replace(b"False", b"True"))
    for _ in range(data.draw(st.integers(0, 2))):
        text[data.draw(st.integers(10, len(text) - 1))] = data.draw(
            st.sampled_from(b"0123456789,() '\"\\\n-LTx}")
        )
    quick = wire._PLAIN.match(text, 10)
    if quick is not None:
        descr, fortran, dims, end = wire._careful(bytes(text), 10)
        assert end == quick.end()
        try:
            found = wire.read(text)
        except tw.DecodeError:
            assert bytes(text[end:]).strip()
        else:
            assert found[:3] == (descr, fortran, dims)


@pytest.mark.parametrize("name", GOOD)
def test_headers_that_are_spelled_otherwise(name):
    assert tw.equal(tw.loads(GOOD[name]).reshape(2), np.frombuffer(b"abcd", "<i2"))
    if "Python 2" not in name:
        assert tw.equal(loaded(GOOD[name]).reshape(2), np.frombuffer(b"abcd", "<i2"))


SEALED = tw.dumps(np.arange(3, dtype=np.int16), "npy", checksum=True)


def tail(fields, data=b"abcd", descr="<i2", shape=(2,)):
    """A marked file whose trailer says anything."""
    return wire.write(descr, shape, marked=True) + data + wire.write_trailer(fields)


def said(**more):
    return {"version": 1, "dtype": "int16", "shape": [2]} | more


HOSTILE = {
    "empty": b"",
    "short": b"\x93NUM",
    "no header": b"\x93NUMPY\x01\x00",
    "no length": b"\x93NUMPY\x02\x00\x10\x00",
    "another magic": b"\x93NUMPX\x01\x00\x10\x00" + bytes(16),
    "version 0": b"\x93NUMPY\x00\x00\x10\x00" + bytes(16),
    "version 1.1": b"\x93NUMPY\x01\x01\x10\x00" + bytes(16),
    "version 4": b"\x93NUMPY\x04\x00\x10\x00" + bytes(16),
    "header past the end": b"\x93NUMPY\x01\x00\x10\x00{",
    "header past the limit": b"\x93NUMPY\x02\x00\xff\xff\xff\xff{",
    "empty header": file(""),
    "not a dict": file("[1, 2]"),
    "a call": file(
        "{'descr': __import__('os').system('true'), 'fortran_order': False, 'shape': (2,)}", b"abcd"
    ),
    "an expression": file("{'descr': '<i' + '2', 'fortran_order': False, 'shape': (2,)}", b"abcd"),
    "empty dict": file("{}"),
    "no shape": file("{'descr': '<i2', 'fortran_order': False}"),
    "another key": file("{'descr': '<i2', 'fortran_order': False, 'shape': (2,), 'x': 1}", b"abcd"),
    "another key for one": file(
        "{'descr': '<i2', 'fortran_order': False, 'shapes': (2,)}", b"abcd"
    ),
    "descr twice": file(
        "{'descr': '<i2', 'descr': '<i2', 'fortran_order': False, 'shape': (2,)}", b"abcd"
    ),
    "shape twice": file(
        "{'descr': '<i2', 'fortran_order': False, 'shape': (2,), 'shape': (2,)}", b"abcd"
    ),
    "not closed": file("{'descr': '<i2', 'fortran_order': False, 'shape': (2,), ", b"abcd"),
    "quotes that do not match": file(
        "{'descr\": '<i2', 'fortran_order': False, 'shape': (2,)}", b"abcd"
    ),
    "something behind": file(header() + "x", b"abcd"),
    "a second dict": file(header() + header(), b"abcd"),
    "fortran_order of 1": file(header(order=1), b"abcd"),
    "fortran_order of null": file(header(order=None), b"abcd"),
    "shape a number": file(header(shape="2"), b"abcd"),
    "shape a number in brackets": file(header(shape="(2)"), b"abcd"),
    "shape a list": file(header(shape="[2]"), b"abcd"),
    "shape of a comma": file(header(shape="(,)"), b"abcd"),
    "shape of two commas": file(header(shape="(2,,)"), b"abcd"),
    "negative dim": file(header(shape="(-2,)"), b"abcd"),
    "minus zero": file(header(shape="(-0,)"), b""),
    "names in the shape": file(header(shape="(2, x)"), b"abcd"),
    "a call in the shape": file(header(shape="(int(2),)"), b"abcd"),
    "arithmetic in the shape": file(header(shape="(1+1,)"), b"abcd"),
    "hexadecimal without digits": file(header(shape="(0x,)"), b"abcd"),
    "an underscore at the end": file(header(shape="(2_,)"), b"abcd"),
    "two underscores": file(header(shape="(1__0,)"), b"abcd"),
    "bytes as a key": file("{b'descr': '<i2', 'fortran_order': False, 'shape': (2,)}", b"abcd"),
    "bytes as the descr": file("{'descr': b'<i2', 'fortran_order': False, 'shape': (2,)}", b"abcd"),
    "f-string": file("{'descr': f'<i2', 'fortran_order': False, 'shape': (2,)}", b"abcd"),
    "a comment that hides the end": file(
        "{'descr': '<i2', 'fortran_order': False, 'shape': (2,) # }"
    ),
    "lists that never end": file("{'descr': " + "[" * 30000),
    "octal dim": file(header(shape="(02,)"), b"abcd"),
    "float dim": file(header(shape="(2.0,)"), b"abcd"),
    "bool dim": file(header(shape="(True,)"), b"abcd"),
    "dim past 64 bits": file(header(shape="(99999999999999999999,)"), b"abcd"),
    "dim of 5000 digits": file(header(shape=f"({'9' * 5000},)"), b"abcd"),
    "huge": file(header(shape="(4611686018427387904, 4)"), b""),
    "huge with zero": file(header(shape="(4611686018427387904, 4, 0)"), b""),
    "rank 65": file(header(shape=f"({'1, ' * 65})"), b"ab"),
    "gigabytes that are not there": file(header(shape="(4294967296,)"), b"abcd"),
    "too little data": file(header(), b"abc"),
    "too much data": file(header(), b"abcde"),
    "two arrays": saved(np.arange(3)) + saved(np.arange(3)),
    "bool of 2": file(header("|b1"), b"\x00\x02"),
    "bool of 2 in Fortran order": file(header("|b1", True, "(2, 2)"), b"\x00\x01\x02\x00"),
    "unknown type": file(header("<q9"), b"abcd"),
    "no type": file(header(""), b"abcd"),
    "type of nothing": file(header("<"), b"abcd"),
    "float of 3 bytes": file(header("<f3"), b"abcdef"),
    "no byte order for two bytes": file(header("|i2"), b"abcd"),
    "escaped type": file("{'descr': '\\x3ci2', 'fortran_order': False, 'shape': (2,)}", b"abcd"),
    "type not closed": file("{'descr': '<i2, 'fortran_order': False, 'shape': (2,)}", b"abcd"),
    "wide strings": file(header("<U99999999999"), b""),
    "string width of other digits": file(header("<U\xb2"), b""),
    "string width of nothing": file(header("<U"), b""),
    "characters past Unicode": file(header("<U1"), b"\xff\xff\xff\xff\xff\xff\xff\xff"),
    "lone surrogate": file(header("<U1"), b"\x00\xd8\x00\x00a\x00\x00\x00"),
    "a million million strings of nothing": file(header("<U0", shape="(1000000000000,)"), b""),
    "marked, nothing behind": wire.write("<i2", (2,), marked=True) + b"abcd",
    "marked, half a trailer": tail(said())[:-9],
    "a trailer, not marked": wire.write("<i2", (2,)) + b"abcd" + wire.write_trailer(said()),
    "two trailers": tail(said()) + wire.write_trailer(said()),
    "bytes before the trailer": tail(said(), b"abcde"),
    "trailer of another length": tail(said())[:-20] + bytes(8) + tail(said())[-12:],
    "trailer not JSON": (
        wire.write("<i2", (2,), marked=True)
        + b"abcd"
        + wire.write_trailer({}).replace(b"{}", b"{]")
    ),
    "trailer of another version": tail(said(version=2)),
    "trailer of no version": tail({"dtype": "int16", "shape": [2]}),
    "trailer a list": tail([1]),
    "trailer with another key": tail(said(x=1)),
    "trailer without shape": tail({"version": 1, "dtype": "int16"}),
    "trailer of another shape": tail(said(shape=[1, 2])),
    "trailer of another dtype": tail(said(dtype="float16")),
    "trailer of no dtype": tail(said(dtype="nope")),
    "trailer whose dtype is a list": tail(said(dtype=[])),
    "a quantized dtype": tail(said(dtype="qint16")),
    "metadata not strings": tail(said(metadata={"a": 1})),
    "metadata not an object": tail(said(metadata=["a"])),
    "no checksums": tail(said(crc32c={})),
    "checksums null": tail(said(crc32c=None)),
    "checksum of the header only": tail(said(crc32c={"header": 1})),
    "another checksum": tail(said(crc32c={"header": 1, "data": 2})),
    "another checksum of the header": tail(said(crc32c={"header": 1, "data": crc32c(b"abcd")})),
    "another checksum of the data": tail(
        said(crc32c={"header": crc32c(wire.write("<i2", (2,), marked=True)), "data": 2})
    ),
    "a changed trailer": tail(said(metadata={"a": "b"})).replace(b'"b"', b'"c"'),
    "byte that is no int4": tail(said(dtype="int4"), b"\x01\x10", "|u1"),
    "kind, not safetensors": tail({"version": 1, "kind": "list"}, b"ab", "|u1"),
    "kind in numbers": tail({"version": 1, "kind": "list"}),
    "kind and dtype": tail(said(kind="list")),
    "another kind inside": tail(
        {"version": 1, "kind": "dict"},
        tw.dumps([np.zeros(1)]),
        "|u1",
        (len(tw.dumps([np.zeros(1)])),),
    ),
    "kind a list": tail(
        {"version": 1, "kind": []}, tw.dumps([np.zeros(1)]), "|u1", (len(tw.dumps([np.zeros(1)])),)
    ),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_files(name):
    for copy in (None, True):
        with pytest.raises(tw.DecodeError) as caught:
            tw.loads(HOSTILE[name], "npy", copy=copy)
        assert caught.value.format == "npy" and 0 <= caught.value.offset <= len(HOSTILE[name])
    with (
        pytest.raises((tw.DecodeError, tw.UnknownFormatError)),
        tw.open(io.BytesIO(HOSTILE[name])) as f,
    ):
        f.load()


def test_the_good_twins():
    assert tw.equal(tw.loads(tail(said())), np.frombuffer(b"abcd", "<i2"))
    inside = tw.dumps([np.zeros(1)])
    assert tw.equal(
        tw.loads(tail({"version": 1, "kind": "list"}, inside, "|u1", (len(inside),))), [np.zeros(1)]
    )
    assert tw.equal(
        tw.loads(tail(said(dtype="int4"), b"\x01\x0f", "|u1")), np.array([1, -1], ml_dtypes.int4)
    )


def test_limits():
    long = file(header() + " " * 70_000, b"abcd", 2)
    with pytest.raises(tw.LimitError, match="npy_header"):
        tw.loads(long)
    assert tw.equal(
        tw.loads(long, limits=tw.Limits(npy_header=1 << 20)), np.frombuffer(b"abcd", "<i2")
    )
    words = saved(np.array(["ab"] * 1000))
    with pytest.raises(tw.LimitError, match="tensor"):
        tw.loads(words, limits=tw.Limits(tensor=1000))
    with pytest.raises(tw.LimitError, match="trailer"):
        tw.loads(
            tw.dumps(np.zeros(2), "npy", metadata={"a": "b" * 1000}),
            limits=tw.Limits(safetensors_header=500),
        )


CONTROL = {
    "array": np.arange(3, dtype=np.int16),
    "bfloat16": np.arange(4).astype(ml_dtypes.bfloat16).reshape(2, 2),
    "nested": {"w": tw.Strings.of(["é"]), "l": [np.zeros(1), 3]},
}


@pytest.mark.large
@pytest.mark.parametrize("name", CONTROL)
def test_no_flip_passes_a_checksum(name):
    value = CONTROL[name]
    blob = tw.dumps(value, "npy", checksum=True, metadata={"m": "x"})
    assert tw.equal(tw.loads(blob), value)
    for at in range(len(blob)):
        for bit in range(8):
            damaged = blob[:at] + bytes([blob[at] ^ 1 << bit]) + blob[at + 1 :]
            try:
                found = tw.loads(damaged, "npy")
                metadata = Npy().open(files.BytesSource(damaged)).metadata
            except tw.DecodeError as error:
                assert error.format == "npy" and 0 <= error.offset <= len(damaged)
                continue
            assert tw.equal(found, value) and metadata == {"m": "x"}, (at, bit)


@pytest.mark.parametrize("checksum", [False, True])
@pytest.mark.parametrize("name", CONTROL)
def test_every_cut_is_an_error(name, checksum):
    blob = tw.dumps(CONTROL[name], "npy", checksum=checksum)
    for at in range(len(blob)):
        with pytest.raises((tw.DecodeError, tw.UnknownFormatError)):
            tw.loads(blob[:at])


def test_a_shape_that_swallows_the_trailer():
    """One flipped bit makes (300,) of (100,): the trailer would be data, if the mark did not tell."""
    fields = {"version": 1, "dtype": "uint8", "shape": [100], "metadata": {"pad": ""}}
    fields["metadata"]["pad"] = "x" * (200 - len(wire.write_trailer(fields)))
    blob = wire.write("|u1", (100,), marked=True) + bytes(100) + wire.write_trailer(fields)
    flipped = blob.replace(b"(100,)", b"(300,)")
    assert bin(blob[blob.index(b"(100,)") + 1] ^ flipped[blob.index(b"(100,)") + 1]).count("1") == 1
    assert loaded(flipped).shape == (300,) and tw.loads(blob).shape == (100,)
    with pytest.raises(tw.DecodeError):
        tw.loads(flipped)


def test_the_error_of_a_checksum_says_where():
    blob = bytearray(tw.dumps(np.zeros(1000), "npy", checksum=True))
    blob[600] ^= 1
    with pytest.raises(tw.ChecksumError) as caught:
        tw.loads(blob)
    assert caught.value.offset == 128
    assert not tw.verify(bytes(blob)).ok
    with tw.open(blob) as f:
        assert f.checksums and tw.equal(f["tensor"][500:], np.zeros(500))  # rows have no checksum


@given(tws.values(), st.booleans())
def test_any_value_comes_back(value, checksum):
    blob = tw.dumps(value, "npy", checksum=checksum)
    assert tw.equal(tw.loads(blob), value) and isinstance(loaded(blob), np.ndarray)


@given(tws.values(), st.data())
def test_any_damage_gives_a_value_or_our_error(value, data):
    checksum = data.draw(st.booleans())
    blob = tw.dumps(value, "npy", checksum=checksum)
    at = data.draw(st.integers(0, len(blob) - 1))
    flipped = bytearray(blob)
    flipped[at] ^= 1 << data.draw(st.integers(0, 7))
    for damaged in (blob[:at], bytes(flipped), blob + blob[:at]):
        try:
            found = tw.loads(damaged, "npy")
        except tw.DecodeError as error:
            assert error.format == "npy" and 0 <= error.offset <= len(damaged)
        else:
            assert not checksum or tw.equal(found, value)


def test_the_trailer_as_documented():
    """Read by hand, with nothing of ours but CRC32C."""
    blob = tw.dumps(np.float32([1, 2]), "npy", checksum=True)
    size = int.from_bytes(blob[-20:-12], "little")
    fields = json.loads(blob[-20 - size : -20])
    assert fields["crc32c"]["data"] == crc32c(blob[-28 - size : -20 - size])
    assert int.from_bytes(blob[-12:-8], "little") == crc32c(blob[-20 - size : -12])
    assert zlib.crc32(b"") == 0 and blob[blob.index(b"}") + 1 :].startswith(b"\t\t \t \t\t")
