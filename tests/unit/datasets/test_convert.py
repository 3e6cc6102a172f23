"""tw.convert: any tensor file to any other; names, dtypes and shards as asked for; the largest
tensor in memory and no more.
"""

import importlib
import json
import os
import subprocess
import sys

import ml_dtypes
import numpy as np
import pytest

import tensorwire as tw
from tensorwire import storage
from tensorwire.api import rename_rules
from tensorwire.datasets import tensor_files

HOLD_ALL = [
    name for name, row in tw.formats().items() if row.writes and name not in ("raw", "parquet")
]


def value():
    rng = np.random.default_rng(7)
    return {
        "a": rng.standard_normal((3, 4), np.float32),
        "bf": np.arange(5).astype(ml_dtypes.bfloat16),
        "i4": np.arange(-3, 4).astype(ml_dtypes.int4),
        "c": np.array([1 + 2j, 3], np.complex128),
        "none": np.zeros((0, 3), np.int16),
        "scalar": np.float64(0.25).reshape(()),
        "flags": np.array([True, False]),
        "words": tw.Strings.of(["x", "", "Straße"]),
        "blobs": tw.Strings.of([b"\xff", b""]),
        "ragged": tw.Ragged.of([[1.5], [2.0, 3.0], []]),
        "sparse": tw.Sparse([[0, 1], [2, 3]], np.float32([2.5, -1]), (3, 4)),
        "nested": [np.arange(3), {"k": 7, "nan": float("nan"), "t": (np.ones(2),)}],
        "codes": tw.quantize(rng.standard_normal((4, 3), np.float32), "int8", axis=0),
        "step": 3,
    }


def save(path, content, *rest, **options):
    tw.save(path, content, *rest, durable=False, **options)
    return path


def names(path):
    return sorted(os.listdir(path))


def test_what_it_writes_is_what_save_writes(tmp_path):
    """Byte for byte, whatever the value: the streaming writers are the codecs' twins."""
    source = save(tmp_path / "a.safetensors", value(), metadata={"model": "nmt"})
    for format in HOLD_ALL:
        made, saved = tmp_path / f"made.{format}", tmp_path / f"saved.{format}"
        metadata = {"model": "nmt"} if tw.formats()[format].metadata else None
        report = tw.convert(source, made, format, durable=False)
        save(saved, value(), format, metadata=metadata)
        assert (
            report.tensors == 14
            and report.renamed == report.cast == report.left_out == 0
            and report.to == format
        )
        # which has the order of its keys, and is compared as what it holds
        if format != "checkpoint":
            assert made.read_bytes() == saved.read_bytes(), format
        else:
            assert tw.equal(tw.load(made, format), tw.load(saved, format))


@pytest.mark.compress
@pytest.mark.parametrize(
    "options",
    [
        {"checksum": True},
        {"quantize": "int8"},
        {"quantize": {"a": "float16"}},
        {"quantize": "uint8", "axis": 1},
        {"compression": "gzip"},
        {"compression": "zstd", "level": 5},
        {"compression": "zstd", "per_tensor": True},
        {"compression": "lz4", "per_tensor": True, "shuffle": True, "checksum": True},
        {"shuffle": True},
    ],
)
def test_options_of_save(tmp_path, options):
    rng = np.random.default_rng(1)
    content = {
        "a": rng.standard_normal((64, 64), np.float32),
        "b": np.arange(5000),
        "r": tw.Ragged.of([[1.5], [2.0]]),
        "n": 3,
    }
    source = save(tmp_path / "a.npz", content)
    tw.convert(source, tmp_path / "made.safetensors", **options)
    save(tmp_path / "saved.safetensors", content, **options)
    assert (tmp_path / "made.safetensors").read_bytes() == (
        tmp_path / "saved.safetensors"
    ).read_bytes()
    assert names(tmp_path) == ["a.npz", "made.safetensors", "saved.safetensors"]


@pytest.mark.parametrize(
    "suffix", [".safetensors", ".npz", ".arrow", ".tensor", ".ckpt", ".npy", ".pb", ".json"]
)
@pytest.mark.parametrize("back", [".safetensors", ".npz", ".arrow", ".ckpt"])
def test_there_and_back(tmp_path, suffix, back):
    first = save(tmp_path / f"a{back}", value())
    tw.convert(first, tmp_path / f"b{suffix}", durable=False)
    tw.convert(tmp_path / f"b{suffix}", tmp_path / f"c{back}", durable=False)
    found = tw.load(tmp_path / f"c{back}")
    assert tw.equal(found, tw.loads(tw.dumps(value())))
    assert tw.diff(first, tmp_path / f"c{back}").equal


def test_tables(tmp_path):
    importlib.import_module("pyarrow")
    columns = {
        "id": np.arange(4),
        "x": np.ones((4, 2), np.float32),
        "t": tw.Ragged.of([[1], [2, 3], [], [4]]),
    }
    save(tmp_path / "a.npz", columns)
    tw.convert(tmp_path / "a.npz", tmp_path / "b.parquet")
    tw.convert(tmp_path / "b.parquet", tmp_path / "c.arrow")
    assert tw.equal(tw.load(tmp_path / "c.arrow"), columns)


def test_bundles_keep_their_texts(tmp_path):
    bundle = tw.Bundle(
        {"a": np.arange(3), "b": np.zeros(2)}, {"model": "x"}, {"a": {"device": "gpu:0"}}
    )
    for first, second in (
        (".safetensors", ".npz"),
        (".npz", ".arrow"),
        (".arrow", ".safetensors"),
        (".safetensors", ".ckpt"),
    ):
        save(tmp_path / f"a{first}", bundle)
        tw.convert(
            tmp_path / f"a{first}", tmp_path / f"b{second}", metadata={"more": "y"}, overwrite=True
        )
        expected = tw.Bundle(bundle, {"model": "x", "more": "y"}, bundle.tensor_metadata)
        assert tw.equal(tw.load(tmp_path / f"b{second}"), expected)
    tw.convert(tmp_path / "a.npz", tmp_path / "c.npz", rename="s/^a$/z/")
    assert tw.load(tmp_path / "c.npz").tensor_metadata == {"z": {"device": "gpu:0"}}


def test_tied_tensors_stay_tied(tmp_path):
    torch = importlib.import_module("torch")
    weight = torch.ones(3, 2)
    save(tmp_path / "a.safetensors", {"one": weight, "two": weight, "other": torch.zeros(1)})
    tw.convert(tmp_path / "a.safetensors", tmp_path / "b.npz")
    found = tw.load(tmp_path / "b.npz")
    assert found["one"] is found["two"] and list(np.load(tmp_path / "b.npz").files) == [
        "one",
        "other",
        "tensorwire.json",
    ]
    tw.convert(tmp_path / "a.safetensors", tmp_path / "c.npz", include=["two"])
    assert np.load(tmp_path / "c.npz")["two"].shape == (3, 2)
    tw.convert(tmp_path / "a.safetensors", tmp_path / "d.npz", dtype={"two": "float16"})
    found = tw.load(tmp_path / "d.npz")
    assert found["one"].dtype == np.float32 and found["two"].dtype == np.float16
    tw.convert(tmp_path / "a.safetensors", tmp_path / "e.safetensors", shard_size="1KB")
    assert set(tw.open(tmp_path / "e.safetensors")) == {"one", "two", "other"}


def test_one_dense_tensor_is_numpys_own_file(tmp_path):
    save(tmp_path / "a.safetensors", {"w": np.arange(6.0).reshape(2, 3), "b": np.zeros(2)})
    tw.convert(tmp_path / "a.safetensors", tmp_path / "w.npy", include="w")
    assert np.load(tmp_path / "w.npy").shape == (2, 3) and list(tw.open(tmp_path / "w.npy")) == [
        "w"
    ]
    tw.convert(tmp_path / "a.safetensors", tmp_path / "w.raw", include="w")
    assert np.fromfile(tmp_path / "w.raw").tolist() == [0, 1, 2, 3, 4, 5]
    tw.convert(tmp_path / "w.npy", tmp_path / "w.npz")
    assert np.load(tmp_path / "w.npz")["w"].shape == (2, 3)
    save(tmp_path / "lone.npy", np.arange(3))
    tw.convert(tmp_path / "lone.npy", tmp_path / "lone.safetensors")
    assert tw.load(tmp_path / "lone.safetensors").tolist() == [0, 1, 2]


class TestNames:
    @pytest.mark.parametrize(
        ("text", "name", "expected"),
        [
            (r"s/^model\.//", "model.a.model.b", "a.model.b"),
            ("s#/#.#g", "a/b/c", "a.b.c"),
            ("s/A/x/", "banana", "banana"),
            ("s/A/x/gi", "banana", "bxnxnx"),
            (r"s/layer_(\d+)/h\.\1/", "layer_12/w", "h.12/w"),
            (r"s/(\d+)/[&]/", "w12", "w[12]"),
            (r"s/x/\&/", "x", "&"),
            (r"s/a\/b/c\/d/", "a/b/e", "c/d/e"),
            (r"s|\||-|", "a|b", "a-b"),
            ("s/x$//", "a.x", "a."),
        ],
    )
    def test_rules(self, text, name, expected):
        assert rename_rules.rule(text)(name) == expected

    @pytest.mark.parametrize(
        "text",
        [
            "",
            "s",
            "x/a/b/",
            "s/a/b",
            "s/a/b/q",
            "s/(/b/",
            r"s/a/\1/",
            "sxaxbx",
            "s/a/b/c/d",
            r"s\a\b\ ",
        ],
    )
    def test_what_is_no_rule(self, text):
        with pytest.raises(ValueError, match="invalid rename rule"):
            rename_rules.rule(text)

    def test_renaming(self, tmp_path):
        save(
            tmp_path / "a.npz", {"model.w": np.ones(2), "model.b": np.zeros(2), "step": np.int64(4)}
        )
        several = [r"s/^model\.//", {"step": "global_step"}, str.upper]
        report = tw.convert(tmp_path / "a.npz", tmp_path / "b.safetensors", rename=several)
        assert (
            list(tw.open(tmp_path / "b.safetensors")) == ["W", "B", "GLOBAL_STEP"]
            and report.renamed == 3
        )
        assert [entry.source for entry in report.entries] == ["model.w", "model.b", "step"]

    def test_two_that_become_one(self, tmp_path):
        save(tmp_path / "a.npz", {"x.w": np.ones(2), "y.w": np.zeros(2)})
        with pytest.raises(tw.SchemaError, match=r"'x\.w' and 'y\.w' would both be called 'w'"):
            tw.convert(tmp_path / "a.npz", tmp_path / "b.npz", rename="s/^..//")
        with pytest.raises(tw.SchemaError, match="which is not a name"):
            tw.convert(tmp_path / "a.npz", tmp_path / "b.npz", rename="s/^x.*//")
        with pytest.raises(tw.SchemaError, match=r"did you mean 'x\.w'"):
            tw.convert(tmp_path / "a.npz", tmp_path / "b.npz", rename={"x_w": "z"})
        assert names(tmp_path) == ["a.npz"]

    def test_choosing(self, tmp_path):
        save(
            tmp_path / "a.npz",
            {"enc": {"w": np.ones(2), "b": np.zeros(1)}, "dec": [np.ones(3), 5], "n": 1},
        )
        report = tw.convert(
            tmp_path / "a.npz", tmp_path / "b.npz", include=["enc/*", "dec/*"], exclude="*/b"
        )
        assert tw.equal(
            tw.load(tmp_path / "b.npz"), {"enc/w": np.ones(2), "dec/0": np.ones(3), "dec/1": 5}
        )
        assert report.left_out == 1 and report.tensors == 2
        for given in (
            {"include": "none*"},
            {"exclude": "*"},
            {"dtype": {"none": "float16"}},
            {"quantize": {"none": "int8"}},
        ):
            with pytest.raises(tw.SchemaError):
                tw.convert(tmp_path / "a.npz", tmp_path / "c.npz", **given)
        assert names(tmp_path) == ["a.npz", "b.npz"]


class TestCasts:
    def test_floats_only(self, tmp_path):
        content = {
            "w": np.float32([1, 1e-10, 1e6]),
            "d": np.arange(3.0),
            "ids": np.arange(3),
            "flag": np.array([True]),
            "c": np.complex64([1j]),
        }
        content |= {
            "r": tw.Ragged.of([[1.5], [2.0]]),
            "s": tw.Sparse([[0]], np.float32([3]), (2,)),
            "t": tw.Strings.of(["x"]),
        }
        save(tmp_path / "a.npz", content)
        report = tw.convert(tmp_path / "a.npz", tmp_path / "b.safetensors", dtype="bfloat16")
        found = tw.load(tmp_path / "b.safetensors")
        assert report.cast == 4 and {name: str(tw.open(tmp_path / "b.safetensors")[name].dtype) for name in content} == {
            "w": "bfloat16", "d": "bfloat16", "ids": "int64", "flag": "bool", "c": "complex64", "r": "bfloat16", "s": "bfloat16",
            "t": "text",
        }  # fmt: skip
        assert tw.equal(found["w"], content["w"].astype(ml_dtypes.bfloat16)) and tw.equal(
            found["ids"], content["ids"]
        )

    def test_by_pattern(self, tmp_path):
        save(
            tmp_path / "a.npz",
            {
                "x.weight": np.ones(2),
                "y.weight": np.ones(2),
                "x.bias": np.ones(2),
                "n.weight": np.arange(2),
                "ids": np.arange(3),
            },
        )
        tw.convert(
            tmp_path / "a.npz",
            tmp_path / "b.npz",
            dtype={"y.weight": "float64", "*.weight": "float16", "ids": "int32"},
        )
        with tw.open(tmp_path / "b.npz") as f:
            assert [str(t.dtype) for t in f.values()] == [
                "float16",
                "float64",
                "float64",
                "int64",
                "int32",
            ]

    def test_integers_lose_nothing(self, tmp_path):
        save(
            tmp_path / "a.npz", {"n": np.array([1, 300]), "f": np.array([1.5]), "c": np.array([1j])}
        )
        for dtype in ({"n": "int8"}, {"f": "int32"}, {"c": "float32"}):
            with pytest.raises(tw.EncodeError):
                tw.convert(tmp_path / "a.npz", tmp_path / "b.npz", dtype=dtype)
        assert names(tmp_path) == ["a.npz"]
        tw.convert(tmp_path / "a.npz", tmp_path / "b.npz", dtype={"n": "float32"})
        assert tw.load(tmp_path / "b.npz")["n"].dtype == np.float32

    def test_what_is_quantized(self, tmp_path):
        x = np.random.default_rng(0).standard_normal((8, 5), np.float32)
        save(tmp_path / "a.safetensors", {"x": x}, quantize="int8", axis=0)
        tw.convert(tmp_path / "a.safetensors", tmp_path / "b.npz")
        assert tw.open(tmp_path / "b.npz")["x"].quantized == "int8" and tw.equal(
            tw.load(tmp_path / "b.npz"), tw.load(tmp_path / "a.safetensors")
        )
        tw.convert(tmp_path / "a.safetensors", tmp_path / "c.npz", dtype="float16")
        found = tw.load(tmp_path / "c.npz")["x"]
        assert found.dtype == np.float16 and np.abs(found - x).max() < 0.05


class TestShards:
    def content(self):
        return {f"h.{i}.w": np.full((10, 10), i, np.float32) for i in range(7)} | {
            "big": np.zeros(600, np.float32)
        }

    def test_as_the_hub_has_them(self, tmp_path):
        from safetensors import safe_open

        save(tmp_path / "a.npz", self.content())
        report = tw.convert(tmp_path / "a.npz", tmp_path / "model.safetensors", shard_size="1KB")
        shards = [f"model-0000{i + 1}-of-00005.safetensors" for i in range(5)]
        assert names(tmp_path) == ["a.npz", *shards, "model.safetensors.index.json"]
        assert [os.path.basename(path) for path in report.files] == [
            *shards,
            "model.safetensors.index.json",
        ]
        text = (tmp_path / "model.safetensors.index.json").read_text()
        index = json.loads(text)
        assert text == json.dumps(index, indent=2, sort_keys=True) + "\n"
        assert index["metadata"] == {"total_size": 7 * 400 + 2400} and set(
            index["weight_map"]
        ) == set(self.content())
        found = {}
        for shard in shards:
            with safe_open(tmp_path / shard, "np") as f:
                assert f.metadata() == {"format": "pt"}
                assert all(index["weight_map"][name] == shard for name in f.keys())  # noqa: SIM118
                found |= {name: f.get_tensor(name) for name in f.keys()}  # noqa: SIM118
        assert tw.equal({name: found[name] for name in self.content()}, self.content())
        loaded = tw.load(tmp_path / "model.safetensors.index.json")
        assert tw.equal({name: loaded[name] for name in self.content()}, self.content())
        assert tw.diff(tmp_path / "model.safetensors.index.json", tmp_path / "a.npz").equal
        tw.convert(tmp_path / "model.safetensors.index.json", tmp_path / "one.safetensors")
        with tw.open(tmp_path / "one.safetensors") as f:
            assert "total_size" not in f.metadata

    def test_split_as_huggingface_hub_splits(self, tmp_path):
        hub = importlib.import_module("huggingface_hub")
        torch = importlib.import_module("torch")
        rng = np.random.default_rng(3)
        content = {
            f"w{i}": np.zeros(int(n), np.float32) for i, n in enumerate(rng.integers(1, 500, 40))
        }
        plan = hub.split_torch_state_dict_into_shards(
            {name: torch.from_numpy(x) for name, x in content.items()}, max_shard_size="1KB"
        )
        save(tmp_path / "a.npz", content)
        tw.convert(tmp_path / "a.npz", tmp_path / "model.safetensors", shard_size="1KB")
        index = json.loads((tmp_path / "model.safetensors.index.json").read_text())
        assert index["weight_map"] == dict(sorted(plan.tensor_to_filename.items()))
        assert index["metadata"]["total_size"] == plan.metadata["total_size"]

    def test_one_file_needs_no_index(self, tmp_path):
        save(tmp_path / "a.npz", self.content())
        tw.convert(tmp_path / "a.npz", tmp_path / "model.safetensors", shard_size="5GB")
        assert names(tmp_path) == ["a.npz", "model.safetensors"]
        tw.convert(tmp_path / "a.npz", tmp_path / "other.safetensors.index.json")
        assert names(tmp_path)[2:] == [
            "other-00001-of-00001.safetensors",
            "other.safetensors.index.json",
        ]

    @pytest.mark.parametrize(
        "content",
        [
            {"r": tw.Ragged.of([[1]])},
            {"a": np.zeros(2), "n": 3},
            [np.zeros(2)],
            {"i": np.zeros(3, ml_dtypes.int4)},
        ],
    )
    def test_only_plain_tensors(self, tmp_path, content):
        save(tmp_path / "a.npz", content)
        with pytest.raises(tw.EncodeError, match="shard"):
            tw.convert(tmp_path / "a.npz", tmp_path / "b.safetensors", shard_size=100)
        assert names(tmp_path) == ["a.npz"]

    def test_sizes(self):
        assert [rename_rules.size(text) for text in ("1kb", "2.5 MB", "1GiB", "10", "3T")] == [
            1000,
            2_500_000,
            1 << 30,
            10,
            3 * 10**12,
        ]
        for text in ("", "GB", "-1", "0", "1XB"):
            with pytest.raises(ValueError):
                rename_rules.size(text)


class TestFiles:
    def test_what_is_there_stays(self, tmp_path):
        source = save(tmp_path / "a.npz", {"x": np.ones(3)})
        (tmp_path / "b.npz").write_bytes(b"mine")
        with pytest.raises(FileExistsError, match="overwrite"):
            tw.convert(source, tmp_path / "b.npz")
        assert (tmp_path / "b.npz").read_bytes() == b"mine"
        tw.convert(source, tmp_path / "b.npz", overwrite=True)
        assert tw.equal(tw.load(tmp_path / "b.npz"), {"x": np.ones(3)})

    def test_never_onto_itself(self, tmp_path):
        source = save(tmp_path / "a.npz", {"x": np.ones(3)})
        os.symlink(source, tmp_path / "link.npz")
        for target in ("a.npz", "link.npz", "../" + tmp_path.name + "/a.npz"):
            with pytest.raises(tw.SchemaError, match="to itself"):
                tw.convert(source, tmp_path / target, overwrite=True)
        save(tmp_path / "m.ckpt", {"x": np.ones(3)})
        with pytest.raises(tw.SchemaError, match="to itself"):
            tw.convert(tmp_path / "m.ckpt", tmp_path / "m.ckpt", "checkpoint", overwrite=True)
        tw.convert(source, tmp_path / "s.safetensors.index.json", shard_size=8)
        with pytest.raises(tw.SchemaError, match="to itself"):
            tw.convert(
                tmp_path / "s.safetensors.index.json",
                tmp_path / "s-00001-of-00001.safetensors",
                overwrite=True,
            )

    @pytest.mark.parametrize(
        "target",
        [
            "b.npz",
            "b.safetensors",
            "b.ckpt",
            "b.safetensors.gz",
            "b.arrow",
            "s.safetensors.index.json",
        ],
    )
    @pytest.mark.parametrize("options", [{}, {"checksum": True}])
    def test_no_litter_after_damage(self, tmp_path, target, options):
        """The last tensor does not match its checksum, which shows when all others are written."""
        source = save(
            tmp_path / "a.safetensors", {"a": np.zeros(3000), "b": np.ones(3000)}, checksum=True
        )
        blob = bytearray(source.read_bytes())
        blob[-1] ^= 1
        source.write_bytes(blob)
        if options and "safetensors" not in target:
            pytest.skip("an option of safetensors")
        with pytest.raises(tw.ChecksumError) as caught:
            tw.convert(source, tmp_path / target, **options)
        assert caught.value.path == str(source) and names(tmp_path) == ["a.safetensors"]

    def test_formats_that_are_not(self, tmp_path):
        source = save(tmp_path / "a.npz", {"x": np.ones(3)})
        with pytest.raises(tw.UnknownFormatError):
            tw.convert(source, tmp_path / "b.nothing")
        with pytest.raises(tw.UnknownFormatError, match="did you mean"):
            tw.convert(source, tmp_path / "b", "safetensor")
        with pytest.raises(tw.EncodeError, match="can be read, but not written"):
            tw.convert(source, tmp_path / "b.keras")
        with pytest.raises(tw.EncodeError, match="only safetensors"):
            tw.convert(source, tmp_path / "b.npz", shard_size="1GB")
        with pytest.raises(tw.UsageError, match="cannot be compressed"):
            tw.convert(source, tmp_path / "b.safetensors", shard_size="1GB", compression="gzip")
        with pytest.raises(TypeError, match="unknown option"):
            tw.convert(source, tmp_path / "b.npz", checksum=True)
        with pytest.raises(FileNotFoundError):
            tw.convert(tmp_path / "nothing.npz", tmp_path / "b.npz")
        assert names(tmp_path) == ["a.npz"]

    def test_records_are_no_tensors(self, tmp_path):
        tw.write_examples(tmp_path / "a.tfrecord", {"x": np.arange(3)})
        with pytest.raises(tw.SchemaError, match="read_examples"):
            tensor_files.convert(tmp_path / "a.tfrecord", tmp_path / "b.npz")
        # as a dataset of one file
        assert tw.convert(tmp_path / "a.tfrecord", tmp_path / "b.npz", workers=0).records == 3

    def test_other_sources(self, tmp_path):
        tw.convert(tw.dumps({"x": np.arange(3)}), tmp_path / "a.npz")
        with open(tmp_path / "a.npz", "rb") as file:
            report = tw.convert(file, tmp_path / "b.npz")
        assert report.source is None and tw.load(tmp_path / "b.npz")["x"].tolist() == [0, 1, 2]

    def test_dry_run_writes_nothing(self, tmp_path):
        save(tmp_path / "a.npz", {"model.x": np.ones((3, 2), np.float32)})
        report = tw.convert(
            tmp_path / "a.npz",
            tmp_path / "b.safetensors",
            rename="s/model.//",
            dtype="float16",
            dry_run=True,
        )
        assert names(tmp_path) == ["a.npz"] and report.dry_run and report.bytes_out == 12
        assert "x  dense  float16 (was float32) [3, 2]  12 bytes  (was model.x)" in str(report)
        assert json.loads(json.dumps(report.json()))["entries"][0]["shape"] == [3, 2]

    def test_progress(self, tmp_path):
        told = []
        save(tmp_path / "a.npz", {"x": np.ones(3000), "y": np.ones(1000)})
        tw.convert(
            tmp_path / "a.npz",
            tmp_path / "b.safetensors",
            progress=lambda done, name: told.append((round(done, 2), name)),
        )
        assert told == [(0.75, "x"), (1.0, "y")]


def test_hostile_sources(tmp_path):
    """Whatever the bytes are: our errors, and nothing left behind."""
    blob = tw.dumps(
        {"a": np.arange(40.0), "r": tw.Ragged.of([[1], [2, 3]]), "s": tw.Strings.of(["x"])}
    )
    rng = np.random.default_rng(5)
    for _ in range(300):
        damaged = bytearray(blob)
        for _ in range(int(rng.integers(1, 4))):
            damaged[int(rng.integers(0, 700))] = int(rng.integers(0, 256))
        try:
            tw.convert(bytes(damaged), tmp_path / "b.npz", durable=False, overwrite=True)
        except tw.TensorwireError:
            pass
        assert set(names(tmp_path)) <= {"b.npz"}
    specs = [
        '{"dict": 5}',
        '{"list": -1}',
        '{"list": [[]]}',
        '{"same": 0}',
        '{"dict": {"a": {"same": 3}}}',
        "[]",
        '{"bundle": {"a": 1}}',
    ]
    for spec in specs:
        ours = json.dumps(json.dumps({"version": 1, "spec": json.loads(spec)}))
        head = f'{{"__metadata__":{{"tensorwire":{ours}}}}}'.encode()
        with pytest.raises(tw.TensorwireError):
            tw.convert(len(head).to_bytes(8, "little") + head + b"\0", tmp_path / "c.npz")
    assert "c.npz" not in names(tmp_path)


MEASURE = """
import resource, sys
import numpy as np
import tensorwire as tw
source, target, options = sys.argv[1], sys.argv[2], eval(sys.argv[3])
tw.save(target + ".small.npz", {"a": np.zeros(3)})
tw.convert(target + ".small.npz", target + ".warm" + target[target.index("."):], **options)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
tw.convert(source, target, durable=False, **options)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


def megabytes(source, target, **options):
    given = [sys.executable, "-c", MEASURE, str(source), str(target), repr(options)]
    return int(subprocess.run(given, capture_output=True, text=True, check=True).stdout) / 1024


@pytest.mark.large
@pytest.mark.parametrize(
    ("source", "target", "options"),
    [
        ("m.safetensors", "x.npz", {}),
        ("m.npz", "x.safetensors", {}),
        ("m.ckpt", "x.safetensors", {}),
        ("m.npz", "x.ckpt", {}),
        ("m.ckpt", "x.safetensors", {"dtype": "bfloat16", "shard_size": "100MB"}),
        ("m.npz", "x.safetensors", {"checksum": True}),
    ],
)
def test_memory_is_that_of_the_largest_tensor(tmp_path, source, target, options):
    """12 tensors of 32 MB."""
    content = {
        f"layers/{i}/w": np.arange(1 << 23, dtype=np.float32).reshape(1 << 12, 1 << 11) + i
        for i in range(12)
    }
    save(tmp_path / source, content)
    del content
    assert megabytes(tmp_path / source, tmp_path / target, **options) <= 32 + 64


def run(*arguments, **options):
    return subprocess.run(
        [sys.executable, "-m", "tensorwire", "convert", *map(str, arguments)],
        capture_output=True,
        text=True,
        **options,
    )


class TestCommand:
    def test_all_of_it(self, tmp_path):
        save(
            tmp_path / "a.npz",
            {
                "model/w": np.ones((4, 2), np.float32),
                "model/step": np.int64(3),
                "opt/m": np.ones(2),
            },
        )
        (tmp_path / "names.json").write_text('{"model/step": "model/global_step"}')
        found = run(
            tmp_path / "a.npz", tmp_path / "b.safetensors", "--map", tmp_path / "names.json", "--rename", "s#^model/##",
            "--rename", "s/w/kernel/",
            "--dtype", "float16", "--exclude", "opt/*", "--json",
        )  # fmt: skip
        assert found.returncode == 0 and found.stderr == ""
        report = json.loads(found.stdout)
        assert (report["tensors"], report["renamed"], report["cast"], report["left_out"]) == (
            2,
            2,
            1,
            1,
        )
        assert tw.equal(
            tw.load(tmp_path / "b.safetensors"),
            {"kernel": np.ones((4, 2), np.float16), "global_step": np.int64(3)},
        )
        assert (
            "2 tensors" in run(tmp_path / "b.safetensors", tmp_path / "c.out", "--to", "npz").stdout
        )

    def test_shards_patterns_and_a_dry_run(self, tmp_path):
        save(tmp_path / "a.npz", {"x.w": np.ones(200), "x.b": np.ones(200), "ids": np.arange(3)})
        planned = run(
            tmp_path / "a.npz",
            tmp_path / "m.safetensors",
            "--dtype",
            "*.w=float16",
            "--dtype",
            "ids=int32",
            "--shard-size",
            "1kB",
            "--dry-run",
        )
        assert (
            planned.returncode == 0
            and "x.w  dense  float16 (was float64)" in planned.stdout
            and names(tmp_path) == ["a.npz"]
        )
        assert (
            run(
                tmp_path / "a.npz",
                tmp_path / "m.safetensors",
                "--shard-size",
                "1kB",
                "--include",
                "x.*",
            ).returncode
            == 0
        )
        assert (
            "m.safetensors.index.json" in names(tmp_path)
            and len(tw.open(tmp_path / "m.safetensors.index.json")) == 2
        )

    def test_standard_input(self, tmp_path):
        blob = tw.dumps({"x": np.arange(3)})
        command = [sys.executable, "-m", "tensorwire", "convert", "-", str(tmp_path / "b.npz")]
        assert subprocess.run(command, input=blob, capture_output=True).returncode == 0
        assert tw.load(tmp_path / "b.npz")["x"].tolist() == [0, 1, 2]

    @pytest.mark.slow
    @pytest.mark.parametrize(
        "given",
        [
            ["--rename", "s/x"],
            ["--shard-size", "huge"],
            ["--dtype", "float17"],
            ["--dtype", "*=what"],
            ["--what"],
        ],
    )
    def test_wrong_usage(self, tmp_path, given):
        save(tmp_path / "a.npz", {"x": np.ones(3)})
        found = run(tmp_path / "a.npz", tmp_path / "b.npz", *given)
        assert found.returncode == 2 and found.stdout == "" and "usage:" in found.stderr

    @pytest.mark.slow
    def test_bad_data(self, tmp_path):
        (tmp_path / "a.npz").write_bytes(b"PK\x03\x04 no zip")
        save(tmp_path / "c.npz", {"x": np.ones(3)})
        for given in (
            [tmp_path / "a.npz", tmp_path / "b.npz"],
            [tmp_path / "none.npz", tmp_path / "b.npz"],
            [tmp_path / "c.npz", tmp_path / "a.npz"],
        ):
            found = run(*given)
            assert (
                found.returncode == 1
                and len(found.stderr.splitlines()) == 1
                and found.stderr.startswith("tensorwire convert: ")
            )


@pytest.mark.cloud
def test_into_a_bucket(tmp_path):
    """Each object whole or not at all; what is there stays, unless it should be replaced."""
    source, root = tmp_path / "m.safetensors", "memory://converted"
    tw.save(source, {"a": np.arange(10), "b": np.ones((100, 10))})
    for name, options in (
        ("m.npz", {}),
        ("s.safetensors", {"shard_size": "1KB"}),
        ("m.ckpt-1", {"to": "checkpoint"}),
    ):
        report = tw.convert(source, f"{root}/{name}", **options)
        assert report.target == f"{root}/{name}" and all(
            storage.stat(path) for path in report.files
        ), report
        with pytest.raises(FileExistsError):
            tw.convert(source, f"{root}/{name}", **options)
        tw.convert(source, f"{root}/{name}", overwrite=True, **options)
    assert tw.equal(tw.load(f"{root}/m.npz"), tw.load(source))
    assert tw.equal(tw.load(f"{root}/s.safetensors.index.json"), tw.load(source))
    assert (
        tw.convert(source, f"{root}/no.npz", dry_run=True).bytes_out > 0
        and storage.stat(f"{root}/no.npz") is None
    )
