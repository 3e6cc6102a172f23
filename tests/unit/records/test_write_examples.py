"""Writing Examples: every kind and dtype as columns and as rows, exactly or refused; and TensorFlow
reads all of it.
"""

import importlib
import math
import os

import numpy as np
import pytest

import tensorwire as tw
from tensorwire.core import dtypes
from tensorwire.records import paths, rows
from tensorwire.records.batch import Batch

samples = importlib.import_module("tensorwire.testing.sampling")
NUMBERS = [row.name for row in samples.DTYPES]
LISTS = [name for name in NUMBERS if name not in ("float64", "complex64", "complex128")]
"""Dtypes that fit the lists of an Example."""
MANY_NANS = ("float8_e5m2", "float8_e4m3", "float8_e3m4")
"""Dtypes with NaNs that float32 cannot tell apart."""
F32 = np.float32


@pytest.fixture
def path(tmp_path):
    return str(tmp_path / "a.tfrecord")


def batch(path, data, **options):
    """Data written and read back, all in one batch."""
    tw.write_examples(path, data, **options)
    found = list(tw.read_examples(path, batch_size=1 << 20))
    assert len(found) == 1
    return found[0]


def written(path):
    return tw.Schema.load(path + ".schema.json")


def listable(name, shape):
    """Random bits of a dtype as far as lists hold them: NaNs and -0.0 too."""
    array = samples.numbers(dtypes.named(name), shape)
    if name == "uint64":
        array = array >> np.uint64(1)
    if name in MANY_NANS:
        array = np.where(np.isnan(array.astype(F32)), np.ones((), array.dtype), array)
    return array


class TestNumbers:
    @pytest.mark.parametrize("shape", [(40,), (40, 3), (20, 2, 2), (3, 0), (40, 1)])
    @pytest.mark.parametrize("name", LISTS)
    def test_columns(self, path, name, shape):
        array = listable(name, shape)
        assert tw.equal(batch(path, {"x": array})["x"], array)
        feature = written(path)["x"]
        assert (feature.dtype, feature.shape, feature.encoding) == (name, shape[1:], "")

    @pytest.mark.parametrize("name", LISTS)
    def test_rows(self, path, name):
        array = listable(name, (40, 3))
        found = batch(
            path,
            [
                {"x": row, "one": row[0], "varies": row[: number % 3]}
                for number, row in enumerate(array)
            ],
        )
        assert tw.equal(found["x"], array)
        assert tw.equal(found["one"], array[:, 0])
        assert found["varies"].dtype == array.dtype and found["varies"].shape == (40, None)
        assert all(
            tw.equal(row, array[number, : number % 3]) for number, row in enumerate(found["varies"])
        )

    @pytest.mark.parametrize("shape", [(4,), (4, 3), (4, 3, 2), (4, 0), (4, 2, 0)])
    @pytest.mark.parametrize("name", NUMBERS)
    def test_as_tensors(self, path, name, shape):
        array = samples.numbers(dtypes.named(name), shape)
        found = batch(path, {"x": array, "rows": list(array)}, tensors=["x", "rows"])
        assert tw.equal(found["x"], array) and tw.equal(found["rows"], array)
        assert written(path)["x"].encoding == "tensor"

    @pytest.mark.parametrize("name", NUMBERS)
    def test_rows_of_higher_rank_are_tensors(self, path, name):
        array = samples.numbers(dtypes.named(name), (4, 2, 3))
        assert tw.equal(batch(path, [{"x": row} for row in array])["x"], array)
        assert written(path)["x"].encoding == "tensor"

    @pytest.mark.parametrize("name", ["complex64", "complex128"])
    def test_complex_is_a_tensor_by_itself(self, path, name):
        array = samples.numbers(dtypes.named(name), (4, 3))
        assert tw.equal(batch(path, {"x": array})["x"], array)

    @pytest.mark.parametrize("bits", [0x7F800001, 0x7FC00123, 0xFFFFFFFF, 0x80000000, 0x00000001])
    def test_bits_of_floats(self, path, bits):
        wide = np.full(3, bits, np.uint32).view(F32)
        brain = np.full(3, bits >> 16 | 1, np.uint16).view(dtypes.named("bfloat16").numpy)
        half = np.full(3, 0x7C01 if bits & 1 else 0x8000, np.uint16).view(np.float16)
        found = batch(path, {"wide": wide, "brain": brain, "half": half})
        assert tw.equal(dict(found), {"wide": wide, "brain": brain, "half": half})

    def test_float64_is_refused_in_every_form(self, path):
        for data in (
            {"x": np.array([1.0])},
            {"x": [np.float64(1.0)]},
            [{"x": np.float64(1.0)}],
            [{"x": [np.float64(1.0)]}],
            [{"x": np.array([1.0])}],
            {"x": tw.Ragged.of([[1.0]])},
        ):
            with pytest.raises(
                tw.EncodeError,
                match=r"float64 does not fit.*astype\(np.float32\).*tensors=\[name\]",
            ) as caught:
                tw.write_examples(path, data)
            assert caught.value.tensor == "x" and not os.path.exists(path)
        # a Python float is what tf.train.FloatList takes it for
        assert batch(path, [{"x": 1.1}])["x"].dtype == F32

    def test_uint64_is_never_wrapped(self, path):
        big = np.array([[0, 1], [2, 1 << 63]], np.uint64)
        for data in (
            {"x": big},
            [{"x": row} for row in big],
            {"x": tw.Ragged.of(big.tolist(), dtype=np.uint64)},
        ):
            with pytest.raises(
                tw.EncodeError, match="9223372036854775808 does not fit int64"
            ) as caught:
                tw.write_examples(path, data)
            assert (caught.value.record, caught.value.tensor) == (1, "x")
        assert tw.equal(batch(path, {"x": big}, tensors=["x"])["x"], big)

    @pytest.mark.parametrize("name", MANY_NANS)
    def test_nans_that_float32_cannot_tell_apart(self, path, name):
        array = samples.numbers(dtypes.named(name), (60,))
        with pytest.raises(tw.EncodeError, match="a NaN with a payload"):
            tw.write_examples(path, {"x": array})
        assert tw.equal(batch(path, {"x": array}, tensors=["x"])["x"], array)

    def test_python_numbers(self, path):
        found = batch(
            path,
            [
                {"b": True, "i": -5, "f": 0.5, "n": math.nan},
                {"b": False, "i": 1 << 62, "f": 2, "n": -0.0},
            ],
        )
        assert found["b"].tolist() == [True, False] and found["b"].dtype == bool
        assert found["i"].tolist() == [-5, 1 << 62]
        assert found["f"].tolist() == [0.5, 2] and found["f"].dtype == F32
        assert math.isnan(found["n"][0]) and math.copysign(1, found["n"][1]) == -1
        assert {name: feature.encoding for name, feature in written(path).items()} == {
            "b": "",
            "i": "",
            "f": "",
            "n": "",
        }

    @pytest.mark.parametrize(
        "value",
        [
            1 << 63,
            -(1 << 63) - 1,
            1 << 70,
            [1, 1 << 63],
            [1, 1 << 70],
            1e300,
            [0.0, -1e300],
            [16777217, 0.5],
        ],
    )
    def test_python_numbers_that_do_not_fit(self, path, value):
        rows = [{"x": 0.5}, {"x": value}] if value == [16777217, 0.5] else [{"x": value}]
        if value == [16777217, 0.5]:
            rows = [{"x": 0.5}, {"x": 16777217}]
        with pytest.raises(tw.EncodeError) as caught:
            tw.write_examples(path, rows)
        assert caught.value.tensor == "x" and caught.value.record == len(rows) - 1

    def test_whole_numbers_among_floats(self, path):
        assert batch(path, [{"x": 1}, {"x": 0.5}, {"x": [2, 0.25]}])["x"].tolist() == [
            [1],
            [0.5],
            [2, 0.25],
        ]

    def test_dtypes_that_differ_become_the_list_s_own(self, path):
        found = batch(
            path,
            [
                {"i": np.int8(1), "b": True, "f": np.float16(1)},
                {"i": np.uint16(2), "b": 3, "f": F32(0.1)},
            ],
        )
        assert (
            found["i"].dtype == np.int64
            and found["b"].tolist() == [1, 3]
            and found["f"].tolist() == [1, F32(0.1)]
        )

    @pytest.mark.parametrize(
        "name", ["int32", "int64", "float32", "float16", "bool", "bfloat16", "complex64"]
    )
    def test_layouts(self, path, name):
        array = samples.numbers(dtypes.named(name), (6, 4))
        for layout, same in samples.layouts(array):
            found = batch(
                path,
                {
                    "x": same,
                    "t": same,
                    "rows": list(same),
                    "deep": [row.reshape(2, 2) for row in same],
                },
                tensors=["t"],
            )
            for column in ("x", "t", "rows"):
                assert tw.equal(found[column], array), (layout, column)
            assert tw.equal(found["deep"], array.reshape(6, 2, 2)), layout

    @pytest.mark.parametrize("dtype", ["M8[s]", "m8[s]", "V3", [("a", "i4")], np.longdouble])
    def test_dtypes_of_no_format(self, path, dtype):
        for data in ({"x": np.zeros(2, dtype)}, [{"x": np.zeros(2, dtype)}]):
            with pytest.raises(tw.EncodeError, match="unsupported NumPy dtype"):
                tw.write_examples(path, data)

    def test_masked_arrays_do_not_lose_their_mask(self, path):
        masked = np.ma.array([1, 2], mask=[0, 1])
        for data in ({"x": masked}, [{"x": masked}]):
            with pytest.raises(tw.EncodeError, match="mask"):
                tw.write_examples(path, data)


class TestStrings:
    @pytest.mark.parametrize("text", [True, False])
    def test_every_form(self, path, text):
        words = (
            ["", "a", "é中🙂", "x" * 70_000] if text else [b"", b"a\0", b"\xff\xfe", b"x" * 70_000]
        )
        strings = tw.Strings.of(words)
        forms = {
            "Strings": strings,
            "list": words,
            "object": np.array(words, object),
            "two": tw.Strings.of(words * 2, (4, 2)),
            "ragged": tw.Ragged(tw.Strings.of(words), [0, 1, 1, 4, 4]),
            "lists": [[words[1]], [], words, [words[0]]],
        }
        if text:
            forms["StringDType"] = np.array(words, np.dtypes.StringDType())
            forms["U"] = np.array(words)
        found = batch(path, forms)
        for name in ("Strings", "list", "object", *(("StringDType", "U") if text else ())):
            assert tw.equal(found[name], strings), name
        assert tw.equal(found["two"], forms["two"]) and tw.equal(found["ragged"], forms["ragged"])
        assert found["lists"].tolist() == forms["lists"]

    def test_rows(self, path):
        found = batch(
            path,
            [
                {"s": "é", "b": b"\xff", "l": ["a", "b"], "np": np.str_("n")},
                {"s": "", "b": b"", "l": ["c", "d"], "np": "m"},
            ],
        )
        assert found["s"].tolist() == ["é", ""] and found["b"].tolist() == [b"\xff", b""]
        assert found["l"].tolist() == [["a", "b"], ["c", "d"]] and found["np"].tolist() == [
            "n",
            "m",
        ]

    def test_text_among_bytes_comes_back_as_bytes(self, path):
        assert batch(path, [{"s": "é"}, {"s": b"\xff"}])["s"].tolist() == ["é".encode(), b"\xff"]

    def test_base64(self, path):
        words = ["é", "", "\x00~~"]
        found = batch(path, {"s": words, "l": [[b"\xfb\xff"], [], [b"a", b"b"]]}, base64=["s", "l"])
        assert found["s"].tolist() == words and found["l"].tolist() == [
            [b"\xfb\xff"],
            [],
            [b"a", b"b"],
        ]
        raw = next(iter(tw.read_examples(path, {"s": tw.Feature("bytes")})))["s"]
        assert raw.tolist() == [tw.io.encode_base64(word.encode()) for word in words]

    def test_string_tensors(self, path):
        deep = [[["a", "b"], ["c", "é"]], [["d", "e"], ["f", ""]]]
        found = batch(path, {"deep": deep, "one": ["x", "y"]}, tensors=["one"])
        assert found["deep"].tolist() == deep and found["one"].tolist() == ["x", "y"]

    def test_a_lone_surrogate(self, path):
        with pytest.raises(tw.EncodeError, match="surrogate") as caught:
            tw.write_examples(path, [{"x": "a"}, {"x": "\ud800"}])
        assert caught.value.record == 1
        with pytest.raises(tw.EncodeError, match="surrogate"):
            tw.write_examples(path, {"\ud800": ["a"]})

    def test_very_long(self, path):
        text = "é" * 3_000_000
        assert batch(path, [{"x": text}])["x"][0] == text


class TestOtherKinds:
    def test_ragged(self, path):
        ragged = tw.Ragged(np.arange(5, dtype=np.int32), np.array([0, 2, 2, 5], np.int32))
        found = batch(path, {"x": ragged})["x"]
        assert found.tolist() == ragged.tolist() and found.dtype == np.int32
        deep = tw.Ragged.of([[[1], [2, 3]], []])
        found = batch(path, {"x": deep})["x"]  # a TensorProto a row
        assert [row.tolist() for row in found] == deep.tolist()

    def test_ragged_tensors_keep_float64(self, path):
        ragged = tw.Ragged.of([[0.1], [], [0.2, 0.3]])
        assert tw.equal(batch(path, {"x": ragged}, tensors=["x"])["x"], ragged)

    def test_rows_that_vary_in_their_first_dimension(self, path):
        rows = [np.full((n, 2), n, np.uint8) for n in (1, 0, 3)]
        found = batch(path, [{"x": row} for row in rows])["x"]
        assert isinstance(found, tw.Ragged) and found.shape == (3, None, 2)
        assert [row.tolist() for row in found] == [row.tolist() for row in rows]

    def test_rows_of_different_rank(self, path):
        rows = [
            np.zeros((2, 2)),
            np.ones(3, np.int8),
            tw.Strings.of([b"a"]),
            tw.Sparse([[1]], [5], (3,)),
        ]
        found = batch(path, [{"x": row} for row in rows])["x"]
        assert found.dtype == object and all(map(tw.equal, found, rows))

    def test_sparse_from_the_left_is_a_list(self, path):
        sparse = tw.Sparse([[0, 0], [0, 1], [2, 0]], F32([1, 2, 3]), (3, 4))
        assert batch(path, {"x": sparse})["x"].tolist() == [[1, 2], [], [3]]

    @pytest.mark.parametrize(
        "sparse",
        [tw.Sparse([[0, 1], [2, 0]], [1, 2], (3, 2)), tw.Sparse([[0, 1, 1]], [1], (2, 2, 2))],
    )
    def test_sparse_of_any_form_is_a_tensor(self, path, sparse):
        with pytest.raises(tw.EncodeError, match=r"tensors=\[name\]"):
            tw.write_examples(path, {"x": sparse})
        found = batch(path, {"x": sparse}, tensors=["x"])["x"]  # the way that the message names
        assert [row.to_dense().tolist() for row in found] == list(sparse.to_dense().tolist())

    def test_quantized(self, path):
        array = np.random.default_rng(0).standard_normal((50, 8)).astype(F32)
        schemes = {
            "int8": 0.02,
            "uint8": 0.02,
            "int4": 0.3,
            "float16": 0.01,
            "bfloat16": 0.02,
            "float8_e4m3fn": 0.3,
            "float8_e5m2": 0.6,
        }
        columns = dict.fromkeys(schemes, array) | {
            "rows": list(array),
            "scalars": array[:, 0],
            "wide": array.astype(np.float64),
        }
        found = batch(
            path,
            columns,
            quantize={name: name for name in schemes}
            | dict.fromkeys(["rows", "scalars", "wide"], "int8"),
        )
        for name, bound in schemes.items():
            assert found[name].dtype == F32 and np.abs(found[name] - array).max() <= bound, name
        assert (
            tw.equal(found["rows"], found["int8"])
            and found["scalars"].tolist() == array[:, 0].tolist()
        )
        assert found["wide"].dtype == np.float64
        some = batch(
            path, [{"x": [1.0, 2.0, 3.0]}, {"x": None}, {"x": [4.0]}, {}], quantize={"x": "float16"}
        )
        assert some["x"].tolist() == [[1, 2, 3], [], [4], []] and some.present["x"].tolist() == [
            True,
            False,
            True,
            False,
        ]

    def test_quantized_refusals(self, path):
        for data in (
            {"x": np.arange(3)},
            {"x": ["a"]},
            {"x": F32([[1, np.nan]])},
            {"x": tw.Ragged.of([[1.0]])},
        ):
            with pytest.raises(tw.EncodeError) as caught:
                tw.write_examples(path, data, quantize={"x": "int8"})
            assert "nonfinite" not in str(caught.value)  # no option of write_examples
        with pytest.raises(tw.EncodeError, match="did you mean 'int8'"):
            tw.write_examples(path, {"x": F32([1])}, quantize={"x": "int7"})

    @pytest.mark.torch
    def test_torch(self, path):
        import torch

        columns = {
            "i": torch.arange(3),
            "b": torch.ones(3, 2, dtype=torch.bfloat16),
            "g": torch.ones(3, requires_grad=True),
        }
        found = batch(path, columns)
        assert (
            found["i"].tolist() == [0, 1, 2]
            and found["b"].dtype.name == "bfloat16"
            and found["g"].tolist() == [1, 1, 1]
        )
        assert batch(path, [{"x": torch.tensor([1, 2])}, {"x": torch.tensor([3, 4])}])[
            "x"
        ].tolist() == [[1, 2], [3, 4]]
        again = path + "again"
        tw.write_examples(again, tw.read_examples(path, to="torch"))
        assert next(iter(tw.read_examples(again)))["x"].tolist() == [[1, 2], [3, 4]]

    @pytest.mark.jax
    def test_jax(self, path):
        import jax.numpy as jnp

        found = batch(path, {"x": jnp.arange(3), "y": list(jnp.ones((3, 2)))})
        assert found["x"].tolist() == [0, 1, 2] and found["y"].shape == (3, 2)

    @pytest.mark.tensorflow
    def test_tensorflow(self, path, tf):
        ragged, sparse = (
            tf.ragged.constant([[1], [], [2, 3]]),
            tf.sparse.from_dense([[1, 2], [0, 0], [3, 0]]),
        )
        found = batch(
            path, {"x": tf.range(3), "s": tf.constant(["a", "b", "c"]), "r": ragged, "sp": sparse}
        )
        assert found["x"].dtype == np.int32 and found["s"].tolist() == [b"a", b"b", b"c"]
        assert found["r"].tolist() == [[1], [], [2, 3]] and found["sp"].tolist() == [
            [1, 2],
            [],
            [3],
        ]
        dataset = tf.data.Dataset.from_tensor_slices({"x": [1, 2], "s": ["a", "b"]})
        assert batch(path, dataset)["s"].tolist() == [b"a", b"b"]

    @pytest.mark.arrow
    def test_arrow(self, path):
        import pyarrow as pa

        found = batch(
            path,
            {
                "x": pa.array([1, 2]),
                "s": pa.chunked_array([["a"], ["b"]]),
                "l": pa.array([[1], [2, 3]]),
            },
        )
        assert (
            found["x"].tolist() == [1, 2]
            and found["s"].tolist() == ["a", "b"]
            and found["l"].tolist() == [[1], [2, 3]]
        )
        with pytest.raises(tw.UsageError, match="to_pylist"):
            tw.write_examples(path, pa.table({"x": [1, None]}))
        assert batch(path, pa.table({"x": [1, None]}).to_pylist()).present["x"].tolist() == [
            True,
            False,
        ]


class TestMissing:
    def test_none_and_no_entry_are_missing(self, path):
        found = batch(
            path, [{"i": 1, "s": "a", "l": [1], "t": np.ones((2, 2))}, {"i": None, "l": []}, {}]
        )
        assert {name: there.tolist() for name, there in found.present.items()} == {
            "i": [True, False, False], "s": [True, False, False], "l": [True, True, False], "t": [True, False, False],
        }  # fmt: skip
        assert (
            found["i"].tolist() == [1, 0, 0]
            and found["s"].tolist() == ["a", "", ""]
            and found["l"].tolist() == [[1], [], []]
        )
        assert list(found.rows())[2] == {}

    def test_columns_too(self, path):
        found = batch(path, {"s": ["a", None], "o": np.array([None, b"x"], object), "i": [None, 3]})
        assert found.present["s"].tolist() == [True, False] and found.present["i"].tolist() == [
            False,
            True,
        ]
        assert found["o"].tolist() == [b"", b"x"]

    def test_what_was_missing_is_missing_when_it_is_written_again(self, path):
        first = batch(
            path, [{"i": 1, "t": np.ones((2, 2)), "r": [1, 2]}, {"s": "a"}, {"t": np.zeros((2, 2))}]
        )
        again = path + "again"
        examples = tw.read_examples(path)
        # a batch is an array: that it came from tensors only the schema knows
        with pytest.raises(tw.EncodeError, match="float64"):
            tw.write_examples(again, examples)
        tw.write_examples(again, examples, schema=examples.schema)
        second = next(iter(tw.read_examples(again)))
        assert tw.equal(dict(first), dict(second)) and tw.equal(first.present, second.present)

    def test_a_feature_that_never_has_a_value_has_no_kind(self, path):
        assert list(batch(path, {"x": [None, None], "y": [1, 2]})) == ["y"]
        assert list(batch(path, [{"x": None, "e": [], "y": 1}])) == ["y"]

    @pytest.mark.parametrize("late", ["a", 0.5, 3, ["a", "b"], np.ones((2, 2))])
    def test_the_kind_may_come_late(self, path, late):
        """Rows are written in lots; those before the first value must not decide its kind."""
        rows = [{"x": None, "y": 1}] * 1500 + [{"x": late}]
        found = batch(path, rows)
        assert found.present["x"].sum() == 1 and found.size == 1501
        if isinstance(late, list):
            assert batch(path, [{"x": []}] * 1500 + [{"x": late}])["x"].tolist()[-1] == late

    def test_empty_lists_are_of_the_kind_of_the_others(self, path):
        found = batch(path, [{"x": []}, {"x": ["a"]}, {"x": []}])
        assert found["x"].tolist() == [[], ["a"], []] and found.present["x"].all()


class TestLots:
    """Rows and batches come in lots; the schema is that of all of them."""

    def test_shapes_that_differ(self, path):
        found = batch(
            path,
            [{"x": [1, 2], "t": np.zeros((2, 3))}] * 1024 + [{"x": [1], "t": np.zeros((1, 3))}],
        )
        assert isinstance(found["x"], tw.Ragged) and found["t"].shape == (1025, None, 3)

    def test_kinds_that_differ(self, path):
        for last, words in (
            ("a", "the row is bytes, but earlier rows are int64"),
            (0.5, "float\\(x\\)"),
            ([[1]], "shape \\(1, 1\\)"),
        ):
            with pytest.raises(tw.EncodeError, match=words) as caught:
                tw.write_examples(path, [{"x": 1}] * 1500 + [{"x": last}])
            assert (caught.value.record, caught.value.tensor) == (1500, "x")
        with pytest.raises(
            tw.EncodeError, match="the row is bytes, but other rows are int64"
        ) as caught:
            tw.write_examples(path, [{"x": 1}, {"x": "a"}])
        assert caught.value.record == 1
        assert (
            batch(path, [{"x": 1}] * 1500 + [{"x": 0.5}], schema={"x": tw.Feature("float")})["x"][
                -1
            ]
            == 0.5
        )

    def test_batches(self, path):
        columns = [{"x": np.arange(3), "s": list("abc")}, {"x": np.arange(2), "s": ["d", "é"]}]
        assert batch(path, columns, batched=True)["s"].tolist() == ["a", "b", "c", "d", "é"]
        assert batch(path, map(tw.Bundle, [{"x": np.arange(3)}, {"x": np.arange(2)}]))[
            "x"
        ].tolist() == [0, 1, 2, 0, 1]
        with pytest.raises(tw.EncodeError, match="mixes rows and batches"):
            tw.write_examples(path, [{"x": 1}, tw.Bundle({"x": np.arange(2)})])
        with pytest.raises(
            tw.EncodeError, match="the column has 2 rows, but column 'x' has 3"
        ) as caught:
            tw.write_examples(path, {"x": np.arange(3), "y": np.arange(2)})
        assert caught.value.tensor == "y"

    def test_errors_in_later_batches_name_the_record(self, path):
        big = np.array([[0, 0], [0, 1 << 63]], np.uint64)
        with pytest.raises(tw.EncodeError) as caught:
            tw.write_examples(path, [{"x": np.zeros((5, 2), np.uint64)}, {"x": big}], batched=True)
        assert caught.value.record == 6

    def test_nothing(self, path):
        assert tw.write_examples(path, []) == 0 and tw.write_examples(path, {}) == 0
        assert tw.write_examples(path, {"x": np.zeros((0, 3), F32)}) == 0
        assert os.path.getsize(path) == 0 and list(tw.read_examples(path)) == []
        assert written(path)["x"].shape == (3,)
        assert (
            tw.write_examples(path, [{}, {}]) == 2 and next(iter(tw.read_examples(path))).size == 2
        )

    def test_progress_and_the_number(self, path):
        seen = []
        assert (
            tw.write_examples(path, ({"x": i} for i in range(3000)), progress=seen.append) == 3000
        )
        assert seen[-1] == 3000 and seen == sorted(seen)

    def test_a_failure_leaves_the_old_file(self, path):
        tw.write_examples(path, {"x": [1]})
        with pytest.raises(tw.EncodeError):
            tw.write_examples(path, [{"x": 1}] * 5000 + [{"x": "a"}])
        assert next(iter(tw.read_examples(path)))["x"].tolist() == [1]


class TestRowsThatAreAlike:
    """They are gathered in one step; the records and the schema are the same as the long way gives."""

    VALUES = [
        [True, False], [1, -(1 << 63)], [0.1, math.nan], ["é", ""], [b"\xff", b""], [1 << 63, 1], [1e300, 1.0], ["a", "\ud800"],
        [np.array(3), np.array(4)], [np.array([1, 2], ">i4"), np.array([3, 4], ">i4")], [F32([1]), F32([2])], [F32([]), F32([])],
        [np.array([1.5]), np.array([2.5])], [np.array([1 << 63], np.uint64), np.array([1], np.uint64)], [np.ones((2, 2)), np.ones((2, 2))],
        [np.float16([1]), np.float16([np.nan])], [F32([1]), F32([2, 3])], [np.array(["a"]), np.array(["b"])], [1, True], [1, 0.5],
        ["a", b"a"], [np.array([True]), np.array([False])], [np.ma.array([1], mask=[1]), np.ma.array([1])],
    ]  # fmt: skip
    OPTIONS = [
        {}, {"tensors": ["x"]}, {"base64": ["x"]}, {"quantize": {"x": "int8"}}, {"schema": {"x": tw.Feature("float", (None,))}},
        {"schema": {"x": tw.Feature("int64")}}, {"schema": {"x": tw.Feature("int64", (1, 2))}}, {"schema": {"x": tw.Feature("bytes")}},
    ]  # fmt: skip

    @pytest.mark.parametrize("options", OPTIONS, ids=str)
    @pytest.mark.parametrize("values", VALUES, ids=lambda values: f"{values!r:.40}")
    def test_same(self, path, values, options, monkeypatch):
        def outcome(name, data):
            try:
                tw.write_examples(name, data, **options)
            except tw.TensorwireError as error:
                return type(error), str(error)
            return tw.RecordReader(name)[:], written(name).json()

        for data in (
            [{"x": value} for value in values],
            {"x": values},
            [{"x": value} for value in values * 600],
        ):
            monkeypatch.undo()
            quick = outcome(path, data)
            monkeypatch.setattr(rows, "_uniform", lambda *_: None)
            assert outcome(path, data) == quick


class TestFiles:
    def test_shards(self, path, tmp_path):
        for data in (
            {"x": np.arange(11)},
            ({"x": i} for i in range(11)),
            [{"x": np.arange(4)}, {"x": np.arange(4, 11)}],
        ):
            tw.write_examples(path, data, shards=3, batched=isinstance(data, list))
            for shard in range(3):
                name = tmp_path / f"a-{shard:05d}-of-00003.tfrecord"
                assert next(iter(tw.read_examples(name)))["x"].tolist() == list(range(shard, 11, 3))
        assert sorted(os.listdir(tmp_path)) == [
            *(f"a-{i:05d}-of-00003.tfrecord" for i in range(3)),
            "a.tfrecord.schema.json",
        ]
        assert next(iter(tw.read_examples(tmp_path / "a-*.tfrecord")))["x"].tolist() == [
            0,
            3,
            6,
            9,
            1,
            4,
            7,
            10,
            2,
            5,
            8,
        ]

    def test_more_shards_than_records(self, path, tmp_path):
        tw.write_examples(path, {"x": [1]}, shards=3)
        assert [
            len(tw.RecordReader(tmp_path / f"a-{i:05d}-of-00003.tfrecord")) for i in range(3)
        ] == [1, 0, 0]

    def test_names_of_shards(self):
        assert (
            paths.shard("d.v2/train.tfrecord.gz", 1, 2) == "d.v2/train-00001-of-00002.tfrecord.gz"
        )
        assert paths.shard("train", 1, 2) == "train-00001-of-00002"

    def test_shards_of_two_writings(self, path, tmp_path):
        tw.write_examples(path, {"x": np.arange(4)}, shards=2)
        tw.write_examples(path, {"x": np.arange(4)}, shards=4)
        with pytest.raises(tw.EncodeError, match="shards of 00002 and shards of 00004"):
            tw.read_examples(tmp_path / "a-*")
        with pytest.warns(UserWarning, match="schema.json"):  # it is of the other shards
            assert next(iter(tw.read_examples(tmp_path / "a-*-of-00002.tfrecord"))).size == 4

    def test_workers_that_write_a_shard_each(self, tmp_path):
        for shard in range(2):
            tw.write_examples(tmp_path / f"a-{shard:05d}-of-00002.tfrecord", {"s": ["é"]})
        # each has its schema beside it
        assert next(iter(tw.read_examples(tmp_path / "a-*")))["s"].tolist() == ["é", "é"]

    @pytest.mark.parametrize("compression", ["gzip", "zlib", "GZIP"])
    def test_compression(self, path, compression):
        assert batch(path, {"x": np.zeros((1000, 10), F32)}, compression=compression)[
            "x"
        ].shape == (1000, 10)
        assert os.path.getsize(path) < 10_000

    def test_snappy(self, path):
        assert batch(path, {"x": np.zeros((1000, 10), F32)}, compression="snappy")["x"].shape == (
            1000,
            10,
        )

    def test_appending(self, path):
        tw.write_examples(path, {"x": np.arange(2)})
        tw.write_examples(path, {"x": np.arange(2), "s": ["é", "b"]}, mode="a")
        found = next(iter(tw.read_examples(path)))
        # the schema has grown with the file
        assert found["x"].tolist() == [0, 1, 0, 1] and found["s"].tolist() == ["", "", "é", "b"]
        assert written(path).records == 4
        with pytest.raises(tw.EncodeError, match="the row is bytes, but earlier rows are int64"):
            tw.write_examples(path, {"x": ["a"]}, mode="a")
        with pytest.raises(tw.EncodeError):
            tw.write_examples(path, {"x": tw.Strings.of(["a"])}, mode="a")
        assert len(tw.RecordReader(path)) == 4

    def test_appending_to_a_file_without_a_schema(self, path):
        tw.write_examples(path, {"x": np.arange(2), "y": np.arange(2)}, schema_file=False)
        tw.write_examples(path, {"x": np.arange(2)}, mode="a")
        assert not os.path.exists(path + ".schema.json")  # it would know only what was added
        assert set(tw.read_examples(path).schema) == {"x", "y"}

    def test_names(self, path):
        columns = {
            "é☃": np.arange(2),
            "": np.arange(2),
            "日本": ["a", "ß"],
            "a/b": [1.5, 2.5],
            "n" * 5000: [1, 2],
        }
        assert list(batch(path, columns)) == list(columns)

    def test_paths(self, tmp_path):
        with pytest.raises(FileNotFoundError):
            tw.write_examples(tmp_path / "no" / "a.tfrecord", {"x": [1]})
        with pytest.raises(FileNotFoundError, match="no file matches"):
            tw.read_examples(str(tmp_path / "*.tfrecord"))
        with pytest.raises(IsADirectoryError, match="pattern"):
            tw.read_examples(tmp_path)


class TestMistakes:
    @pytest.mark.parametrize(
        ("data", "words"),
        [
            (None, "columns.*rows.*batches, not NoneType"),
            ("abc", "not str"),
            (np.zeros((3, 4)), "not ndarray"),
            ([1, 2], "a row must be a dict of features, not int"),
            ([{"x": 1}, None], "not NoneType"),
            ({"x": 3}, "a single int .*; to write one record"),
            ({"x": "abc"}, "a single str .*; to write one record"),
            ({"x": None}, "not None"),
            ({"x": np.array(3)}, "a scalar .*; to write one record"),
            ({"x": {"a": 1}}, "a column cannot be a dict"),
            ({"x": range(3)}, r"pass list\(x\)"),
            ({"x": (i for i in range(3))}, r"pass list\(x\)"),
            ([{"x": {"a": 1}}], "are not nested.*image/height"),
            ([{"x": {1, 2}}], r"pass list\(x\)"),
            ([{"x": object()}], "neither a tensor"),
            ([{"x": bytearray(b"a")}], r"bytes\(x\)"),
            ([{"x": ["a", b"b"]}], "all str or all bytes"),
            ([{"x": [1, "a"]}], "numbers and strings"),
            ([{"x": [1, None]}], "None is not a number"),
            ([{"x": [[1], [2, 3]]}], "Ragged"),
            ([{1: 2}], "a feature name must be str, not int"),
            ({1: [2]}, "a feature name must be str, not int"),
        ],
    )  # fmt: skip
    def test_data(self, path, data, words):
        with pytest.raises((tw.EncodeError, tw.UsageError), match=words):
            tw.write_examples(path, data)
        assert not os.path.exists(path) and not os.path.exists(path + ".schema.json")

    @pytest.mark.parametrize(
        ("options", "words"),
        [
            ({"tensors": ["y"]}, "no column 'y', named by tensors=; known: x"),
            ({"base64": ["y"]}, "no column 'y', named by base64="),
            ({"quantize": {"y": "int8"}}, "no column 'y', named by quantize="),
            ({"tensors": "x"}, r"tensors=\['x'\]"),
            ({"base64": "x"}, r"base64=\['x'\]"),
            ({"quantize": "int8"}, "quantize={'x': 'int8'}"),
            ({"quantize": ["x"]}, "quantize={'x': 'int8'}"),
            ({"base64": ["x"]}, "base64 needs a column of strings, not int64"),
            ({"tensors": ["x"], "base64": ["x"]}, "only one of"),
            ({"mode": "r"}, "mode must be one of"),
            ({"shards": 0}, "shards must be at least 1"),
            ({"compression": "bzip2"}, "unknown compression"),
            ({"batched": True}, "a batch must be a dict of columns, not list"),
        ],
    )
    def test_options(self, path, options, words):
        data = [[1]] if options == {"batched": True} else {"x": np.arange(2)}
        with pytest.raises((tw.EncodeError, tw.UsageError), match=words):
            tw.write_examples(path, data, **options)
        assert not os.path.exists(path)


class TestSchemaGiven:
    def test_it_decides_the_kind(self, path):
        found = batch(
            path,
            [{"x": 1, "l": []}],
            schema={"x": tw.Feature("float"), "l": tw.Feature("float", (None,))},
        )
        assert found["x"].dtype == F32 and found["l"].dtype == F32

    def test_it_decides_between_lists_and_tensors(self, path):
        rows = [{"x": [[1, 2], [3, 4]]}, {}]
        assert batch(path, rows, schema={"x": tw.Feature("int64", (2, 2))})["x"].tolist()[0] == [
            [1, 2],
            [3, 4],
        ]
        assert tw.RecordReader(path)[0] == tw_example(
            tmp := path + "list", {"x": [[1, 2, 3, 4]]}
        ), tmp
        tensor = tw.Feature("bytes", (None, 2), "int64", encoding="tensor")
        assert batch(path, rows, schema={"x": tensor})["x"].shape == (2, None, 2)

    @pytest.mark.parametrize("columns", [True, False])
    def test_raw(self, path, columns):
        array = np.arange(12, dtype=F32).reshape(3, 2, 2)
        schema = {
            "x": tw.Feature("bytes", (2, 2), "float32", encoding="raw"),
            "v": tw.Feature("bytes", (None,), "int16", encoding="raw"),
        }
        vectors = [np.arange(n, dtype=np.int16) for n in range(3)]
        data = (
            {"x": array, "v": tw.Ragged.of([v.tolist() for v in vectors], dtype=np.int16)}
            if columns
            else [{"x": x, "v": v} for x, v in zip(array, vectors, strict=True)]
        )
        found = batch(path, data, schema=schema)
        assert (
            tw.equal(found["x"], array)
            and found["v"].tolist() == [[], [0], [0, 1]]
            and found["v"].dtype == np.int16
        )
        plain = next(iter(tw.read_examples(path, {"x": tw.Feature("bytes")})))["x"]
        assert plain.tolist() == [row.tobytes() for row in array]

    def test_a_file_is_written_again_as_it_was(self, path):
        rows = [
            {"t": np.ones((2, 2)), "b": "é", "i": np.int8(3), "y": True, "l": ["a"]},
            {"t": np.zeros((2, 2)), "l": []},
        ]
        tw.write_examples(path, rows, base64=["b"])
        again = path + "again"
        examples = tw.read_examples(path)
        tw.write_examples(again, examples, schema=examples.schema)
        assert tw.RecordReader(again)[:] == tw.RecordReader(path)[:] and written(again) == written(
            path
        )

    @pytest.mark.parametrize(
        ("feature", "values", "words"),
        [
            (tw.Feature("int64"), [1, 0.5], "the row is float, but the schema declares int64"),
            (tw.Feature("int64"), ["a"], "the row is bytes, but the schema declares int64"),
            (tw.Feature("int64"), F32([1]), "schema declares"),
            (tw.Feature("int64", dtype="bool"), [1, 7], "7 does not fit bool"),
            (tw.Feature("int64", (2,), "int8"), np.array([[1, 2], [3, 300]]), "300 does not fit int8"),
            (tw.Feature("float", dtype="bfloat16"), F32([1, 1.1]), "does not fit bfloat16"),
            (tw.Feature("bytes", text=True), [b"a", b"\xff"], "not UTF-8"),
            (tw.Feature("bytes", text=True, encoding="base64"), [b"a", b"\xff"], "not UTF-8"),
            (tw.Feature("int64", (2, 2)), [[[1, 2], [3, 4]], [[1, 2]]], "the row has shape"),
            (tw.Feature("int64", (2,)), [[1, 2], [1]], "schema declares"),
            (tw.Feature("bytes", (2,), "int32", encoding="tensor"), [[1, 2]], "schema declares"),
            (tw.Feature("bytes", (2,), "int64", encoding="raw"), [[1, 2], [1, 2, 3]], "schema declares"),
            (tw.Feature("bytes", (2,), "float32", encoding="quantized"), F32([[1, 2]]), "without a scheme"),
            (tw.Feature("int64", required=True), [1, None], "which the schema requires"),
        ],
    )  # fmt: skip
    def test_refusals(self, path, feature, values, words):
        with pytest.raises((tw.SchemaError, tw.EncodeError), match=words) as caught:
            tw.write_examples(path, {"x": values}, schema={"x": feature})
        assert caught.value.tensor == "x"
        if "fit" in words or "UTF" in words or "requires" in words or "the row is float" in words:
            assert caught.value.record == 1
        assert not os.path.exists(path)

    def test_other_columns(self, path):
        with pytest.raises(tw.SchemaError, match=r"no feature '.*'; known: x"):
            tw.write_examples(path, {"y": [1]}, schema={"x": tw.Feature("int64")})
        with pytest.raises(tw.SchemaError, match="schema requires"):
            tw.write_examples(path, [{}], schema={"x": tw.Feature("int64", required=True)})
        assert tw.write_examples(path, [{}], schema={"x": tw.Feature("int64")}) == 1 and list(
            written(path)
        ) == ["x"]

    def test_forms_of_a_schema(self, path):
        spec = {"x": tw.io.FixedLenFeature([2], "float32")}
        tw.write_examples(path, {"x": F32([[1, 2]])}, schema=spec)
        assert written(path)["x"].required
        tw.write_examples(path + "2", {"x": F32([[1, 2]])}, schema=path + ".schema.json")
        assert written(path + "2") == written(path)
        for wrong in (3, {"x": "float"}, {"x": tw.io.FixedLenFeature([], "float64")}):
            with pytest.raises(tw.SchemaError):
                tw.write_examples(path, {"x": F32([[1, 2]])}, schema=wrong)

    @pytest.mark.parametrize(
        ("arguments", "words"),
        [
            (("float32",), "did you mean 'float'"),
            (("float", 3), r"such as \(3,\)"),
            (("float", (-1,)), "negative"),
            (("float", (None, 2)), "fixed or"),
            (("bytes", (), "int8"), "encoding='raw' or encoding='tensor'"),
            (("bytes", (), "", False, None, "raw"), "pass their dtype="),
            (("int64", (), "", False, None, "raw"), "needs kind 'bytes'"),
            (("int64", (), "", False, 2.5), "default"),
            (("int64", (), "", False, "a"), "default"),
            (("int64", (2,), "", False, [1, 2, 3]), "default"),
            (("bytes", (), "", False, 3), "default"),
            (("int64", (None,), "", False, 3), "default"),
        ],
    )
    def test_features_that_cannot_be(self, arguments, words):
        with pytest.raises(tw.SchemaError, match=words):
            tw.Feature(*arguments)


def tw_example(path, columns):
    """The first record that columns give."""
    tw.write_examples(path, columns)
    return tw.RecordReader(path)[0]


@pytest.mark.tensorflow
class TestAgainstTensorFlow:
    def proto(self, tf, **lists):
        """A tf.train.Example as TensorFlow makes it, from lists."""

        def feature(values):
            if isinstance(values[0], bytes):
                return tf.train.Feature(bytes_list=tf.train.BytesList(value=values))
            if isinstance(values[0], float):
                return tf.train.Feature(float_list=tf.train.FloatList(value=values))
            return tf.train.Feature(int64_list=tf.train.Int64List(value=values))

        return tf.train.Example(
            features=tf.train.Features(
                feature={name: feature(values) for name, values in lists.items()}
            )
        )

    def test_bytes_are_tensorflow_s(self, path, tf):
        rng = np.random.default_rng(5)
        rows = [
            {
                "image/height": [int(rng.integers(-(1 << 62), 1 << 62))],
                "image": [rng.bytes(int(rng.integers(300)))],
                "x": [
                    float(value)
                    for value in rng.standard_normal(int(rng.integers(1, 5))).astype(F32)
                ],
                "a": [int(rng.integers(0, 200)) for _ in range(int(rng.integers(1, 200)))],
                "aa": [1, 0, -1],
                "höhe": [b"", "é".encode()],
            }
            for _ in range(50)
        ]
        tw.write_examples(path, rows)
        for record, row in zip(tw.RecordReader(path), rows, strict=True):
            assert record == self.proto(tf, **row).SerializeToString(deterministic=True)

    @pytest.mark.parametrize("compression", [None, "gzip", "zlib", "snappy"])
    def test_tf_data_reads_the_files(self, path, tf, compression, tmp_path):
        tw.write_examples(path, {"x": np.arange(100)}, compression=compression, shards=2)
        files = sorted(map(str, tmp_path.glob("a-*")))
        records = [
            record.numpy() for record in tf.data.TFRecordDataset(files, (compression or "").upper())
        ]
        assert records == list(tw.RecordReader(files)) and len(records) == 100

    def test_parse_example_reads_all_of_it(self, path, tf):
        deep = np.random.default_rng(0).standard_normal((3, 2, 2))
        columns = {
            "bool": np.array([True, False, True]),
            "int8": np.arange(3, dtype=np.int8),
            "bfloat16": np.ones((3, 2), dtypes.named("bfloat16").numpy),
            "text": ["é", "", "b"],
            "many": tw.Ragged.of([[1], [], [2, 3]]),
            "words": [["a"], ["b", "c"], []],
            "tensor": deep,
            "complex": np.ones((3, 2), np.complex64),
            "base64": ["é", "", "b"],
        }
        tw.write_examples(path, columns, tensors=["tensor"], base64=["base64"])
        schema = tw.read_examples(path).schema
        found = tf.io.parse_example(list(tw.RecordReader(path)), schema.to_feature_spec(tf.io))
        assert found["bool"].numpy().tolist() == [1, 0, 1] and found["int8"].numpy().tolist() == [
            0,
            1,
            2,
        ]
        assert found["bfloat16"].numpy().tolist() == [[1, 1]] * 3
        assert found["text"].numpy().tolist() == ["é".encode(), b"", b"b"]
        assert tf.sparse.to_dense(found["many"]).numpy().tolist() == [[1, 0], [0, 0], [2, 3]]
        assert tf.sparse.to_dense(found["words"]).numpy().tolist() == [
            [b"a", b""],
            [b"b", b"c"],
            [b"", b""],
        ]
        assert tf.io.decode_base64(found["base64"]).numpy().tolist() == ["é".encode(), b"", b"b"]
        for row in range(3):
            assert tw.equal(tf.io.parse_tensor(found["tensor"][row], tf.float64), deep[row])
            assert tf.io.parse_tensor(found["complex"][row], tf.complex64).numpy().tolist() == [
                1,
                1,
            ]

    @pytest.mark.parametrize("name", [row.name for row in samples.DTYPES if row.tf is not None])
    def test_parse_tensor_reads_every_dtype(self, path, tf, name):
        array = samples.numbers(dtypes.named(name), (3, 2, 2))
        tw.write_examples(path, {"x": array}, tensors=["x"])
        for record, row in zip(tw.RecordReader(path), array, strict=True):
            parsed = tf.io.parse_single_example(record, {"x": tf.io.FixedLenFeature([], tf.string)})
            assert tw.equal(tf.io.parse_tensor(parsed["x"], tf.as_dtype(name)), row)

    def test_missing_features_are_missing_to_tensorflow(self, path, tf):
        tw.write_examples(path, [{"x": 1}, {}])
        spec = {"x": tf.io.FixedLenFeature([], tf.int64, default_value=-1)}
        assert tf.io.parse_example(list(tw.RecordReader(path)), spec)["x"].numpy().tolist() == [
            1,
            -1,
        ]


def test_batches_of_other_shapes(tmp_path):
    """Vectors of other lengths are lists. Of matrices a list would keep the numbers, and lose the
    shape of each.
    """
    vectors = [Batch({"x": np.ones((2, n), np.float32)}, size=2) for n in (2, 3)]
    tw.write_examples(tmp_path / "a.tfrecord", vectors)
    assert [
        row["x"].shape
        for batch in tw.read_examples(tmp_path / "a.tfrecord")
        for row in batch.rows()
    ] == [(2,), (2,), (3,), (3,)]
    matrices = [Batch({"x": np.ones((2, n, 2), np.float32)}, size=2) for n in (2, 3)]
    with pytest.raises(tw.EncodeError, match=r"\(3, 2\) after \(2, 2\).*tensors=") as error:
        tw.write_examples(tmp_path / "b.tfrecord", matrices)
    assert error.value.tensor == "x" and not (tmp_path / "b.tfrecord").exists()
    tw.write_examples(tmp_path / "b.tfrecord", matrices, tensors=["x"])
    assert [
        row["x"].shape
        for batch in tw.read_examples(tmp_path / "b.tfrecord")
        for row in batch.rows()
    ] == [
        (2, 2),
        (2, 2),
        (3, 2),
        (3, 2),
    ]
