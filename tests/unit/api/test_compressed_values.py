"""`compression=`, `per_tensor=` and `shuffle=` in dumps, loads, save, load, open, inspect and
verify.
"""

import gzip
import importlib
import json
import warnings
import zlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tensorwire as tw
from tensorwire import lowering
from tensorwire.codecs import identify
from tensorwire.testing import strategies as tws
from tensorwire.transforms.compression import NAMES, SUFFIXES
from tensorwire.transforms.compression.packing import Packing

SMOOTH = (
    np.round(8 * np.cumsum(np.random.default_rng(3).standard_normal((3000, 200)), 0)) / 8
).astype(np.float32)
MARKED = ("gzip", "zstd", "lz4")
STREAMS = [
    name
    for name, row in tw.formats().items()
    if row.writes and row.recognised and not row.compressions and name != "json"
]


def value():
    return {
        "x": SMOOTH,
        "few": np.arange(3),
        "ragged": tw.Ragged(np.arange(9000), np.array([0, 4000, 4000, 9000])),
        "words": tw.Strings.of([f"word {i}" for i in range(2000)]),
        "sparse": tw.Sparse(
            np.stack([np.arange(500), np.arange(500)], 1), np.arange(500.0), (500, 500)
        ),
        "n": 7,
    }


class TestWholeStreams:
    @pytest.mark.parametrize("name", NAMES)
    @pytest.mark.parametrize("format", STREAMS)
    def test_every_format(self, name, format):
        blob = tw.dumps(value(), format, compression=name)
        assert len(blob) < sum(part.nbytes for part in lowering.lower(value()).parts)
        found = tw.loads(blob, format, name)
        assert tw.equal(found, value())
        if name in MARKED:
            assert tw.equal(tw.loads(blob), value()) and tw.equal(
                tw.loads(blob, (format, "raw")), value()
            )
        assert (
            not found["x"].flags.writeable
            and tw.loads(blob, format, name, copy=True)["x"].flags.writeable
        )
        with pytest.raises(tw.DecodeError, match="compressed"):
            tw.loads(blob, format, name, copy=False)

    def test_others_read_the_stream(self):
        lz4, zstd = importlib.import_module("lz4.frame"), importlib.import_module("backports.zstd")
        plain = tw.dumps({"x": SMOOTH})
        inverse = {
            "gzip": gzip.decompress,
            "zlib": zlib.decompress,
            "zstd": zstd.decompress,
            "lz4": lz4.decompress,
        }
        for name, read in inverse.items():
            assert read(tw.dumps({"x": SMOOTH}, compression=name)) == plain
        for name, write in {
            "gzip": gzip.compress,
            "zstd": zstd.compress,
            "lz4": lz4.compress,
        }.items():
            assert tw.equal(tw.loads(write(plain)), {"x": SMOOTH}), name

    def test_levels_and_threads(self):
        small, quick = (tw.dumps(value(), compression="zstd", level=level) for level in (12, 1))
        assert len(small) < len(quick) and tw.equal(tw.loads(small), value())
        for name in ("gzip", "zstd", "lz4", "snappy"):
            assert tw.dumps(value(), compression=name, threads=1) == tw.dumps(
                value(), compression=name, threads=2
            )

    @pytest.mark.parametrize("suffix", SUFFIXES)
    def test_a_name_says_it(self, suffix, tmp_path):
        path = tmp_path / f"x.safetensors{suffix}"
        tw.save(path, {"x": SMOOTH})
        assert path.stat().st_size < SMOOTH.nbytes
        back = tw.load(path)
        assert tw.equal(back, {"x": SMOOTH}) and back["x"].flags.writeable
        assert tw.equal(tw.load(path, names=["x"]), {"x": SMOOTH})
        assert (
            tw.inspect(path).compression == SUFFIXES[suffix]
            and tw.inspect(path).tensors[0].shape == SMOOTH.shape
        )
        found = tw.verify(path)
        assert found and found.checksums is (SUFFIXES[suffix] != "snappy")

    def test_a_name_that_says_something_else(self, tmp_path):
        with pytest.raises(tw.EncodeError, match="the name of the file says"):
            tw.save(tmp_path / "x.safetensors.zst", SMOOTH, compression="gzip")
        with pytest.raises(tw.EncodeError, match="the name of the file says"):
            tw.save(tmp_path / "x.safetensors.zst", SMOOTH, compression="zstd", per_tensor=True)
        with pytest.raises(tw.EncodeError, match="compresses by itself"):
            tw.save(tmp_path / "x.npz.gz", {"x": SMOOTH})
        assert not list(tmp_path.iterdir())

    def test_open_says_that_it_cannot_be_lazy(self, tmp_path):
        tw.save(tmp_path / "x.safetensors.zst", value())
        with (
            pytest.warns(UserWarning, match="compressed as a whole"),
            tw.open(tmp_path / "x.safetensors.zst") as file,
        ):
            assert not file.lazy and file.compression == "zstd" and "read whole" in repr(file)
            assert tw.equal(file["x"][10:12], SMOOTH[10:12]) and tw.equal(file.load(), value())
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            tw.inspect(tmp_path / "x.safetensors.zst")
            tw.verify(tmp_path / "x.safetensors.zst")
            tw.load(tmp_path / "x.safetensors.zst", names=["x"])

    @pytest.mark.parametrize("name", MARKED)
    def test_no_flip_yields_another_value(self, name):
        small = {"x": np.arange(40, dtype=np.int16), "t": tw.Strings.of(["a", "b"])}
        blob = tw.dumps(small, compression=name)
        for at in range(len(blob)):
            for bit in range(8):
                damaged = blob[:at] + bytes([blob[at] ^ 1 << bit]) + blob[at + 1 :]
                try:
                    found = tw.loads(damaged, "safetensors", name)
                except tw.DecodeError as error:
                    assert error.offset is not None
                else:
                    assert tw.equal(found, small)
        for cut in range(len(blob)):
            with pytest.raises(tw.DecodeError):
                tw.loads(blob[:cut], "safetensors", name)
        with pytest.raises(tw.DecodeError):
            tw.loads(blob + b"x", "safetensors", name)

    def test_a_bomb(self):
        bomb = gzip.compress(bytes(400 << 20))
        with pytest.raises(tw.LimitError, match="expansion"):
            tw.loads(bomb)
        # what we write, we read
        assert (
            tw.loads(tw.dumps(np.zeros(250 << 20, np.uint8), compression="zstd")).nbytes
            == 250 << 20
        )

    def test_raw_is_never_guessed(self):
        data = np.frombuffer(gzip.compress(b"hello"), np.uint8)
        assert tw.equal(tw.loads(tw.dumps(data, "raw"), "raw", dtype="uint8"), data)
        assert tw.equal(
            tw.loads(
                tw.dumps(SMOOTH, "raw", compression="zstd"),
                "raw",
                "zstd",
                dtype="float32",
                shape=SMOOTH.shape,
            ),
            SMOOTH,
        )

    def test_a_header_that_looks_like_gzip(self):
        head = (559_903).to_bytes(8, "little") + b"{"
        assert (
            identify.compression_of(head) is None
            and identify.compression_of(head[:8] + b"\0") == "gzip"
        )

    def test_records_and_tensors_are_told_apart(self, tmp_path):
        for suffix in ("gz", "zst", "lz4"):
            with tw.RecordWriter(
                tmp_path / "records", compression=SUFFIXES["." + suffix]
            ) as writer:
                writer.write(b"hello" * 1000)
            assert tw.inspect(tmp_path / "records").json()["records"] == 1
            tw.save(tmp_path / f"x.safetensors.{suffix}", {"x": SMOOTH})
            assert tw.inspect(tmp_path / f"x.safetensors.{suffix}").format == "safetensors"

    def test_streams_and_files_objects(self, tmp_path):
        with open(tmp_path / "stream", "wb") as file:
            tw.write(file, value(), compression="lz4")
            tw.write(file, 7, compression="gzip")
        with open(tmp_path / "stream", "rb") as file:
            assert tw.equal(tw.read(file), value()) and tw.read(file) == 7


class TestPerTensor:
    @pytest.mark.parametrize("name", [None, *NAMES])
    @pytest.mark.parametrize("shuffle", [False, True])
    def test_every_compression(self, name, shuffle, tmp_path):
        if name is None and not shuffle:
            return
        options = {"shuffle": shuffle} | ({"compression": name, "per_tensor": True} if name else {})
        tw.save(tmp_path / "x.safetensors", value(), **options)
        assert tw.equal(tw.load(tmp_path / "x.safetensors"), value())
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            file = tw.open(tmp_path / "x.safetensors")
        with file:
            assert file.lazy and file.compression is None
            assert file["x"].compression == ", ".join(
                [*([name] if name else []), *(["shuffled"] if shuffle else [])]
            )
            assert file["few"].compression is None
            for rows in (
                slice(0, 3),
                slice(1300, 1311),
                slice(2999, 3000),
                slice(5, 5),
                slice(None),
            ):
                assert tw.equal(file["x"][rows], SMOOTH[rows])
            assert file["words"][1500] == "word 1500" and tw.equal(
                file["ragged"][2:3].values, np.arange(4000, 9000)
            )
            assert tw.equal(file["sparse"][490:495].values, np.arange(490.0, 495.0))
        summary = tw.inspect(tmp_path / "x.safetensors")
        assert (
            summary.tensors[0].compression
            and summary.compression is None
            and (name or "shuffled") in str(summary)
        )
        json.dumps(summary.json())
        assert tw.verify(tmp_path / "x.safetensors")

    def test_rows_read_only_their_blocks(self, tmp_path):
        tw.save(tmp_path / "x.safetensors", {"x": SMOOTH}, compression="zstd", per_tensor=True)
        source = Counting((tmp_path / "x.safetensors").read_bytes())
        with tw.open(source) as file:
            source.count = 0
            assert tw.equal(file["x"][1500:1501], SMOOTH[1500:1501])
            assert 0 < source.count < 1.5 * (1 << 20)

    def test_shuffle_pays(self):
        plain, shuffled = (
            tw.dumps({"x": SMOOTH}, compression="zstd", per_tensor=True, shuffle=shuffle)
            for shuffle in (False, True)
        )
        assert len(shuffled) < 0.9 * len(plain)
        assert len(tw.dumps({"x": SMOOTH}, compression="zstd", shuffle=True)) < 0.9 * len(
            tw.dumps({"x": SMOOTH}, compression="zstd")
        )

    def test_the_package_reads_the_file(self):
        from safetensors.numpy import load

        found = load(
            tw.dumps({"x": SMOOTH, "few": np.arange(3)}, compression="zstd", per_tensor=True)
        )
        assert (
            found["x"].dtype == np.uint8
            and found["x"].ndim == 1
            and found["few"].tolist() == [0, 1, 2]
        )

    def test_what_does_not_shrink_stays(self):
        noise = np.random.default_rng(0).integers(0, 256, 5000, np.uint8)
        assert tw.dumps({"x": noise}, compression="zstd", per_tensor=True) == tw.dumps({"x": noise})

    def test_with_quantization_checksum_and_metadata(self):
        bundle = tw.Bundle({"x": SMOOTH}, {"model": "m"}, {"x": {"device": "cpu"}})
        blob = tw.dumps(
            bundle,
            compression="zstd",
            per_tensor=True,
            shuffle=True,
            quantize="int8",
            axis=1,
            checksum=True,
        )
        back = tw.loads(blob)
        assert back.metadata == {"model": "m"} and tw.equal(
            back["x"], tw.dequantize(tw.quantize(SMOOTH, "int8", 1))
        )
        with tw.open(blob) as file:
            assert (
                file.metadata == {"model": "m"} and file.checksums and file["x"].quantized == "int8"
            )
            assert tw.equal(file["x"][7:9], back["x"][7:9])
        for at in range(len(blob) - 3000, len(blob), 97):
            with pytest.raises(tw.DecodeError):
                tw.loads(blob[:at] + bytes([blob[at] ^ 1]) + blob[at + 1 :], "safetensors")

    def test_memory_rules(self):
        blob = tw.dumps({"x": SMOOTH}, compression="zstd", per_tensor=True)
        assert (
            not tw.loads(blob)["x"].flags.writeable
            and tw.loads(blob, copy=True)["x"].flags.writeable
        )


class TestRefusals:
    @pytest.mark.parametrize("options", [{"level": 3}, {"threads": 2}, {"per_tensor": True}])
    def test_how_without_what(self, options):
        with pytest.raises(TypeError, match="compression="):
            tw.dumps(SMOOTH, **options)

    @pytest.mark.parametrize(
        "options", [{"compression": "zstd", "per_tensor": True}, {"shuffle": True}]
    )
    def test_formats_that_cannot(self, options):
        with pytest.raises(tw.EncodeError, match="safetensors"):
            tw.dumps(SMOOTH, "tensorproto", **options)

    def test_names(self):
        with pytest.raises(tw.UnknownFormatError, match="did you mean 'zstd'"):
            tw.dumps(SMOOTH, compression="zst")
        with pytest.raises(tw.UnknownFormatError, match="unknown compression"):
            tw.loads(b"", compression="brotli")


@settings(max_examples=100, deadline=None)
@given(tws.values(), st.sampled_from(NAMES), st.booleans(), st.booleans())
def test_any_value(found, name, per_tensor, shuffle):
    try:
        blob = tw.dumps(found, compression=name, per_tensor=per_tensor, shuffle=shuffle)
    except tw.EncodeError:
        return
    assert tw.equal(tw.loads(blob, "safetensors", None if per_tensor else name), found)


class TestLies:
    """Specs that no writer of ours makes."""

    def packed(self):
        spec, parts = lowering.lower({"x": SMOOTH, "few": np.arange(3)})
        packer = lowering.Packer(Packing("zstd", shuffle=True))
        stored = [packer.add(part) for part in parts]
        spec = packer.spec(spec)
        assert lowering.is_packed(spec)
        pairs = zip(parts, stored, strict=True)
        return spec, [part if packed is None else packed for part, packed in pairs]

    @pytest.mark.parametrize(
        "change",
        [
            {"dtype": "float64"},
            {"dtype": "float99"},
            {"dtype": None},
            {"shape": [3000, 201]},
            {"shape": [-3000, -200]},
            {"shape": [1 << 62, 4]},
            {"shape": "ab"},
            {"shape": [1.5]},
            {"compression": "gzip"},
            {"compression": []},
            {"shuffle": 8},
            {"shuffle": "4"},
            {"block": 0},
            {"block": 1 << 40},
            {"sizes": [1]},
            {"sizes": [-5, 10, 3]},
            {"sizes": None},
            {"strange": 1},
        ],
    )
    def test_entries(self, change):
        spec, parts = self.packed()
        spec["parts"][0] = spec["parts"][0] | change
        with pytest.raises(tw.DecodeError):
            lowering.lift(spec, parts)

    @pytest.mark.parametrize("entries", [None, [], [None], {}, 5, [5, None], [{}, None]])
    def test_lists(self, entries):
        spec, parts = self.packed()
        with pytest.raises(tw.DecodeError):
            lowering.lift(spec | {"parts": entries}, parts)

    def test_parts(self):
        spec, parts = self.packed()
        for part in (
            parts[0].astype(np.int16),
            parts[0][:-1],
            parts[0].reshape(1, -1),
            np.zeros(5, np.uint8),
        ):
            with pytest.raises(tw.DecodeError):
                lowering.lift(spec, [part, parts[1]])

    def test_packed_inside_packed(self):
        spec, parts = self.packed()
        with pytest.raises(tw.DecodeError):
            lowering.lift({"packed": spec, "parts": [None, None]}, parts)


class Counting:
    """A file object that counts what is read of it."""

    def __init__(self, data):
        self.data, self.at, self.count = data, 0, 0

    def seek(self, offset, whence=0):
        self.at = offset + (len(self.data) if whence == 2 else 0)
        return self.at

    def read(self, size):
        found = self.data[self.at : self.at + size]
        self.at += len(found)
        self.count += len(found)
        return found
