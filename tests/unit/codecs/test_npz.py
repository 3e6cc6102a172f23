"""npz against the real NumPy and Python's zipfile, both ways; archives of strangers; no flip and no
cut that goes unseen.
"""

import importlib
import io
import json
import struct
import subprocess
import sys
import zipfile
import zlib

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tensorwire as tw
from support.npz_files import A, build, entries, member, npy, raw
from support.tiers import TESTS
from tensorwire.codecs.npz import Npz, stem
from tensorwire.storage import files
from tensorwire.testing import check_codec
from tensorwire.testing import strategies as tws
from tensorwire.testing.sampling import DTYPES, SHAPES, numbers
from tensorwire.transforms.compression import deflate
from tensorwire.wire import zip as archive
from tensorwire.wire.zip import Member

NATIVE = [row for row in DTYPES if row.numpy.isbuiltin == 1]
packed = pytest.mark.parametrize("compression", [None, "zlib"])
PLAIN = {f"{row.name}/{shape}": numbers(row, shape) for row in NATIVE for shape in SHAPES}
VALUE = {
    "x": np.arange(600.0).reshape(100, 6),
    "half": np.arange(300).astype(ml_dtypes.bfloat16).reshape(100, 3),
    "q": (np.arange(100) % 16 - 8).astype(ml_dtypes.int4),
    "z": np.arange(100) * (1 + 2j),
    "words": tw.Strings.of([f"word {i}" * (i % 4) for i in range(100)]),
    "tokens": tw.Ragged.of([[i] * (i % 5) for i in range(100)]),
    "sorted": tw.Sparse([[i, i % 7] for i in range(0, 100, 3)], np.arange(34.0), (100, 7)),
    "nested": [np.zeros(3), {"k": np.array(7)}],
    "step": 3,
}


def saved(arrays, write=np.savez):
    out = io.BytesIO()
    write(out, **arrays)
    return out.getvalue()


def loaded(blob):
    with np.load(io.BytesIO(blob)) as found:
        return {name: found[name] for name in found.files}


def spec(blob):
    with zipfile.ZipFile(io.BytesIO(blob)) as found:
        return json.loads(found.read("tensorwire.json"))


def zipped(members, compression=zipfile.ZIP_STORED):
    """An archive by Python's zipfile."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", compression) as made:
        for name, data in members.items():
            made.writestr(name, data)
    return out.getvalue()


class TestWithNumPy:
    @packed
    def test_numpy_reads_what_we_write(self, compression):
        blob = tw.dumps(PLAIN, "npz", compression=compression)
        found = loaded(blob)
        assert list(found) == list(PLAIN) and all(
            tw.equal(found[name], PLAIN[name]) for name in PLAIN
        )

    @pytest.mark.parametrize("write", [np.savez, np.savez_compressed])
    def test_we_read_what_numpy_writes(self, write):
        arrays = {name.replace("/", "_"): array for name, array in PLAIN.items()}
        assert tw.equal(tw.loads(saved(arrays, write)), arrays)
        for odd, expected in (
            (np.asfortranarray(np.arange(6).reshape(2, 3)), np.arange(6).reshape(2, 3)),
            (np.arange(3, dtype=">u4"), np.arange(3, dtype=np.uint32)),
            (np.array(["a", "é"]), tw.Strings.of(["a", "é"])),
            (np.array([b"a", b"bcd"]), tw.Strings.of([b"a", b"bcd"])),
        ):
            blob = saved({"odd": odd, "x": np.arange(3)}, write)
            assert tw.equal(tw.loads(blob), {"odd": expected, "x": np.arange(3)})
            with tw.open(blob) as f:
                assert f["odd"].kind == ("dense" if isinstance(expected, np.ndarray) else "strings")
                assert f["odd"].dtype == (
                    expected.dtype
                    if isinstance(expected, np.ndarray)
                    else "text"
                    if expected.text
                    else "bytes"
                )
                assert tw.equal(f["odd"][1:2], expected[1:2])

    def test_an_empty_archive(self):
        assert (
            tw.dumps({}, "npz") == saved({})
            and tw.loads(saved({})) == {}
            and loaded(tw.dumps({}, "npz")) == {}
        )

    def test_numpy_reads_the_parts_of_other_kinds(self):
        found = loaded(tw.dumps(VALUE, "npz"))
        assert tw.equal(found["x"], VALUE["x"]) and tw.equal(
            found["half"], VALUE["half"].view(np.uint16)
        )
        assert tw.equal(found["tokens/values"], VALUE["tokens"].values) and tw.equal(
            found["nested/1/k"], np.array(7)
        )
        assert json.loads(found["tensorwire.json"])["spec"]["dict"]["half"] == {"dtype": "bfloat16"}

    def test_nothing_is_added_where_nothing_is_to_say(self):
        assert list(loaded(tw.dumps({"b": np.zeros(2), "a": np.zeros(3)}, "npz"))) == ["b", "a"]
        assert spec(tw.dumps(np.zeros(2), "npz")) == {"version": 1, "spec": {}}

    @pytest.mark.parametrize(
        "array", [np.zeros(2, "V3"), np.array(["2020"], "M8[Y]"), np.array([None], object)], ids=str
    )
    def test_what_is_no_tensor_names_the_member(self, array):
        blob = saved({"x": np.zeros(2), "odd": array})
        with pytest.raises(tw.DecodeError, match=r"save x|view|pickle") as caught:
            tw.loads(blob)
        assert (
            caught.value.tensor == "odd"
            and caught.value.format == "npz"
            and caught.value.offset > 0
        )
        with tw.open(blob) as f:
            assert tw.equal(f["x"].read(), np.zeros(2))

    def test_python_2_and_version_2(self):
        header = b"{'descr': '<i2', 'fortran_order': False, 'shape': (2L,), }\n"
        members = {"a.npy": b"\x93NUMPY\x01\0" + struct.pack("<H", len(header)) + header + b"abcd"}
        out = io.BytesIO()
        np.lib.format.write_array(out, np.arange(3), (2, 0))
        assert tw.equal(
            tw.loads(zipped(members | {"b.npy": out.getvalue()})),
            {"a": np.frombuffer(b"abcd", "<i2"), "b": np.arange(3)},
        )


class TestWithZipfile:
    @packed
    @pytest.mark.parametrize(
        "value",
        [PLAIN, VALUE, {}, 3, {"é/日本": np.zeros(3)}],
        ids=["plain", "nested", "empty", "python", "utf-8"],
    )
    def test_zipfile_accepts_ours(self, value, compression):
        blob = tw.dumps(value, "npz", compression=compression)
        with zipfile.ZipFile(io.BytesIO(blob)) as found:
            assert found.testzip() is None
            assert all(info.date_time == (1980, 1, 1, 0, 0, 0) for info in found.infolist())
        # the same value, the same bytes
        assert blob == tw.dumps(value, "npz", compression=compression)

    @pytest.mark.parametrize("method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
    @pytest.mark.parametrize("wide", [False, True])
    def test_streamed_archives(self, method, wide):
        """Written to a pipe: sizes and checksum are not known before the data, and stand behind
        them.
        """

        class Pipe(io.RawIOBase):
            def __init__(self):
                self.pieces = []

            def writable(self):
                return True

            def write(self, data):
                self.pieces.append(bytes(data))
                return len(data)

        arrays = {"x": np.arange(1000.0), "empty": np.zeros(0), "y": np.zeros((3, 4), np.int8)}
        pipe = Pipe()
        with zipfile.ZipFile(pipe, "w", method) as made:
            for name, array in arrays.items():
                with made.open(f"{name}.npy", "w", force_zip64=wide) as member:
                    member.write(npy(array))
        blob = b"".join(pipe.pieces)
        assert b"PK\x07\x08" in blob and tw.equal(tw.loads(blob), arrays)
        for at in range(len(blob)):
            if (flipped := damaged_value(blob, at, 3)) is not None:
                assert tw.equal(flipped, arrays), at

    def test_comments_of_members_and_other_directories_orders(self):
        out = io.BytesIO()
        with zipfile.ZipFile(out, "w") as made:
            info = zipfile.ZipInfo("a.npy")
            info.comment, info.extra = b"hello", struct.pack("<HHI", 0x7777, 4, 1)
            made.writestr(info, npy(np.arange(3)))
            made.writestr("b.npy", npy(np.arange(4)))
            made.filelist.reverse()
        assert tw.equal(tw.loads(out.getvalue()), {"b": np.arange(4), "a": np.arange(3)})

    def test_names_of_the_first_pcs(self):
        blob = bytearray(zipped({"aXb.npy": npy(np.arange(3))}))
        at = blob.index(b"aXb")
        # é in code page 437, and no flag that says UTF-8
        blob[at + 1] = blob[blob.index(b"aXb", at + 3) + 1] = 0x82
        assert list(tw.loads(bytes(blob))) == list(loaded(bytes(blob))) == ["aéb"]


@packed
def test_conformance(compression):
    assert set(
        check_codec(
            "npz" if compression is None else Npz(compression=compression), hostile=15
        ).values()
    ) == {"exact"}


@packed
@pytest.mark.parametrize("library", ["isal", "zlib"])
def test_with_and_without_isal(monkeypatch, compression, library):
    blob = tw.dumps(VALUE, "npz", compression=compression)
    monkeypatch.setattr(
        deflate,
        "backend",
        lambda: zlib if library == "zlib" else importlib.import_module("isal.isal_zlib"),
    )
    assert tw.equal(tw.loads(blob), VALUE)
    again = tw.dumps(VALUE, "npz", compression=compression)
    assert tw.equal(tw.loads(again), VALUE) and (compression or again == blob)


class TestNames:
    NAMES = (
        "a", "a.npy", "", ".npy", "a b", "é", "日本/🙂", "dense/kernel:0", "tensorwire.json", "tensorwire", "A", "x~1", "a//b", "a/", "..a",
        "a..", "...", "100%", "%41", "..", ".", "../x", "a/../b", "a/..", "a/.", "./a", "/etc/passwd", "//x", "C:\\x", "c:/x", "C:",
        "\\\\host\\x", "nul\0", "\0", "line\n", "\x7f", "a\\b", "con", "~",
    )  # fmt: skip

    @packed
    def test_come_back(self, compression):
        value = {name: np.array([i]) for i, name in enumerate(self.NAMES)}
        blob = tw.dumps(value, "npz", compression=compression)
        assert tw.equal(tw.loads(blob), value)
        with zipfile.ZipFile(io.BytesIO(blob)) as found:
            assert found.testzip() is None
        with tw.open(blob) as f:
            assert set(f) == set(value) and all(
                tw.equal(f[name].read(), value[name]) for name in value
            )

    def test_lead_nowhere_else(self, tmp_path):
        """Whoever extracts the archive finds every member in the folder that was meant."""
        for name in self.NAMES:
            inside = stem(name) + ".npy"
            steps = inside.split("/")
            assert (
                ".." not in steps
                and "." not in steps
                and not inside.startswith("/")
                and "\\" not in inside
                and inside.isprintable()
            )
            assert inside[1:2] != ":" or not inside[0].isalpha()
        names = [stem(name) for name in self.NAMES]
        assert len(set(names)) == len(names)
        # what is harmless stays
        assert [name for name in self.NAMES[:17] if stem(name) != name] == []

    def test_of_others_are_taken_as_they_are(self):
        """We never extract, so they can do no harm here."""
        members = {
            "../up.npy": npy(np.arange(2)),
            "/abs.npy": npy(np.arange(3)),
            "%2E%2E/x.npy": npy(np.arange(4)),
        }
        assert tw.equal(
            tw.loads(zipped(members)),
            {"../up": np.arange(2), "/abs": np.arange(3), "%2E%2E/x": np.arange(4)},
        )

    def test_too_long(self):
        with pytest.raises(tw.EncodeError, match="65535"):
            tw.dumps({"a" * 65532: np.zeros(1)}, "npz")
        value = {"a" * 65531: np.zeros(1)}
        assert tw.equal(tw.loads(tw.dumps(value, "npz")), value) and list(
            loaded(tw.dumps(value, "npz"))
        ) == list(value)

    @given(st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=8), unique=True))
    def test_any(self, names):
        assert len({stem(name) for name in names}) == len(names)
        value = {name: np.zeros(1) for name in names}
        blob = tw.dumps(value, "npz")
        with zipfile.ZipFile(io.BytesIO(blob)) as found:
            assert found.testzip() is None
        assert tw.equal(tw.loads(blob), value)


class TestMetadata:
    @packed
    def test_of_any_value(self, compression):
        for value in ({"a": np.arange(3)}, np.zeros(2), tw.Ragged.of([[1], []])):
            blob = tw.dumps(
                value, "npz", metadata={"model": "nmt", "é": "日本"}, compression=compression
            )
            assert tw.equal(tw.loads(blob), value) and spec(blob)["metadata"] == {
                "model": "nmt",
                "é": "日本",
            }
            with tw.open(blob) as f:
                assert f.metadata == {"model": "nmt", "é": "日本"}

    def test_of_a_bundle(self):
        bundle = tw.Bundle(
            {"x": np.arange(3), "r": tw.Ragged.of([[1]])}, {"m": "1"}, {"x": {"device": "gpu:0"}}
        )
        blob = tw.dumps(bundle, "npz")
        assert tw.equal(tw.loads(blob), bundle) and spec(blob)["metadata"] == {"m": "1"}
        with tw.open(blob) as f:
            assert f.metadata == {"m": "1"} and f.tensor_metadata == {"x": {"device": "gpu:0"}}

    @pytest.mark.parametrize("texts", [{"a": 1}, {"a": "\ud800"}])
    def test_is_text(self, texts):
        with pytest.raises(tw.EncodeError):
            tw.dumps(np.zeros(2), "npz", metadata=texts)


def test_quantized_values():
    x = np.random.default_rng(2).random((50, 20), np.float32)
    blob = tw.dumps({"w": x, "ids": np.arange(3)}, "npz", quantize="int8")
    codes = tw.loads(blob, dequantize=False)["w"]
    assert (
        tw.equal(loaded(blob)["w"], np.asarray(codes.codes))
        and np.abs(tw.loads(blob)["w"] - x).max() <= np.max(codes.scale) / 2
    )
    for format in ("npy", "npz"):
        assert tw.equal(tw.loads(tw.dumps(codes, format), dequantize=False), codes)


class TestOptions:
    def test_compression(self):
        value = {
            "a": np.zeros(10_000),
            "b": np.random.default_rng(1).integers(0, 256, 10_000, np.uint8),
        }
        with zipfile.ZipFile(io.BytesIO(tw.dumps(value, "npz", compression="gzip"))) as found:
            methods = {info.filename: info.compress_type for info in found.infolist()}
        # what gets hardly smaller is stored
        assert methods == {"a.npy": zipfile.ZIP_DEFLATED, "b.npy": zipfile.ZIP_STORED}
        assert tw.dumps(value, "npz", compression="gzip") == tw.dumps(
            value, "npz", compression="zlib"
        )
        words = {"a": np.random.default_rng(1).zipf(1.5, 100_000)}
        sizes = [
            len(tw.dumps(words, "npz", compression="zlib", level=level)) for level in (0, 1, 6, 9)
        ]
        assert (
            sizes == sorted(sizes, reverse=True)
            and sizes[0] == len(tw.dumps(words, "npz")) > sizes[1] > sizes[3]
        )

    @pytest.mark.parametrize(
        "options",
        [
            {"compression": "zstd"},
            {"compression": "zlib", "level": 10},
            {"compression": "zlib", "level": -1},
        ],
    )
    def test_that_do_not_exist(self, options):
        with pytest.raises(tw.EncodeError):
            tw.dumps({"a": np.zeros(3)}, "npz", **options)


class Counting(files.BytesSource):
    def __init__(self, data):
        super().__init__(data)
        self.read = 0

    def read_at(self, offset, count):
        self.read += count
        return super().read_at(offset, count)


class TestLazy:
    @pytest.mark.parametrize("where", ["path", "mmap", "bytes", "file object"])
    @packed
    def test_rows(self, tmp_path, where, compression):
        path = tmp_path / "x.npz"
        tw.save(path, VALUE, compression=compression)
        source = {
            "bytes": path.read_bytes,
            "file object": lambda: io.BytesIO(path.read_bytes()),
        }.get(where, lambda: path)()
        with tw.open(source, mmap=where == "mmap") as f:
            assert (
                f.format == "npz"
                and f.checksums
                and list(f) == [*list(VALUE)[:-2], "nested/0", "nested/1/k"]
            )
            for name in list(VALUE)[:-2]:
                assert f[name].shape == VALUE[name].shape and tw.equal(f[name].read(), VALUE[name])
                if not isinstance(VALUE[name], tw.Sparse):
                    assert tw.equal(f[name][10:20], VALUE[name][10:20])
            assert tw.equal(f["x"][7], VALUE["x"][7]) and tw.equal(f.load(), VALUE)
        assert tw.equal(tw.load(path), VALUE) and tw.load(path)["x"].flags.writeable
        assert tw.equal(tw.load(path, names=["q"]), {"q": VALUE["q"]})

    def test_what_is_read(self):
        source = Counting(tw.dumps({"x": np.zeros((1000, 1000)), "y": np.zeros(10)}, "npz"))
        container = Npz().open(source)
        assert source.read <= 17 << 10
        source.read = 0
        assert container.spec("x").shape == (1000, 1000)
        assert container.read("x", (5, 6)).shape == (1, 1000) and source.read < 8000 + 2000

    def test_opening_costs_the_same_for_any_size(self):
        small, large = (
            Counting(tw.dumps({"x": np.zeros(count)}, "npz", metadata={"a": "b"}))
            for count in (10_000, 1_000_000)
        )
        Npz().open(small), Npz().open(large)
        assert small.read == large.read

    def test_views(self):
        value = {
            "a": np.arange(3, dtype=np.int8),
            "x": np.arange(1000.0),
            "zz": np.ones(1000, ml_dtypes.bfloat16),
            "c": np.ones(999) * 1j,
        }
        blob = tw.dumps(value, "npz")
        memory = np.frombuffer(blob, np.uint8)
        found = tw.loads(blob, copy=False)
        assert all(np.shares_memory(array, memory) for array in found.values()) and tw.equal(
            found, value
        )
        with zipfile.ZipFile(io.BytesIO(blob)) as made:
            for info in made.infolist():
                local = blob[info.header_offset : info.header_offset + 30]
                assert (info.header_offset + 30 + sum(struct.unpack("<HH", local[26:]))) % 64 == 0
        with pytest.raises(tw.DecodeError, match="aligned"):
            tw.loads(saved({"abc": np.arange(1000.0)}), copy=False)  # NumPy's own begin anywhere
        assert any(
            np.shares_memory(value["x"], np.frombuffer(part, np.uint8))
            for part in tw.buffers(value, "npz")
        )

    def test_damage_is_found_where_it_is(self, tmp_path):
        blob = bytearray(tw.dumps({"a": np.zeros(100), "b": np.ones(100)}, "npz"))
        blob[blob.rindex(np.ones(1).tobytes())] ^= 1
        with pytest.raises(tw.ChecksumError) as caught:
            tw.loads(blob)
        assert caught.value.tensor == "b" and caught.value.format == "npz"
        with tw.open(blob) as f:
            assert tw.equal(f["a"].read(), np.zeros(100)) and f["b"][:1].tolist() == [1]
            with pytest.raises(tw.ChecksumError):
                f["b"].read()
        assert (
            [problem for problem in tw.verify(bytes(blob)).problems if "tensor b" in problem]
            == tw.verify(bytes(blob)).problems
            != []
        )

    def test_rows_of_a_deflated_member_are_checked(self):
        """It is inflated whole for them anyway."""
        value = {"a": np.arange(1000) // 7}
        blob = build(
            member("a.npy", npy(value["a"]), method=8, content=raw(npy(value["a"])), crc=1)
        )
        with tw.open(blob) as f:
            assert f["a"].shape == (1000,) and f.checksums
            with pytest.raises(tw.ChecksumError):
                f["a"][3:5]

    def test_what_is_told_of_it(self):
        found = tw.inspect(
            tw.dumps(
                {"a": np.zeros(1000), "b": np.zeros(2)},
                "npz",
                compression="zlib",
                metadata={"m": "x"},
            )
        ).json()
        assert (found["format"], found["checksums"], found["metadata"]) == ("npz", True, {"m": "x"})
        told = {
            tensor["name"]: (tensor["compression"], tensor["nbytes"] < 200)
            for tensor in found["tensors"]
        }
        assert told == {"a": ("deflate", True), "b": ("deflate", True)}
        plain = tw.inspect(tw.dumps({"a": np.zeros(1000)}, "npz")).json()["tensors"][0]
        assert (plain["compression"], plain["nbytes"], plain["dtype"], plain["shape"]) == (
            None,
            8000,
            "float64",
            (1000,),
        )
        assert tw.verify(tw.dumps({"a": np.zeros(1000)}, "npz")).ok


def damaged_value(blob, at, bit):
    """The value of a file with one bit flipped; None for an error of ours."""
    damaged = blob[:at] + bytes([blob[at] ^ 1 << bit]) + blob[at + 1 :]
    try:
        return tw.loads(damaged, "npz")
    except tw.DecodeError as error:
        assert error.format == "npz" and 0 <= error.offset <= len(damaged)
        return None


CONTROL = {
    "plain": ({"a": np.arange(3, dtype=np.int16), "b": np.zeros((2, 2), np.float32)}, {}),
    "nested": (
        {"w": tw.Strings.of(["é"]), "l": [np.ones(1, ml_dtypes.bfloat16), 3], "../x": np.zeros(1)},
        {"metadata": {"m": "x"}},
    ),
    "deflated": (
        {"a": np.zeros(50), "b": np.arange(40) // 3},
        {"compression": "zlib", "metadata": {"m": "x" * 100}},
    ),
}


@pytest.mark.large
@pytest.mark.parametrize("name", CONTROL)
def test_no_flip_yields_another_value(name):
    value, options = CONTROL[name]
    blob = tw.dumps(value, "npz", **options)
    assert tw.equal(tw.loads(blob), value) and len(blob) < 3000
    passed = 0
    for at in range(len(blob)):
        for bit in range(8):
            found = damaged_value(blob, at, bit)
            if found is not None:
                passed += 1
                assert tw.equal(found, value), (at, bit)
    assert passed < len(blob) * 8 * 0.3  # times, permissions, versions and padding


@pytest.mark.parametrize("name", CONTROL)
def test_every_cut_is_an_error(name):
    value, options = CONTROL[name]
    blob = tw.dumps(value, "npz", **options)
    for at in range(len(blob)):
        with pytest.raises((tw.DecodeError, tw.UnknownFormatError)):
            tw.loads(blob[:at])


@pytest.mark.large
@pytest.mark.parametrize("write", [np.savez, np.savez_compressed])
def test_no_flip_of_numpys_files_either(write):
    arrays = {"a": np.arange(3, dtype=np.int16), "b": np.zeros((2, 2), np.float32)}
    blob = saved(arrays, write)
    for at in range(len(blob)):
        for bit in range(8):
            found = damaged_value(blob, at, bit)
            assert found is None or tw.equal(found, arrays), (at, bit)
        with pytest.raises((tw.DecodeError, tw.UnknownFormatError)):
            tw.loads(blob[:at])


@given(tws.values(), st.sampled_from([None, "zlib"]))
def test_any_value_comes_back(value, compression):
    blob = tw.dumps(value, "npz", compression=compression)
    assert tw.equal(tw.loads(blob), value)
    assert [name for name, array in loaded(blob).items() if not isinstance(array, np.ndarray)] in (
        [],
        ["tensorwire.json"],
    )


@given(tws.values(), st.data())
def test_any_damage_gives_the_value_or_our_error(value, data):
    blob = tw.dumps(value, "npz", compression=data.draw(st.sampled_from([None, "zlib"])))
    at = data.draw(st.integers(0, len(blob) - 1))
    found = damaged_value(blob, at, data.draw(st.integers(0, 7)))
    assert found is None or tw.equal(found, value)
    for damaged in (blob[:at], blob + blob[: at + 1], blob[at:]):
        try:
            tw.loads(damaged, "npz")
        except tw.DecodeError as error:
            assert error.format == "npz" and 0 <= error.offset <= len(damaged)
        else:
            assert at == 0


def swap(blob, old, new, which=0):
    """One of several occurrences replaced."""
    at = -1
    for _ in range(which + 1):
        at = blob.index(old, at + 1)
    return blob[:at] + new + blob[at + len(old) :]


GOOD = build(member("a.npy"), member("b.npy"))
END = archive.end([], 0)


def json_member(text, name="tensorwire.json"):
    return member(name, text if isinstance(text, bytes) else json.dumps(text).encode())


FIRST, SECOND = member("a.npy")[0], member("b.npy", at=30 + 5 + len(A))[0]
TWO = entries(member("a.npy"), member("b.npy", at=SECOND.at))
HOSTILE = {
    "empty": b"",
    "short": b"PK\x05\x06",
    "the end only, cut": END[:-1],
    "something behind the end": GOOD + b"x",
    "a comment": GOOD[:-2] + b"\x05\x00hello",
    "a comment that is not there": GOOD[:-2] + b"\x05\x00",
    "something before": b"#!/bin/sh\n" + GOOD,
    "several disks": GOOD[:-18] + b"\x01" + GOOD[-17:],
    "more members than the directory has": GOOD[:-14] + b"\x03\x00\x03\x00" + GOOD[-10:],
    "fewer members than the directory has": GOOD[:-14] + b"\x01\x00\x01\x00" + GOOD[-10:],
    "two counts": GOOD[:-14] + b"\x01\x00" + GOOD[-12:],
    "directory past the end": GOOD[:-6] + b"\xff\xff\xff\x7f" + GOOD[-2:],
    "directory of another size": GOOD[:-10] + b"\x01\x00\x00\x00" + GOOD[-6:],
    "zip64 that is not there": GOOD[:-6] + b"\xff\xff\xff\xff" + GOOD[-2:],
    "a million members in nothing": END[:8] + b"\xfe\xff\xfe\xff" + END[12:],
    "no array": zipped({"a.txt": b"hello"}),
    "a folder": zipped({"a/": b""}),
    "torch's": zipped({"archive/data.pkl": b"\x80\x02.", "archive/version": b"3"}),
    "not npy inside": build(member("a.npy", b"hello")),
    "an empty member": build(member("a.npy", b"")),
    "an array cut off": build(member("a.npy", A[:-1])),
    "bytes behind an array": build(member("a.npy", A + b"x")),
    "bytes behind an array, deflated": build(
        member("a.npy", A + b"x", method=8, content=raw(A + b"x"))
    ),
    "a pickle": build(member("a.npy", saved({"x": np.array([1])}) and b"\x80\x02K\x01.")),
    "two of one name": build(member("a.npy"), member("a.npy")),
    "encrypted": build(member("a.npy", flags=1)),
    "flags that do not exist": build(member("a.npy", flags=1 << 5)),
    "masked headers": build(member("a.npy", flags=1 << 13)),
    "bzip2": build(member("a.npy", method=12)),
    "zstd": build(member("a.npy", method=93)),
    "stored with two sizes": build(member("a.npy", size=len(A) + 1)),
    "another checksum": build(member("a.npy", crc=1)),
    "a descriptor that is not there": build(member("a.npy", flags=8), member("b.npy")),
    "a descriptor of something else": build(
        member("a.npy", content=A + bytes(16), flags=8, packed=len(A)), member("b.npy")
    ),
    "name not UTF-8": build(
        (Member(b"\xff.npy", 0, zlib.crc32(A), len(A), len(A), 0, archive.UTF8), A)
    ),
    "another checksum in front": swap(GOOD, struct.pack("<I", zlib.crc32(A)), b"abcd"),
    "another size in front": swap(
        GOOD, struct.pack("<II", len(A), len(A)), struct.pack("<II", len(A), len(A) + 1)
    ),
    "another method in front": GOOD[:8] + b"\x08" + GOOD[9:],
    "other flags in front": GOOD[:6] + b"\x02" + GOOD[7:],
    "another name in front": swap(GOOD, b"a.npy", b"c.npy"),
    "another name in the directory": swap(GOOD, b"b.npy", b"c.npy", 1),
    "names swapped": swap(swap(GOOD, b"b.npy", b"a.npy", 1), b"a.npy", b"b.npy", 1),
    "one place for two": TWO(FIRST, SECOND._replace(at=0)),
    "a member inside another": TWO(
        FIRST._replace(packed=FIRST.packed + 50, size=FIRST.size + 50), SECOND
    ),
    "one that is not listed": TWO(FIRST),
    "one that is not listed, in front": TWO(SECOND),
    "a hole between two": build(
        member("a.npy", content=A + b"hidden", packed=len(A)), member("b.npy")
    ),
    "a hole before the directory": build(member("a.npy", content=A + b"hidden", packed=len(A))),
    "a member behind the directory": TWO(FIRST, SECOND._replace(at=10**6)),
    "a member of 2**63 bytes": TWO(FIRST._replace(size=1 << 63, packed=1 << 63), SECOND),
    "a member at 2**63": TWO(FIRST, SECOND._replace(at=1 << 63)),
    "zip64 without its field": swap(GOOD, struct.pack("<II", len(A), len(A)), b"\xff" * 8, 2),
    "zip64 in front only": swap(GOOD, struct.pack("<II", len(A), len(A)), b"\xff" * 8),
    "deflate cut off": build(member("a.npy", method=8, content=raw(A)[:-3])),
    "deflate damaged": build(member("a.npy", method=8, content=b"\xff" + raw(A)[1:])),
    "deflate of nothing": build(member("a.npy", method=8, content=b"")),
    "deflate and more": build(member("a.npy", method=8, content=raw(A) + b"x")),
    "deflate and a lot more": build(member("a.npy", method=8, content=raw(A) + bytes(100))),
    "deflate to more than said": build(member("a.npy", method=8, content=raw(A + b"x"))),
    "deflate to much more than said": build(
        member("a.npy", method=8, content=raw(A + bytes(10**7)))
    ),
    "deflate to less than said": build(member("a.npy", method=8, content=raw(A[:-1]))),
    "deflate to another": build(member("a.npy", method=8, content=raw(A[:-1] + b"x"))),
    "a bomb": build(member("a.npy", method=8, content=raw(bytes(10**7)), size=1 << 40)),
    "spec not JSON": build(member("a.npy"), json_member(b"{nope}")),
    "spec not UTF-8": build(member("a.npy"), json_member(b"\xff")),
    "spec a list": build(member("a.npy"), json_member([])),
    "spec of another version": build(
        member("a.npy"), json_member({"version": 2, "spec": {"dict": {"a": {}}}})
    ),
    "spec with another key": build(
        member("a.npy"), json_member({"version": 1, "spec": {"dict": {"a": {}}}, "x": 1})
    ),
    "spec without a spec": build(member("a.npy"), json_member({"version": 1})),
    "spec for other names": build(
        member("a.npy"), json_member({"version": 1, "spec": {"dict": {"b": {}}}})
    ),
    "spec for more": build(member("0.npy"), json_member({"version": 1, "spec": {"list": 9}})),
    "spec for less": build(member("0.npy"), json_member({"version": 1, "spec": 3})),
    "spec that does not fit": build(
        member("a.npy"), json_member({"version": 1, "spec": {"dict": {"a": {"dtype": "int4"}}}})
    ),
    "spec for a name that is not escaped": build(
        member("../a.npy"), json_member({"version": 1, "spec": {"dict": {"../a": {}}}})
    ),
    "metadata not strings": build(
        member("a.npy"),
        json_member({"version": 1, "spec": {"dict": {"a": {}}}, "metadata": {"a": 1}}),
    ),
    "metadata a list": build(
        member("a.npy"), json_member({"version": 1, "spec": {"dict": {"a": {}}}, "metadata": []})
    ),
    "spec with another checksum": build(
        member("a.npy"), member("tensorwire.json", b'{"version":1,"spec":{"dict":{"a":{}}}}', crc=1)
    ),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_files(name):
    for copy in (None, True):
        with pytest.raises(tw.DecodeError) as caught:
            tw.loads(HOSTILE[name], "npz", copy=copy)
        assert caught.value.format == "npz" and 0 <= caught.value.offset <= len(HOSTILE[name])
    with pytest.raises(tw.DecodeError), tw.open(io.BytesIO(HOSTILE[name]), "npz") as f:
        [f[key].read() for key in f]


def test_the_good_twins():
    expected = np.arange(3, dtype=np.int16)
    both = {"a": expected, "b": expected}
    assert (
        tw.equal(tw.loads(GOOD), both)
        and tw.equal(tw.loads(TWO(FIRST, SECOND)), both)
        and tw.loads(END) == {}
    )
    assert tw.equal(tw.loads(build(member("a.npy", method=8, content=raw(A)))), {"a": expected})
    assert tw.equal(
        tw.loads(build(member("0.npy"), json_member({"version": 1, "spec": {"list": 1}}))),
        [expected],
    )
    descriptor = b"PK\x07\x08" + struct.pack("<III", zlib.crc32(A), len(A), len(A))
    for form in (
        descriptor,
        descriptor[4:],
        b"PK\x07\x08" + struct.pack("<IQQ", zlib.crc32(A), len(A), len(A)),
    ):
        first, content = member("a.npy", content=A + form, flags=8, packed=len(A))
        assert tw.equal(tw.loads(build((first, content), member("b.npy"))), both)


class TestLimits:
    def test_names(self):
        blob = tw.dumps({str(i): np.zeros(1) for i in range(20)}, "npz")
        with pytest.raises(tw.LimitError, match="names"):
            tw.loads(blob, limits=tw.Limits(names=10))

    @pytest.mark.slow
    def test_ratio(self):
        blob = tw.dumps({"a": np.zeros(1_000_000)}, "npz", compression="zlib", level=9)
        # not much, so it may
        assert len(blob) * 200 < 8_000_000 and tw.equal(tw.loads(blob), {"a": np.zeros(1_000_000)})
        with pytest.raises(tw.LimitError, match="expansion"):
            tw.loads(blob, limits=tw.Limits(expansion=1 << 20))
        assert tw.loads(blob, limits=tw.Limits(expansion=1 << 20, expansion_ratio=1100))[
            "a"
        ].shape == (1_000_000,)
        with tw.open(blob, limits=tw.Limits(expansion=1 << 20)) as file:
            assert file["a"].shape == (1_000_000,)
            with pytest.raises(tw.LimitError, match="expansion"):
                file["a"].read()

    def test_ratio_counts_all_members_together(self):
        blob = tw.dumps(
            {str(i): np.zeros(1_000_000) for i in range(3)}, "npz", compression="zlib", level=9
        )
        limits = tw.Limits(expansion=16 << 20)
        with pytest.raises(tw.LimitError, match="expansion"):
            tw.loads(blob, limits=limits)
        with tw.open(blob, limits=limits) as file:  # where each read is a call
            assert [file[name].read().nbytes for name in file] == [8_000_000] * 3
            with pytest.raises(tw.LimitError, match="expansion"):
                file.load()

    def test_spec(self):
        blob = tw.dumps({"a": np.zeros(1)}, "npz", metadata={"a": "b" * 1000})
        with pytest.raises(tw.LimitError, match="safetensors_header"):
            tw.loads(blob, limits=tw.Limits(safetensors_header=1000))

    def test_header(self):
        header = b"{'descr': '<i2', 'fortran_order': False, 'shape': (2,), }" + b" " * 70_000
        blob = zipped(
            {"a.npy": b"\x93NUMPY\x02\0" + struct.pack("<I", len(header)) + header + b"abcd"}
        )
        with pytest.raises(tw.LimitError, match="npy_header"):
            tw.loads(blob)
        assert tw.loads(blob, limits=tw.Limits(npy_header=1 << 20))["a"].shape == (2,)


BOMBS = """
import resource, sys, zlib
sys.path.insert(0, {tests!r})
import numpy as np, tensorwire as tw
from support.npz_files import build, member, raw, npy
tw.loads(tw.dumps({{"a": np.zeros(3)}}, "npz", compression="zlib"))
head = npy(np.zeros(0)).replace(b"(0,), }}", b"(134217728,), }}")[:128]
assert len(head) == 128
zeros = raw(bytes(16 << 20))
bombs = [
    build(member("a.npy", method=8, content=raw(head), size=128 + (1 << 30))),             # a gigabyte by a tiny stream
    build(member("a.npy", method=8, content=raw(head + bytes(10**7)), size=128 + 10**6)),  # more than it says
    build(*(member(f"{{i}}.npy", method=8, content=zeros, size=16 << 20) for i in range(64))),
    build(member("tensorwire.json", method=8, content=raw(bytes(90_000_000)), size=90_000_000)),
    build(member("a.npy", data=head)),                                                     # a gigabyte that is not there
]
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
refused = 0
for bomb in bombs:
    try:
        tw.loads(bomb, "npz")
    except tw.DecodeError:
        refused += 1
print(refused, (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024)
"""


@pytest.mark.slow
def test_bombs_cost_little_memory():
    code = BOMBS.format(tests=str(TESTS))
    refused, extra = map(
        int,
        subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True
        ).stdout.split(),
    )
    assert refused == 5 and extra <= 64


class Chunks(io.RawIOBase):
    """Buffers as one file that can be read anywhere, without joining them."""

    def __init__(self, chunks):
        self.views = [
            memoryview(chunk).cast("B") if len(chunk) else memoryview(b"") for chunk in chunks
        ]
        self.size, self.at = sum(map(len, self.views)), 0

    def seekable(self):
        return True

    def readable(self):
        return True

    def seek(self, offset, whence=0):
        self.at = offset + (0, self.at, self.size)[whence]
        return self.at

    def tell(self):
        return self.at

    def readinto(self, buffer):
        want, done, start = memoryview(buffer).cast("B"), 0, 0
        for view in self.views:
            if start <= self.at < start + len(view) and done < len(want):
                piece = view[self.at - start : self.at - start + len(want) - done]
                want[done : done + len(piece)] = piece
                done, self.at = done + len(piece), self.at + len(piece)
            start += len(view)
        return done


class TestZip64:
    @pytest.mark.slow
    def test_many_members(self):
        value = dict.fromkeys(map(str, range(65_536)), np.array(7, np.int32))
        blob = tw.dumps(value, "npz")
        with zipfile.ZipFile(io.BytesIO(blob)) as found:
            assert len(found.infolist()) == 65_536
        assert tw.equal(tw.loads(blob), value)
        one = Member(b"a", 0, 0, 0, 0, 0)
        assert [b"PK\x06\x06" in archive.end([one] * count, 0) for count in (65_534, 65_535)] == [
            False,
            True,
        ]

    def test_zip64_of_zipfile_with_a_small_end(self):
        """zipfile writes zip64 ends past 2 GiB, where the plain end still has the numbers."""
        blob = build(member("a.npy"))
        at = blob.index(b"PK\x01\x02")
        size = len(blob) - 22 - at
        ends = struct.pack(
            "<4sQ2H2I4Q", b"PK\x06\x06", 44, 45, 45, 0, 0, 1, 1, size, at
        ) + struct.pack("<4sIQI", b"PK\x06\x07", 0, at + size, 1)
        both = blob[:-22] + ends + blob[-22:]
        assert list(loaded(both)) == ["a"] and tw.equal(tw.loads(both), tw.loads(blob))
        for flip in range(len(ends)):
            found = damaged_value(both, len(blob) - 22 + flip, 0)
            assert found is None or tw.equal(found, tw.loads(blob))

    @pytest.mark.large
    def test_more_than_4_gib(self):
        """Of zeros, which take no memory until they are written to, and nothing is joined."""
        huge = np.zeros((1 << 32) + 1000, np.uint8)
        value = {"small": np.arange(3), "huge": huge, "behind": np.arange(5.0)}
        chunks = tw.buffers(value, "npz")
        file = Chunks(chunks)
        assert file.size > 1 << 32
        with zipfile.ZipFile(io.BufferedReader(file)) as found:
            info = found.getinfo("huge.npy")
            assert (
                info.file_size == info.compress_size == len(huge) + 128
                and found.getinfo("behind.npy").header_offset > 1 << 32
            )
            with found.open("behind.npy") as inside:
                assert tw.equal(np.load(io.BytesIO(inside.read())), value["behind"])
        with tw.open(file) as f:
            assert f["huge"].shape == huge.shape and f["huge"][-5:].tolist() == [0] * 5
            assert tw.equal(f["behind"].read(), value["behind"]) and tw.equal(
                f["small"].read(), value["small"]
            )

    def test_the_headers_of_large_members(self):
        """Without the data: what the writer says, read back by the reader."""
        large = Member(b"x.npy", 8, 7, (1 << 32) + 5, 1 << 40, 0)
        header = archive.local(large)
        at = len(header) + large.packed
        behind = Member(b"y.npy", 0, 8, 10, 10, at)
        directory = at + len(archive.local(behind)) + 10
        tail = archive.end([large, behind], directory)

        def read(place, count):
            known = {0: header, at: archive.local(behind), directory: tail}
            start = max(begin for begin in known if begin <= place)
            return known[start][place - start : place - start + count]

        total = directory + len(tail)
        found = archive.members(
            lambda place, count: (
                (bytes(count) + tail)[-count:] if place + count == total else read(place, count)
            ),
            total,
            9,
        )
        assert [one._replace(stop=0) for one in found] == [large, behind] and [
            one.stop for one in found
        ] == [at, directory]
        assert archive.data_at(read, found[0]) == len(header)
