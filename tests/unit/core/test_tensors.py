"""Strings, Sparse, Ragged and Bundle as values: made, checked, indexed, compared, shown, pickled."""

import pickle

import numpy as np
import pytest
from hypothesis import given

import tensorwire as tw
from tensorwire.core import validate
from tensorwire.testing import strategies as tws


class TestStrings:
    words = tw.Strings.of(["", "a", "é", "日本", "x" * 40])

    def test_indexing(self):
        words = self.words
        assert (words[0], words[2], words[-1]) == ("", "é", "x" * 40)
        assert words[1:4].tolist() == ["a", "é", "日本"] and words[::2].tolist() == [
            "",
            "é",
            "x" * 40,
        ]
        assert words[np.array([True, False, False, True, False])].tolist() == ["", "日本"]
        assert words[[3, 3, 0]].tolist() == ["日本", "日本", ""] and words[4:2].tolist() == []
        assert tw.Strings.of([b"a", b"b"])[1] == b"b"
        with pytest.raises(IndexError):
            words[5]

    def test_shapes(self):
        grid = tw.Strings.of("abcdef", (2, 3))
        assert (
            grid[1].tolist() == ["d", "e", "f"]
            and grid[:, 1].tolist() == ["b", "e"]
            and grid[1, 2] == "f"
            and len(grid) == 2
        )
        assert (
            grid.tolist() == [["a", "b", "c"], ["d", "e", "f"]]
            and grid.reshape(3, -1).shape == (3, 2)
            and grid.ndim == 2
        )
        scalar = tw.Strings.of(["x"], ())
        assert scalar[()] == "x" and scalar.tolist() == "x" and scalar.shape == ()
        with pytest.raises(TypeError):
            len(scalar)

    def test_comparing(self):
        assert (self.words == "a").tolist() == [False, True, False, False, False]
        assert (self.words != self.words).tolist() == [False] * 5
        assert (self.words == np.array(["", "a", "b", "c", "d"], object)).tolist() == [
            True,
            True,
            False,
            False,
            False,
        ]
        assert not tw.equal(tw.Strings.of(["a"]), tw.Strings.of([b"a"]))

    def test_arrays(self):
        assert np.asarray(self.words).dtype == object and np.asarray(self.words)[2] == "é"
        assert np.asarray(self.words, "U40").dtype == "<U40" and self.words.nbytes == 49 + 48

    def test_text(self):
        with pytest.raises(tw.EncodeError, match="not UTF-8"):
            tw.Strings.of([b"ok", b"\xff"]).astext()
        with pytest.raises(tw.EncodeError, match="starts inside a character"):
            tw.Strings("é".encode(), [0, 1, 2], text=True)
        with pytest.raises(tw.EncodeError, match="surrogate"):
            tw.Strings.of(["\ud800"])
        with pytest.raises(tw.EncodeError, match="bytes and str"):
            tw.Strings.of(["a", b"b"])

    @pytest.mark.parametrize("offsets", [[1, 3], [0, 2], [0, 4], [0, 3, 2, 3], [], [0.0, 3.0]])
    def test_bad_offsets(self, offsets):
        with pytest.raises(tw.EncodeError):
            tw.Strings(b"abc", offsets)

    def test_repr(self):
        assert (
            repr(self.words)
            == "Strings('', 'a', 'é', '日本', 'xxxxxxxxxxxxxxxxxxxxxxxxxxxx...; shape=(5,), text)"
        )


class TestSparse:
    def test_integer_indices_of_any_width(self):
        sparse = tw.Sparse(np.array([[0, 1]], np.int32), [2.5], np.array([2, 2], np.uint8))
        assert sparse.indices.dtype == np.int64 and sparse.shape == (2, 2) and sparse.nnz == 1

    @pytest.mark.parametrize(
        ("indices", "values", "shape", "why"),
        [
            ([[0, 3]], [1.0], (2, 3), "outside"),
            ([[-1, 0]], [1.0], (2, 3), "outside"),
            ([[0, 0]], [1.0, 2.0], (2, 3), "needs 1 values"),
            ([[0, 0]], [1.0], (2,), "does not match"),
            ([[0, 0]], [1.0], (2, -3), "negative"),
            ([[0.5, 0]], [1.0], (2, 3), "integers"),
            ([0, 0], [1.0], (2, 3), r"\[nnz, rank\]"),
            ([[0, 0]], ["a"], (2, 3), "Strings"),
            ([[0]], [[1.0, 2.0]], (2, 3), "does not match"),
        ],
    )
    def test_what_is_refused(self, indices, values, shape, why):
        with pytest.raises(tw.EncodeError, match=why):
            tw.Sparse(indices, values, shape)

    def test_order(self):
        assert tw.Sparse([[0, 1], [1, 0]], [1, 2], (2, 2)).order == (True, False, None)
        assert tw.Sparse([[1, 0], [0, 1]], [1, 2], (2, 2)).order == (False, False, 1)
        assert tw.Sparse([[0, 1], [0, 1]], [1, 2], (2, 2)).order == (True, True, 1)
        assert tw.Sparse([[1, 1], [0, 0], [1, 1]], [1, 2, 3], (2, 2)).order == (False, True, 1)
        assert validate.order(np.zeros((0, 2), np.int64)) == (True, False, None)

    def test_sort_and_dense(self):
        sparse = tw.Sparse([[1, 0], [0, 1], [1, 0]], [1, 2, 3], (2, 2))
        assert sparse.sort().indices.tolist() == [
            [0, 1],
            [1, 0],
            [1, 0],
        ] and sparse.sort().values.tolist() == [2, 1, 3]
        assert sparse.to_dense().tolist() == sparse.sort().to_dense().tolist() == [[0, 2], [4, 0]]
        assert tw.Sparse([[1], [0]], np.ones((2, 3)), (4, 3)).to_dense().sum() == 6
        assert tw.Sparse([[1]], tw.Strings.of(["x"]), (2,)).to_dense().tolist() == ["", "x"]
        assert tw.Sparse([[0], [0]], [True, False], (1,)).to_dense().tolist() == [True]

    def test_repr(self):
        assert (
            repr(tw.Sparse([[0, 1]], np.array([2]), (2, 2)))
            == "Sparse([0, 1]: np.int64(2); shape=(2, 2), nnz=1, int64)"
        )


class TestRagged:
    def test_rows(self):
        ragged = tw.Ragged.of([[[1, 2], []], [], [[3]]])
        assert ragged.shape == (3, None, None) and ragged.ragged_rank == 2 and len(ragged) == 3
        assert (
            ragged[0].tolist() == [[1, 2], []]
            and ragged[-1].tolist() == [[3]]
            and ragged[1:].tolist() == [[], [[3]]]
        )
        assert [row.tolist() for row in ragged] == ragged.tolist()
        with pytest.raises(IndexError):
            ragged[3]

    def test_uniform(self):
        ragged = tw.Ragged(np.arange(6), [[0, 2, 4], [0, 1, 3, 3, 6]], [2, None])
        assert ragged.shape == (2, 2, None)
        with pytest.raises(tw.EncodeError, match="length 3"):
            tw.Ragged(np.arange(6), [[0, 2, 4], [0, 1, 3, 3, 6]], [3, None])

    def test_splits_keep_their_dtype(self):
        assert tw.Ragged([1], np.array([0, 1], np.int32)).row_splits[0].dtype == np.int32
        with pytest.raises(tw.EncodeError, match="same dtype"):
            tw.Ragged([1], [np.array([0, 1], np.int32), np.array([0, 1])])

    @pytest.mark.parametrize(
        "splits", [[1, 2], [0, 3], [0, 2, 1, 2], [], [[0, 1], [0, 1, 1]], [0.0, 2.0]]
    )
    def test_bad_splits(self, splits):
        with pytest.raises(tw.EncodeError):
            tw.Ragged([5, 6], splits)

    def test_words(self):
        ragged = tw.Ragged.of([["a", "b"], ["c"]])
        assert ragged.tolist() == [["a", "b"], ["c"]] and ragged.dtype == "string"
        assert repr(ragged) == "Ragged(['a', 'b'], ['c']; shape=(2, None), string)"
        with pytest.raises(tw.EncodeError, match="different depths"):
            tw.Ragged.of([[1, [2]]])


class TestBundle:
    def test_mapping(self):
        bundle = tw.Bundle(
            {"b": np.zeros(2), "a": tw.Strings.of(["x"])}, {"m": "1"}, {"b": {"device": "cpu"}}
        )
        assert (
            list(bundle) == ["b", "a"]
            and len(bundle) == 2
            and bundle.tensor_metadata == {"b": {"device": "cpu"}}
        )
        bundle.metadata["m"] = "2"
        assert bundle.metadata == {"m": "1"}  # a copy was changed
        assert "b: float64 [2]" in repr(bundle)

    @pytest.mark.parametrize(
        "bad",
        [
            ({"a": [1]},),
            ({1: np.zeros(1)},),
            ({}, {"m": 1}),
            ({}, {}, {"x": {}}),
            ({"a": np.zeros(1)}, {}, {"a": {"n": 3}}),
        ],
    )
    def test_what_is_refused(self, bad):
        with pytest.raises(tw.EncodeError):
            tw.Bundle(*bad)


@given(tws.tensors())
def test_pickle_protocol_5(tensor):
    buffers = []
    data = pickle.dumps(tensor, 5, buffer_callback=buffers.append)
    assert tw.equal(pickle.loads(data, buffers=buffers), tensor)
    assert tw.equal(pickle.loads(pickle.dumps(tensor)), tensor)


def test_pickle_is_out_of_band():
    big = tw.Strings.of([b"x" * 1000] * 1000)
    buffers = []
    assert len(pickle.dumps(big, 5, buffer_callback=buffers.append)) < 1000 and len(buffers) == 2
    bundle = tw.Bundle({"a": big}, {"m": "1"})
    assert tw.equal(pickle.loads(pickle.dumps(bundle)), bundle)


@pytest.mark.parametrize(
    "value", [tw.Strings.of(["a"]), tw.Sparse([[0]], [1], [1]), tw.Ragged.of([[1]])]
)
def test_frozen(value):
    with pytest.raises(AttributeError, match="frozen"):
        value.values = 3
    with pytest.raises(AttributeError):
        value.something = 3
    with pytest.raises(TypeError):
        hash(tw.Strings.of([]))


@given(tws.values())
def test_equal_is_reflexive(value):
    assert tw.equal(value, value)


@pytest.mark.parametrize(
    ("a", "b"),
    [
        (np.zeros(2), np.zeros(2, np.float32)), (np.zeros(2), np.zeros((2, 1))), (np.zeros(1), -np.zeros(1)), ([1], (1,)), (1, True),
        (1, 1.0),
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}), (np.zeros(2), [0.0, 0.0]), ("a", b"a"), (0.0, -0.0), (None, 0), (np.zeros(1), None), ({}, []),
        (tw.Ragged([1], np.array([0, 1], np.int32)), tw.Ragged([1], [0, 1])), (tw.Ragged([1, 2], [0, 2], [2]), tw.Ragged([1, 2], [0, 2])),
        (tw.Bundle({}), {}), (tw.Bundle({}, {"a": "b"}), tw.Bundle({})), (object(), object()),
    ],
)  # fmt: skip
def test_not_equal(a, b):
    assert not tw.equal(a, b) and not tw.equal(b, a)


def test_nans_by_their_bits():
    quiet, payload = np.array([0x7FC00000, 0x7FC00001], np.uint32).view(np.float32)
    assert tw.equal(np.array(quiet), np.array(quiet)) and not tw.equal(
        np.array(quiet), np.array(payload)
    )
    assert tw.equal(float("nan"), float("nan"))
    # byte order is not part of a value
    assert tw.equal(np.array([1, 2], ">i4"), np.array([1, 2], "<i4"))
