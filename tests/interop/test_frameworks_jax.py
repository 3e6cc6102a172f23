"""JAX in and out: arrays and BCOO, the rule of x64, whose memory it is, and what has no values to
give.
"""

import socket
import subprocess
import sys

import ml_dtypes
import numpy as np
import pytest

import tensorwire as tw
from tensorwire import frameworks
from tensorwire.core import memory
from tensorwire.testing import check_framework
from tensorwire.testing.sampling import DTYPES, numbers

pytestmark = pytest.mark.jax

WIDE = {"float64": "float32", "int64": "int32", "uint64": "uint32", "complex128": "complex64"}
PACKED = [row for row in DTYPES if row.bits < 6]
PLAIN = [row for row in DTYPES if row.bits >= 8 and row.name not in WIDE]


@pytest.fixture(scope="module")
def jax():
    import jax
    import jax.experimental.sparse

    return jax


def pointer(array):
    return array.view(np.uint8).__array_interface__["data"][0]


def aligned(row, shape, shift=0):
    """Writable memory that starts `shift` bytes after a multiple of 64."""
    source = numbers(row, shape)
    array = memory.fresh(source.nbytes + shift)[shift:].view(row.numpy).reshape(shape)
    array[...] = source
    return array


def run(code, *args):
    command = [sys.executable, "-c", code, *map(str, args)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@pytest.mark.parametrize("x64", [False, True])
def test_conforms(jax, x64):
    with jax.enable_x64(x64):
        report = check_framework("jax")
    for (kind, dtype), found in report.items():
        held = (
            kind in ("scalar", "dense", "sparse", "hybrid")
            and dtype not in ("bytes", "text")
            and (x64 or dtype not in WIDE)
        )
        held = held and not dtype.startswith("float6_")  # XLA has no arrays of them
        assert found == ("exact" if held else "refused"), (kind, dtype)


class TestMemory:
    @pytest.mark.parametrize("row", PLAIN, ids=lambda row: row.name)
    def test_in_shares_the_arrays_memory(self, jax, row):
        array = jax.device_put(numbers(row, (4, 6)))
        ours = tw.tensor(array)
        assert (
            pointer(ours) == array.unsafe_buffer_pointer()
            and not ours.flags.writeable
            and ours.dtype == row.numpy
        )

    @pytest.mark.parametrize("row", PLAIN, ids=lambda row: row.name)
    def test_out_shares_writable_aligned_memory_only(self, jax, row):
        array = aligned(row, (4, 6))
        assert tw.to(array, "jax").unsafe_buffer_pointer() == pointer(array)
        array.flags.writeable = False
        # JAX by itself would share it
        assert tw.to(array, "jax").unsafe_buffer_pointer() != pointer(array)
        odd = aligned(row, (4, 6), shift=16)
        shared = tw.to(odd, "jax")
        odd.view(np.uint8)[...] = 0
        assert shared.unsafe_buffer_pointer() != pointer(odd) and tw.equal(
            shared, numbers(row, (4, 6))
        )

    def test_a_copy_is_done_when_we_return(self, jax):
        """JAX by itself copies large unaligned arrays in the background, and would see what is
        written meanwhile.
        """
        odd = memory.fresh((1 << 26) + 16)[16:].view(np.float32)
        odd[:] = 1
        copied = tw.to(odd, "jax")
        odd[:] = 0
        assert (tw.tensor(copied) == 1).all()

    def test_donated_memory_is_not_written(self, jax):
        array = aligned(PLAIN[0], (1000,))
        before = array.copy()
        lent = tw.to(array, "jax")
        assert lent.unsafe_buffer_pointer() == pointer(array)
        jax.jit(lambda x: x + 1, donate_argnums=0)(lent).block_until_ready()
        assert lent.is_deleted() and np.array_equal(array, before, equal_nan=True)
        with pytest.raises(tw.EncodeError, match="deleted or donated"):
            tw.tensor(lent)

    def test_loads_into_jax(self, jax):
        value = {
            "x": np.float32([1, 2]),
            "l": [np.ones(3, ml_dtypes.bfloat16), 7],
            "t": (tw.Sparse([[0]], np.int8([1]), [1]),),
        }
        blob = tw.dumps(value)
        back = tw.loads(blob, to="jax")
        assert (
            isinstance(back["x"], jax.Array)
            and back["l"][1] == 7
            and isinstance(back["t"][0], jax.experimental.sparse.BCOO)
        )
        assert tw.dumps(back) == blob


class TestArrays:
    @pytest.mark.parametrize("row", PACKED, ids=lambda row: row.name)
    def test_types_below_a_byte(self, jax, row):
        values = np.arange(1 << row.bits, dtype=np.uint8).view(row.numpy)
        assert tw.equal(tw.tensor(jax.numpy.asarray(values)), values)
        computed = tw.tensor(jax.numpy.asarray(values)[::-1])
        assert tw.equal(tw.loads(tw.dumps(computed)), values[::-1])

    def test_layouts_and_results(self, jax):
        base = jax.numpy.arange(24, dtype="float32").reshape(2, 3, 4)
        for view in (
            base.transpose(2, 0, 1),
            base[:, ::2],
            base[:0],
            base[1, 1, 1],
            base.astype("bfloat16").T,
        ):
            found = tw.tensor(view)
            assert (
                found.shape == view.shape
                and found.flags.c_contiguous
                and found.tolist() == view.tolist()
            )

    def test_devices(self, jax):
        device = jax.devices("cpu")[0]
        for given in ("cpu", "cpu:0", device, jax.sharding.SingleDeviceSharding(device)):
            assert tw.to(np.float32([1]), "jax", device=given).devices() == {device}
        for wrong in ("cpu:99", "cpu:x", "abacus"):
            with pytest.raises(tw.EncodeError, match="JAX has no device"):
                tw.to(np.float32([1]), "jax", device=wrong)
        assert tw.tensor(jax.numpy.ones(2), keep_device=True).tensor_metadata == {
            "tensor": {"device": "cpu:0"}
        }
        sparse = jax.experimental.sparse.BCOO.fromdense(jax.numpy.eye(2))
        assert frameworks.about(sparse) == {"device": "cpu:0"}

    def test_an_array_on_two_devices(self):
        code = """
import jax, numpy as np, tensorwire as tw
jax.config.update("jax_num_cpu_devices", 2)
mesh = jax.sharding.Mesh(np.array(jax.devices()), ("x",))
array = jax.device_put(np.arange(4.0, dtype="float32"), jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("x")))
assert len(array.devices()) == 2 and tw.tensor(array).tolist() == [0, 1, 2, 3]
print(tw.tensor(array, keep_device=True).tensor_metadata["tensor"]["device"], tw.to(np.int8([1]), "jax", device="cpu:1").devices())
"""
        out, error = run(code).communicate()
        assert out == "cpu:0,cpu:1 {CpuDevice(id=1)}\n", error


class TestX64:
    @pytest.mark.parametrize(("wide", "narrow"), WIDE.items())
    def test_no_silent_change(self, jax, wide, narrow):
        array = np.arange(5).astype(wide)
        with pytest.raises(tw.EncodeError, match=f"converts {wide} to {narrow}; cast=True"):
            tw.to(array, "jax")
        cast = tw.to(array, "jax", cast=True)
        assert cast.dtype == narrow and np.array_equal(cast, array)
        with jax.enable_x64(True):
            wide_array = tw.to(array, "jax")
            assert wide_array.dtype == wide
        assert tw.tensor(wide_array).dtype == wide  # also where x64 is off again

    @pytest.mark.parametrize(
        "value",
        [
            np.int64(1 << 31),
            np.int64(-(1 << 31) - 1),
            np.uint64(1 << 32),
            np.float64(1e39),
            np.complex128(1e39j),
        ],
    )
    def test_cast_never_makes_other_numbers(self, value):
        with pytest.raises(tw.EncodeError, match=r"does not fit (\w+32|complex64)"):
            tw.to(np.array([value]), "jax", cast=True)

    def test_cast_rounds_and_keeps_what_is_no_number(self):
        assert np.array_equal(
            tw.to(np.array([0.1, np.inf, -np.inf, np.nan]), "jax", cast=True),
            np.float32([0.1, np.inf, -np.inf, np.nan]),
            True,
        )

    def test_indices(self, jax):
        far = tw.Sparse([[1 << 31]], np.float32([1]), (1 << 40,))
        with pytest.raises(tw.EncodeError, match="does not fit int32"):
            tw.to(far, "jax")
        assert tw.to(tw.Sparse([[1]], np.float32([1]), (3,)), "jax").indices.dtype == "int32"
        with jax.enable_x64(True):
            assert tw.to(far, "jax").indices.dtype == "int64" and tw.equal(
                tw.tensor(tw.to(far, "jax")), far
            )


class TestSparse:
    def test_flags(self, jax):
        for indices, is_sorted, unique in (
            ([[0], [2]], True, True),
            ([[2], [0]], False, True),
            ([[1], [1]], True, False),
        ):
            found = tw.to(tw.Sparse(indices, np.float32([1, 2]), (3,)), "jax")
            assert (found.indices_sorted, found.unique_indices) == (is_sorted, unique)
            assert np.array_equal(
                found.todense(), tw.Sparse(indices, np.float32([1, 2]), (3,)).to_dense()
            )

    def test_padding_is_no_value(self, jax):
        padded = jax.experimental.sparse.BCOO.fromdense(jax.numpy.eye(3), nse=5)
        ours = tw.tensor(padded)
        assert padded.nse == 5 and ours.nnz == 3 and np.array_equal(ours.to_dense(), np.eye(3))

    def test_hybrid_and_bcsr(self, jax):
        sparse = jax.experimental.sparse
        dense = jax.numpy.arange(12.0).reshape(3, 2, 2) * jax.numpy.array([0, 1, 1])[:, None, None]
        hybrid = tw.tensor(sparse.BCOO.fromdense(dense, n_dense=1))
        assert hybrid.values.ndim == 2 and np.array_equal(hybrid.to_dense(), dense)
        assert tw.to(hybrid, "jax").n_dense == 1
        assert np.array_equal(
            tw.tensor(sparse.BCSR.fromdense(jax.numpy.eye(3))).to_dense(), np.eye(3)
        )

    def test_refused(self, jax):
        sparse = jax.experimental.sparse
        batched = sparse.BCOO.fromdense(jax.numpy.ones((2, 3)), n_batch=1)
        with pytest.raises(tw.EncodeError, match=r"update_layout\(n_batch=0\)"):
            tw.tensor(batched)
        assert np.array_equal(
            tw.tensor(batched.update_layout(n_batch=0)).to_dense(), np.ones((2, 3))
        )
        with pytest.raises(tw.EncodeError, match="pass a BCOO"):
            tw.tensor(sparse.CSR.fromdense(jax.numpy.eye(2)))
        with pytest.raises(tw.EncodeError, match="no ragged"):
            tw.to(tw.Ragged.of([[1]]), "jax")
        for words in (tw.Strings.of(["a"]), tw.Sparse([[0]], tw.Strings.of(["a"]), (2,))):
            with pytest.raises(tw.EncodeError, match="no string tensors"):
                tw.to(words, "jax")


class TestNoValues:
    def test_tracers(self, jax):
        seen = []

        def work(x):
            for traced in (
                x,
                {"x": x},
                jax.experimental.sparse.BCOO((x, jax.numpy.zeros((3, 1), "int32")), shape=(5,)),
            ):
                with pytest.raises(tw.EncodeError, match="JAX is tracing"):
                    tw.dumps(traced)
                seen.append(traced)
            return x.sum()

        for transform in (jax.jit, jax.grad):
            transform(work)(jax.numpy.ones(3))
        jax.vmap(work)(jax.numpy.ones((2, 3)))
        assert len(seen) == 9

    def test_keys(self, jax):
        key = jax.random.key(0)
        with pytest.raises(tw.EncodeError, match=r"jax\.random\.key_data"):
            tw.tensor(key)
        assert tw.tensor(jax.random.key_data(key)).dtype == np.uint32

    def test_other_objects(self, jax):
        with pytest.raises(tw.EncodeError, match="ShapeDtypeStruct is not an array with values"):
            tw.tensor(jax.ShapeDtypeStruct((2,), "float32"))
        with pytest.raises(tw.EncodeError, match=r"read it with x\[\.\.\.\]"):
            tw.tensor(jax.new_ref(jax.numpy.ones(2)))

    def test_arrays_of_other_processes(self):
        code = """
import sys, jax, numpy as np, tensorwire as tw
jax.distributed.initialize(f"localhost:{sys.argv[2]}", 2, int(sys.argv[1]))
mesh = jax.sharding.Mesh(np.array(jax.devices()), ("x",))
sharding = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("x"))
array = jax.make_array_from_process_local_data(sharding, np.ones(2, np.float32), (4,))
try:
    tw.tensor(array)
except tw.EncodeError as error:
    print(error)
"""
        with socket.socket() as probe:
            probe.bind(("localhost", 0))
            port = probe.getsockname()[1]
        both = [run(code, number, port) for number in (0, 1)]
        for out, error in [process.communicate(timeout=120) for process in both]:
            assert (
                "in other processes; collect it: jax.experimental.multihost_utils.process_allgather"
                in out
            ), error
