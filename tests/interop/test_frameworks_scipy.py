"""SciPy in and out: sparse matrices and arrays of every layout."""

import ml_dtypes
import numpy as np
import pytest

import tensorwire as tw
from tensorwire import frameworks
from tensorwire.testing import check_framework
from tensorwire.testing.sampling import DTYPES

pytestmark = pytest.mark.scipy

LAYOUTS = ["csr", "csc", "coo", "bsr", "dia", "dok", "lil"]
LACKS = [row for row in DTYPES if row.numpy.isbuiltin != 1 or row.name == "float16"]


@pytest.fixture(scope="module")
def sparse():
    import scipy.sparse

    return scipy.sparse


def test_conforms():
    for (kind, dtype), found in check_framework("scipy").items():
        strings = dtype in ("bytes", "text")
        held = not strings and (
            kind in ("scalar", "dense")
            or (kind == "sparse" and dtype not in [row.name for row in LACKS])
        )
        assert found == ("exact" if held else "refused"), (kind, dtype)


class TestIn:
    @pytest.mark.parametrize("layout", LAYOUTS)
    @pytest.mark.parametrize("kind", ["array", "matrix"])
    def test_layouts(self, sparse, layout, kind):
        dense = np.random.default_rng(1).integers(0, 3, (6, 8)).astype(np.float32)
        theirs = getattr(sparse, f"{layout}_{kind}")(dense)
        ours = tw.tensor(theirs)
        assert (
            ours.shape == (6, 8)
            and ours.dtype == np.float32
            and np.array_equal(ours.to_dense(), dense)
        )
        assert not frameworks.is_python(theirs)  # a DOK array is a dict
        assert tw.equal(tw.loads(tw.dumps(theirs)), ours)

    @pytest.mark.parametrize("layout", LAYOUTS)
    def test_empty(self, sparse, layout):
        for shape in ((3, 4), (0, 4)):
            ours = tw.tensor(getattr(sparse, f"{layout}_array")(shape, dtype=np.int8))
            assert ours.shape == shape and ours.dtype == np.int8 and not ours.to_dense().any()

    def test_any_number_of_dimensions(self, sparse):
        for shape in ((5,), (2, 3, 4), (2, 1, 2, 1, 2)):
            dense = np.arange(np.prod(shape)).reshape(shape) % 3
            assert np.array_equal(tw.tensor(sparse.coo_array(dense)).to_dense(), dense)
        assert tw.tensor(sparse.csr_array(np.array([0, 2, 3]))).indices.tolist() == [[1], [2]]
        assert tw.tensor(sparse.dok_array(np.array([0, 2, 3]))).shape == (3,)

    def test_stored_zeros_and_duplicates_stay(self, sparse):
        values = np.array([1.0, 0.0, -0.0])
        coo = sparse.coo_array((values, ([2, 0, 0], [3, 1, 1])), shape=(3, 4))
        assert tw.equal(tw.tensor(coo), tw.Sparse([[2, 3], [0, 1], [0, 1]], values, (3, 4)))
        csr = sparse.csr_array((values, [3, 1, 1], [0, 1, 3, 3]), shape=(3, 4))
        assert tw.equal(tw.tensor(csr), tw.Sparse([[0, 3], [1, 1], [1, 1]], values, (3, 4)))
        bsr = sparse.bsr_array((np.array([[[1.0, 0.0], [-0.0, 2.0]]]), [1], [0, 1]), shape=(2, 4))
        assert tw.equal(tw.tensor(bsr).values, np.array([1.0, 0.0, -0.0, 2.0]))

    def test_diagonals(self, sparse):
        """tocoo() drops -0.0, which is a value like any other."""
        data = np.array(
            [[1.0, 0.0, -0.0, 4.0, 9.0], [5.0, 6.0, 7.0, 8.0, 9.0], [2.0, 3.0, 9.0, 9.0, 9.0]]
        )
        theirs = sparse.dia_array((data, [0, 1, -2]), shape=(3, 4))
        ours = tw.tensor(theirs)
        assert np.array_equal(ours.to_dense(), theirs.toarray()) and ours.nnz == theirs.nnz
        assert np.signbit(ours.to_dense()[2, 2]) and tw.equal(
            ours.to_dense()[2, 2], np.float64(-0.0)
        )

    def test_values_are_not_copied(self, sparse):
        for layout in ("coo", "csr", "csc"):
            theirs = sparse.random_array((6, 8), density=0.5, format=layout, rng=1)
            assert np.shares_memory(tw.tensor(theirs).values, theirs.data)

    def test_refused(self, sparse):
        import scipy.sparse.linalg

        with pytest.raises(tw.EncodeError, match=r"float128|longdouble"):
            tw.tensor(sparse.coo_array(np.eye(2, dtype=np.longdouble)))
        with pytest.raises(tw.EncodeError, match="not a sparse matrix or array"):
            tw.tensor(scipy.sparse.linalg.aslinearoperator(np.eye(2)))


class TestOut:
    def test_coo_array(self, sparse):
        ours = tw.Sparse([[2, 3], [0, 1], [0, 1]], [1.0, 2.0, 0.0], (3, 4))
        theirs = tw.to(ours, "scipy")
        assert (
            isinstance(theirs, sparse.coo_array)
            and theirs.nnz == 3
            and np.array_equal(theirs.toarray(), ours.to_dense())
        )
        assert np.shares_memory(theirs.data, ours.values)
        read_only = tw.to(tw.loads(tw.dumps(ours)), "scipy")
        with pytest.raises(ValueError, match="read-only"):
            read_only.data[0] = 5

    def test_dense_stays_numpys(self):
        array = np.ones(3, ml_dtypes.bfloat16)
        assert tw.to(array, "scipy") is array
        back = tw.loads(tw.dumps({"a": array, "s": tw.Sparse([[0]], [1], (2,))}), to="scipy")
        assert isinstance(back["a"], np.ndarray) and back["s"].toarray().tolist() == [1, 0]

    @pytest.mark.parametrize("row", LACKS, ids=lambda row: row.name)
    def test_cast(self, row):
        values = np.arange(min(1 << row.bits, 256), dtype=f"u{row.numpy.itemsize}").view(row.numpy)
        ours = tw.Sparse(np.arange(len(values))[:, None], values, (300,))
        with pytest.raises(tw.EncodeError, match=f"SciPy has no {row.name}; cast=True converts it"):
            tw.to(ours, "scipy")
        cast = tw.to(ours, "scipy", cast=True)
        assert cast.dtype == (
            "uint8"
            if row.name.startswith("u")
            else "int8"
            if row.name.startswith("i")
            else "float32"
        )
        assert np.array_equal(
            cast.data.astype(np.float64), values.astype(np.float64), equal_nan=True
        )

    @pytest.mark.parametrize(
        ("tensor", "message"),
        [
            (tw.Strings.of(["a"]), "no string tensors"),
            (tw.Sparse([[0]], tw.Strings.of(["a"]), (2,)), "no string tensors"),
            (tw.Ragged.of([[1]]), "no ragged arrays"),
            (
                tw.Sparse([[0]], np.ones((1, 2)), (3, 2)),
                r"no hybrid sparse tensors; pass x\.to_dense",
            ),
            (tw.Sparse(np.zeros((1, 0), np.int64), [1.0], ()), "without dimensions"),
        ],
        ids=["strings", "sparse strings", "ragged", "hybrid", "scalar"],
    )
    def test_refused(self, tensor, message):
        with pytest.raises(tw.EncodeError, match=message):
            tw.to(tensor, "scipy")

    def test_no_devices(self, sparse):
        with pytest.raises(tw.UsageError, match="SciPy has no devices"):
            tw.to(np.zeros(1), "scipy", device="cpu")
        assert frameworks.about(sparse.coo_array((2, 2))) == {"device": "cpu"}
