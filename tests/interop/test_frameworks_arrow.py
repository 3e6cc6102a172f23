"""PyArrow in and out: arrays, chunks, lists, fixed shapes and tensors, sliced anywhere."""

import importlib.util
import subprocess
import sys

import numpy as np
import pytest

import tensorwire as tw
from tensorwire import frameworks
from tensorwire.testing import check_framework
from tensorwire.testing.sampling import DTYPES, numbers

pytestmark = pytest.mark.arrow

HAS = [row for row in DTYPES if row.arrow]


def pointer(array):
    return array.__array_interface__["data"][0]


def test_conforms():
    names = [row.name for row in HAS]
    for (kind, dtype), found in check_framework("arrow").items():
        held = {
            "dense": dtype in names,
            "sparse": dtype in names and dtype != "bool",
            "strings": True,
            **dict.fromkeys(("ragged", "ragged int32", "ragged deep"), dtype in [*names, "bytes"]),
        }.get(kind, False)
        assert found == ("exact" if held else "refused"), (kind, dtype)


class TestNumbers:
    @pytest.mark.parametrize("row", HAS, ids=lambda row: row.name)
    def test_both_ways_without_a_copy(self, pa, row):
        array = numbers(row, (20,))
        theirs = tw.to(array, "arrow")
        assert theirs.type == pa.from_numpy_dtype(row.numpy) and not theirs.null_count
        back = tw.tensor(theirs)
        assert tw.equal(back, array) and not back.flags.writeable
        if row.name != "bool":  # a bit each
            assert theirs.buffers()[1].address == pointer(array) == pointer(back)
            assert pointer(tw.tensor(theirs[7:])) == pointer(array[7:])
        assert tw.equal(tw.tensor(theirs[3:11]), array[3:11]) and tw.equal(
            tw.tensor(theirs[:0]), array[:0]
        )

    def test_chunks(self, pa):
        array = np.arange(10.0)
        whole = pa.chunked_array([array])
        assert pointer(tw.tensor(whole)) == pointer(array)
        assert (
            tw.tensor(pa.chunked_array([array[:4], array[4:4], array[4:]])).tolist()
            == array.tolist()
        )
        assert tw.tensor(pa.chunked_array([], pa.int16())).dtype == np.int16
        assert tw.tensor(pa.chunked_array([["a"], ["b", ""]])).tolist() == ["a", "b", ""]
        assert tw.tensor(pa.chunked_array([[[1], []], [[2, 3]]])[1:]).tolist() == [[], [2, 3]]

    def test_unaligned_memory(self, pa):
        odd = pa.Array.from_buffers(
            pa.float64(), 2, [None, pa.py_buffer(b"x" + np.arange(2.0).tobytes()).slice(1)]
        )
        ours = tw.tensor(odd)
        assert ours.tolist() == [0, 1] and not ours.flags.aligned
        assert tw.to(ours, "arrow").buffers()[1].address % 8 == 0

    def test_dictionaries(self, pa):
        assert tw.tensor(pa.array(["a", "b", "a"]).dictionary_encode()).tolist() == ["a", "b", "a"]
        chunks = pa.chunked_array(
            [pa.array([5, 7]).dictionary_encode(), pa.array([9]).dictionary_encode()]
        )
        assert tw.tensor(chunks).tolist() == [5, 7, 9]
        assert tw.tensor(
            pa.array([[1, 2], [1, 2]], pa.list_(pa.int64(), 2)).flatten().dictionary_encode()[2:]
        ).tolist() == [1, 2]

    def test_nulls(self, pa):
        for bad in (
            pa.array([1, None]),
            pa.array(["a", None]),
            pa.array([[1], None]),
            pa.array([[1], [None]]),
            pa.array([[1, None]], pa.list_(pa.int64(), 2)),
            pa.chunked_array([[1], [None]]),
            pa.nulls(2),
            pa.DictionaryArray.from_arrays(pa.array([0, 1]), pa.array(["a", None])),
        ):
            with pytest.raises(tw.EncodeError, match=r"null.*fill_null\(\.\.\.\) or drop_null\(\)"):
                tw.tensor(bad)
        # a null outside of the slice is nobody's
        assert tw.tensor(pa.array([None, 1, 2])[1:]).tolist() == [1, 2]
        assert tw.tensor(pa.array([[None], [1]])[1:]).tolist() == [[1]]


class TestStrings:
    @pytest.mark.parametrize(
        "kind", ["string", "large_string", "string_view", "binary", "large_binary", "binary_view"]
    )
    def test_kinds(self, pa, kind):
        text = "string" in kind
        words = ["", "a", "é日本", "nul\0", "a long string that a view does not keep inline"]
        items = words if text else [word.encode() for word in words] + [b"\xff"]
        theirs = pa.array(items, getattr(pa, kind)())
        for part in (slice(None), slice(1, 4), slice(2, 2), slice(5, None)):
            ours = tw.tensor(theirs[part])
            assert ours.tolist() == items[part] and ours.text is text
        assert tw.tensor(pa.array([], getattr(pa, kind)())).shape == (0,)

    def test_without_a_copy(self, pa):
        ours = tw.Strings.of(["wire", "", "tensor"] * 100)
        theirs = tw.to(ours, "arrow")
        assert (
            theirs.type == pa.large_string()
            and tw.to(ours.astext(False), "arrow").type == pa.large_binary()
        )
        assert [buffer.address for buffer in theirs.buffers()[1:]] == [
            pointer(ours.offsets),
            pointer(ours.data),
        ]
        theirs.validate(full=True)
        back = tw.tensor(theirs)
        assert pointer(back.data) == pointer(ours.data) and pointer(back.offsets) == pointer(
            ours.offsets
        )
        assert not back.data.flags.writeable and not back.offsets.flags.writeable
        assert pointer(tw.tensor(theirs[2:]).data) == pointer(ours.data[4:])

    def test_more_dimensions(self, pa):
        ours = tw.Strings.of(["a", "b", "c", "d"], (2, 2))
        theirs = tw.to(ours, "arrow")
        assert theirs.type == pa.list_(pa.large_string(), 2) and theirs.to_pylist() == [
            ["a", "b"],
            ["c", "d"],
        ]
        assert tw.tensor(theirs[1:]).tolist() == [["c", "d"]]

    def test_not_utf8(self, pa):
        bad = pa.Array.from_buffers(
            pa.string(), 1, [None, pa.py_buffer(np.int32([0, 1])), pa.py_buffer(b"\xff")]
        )
        with pytest.raises(tw.EncodeError, match="not UTF-8"):
            tw.tensor(bad)

    def test_an_array_without_buffers(self, pa):
        """Offsets may be left out of an empty array."""
        assert tw.tensor(
            pa.Array.from_buffers(pa.large_string(), 0, [None, None, pa.py_buffer(b"")])
        ).shape == (0,)


class TestLists:
    def test_kinds_and_depth(self, pa):
        rows = [[[1, 2], []], [], [[3]]]
        for outer, inner, dtype in (
            ("list_", "list_", np.int32),
            ("large_list", "large_list", np.int64),
            ("list_", "large_list", np.int64),
        ):
            theirs = pa.array(rows, getattr(pa, outer)(getattr(pa, inner)(pa.int16())))
            ours = tw.tensor(theirs)
            assert (
                ours.tolist() == rows
                and ours.dtype == np.int16
                and {splits.dtype for splits in ours.row_splits} == {np.dtype(dtype)}
            )
            assert (
                tw.tensor(theirs[1:]).tolist() == rows[1:]
                and tw.tensor(theirs[2:3]).tolist() == rows[2:]
            )
            assert tw.tensor(theirs[:0]).tolist() == []
        assert tw.tensor(pa.array([["a"], [], ["b", "é"]])[1:]).tolist() == [[], ["b", "é"]]

    def test_without_a_copy(self, pa):
        for dtype, kind in ((np.int32, pa.list_), (np.int64, pa.large_list)):
            ours = tw.Ragged(np.arange(6.0), np.array([0, 2, 2, 6], dtype))
            theirs = tw.to(ours, "arrow")
            theirs.validate(full=True)
            assert theirs.type == kind(pa.float64()) and theirs.to_pylist() == ours.tolist()
            back = tw.tensor(theirs)
            assert pointer(back.values) == pointer(ours.values) and pointer(
                back.row_splits[0]
            ) == pointer(ours.row_splits[0])
            assert pointer(tw.tensor(theirs[2:]).values) == pointer(ours.values[2:])

    def test_dense_inside_and_outside(self, pa):
        inside = pa.array([[[1, 2]], [], [[3, 4], [5, 6]]], pa.list_(pa.list_(pa.int64(), 2)))
        assert tw.tensor(inside).shape == (3, None, 2) and tw.tensor(inside[1:]).tolist() == [
            [],
            [[3, 4], [5, 6]],
        ]
        outside = pa.array([[[1], [2, 3]], [[], [4]], [[5], []]], pa.list_(pa.list_(pa.int64()), 2))
        ours = tw.tensor(outside[1:])
        assert (
            ours.shape == (2, 2, None)
            and ours.tolist() == [[[], [4]], [[5], []]]
            and ours.row_splits[0].dtype == np.int32
        )
        assert tw.to(tw.tensor(outside), "arrow").equals(outside)

    def test_refused(self):
        with pytest.raises(tw.EncodeError, match=r"reshape x\.values"):
            tw.to(tw.Ragged([1, 2], [0, 2], 2), "arrow")


class TestFixedShapes:
    @pytest.mark.parametrize(
        "shape", [(3, 2), (2, 3, 4), (4, 1, 2), (3, 0, 2), (0, 2), (2, 1, 2, 1, 2)], ids=str
    )
    def test_both_ways(self, pa, shape):
        for row in HAS:
            array = numbers(row, shape)
            theirs = tw.to(array, "arrow")
            assert (
                theirs.type == pa.fixed_shape_tensor(pa.from_numpy_dtype(row.numpy), shape[1:])
                and len(theirs) == shape[0]
            )
            assert tw.equal(tw.tensor(theirs), array) and tw.equal(tw.tensor(theirs[1:]), array[1:])
            assert tw.equal(tw.tensor(pa.chunked_array([theirs[:1], theirs[1:]])), array)
            if array.size and row.name != "bool":
                assert pointer(tw.tensor(theirs)) == pointer(array) and np.array_equal(
                    theirs.to_numpy_ndarray().view(np.uint8), array.view(np.uint8)
                )

    def test_permutation(self, pa):
        kind = pa.fixed_shape_tensor(pa.int32(), (2, 3), permutation=[1, 0])
        storage = pa.FixedSizeListArray.from_arrays(pa.array(range(12), pa.int32()), 6)
        theirs = pa.ExtensionArray.from_storage(kind, storage)
        assert tw.equal(tw.tensor(theirs), theirs.to_tensor().to_numpy()) and tw.tensor(
            theirs[1:]
        ).shape == (1, 3, 2)

    def test_fixed_size_lists(self, pa):
        array = np.arange(12.0)
        lists = pa.FixedSizeListArray.from_arrays(
            pa.FixedSizeListArray.from_arrays(pa.array(array), 2), 3
        )
        assert tw.equal(tw.tensor(lists), array.reshape(2, 3, 2)) and pointer(
            tw.tensor(lists)
        ) == pointer(array)
        assert tw.equal(tw.tensor(lists[1:]), array.reshape(2, 3, 2)[1:])

    def test_rows_too_long(self):
        with pytest.raises(tw.EncodeError, match="do not fit Arrow"):
            tw.to(np.empty((0, 1 << 31), np.int8), "arrow")


class TestTensors:
    def test_dense(self, pa):
        array = np.arange(6.0).reshape(2, 3)
        assert pointer(tw.tensor(pa.Tensor.from_numpy(array))) == pointer(array)
        assert tw.equal(tw.tensor(pa.Tensor.from_numpy(array.T)), np.ascontiguousarray(array.T))
        stream = pa.BufferOutputStream()
        pa.ipc.write_tensor(pa.Tensor.from_numpy(array), stream)
        read = tw.tensor(pa.ipc.read_tensor(pa.BufferReader(stream.getvalue().to_pybytes())))
        assert tw.equal(read, array) and not read.flags.writeable

    def test_sparse(self, pa):
        ours = tw.Sparse([[2, 3], [0, 1], [0, 1]], [1.0, 2.0, 0.0], (3, 4))
        theirs = tw.to(ours, "arrow")
        assert (
            isinstance(theirs, pa.SparseCOOTensor)
            and theirs.non_zero_length == 3
            and tw.equal(tw.tensor(theirs), ours)
        )
        assert pointer(tw.tensor(theirs).values) == pointer(ours.values)
        for empty in (
            tw.Sparse([], np.float32([]), (5,)),
            tw.Sparse([], np.float32([]), (5, 2, 1)),
            tw.Sparse(np.zeros((1, 0), int), [1.0], ()),
        ):
            assert tw.equal(tw.tensor(tw.to(empty, "arrow")), empty)
        made = pa.SparseCOOTensor.from_numpy(np.ones(2), np.array([[0, 1], [1, 1]]), (2, 2))
        assert tw.tensor(made).to_dense().tolist() == [[0, 1], [0, 1]]


class TestRefused:
    def test_types(self, pa):
        import datetime
        import decimal

        for theirs, message in (
            (pa.array([datetime.datetime(2020, 1, 1)]), "cast it to int64 and keep the unit"),
            (pa.array([datetime.date(2020, 1, 1)]), "cast it to int32"),
            (pa.array([{"a": 1}]), "pass each field"),
            (pa.array([decimal.Decimal("1.5")]), "no tensor type for Arrow's decimal"),
            (
                pa.array([[("a", 1)]], pa.map_(pa.string(), pa.int64())),
                "no tensor type for Arrow's map",
            ),
            (pa.array([[{"a": 1}]]), "pass each field"),
            (pa.array([[1]], pa.list_view(pa.int64())), "no tensor type for Arrow's list_view"),
            (pa.array([b"ab"], pa.binary(2)), "no tensor type for Arrow's fixed_size_binary"),
            (
                pa.ExtensionArray.from_storage(pa.bool8(), pa.array([1], pa.int8())),
                r"pass x\.storage",
            ),
        ):
            with pytest.raises(tw.EncodeError, match=message):
                tw.tensor(theirs)
        for kind, cast in (
            ("date32", "int32"),
            ("date64", "int64"),
            ("time32[s]", "int32"),
            ("time64[us]", "int64"),
        ):
            theirs = pa.array([86400000], pa.int64()).cast(cast).cast(pa.type_for_alias(kind))
            with pytest.raises(tw.EncodeError, match=cast):
                tw.tensor(theirs)
            assert tw.tensor(theirs.cast(cast)).dtype == cast

    def test_objects(self, pa):
        import scipy.sparse

        table = pa.table({"a": [1], "b": ["x"]})
        for many in (table, table.to_batches()[0]):
            with pytest.raises(
                tw.EncodeError, match=r"pass dict\(zip\(x\.column_names, x\.columns\)\)"
            ):
                tw.dumps(many)
        back = tw.loads(tw.dumps(dict(zip(table.column_names, table.columns, strict=True))))
        assert back["a"].tolist() == [1] and back["b"].tolist() == ["x"]
        for other, message in (
            (pa.scalar(1), r"pass x\.as_py\(\)"),
            (
                pa.SparseCSRMatrix.from_scipy(scipy.sparse.csr_array(np.eye(2))),
                r"pass x\.to_scipy\(\)",
            ),
            (
                pa.SparseCSFTensor.from_tensor(pa.Tensor.from_numpy(np.eye(2))),
                r"pass x\.to_tensor\(\)",
            ),
            (pa.int64(), "cannot be converted to a tensor"),
        ):
            with pytest.raises(tw.EncodeError, match=message):
                tw.tensor(other)

    def test_what_arrow_lacks(self):
        for tensor, message in (
            (np.array(1.0), r"pass x\.reshape\(1\)"),
            (tw.Strings.of(["a"], ()), r"pass x\.reshape\(1\)"),
            (np.ones(2, np.complex64), "Arrow has no complex64"),
            (tw.Sparse([[0]], np.ones((1, 2)), (3, 2)), "no hybrid"),
            (tw.Sparse([[0]], [True], (3,)), "SparseCOOTensor has no bool"),
            (tw.Sparse([[0]], tw.Strings.of(["a"]), (3,)), "no string tensors"),
        ):
            with pytest.raises(tw.EncodeError, match=message):
                tw.to(tensor, "arrow", cast=True)

    @pytest.mark.parametrize(
        "row", [row for row in DTYPES if not row.arrow and row.bits <= 16], ids=lambda row: row.name
    )
    def test_cast(self, row):
        values = np.arange(min(1 << row.bits, 256), dtype=f"u{row.numpy.itemsize}").view(row.numpy)
        with pytest.raises(tw.EncodeError, match=f"Arrow has no {row.name}; cast=True converts it"):
            tw.to(values, "arrow")
        cast = tw.to(values, "arrow", cast=True).to_numpy()
        assert np.array_equal(cast.astype(np.float64), values.astype(np.float64), equal_nan=True)

    def test_no_devices(self, pa):
        with pytest.raises(tw.UsageError, match="Arrow has no devices"):
            tw.to(np.zeros(1), "arrow", device="cpu")
        assert frameworks.about(pa.array([1])) == {"device": "cpu"}


def test_loads_into_arrow(pa):
    value = {"x": np.float32([1]), "w": tw.Strings.of(["a"]), "n": [tw.Ragged.of([[1], []]), 5]}
    back = tw.loads(tw.dumps(value), to="arrow")
    assert (
        pa.table({"x": back["x"], "w": back["w"]}).num_rows == 1
        and back["n"][0].to_pylist() == [[1], []]
        and back["n"][1] == 5
    )
    assert tw.equal(tw.loads(tw.dumps(back)), value)


def test_pandas_is_left_alone():
    """pyarrow's own ways from NumPy and to it import it where there is one, for a third of a
    second.
    """
    assert importlib.util.find_spec("pandas") is not None
    code = """
import sys, numpy as np, tensorwire as tw
for x in (np.arange(3), np.array([True, False, True]), np.ones((2, 3)), tw.Ragged.of([[1], []]), tw.Strings.of(["a"])):
    assert tw.equal(tw.tensor(tw.to(x, "arrow")), x), x
assert "pyarrow" in sys.modules and not {"pandas", "pyarrow.compute"} & set(sys.modules)
"""
    subprocess.run([sys.executable, "-c", code], check=True)
