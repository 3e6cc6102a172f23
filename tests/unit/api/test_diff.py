"""tw.diff: what is different between two tensor files, of any two formats, to the bit and by how
much.
"""

import json
import subprocess
import sys

import ml_dtypes
import numpy as np
import pytest

import tensorwire as tw

FORMATS = [
    name
    for name, row in tw.formats().items()
    if row.writes and name not in ("raw", "parquet", "example")
]


def value():
    rng = np.random.default_rng(3)
    return {
        "w": rng.standard_normal((6, 5), np.float32),
        "ids": np.arange(7),
        "words": tw.Strings.of(["x", "", "Straße"]),
        "ragged": tw.Ragged.of([[1.5], [2.0, 3.0], []]),
        "sparse": tw.Sparse([[0, 1], [2, 3]], np.float32([2.5, -1]), (3, 4)),
        "step": 3,
    }


def between(a, b, **options):
    found = tw.diff(tw.dumps(a), tw.dumps(b), **options)
    assert json.loads(json.dumps(found.json()))["equal"] == found.equal
    return found


def one(a, b, **options):
    return between({"x": a}, {"x": b}, **options).tensors[0]


@pytest.mark.parametrize("a", FORMATS)
@pytest.mark.parametrize("b", ["safetensors", "npz"])
def test_any_two_formats(tmp_path, a, b):
    tw.save(tmp_path / "a", value(), a, durable=False)
    tw.save(tmp_path / "b", value(), b, durable=False)
    found = tw.diff(tmp_path / "a", tmp_path / "b")
    assert (
        found.equal
        and len(found.tensors) == 5
        and found.formats == (a, b)
        and all(tensor.exact for tensor in found.tensors)
        and "the same to the bit" in str(found)
    )


def test_what_is_missing_and_extra():
    found = between({"a": np.ones(2), "b": np.ones(2)}, {"b": np.ones(2), "c": np.ones(2)})
    assert (found.missing, found.extra, found.equal) == (["a"], ["c"], False) and [
        one.name for one in found.tensors
    ] == ["b"]
    assert "missing" in str(found) and "extra" in str(found)


def test_renaming():
    found = between({"model.a": np.ones(2)}, {"a": np.ones(2)}, rename=r"s/^model\.//")
    assert found.equal and found.tensors[0].other == "a"
    with pytest.raises(tw.SchemaError, match="would both be called"):
        between({"x1": np.ones(2), "x2": np.ones(1)}, {}, rename="s/[0-9]//")


class TestNumbers:
    def test_by_how_much(self):
        found = one(np.array([1.0, 2.0, -4.0]), np.array([1.0, 2.5, -3.0]))
        assert (found.problems, found.unequal, found.elements) == (["values"], 2, 3)
        assert found.max_abs == 1.0 and found.max_rel == 0.25 and not found.exact

    def test_nan_is_nan(self):
        a, b = np.array([np.nan, 1.0, np.nan]), np.array([np.nan, np.nan, 2.0])
        found = one(a, b)
        assert (found.unequal, found.nans, found.max_abs) == (2, 2, 0.0)
        assert not one(a, a) and one(a, a).exact
        other = a.copy()
        other.view(np.uint64)[0] += 1  # another NaN
        assert one(a, other).problems == ["bits"] and one(a, other).unequal == 0
        assert one(np.zeros(2), -np.zeros(2)).problems == ["bits"] and not one(
            np.zeros(2), -np.zeros(2), atol=0.0
        )

    def test_infinity(self):
        found = one(np.array([np.inf, np.inf, 1.0]), np.array([np.inf, -np.inf, np.inf]))
        assert found.unequal == 2 and found.max_abs == np.inf and found.max_rel == 1.0
        assert found.json()["max_abs"] == "Infinity" and "inf" in str(found.cells())
        assert one(np.array([np.inf]), np.array([1e300]), rtol=0.5)

    def test_tolerance(self):
        a, b = np.array([100.0, 0.0]), np.array([101.0, 0.001])
        assert (
            not one(a, b, rtol=0.01, atol=0.001)
            and one(a, b, rtol=0.001, atol=0.001)
            and one(a, b, rtol=0.01)
        )
        with pytest.raises(ValueError):
            one(a, b, rtol=-1.0)

    def test_dtypes(self):
        a = np.float32([1, 2, 0.1])
        found = one(a, a.astype(ml_dtypes.bfloat16))
        assert (
            found.problems == ["dtype", "values"]
            and found.dtype == ("float32", "bfloat16")
            and 0 < found.max_rel < 0.01
        )
        assert not one(a, a.astype(ml_dtypes.bfloat16), rtol=0.01) and one(
            a, a.astype(np.float64)
        ).problems == ["dtype"]

    @pytest.mark.parametrize(
        "dtype",
        [
            np.int8,
            np.uint8,
            np.int64,
            np.uint64,
            np.bool_,
            ml_dtypes.int4,
            ml_dtypes.uint4,
            np.float16,
            ml_dtypes.float8_e5m2,
            np.complex64,
        ],
    )
    def test_every_type(self, dtype):
        a = np.array([0, 1, 1, 0]).astype(dtype)
        b = np.array([0, 1, 0, 0]).astype(dtype)
        found = one(a, b)
        assert (found.unequal, found.max_abs, found.max_rel) == (1, 1.0, 1.0) and one(a, a).exact

    def test_integers_are_exact(self):
        a, b = np.array([2**63 - 1, -(2**63), 2**53]), np.array([2**63 - 2, 2**63 - 1, 2**53 + 1])
        found = one(a, b)
        assert found.unequal == 3 and found.max_abs == float(2**64 - 1)
        assert one(np.array([2**64 - 1], np.uint64), np.array([-1])).unequal == 1

    def test_shapes(self):
        found = one(np.ones((2, 3)), np.ones((3, 2)))
        assert (
            found.problems == ["shape"]
            and found.unequal is None
            and "[2, 3] -> [3, 2]" in str(found.cells())
        )
        assert (
            not one(np.zeros((0, 3)), np.zeros((0, 3)))
            and not one(np.float32(3), np.float32(3))
            and one(np.float32(3), np.float32(4)).unequal == 1
        )


class TestOtherKinds:
    def test_kinds(self):
        assert one(np.ones((2, 2)), tw.Sparse([[0, 0]], [1.0], (2, 2))).problems == ["kind"]
        assert one(tw.Strings.of(["1"]), np.ones(1)).problems == ["kind", "dtype"]

    def test_strings(self):
        found = one(tw.Strings.of(["a", "bb", "c", "dd"]), tw.Strings.of(["a", "b", "d", "dd"]))
        assert (found.problems, found.unequal, found.elements, found.max_abs) == (
            ["values"],
            2,
            4,
            None,
        )
        assert one(tw.Strings.of(["a"]), tw.Strings.of([b"a"])).problems == ["dtype"]

    def test_ragged(self):
        assert one(tw.Ragged.of([[1], [2, 3]]), tw.Ragged.of([[1, 2], [3]])).problems == [
            "row lengths"
        ]
        assert one(tw.Ragged.of([[1], [2, 3]]), tw.Ragged.of([[1], [2, 5]])).max_abs == 2
        assert one(tw.Ragged.of([["a"], []]), tw.Ragged.of([["b"], []])).unequal == 1
        narrow = tw.Ragged(np.array([1, 2]), np.array([0, 1, 2], np.int32))
        assert one(narrow, tw.Ragged(np.array([1, 2]), np.array([0, 1, 2]))).problems == ["bits"]

    def test_sparse_by_index(self):
        a = tw.Sparse([[0, 1], [2, 3]], [2.5, 1.0], (3, 4))
        # another order
        assert one(a, tw.Sparse([[2, 3], [0, 1]], [1.0, 2.5], (3, 4))).problems == ["bits"]
        found = one(a, tw.Sparse([[0, 1], [1, 1]], [2.0, 3.0], (3, 4)))
        assert (found.unequal, found.elements, found.max_abs) == (3, 3, 3.0)
        # one stands twice
        assert one(a, tw.Sparse([[0, 1], [0, 1]], [2.5, 1.0], (3, 4))).unequal == 2
        words = tw.Sparse([[0]], tw.Strings.of(["a"]), (3,))
        assert one(words, tw.Sparse([[1]], tw.Strings.of(["a"]), (3,))).unequal == 1
        assert one(words, tw.Sparse([[0]], tw.Strings.of(["b"]), (3,))).unequal == 1

    def test_python_values(self):
        found = between({"x": np.ones(1), "step": 3, "gone": None}, {"x": np.ones(1), "step": 4})
        assert found.values == ["step", "gone"] and not found.equal and "other value" in str(found)

    def test_quantized(self):
        x = np.random.default_rng(0).standard_normal((8, 5), np.float32)
        found = tw.diff(tw.dumps({"x": x}), tw.dumps({"x": x}, quantize="int8"))
        assert found.tensors[0].problems == ["values"] and 0 < found.tensors[0].max_abs < 0.05
        assert tw.diff(tw.dumps({"x": x}), tw.dumps({"x": x}, quantize="int8"), atol=0.05).equal


def test_damage_is_an_error(tmp_path):
    tw.save(tmp_path / "a.safetensors", {"x": np.ones(100)}, checksum=True)
    blob = bytearray((tmp_path / "a.safetensors").read_bytes())
    blob[-1] ^= 1
    with pytest.raises(tw.ChecksumError) as caught:
        tw.diff(bytes(blob), tmp_path / "a.safetensors")
    assert caught.value.tensor == "x"


@pytest.mark.large
def test_memory_is_two_blocks(tmp_path):
    """Two tensors of 400 MB."""
    big = np.zeros((100, 1 << 20), np.float32)
    tw.save(tmp_path / "a.safetensors", {"x": big}, durable=False)
    big[-1, -1] = 2
    tw.save(tmp_path / "b.npy", tw.Bundle({"x": big}), durable=False)
    del big
    code = """
import resource, sys, numpy as np, tensorwire as tw
tw.diff(tw.dumps({"x": np.ones(2)}), tw.dumps({"x": np.zeros(2)}))
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
found = tw.diff(*sys.argv[1:])
assert found.tensors[0].unequal == 1 and found.tensors[0].max_abs == 2
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""
    given = [sys.executable, "-c", code, str(tmp_path / "a.safetensors"), str(tmp_path / "b.npy")]
    assert int(subprocess.run(given, capture_output=True, text=True, check=True).stdout) <= 80 << 10


def run(*arguments):
    return subprocess.run(
        [sys.executable, "-m", "tensorwire", "diff", *map(str, arguments)],
        capture_output=True,
        text=True,
    )


class TestCommand:
    def test_as_diff(self, tmp_path):
        tw.save(tmp_path / "a.npz", {"m.x": np.ones(3), "m.y": np.ones(2)})
        tw.save(tmp_path / "b.safetensors", {"x": np.ones(3), "y": np.ones(2)})
        tw.save(tmp_path / "c.safetensors", {"x": np.ones(3), "y": np.float64([1, 1.001])})
        same = run(tmp_path / "a.npz", tmp_path / "b.safetensors", "--rename", "s/^m.//", "--all")
        assert (
            same.returncode == 0
            and same.stdout.count("  equal  ") == 2
            and "the same to the bit" in same.stdout
        )
        other = run(tmp_path / "b.safetensors", tmp_path / "c.safetensors")
        assert (
            other.returncode == 1
            and "1 of 2 tensors different" in other.stdout
            and "\nx " not in other.stdout
        )
        found = json.loads(
            run(tmp_path / "b.safetensors", tmp_path / "c.safetensors", "--json").stdout
        )
        assert not found["equal"] and found["tensors"][1]["unequal"] == 1
        assert (
            run(tmp_path / "b.safetensors", tmp_path / "c.safetensors", "--atol", "0.01").returncode
            == 0
        )
        assert (
            run(tmp_path / "b.safetensors", tmp_path / "c.safetensors", "--rtol", "1e-6").returncode
            == 1
        )

    def test_errors(self, tmp_path):
        tw.save(tmp_path / "a.npz", {"x": np.ones(3)})
        (tmp_path / "bad.npz").write_bytes(b"PK\x03\x04")
        bad = run(tmp_path / "a.npz", tmp_path / "bad.npz")
        assert bad.returncode == 1 and len(bad.stderr.splitlines()) == 1 and bad.stdout == ""
        for given in (
            [tmp_path / "a.npz"],
            [tmp_path / "a.npz", tmp_path / "a.npz", "--atol", "-1"],
            [tmp_path / "a.npz", tmp_path / "a.npz", "--rename", "x"],
        ):
            assert run(*given).returncode == 2
