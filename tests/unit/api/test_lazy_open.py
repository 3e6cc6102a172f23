"""tw.open: what is known without reading, and that rows read only their bytes."""

import concurrent.futures
import json
import multiprocessing
import pickle
import time

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tensorwire as tw
from tensorwire.codecs.safetensors import Safetensors
from tensorwire.storage import files
from tensorwire.testing import samples
from tensorwire.testing import strategies as tws

VALUE = {
    "logits": np.arange(600.0).reshape(100, 6),
    "half": np.arange(300).astype(ml_dtypes.bfloat16).reshape(100, 3),
    "q": (np.arange(100) % 16 - 8).astype(ml_dtypes.int4),
    "z": np.arange(100) * (1 + 2j),
    "words": tw.Strings.of([f"word {i}" * (i % 4) for i in range(100)]),
    "grid": tw.Strings.of([b"%d" % i for i in range(300)], (100, 3)),
    "tokens": tw.Ragged.of([[i] * (i % 5) for i in range(100)]),
    "deep": tw.Ragged.of([[["a"] * (j % 3) for j in range(i % 4)] for i in range(100)]),
    "sorted": tw.Sparse([[i, i % 7] for i in range(0, 100, 3)], np.arange(34.0), (100, 7)),
    "mixed": tw.Sparse([[(i * 37) % 100, i % 7] for i in range(100)], np.arange(100), (100, 7)),
    "hybrid": tw.Sparse([[i] for i in range(0, 100, 9)], np.ones((12, 3)), (100, 3)),
    "text": tw.Sparse([[5], [50]], tw.Strings.of(["x", "y"]), (100,)),
    "nested": [np.zeros(3), {"k": np.array(7)}],
    "step": 3,
}


class Counting(files.BytesSource):
    """Counts what is read."""

    def __init__(self, data):
        super().__init__(data)
        self.read = 0

    def read_at(self, offset, count):
        self.read += count
        return super().read_at(offset, count)


def rows_of(tensor, start, stop):
    if isinstance(tensor, tw.Sparse):
        keep = (tensor.indices[:, 0] >= start) & (tensor.indices[:, 0] < stop)
        indices = tensor.indices[keep]
        indices[:, 0] -= start
        return tw.Sparse(
            indices, tensor.values[np.flatnonzero(keep)], [stop - start, *tensor.shape[1:]]
        )
    return tensor[start:stop]


@pytest.fixture(params=["path", "mmap", "bytes", "file object", "tensorproto"])
def opened(request, tmp_path):
    path = tmp_path / "f.safetensors"
    tw.save(path, VALUE, "tensorproto" if request.param == "tensorproto" else "safetensors")
    where = {"bytes": path.read_bytes, "file object": lambda: open(path, "rb")}.get(  # noqa: SIM115
        request.param, lambda: path
    )()
    with tw.open(where, mmap=request.param == "mmap") as f:
        yield f
    if request.param == "file object":
        where.close()


class TestReading:
    def test_names_and_specs(self, opened):
        assert list(opened) == [*list(VALUE)[:-2], "nested/0", "nested/1/k"]
        for name, tensor in VALUE.items():
            if hasattr(tensor, "shape"):
                assert opened[name].shape == tensor.shape and len(opened[name]) == 100
        assert (
            opened["half"].dtype,
            opened["q"].dtype,
            opened["words"].dtype,
            opened["grid"].dtype,
        ) == (
            "bfloat16",
            "int4",
            "text",
            "bytes",
        )
        assert [opened[name].kind for name in ("z", "words", "deep", "text")] == [
            "dense",
            "strings",
            "ragged",
            "sparse",
        ]
        assert opened["logits"].dtype == np.float64 and opened["tokens"].dtype == np.int64
        assert opened["z"].dtype == "complex128" and opened["nested/1/k"].shape == ()

    def test_whole_tensors(self, opened):
        for name, tensor in VALUE.items():
            if hasattr(tensor, "shape"):
                assert tw.equal(opened[name].read(), tensor), name
        assert tw.equal(np.asarray(opened["logits"]), VALUE["logits"]) and tw.equal(
            opened.load(), VALUE
        )
        assert opened["nested/1/k"][()] == 7 and opened["nested/1/k"][...] == 7

    @pytest.mark.parametrize("rows", [(0, 100), (0, 0), (10, 20), (99, 100), (50, 50), (3, 97)])
    def test_rows(self, opened, rows):
        for name, tensor in VALUE.items():
            if hasattr(tensor, "shape"):
                assert tw.equal(opened[name][rows[0] : rows[1]], rows_of(tensor, *rows)), name

    def test_indexing_as_numpy_does(self, opened):
        array, lazy = VALUE["logits"], opened["logits"]
        for key in (
            3,
            -1,
            slice(None),
            slice(5, 50, 7),
            slice(50, 5, -3),
            (slice(2, 4), 1),
            (3, 2),
            (slice(None), slice(1, 3)),
            [1, 5],
            ...,
        ):
            assert tw.equal(np.asarray(lazy[key]), np.asarray(array[key])), key
        assert opened["words"][3] == VALUE["words"][3] and opened["tokens"][4].tolist() == [4] * 4
        assert opened["sorted"][3].shape == (7,) and opened["sorted"][3].to_dense()[3] == 1
        with pytest.raises(IndexError):
            lazy[100]
        for name in ("sorted", "tokens"):
            with pytest.raises(IndexError, match="step of 1"):
                opened[name][::2]

    def test_unknown_names(self, opened):
        with pytest.raises(KeyError, match="did you mean 'logits'"):
            opened["logit"]
        assert "logits" in opened and "nothing" not in opened and len(opened) == 14


def test_rows_read_only_their_bytes():
    big = {
        "dense": np.zeros((10_000, 100)),
        "words": tw.Strings.of([b"x" * 50] * 10_000),
        "ragged": tw.Ragged(np.zeros(200_000), np.arange(0, 200_001, 20)),
        "sparse": tw.Sparse(
            np.column_stack([np.repeat(np.arange(10_000), 5), np.tile(np.arange(5), 10_000)]),
            np.zeros(50_000),
            (10_000, 5),
        ),
    }
    source = Counting(tw.dumps(big))
    container = Safetensors().open(source)
    for name, most in (("dense", 1600), ("words", 200), ("ragged", 400), ("sparse", 1500)):
        source.read = 0
        container.read(name, (5000, 5002))
        assert source.read <= most, (name, source.read)


@given(st.sampled_from(["dense", "strings", "sparse", "ragged"]), st.data())
def test_any_rows_of_any_tensor(kind, data):
    tensor = data.draw(
        {
            "dense": tws.arrays(),
            "strings": tws.strings(),
            "sparse": tws.sparse(),
            "ragged": tws.ragged(),
        }[kind]
    )
    with tw.open(tw.dumps({"t": tensor, "n": 1})) as f:
        assert f["t"].shape == tensor.shape
        if tensor.shape:
            a, b = sorted(data.draw(st.tuples(*[st.integers(0, tensor.shape[0])] * 2)))
            assert tw.equal(f["t"][a:b], rows_of(tensor, a, b))
        assert tw.equal(f["t"].read(), tensor)


def test_every_sample_opens():
    for sample in samples():
        with tw.open(tw.dumps(sample.value)) as f:
            assert tw.equal(f.load(), sample.value)
            assert all(tensor.nbytes >= 0 and repr(tensor) for tensor in f.values())


def _sum(args):
    f, name = args
    return float(f[name][10:20].sum())


class TestHandles:
    def test_many_threads(self, tmp_path):
        tw.save(tmp_path / "f.safetensors", VALUE)
        with (
            tw.open(tmp_path / "f.safetensors") as f,
            concurrent.futures.ThreadPoolExecutor(8) as pool,
        ):
            found = list(pool.map(lambda i: f["logits"][i % 100].sum(), range(2000)))
        assert found == [VALUE["logits"][i % 100].sum() for i in range(2000)]

    def test_travels_to_another_process(self, tmp_path):
        tw.save(tmp_path / "f.safetensors", VALUE)
        with multiprocessing.get_context("spawn").Pool(1) as pool:
            for where in (tmp_path / "f.safetensors", tw.dumps(VALUE)):
                with tw.open(where) as f:
                    assert pool.map(_sum, [(f, "logits")]) == [VALUE["logits"][10:20].sum()]

    def test_pickle(self, tmp_path):
        tw.save(tmp_path / "f.safetensors", VALUE)
        with (
            tw.open(tmp_path / "f.safetensors", mmap=True) as f,
            pickle.loads(pickle.dumps(f)) as again,
        ):
            assert tw.equal(again.load(), VALUE)
        with (
            open(tmp_path / "f.safetensors", "rb") as stream,
            pytest.raises(TypeError, match="by its path"),
        ):
            pickle.dumps(tw.open(stream))

    def test_mapped_arrays_outlive_the_handle_and_cannot_be_written(self, tmp_path):
        tw.save(tmp_path / "f.safetensors", VALUE)
        with tw.open(tmp_path / "f.safetensors", mmap=True) as f:
            array = f["logits"].read()
        assert array.sum() == VALUE["logits"].sum() and not array.flags.writeable
        with pytest.raises(ValueError):
            array.flags.writeable = True

    def test_closed(self, tmp_path):
        tw.save(tmp_path / "f.safetensors", VALUE)
        f = tw.open(tmp_path / "f.safetensors")
        f.close()
        with pytest.raises(ValueError, match="closed"):
            f["logits"].read()


@pytest.mark.timing
def test_twenty_gigabytes(tmp_path):
    """One row of a file of 20 GB, sparse on disk: under 5 ms and under 1 MB, opening included."""
    path = tmp_path / "huge.safetensors"
    rows, width = 5_000_000, 1000
    head = json.dumps(
        {"x": {"dtype": "F32", "shape": [rows, width], "data_offsets": [0, rows * width * 4]}}
    ).encode()
    head += b" " * (-(8 + len(head)) % 64)
    with open(path, "wb") as file:
        file.write(len(head).to_bytes(8, "little") + head)
        file.truncate(8 + len(head) + rows * width * 4)
    times, read = [], _bytes_read()
    for row in (0, 4_999_999, 1_234_567, 7, 99):
        start = time.perf_counter()
        with tw.open(path) as f:
            found = f["x"][row]
        times.append(time.perf_counter() - start)
        assert found.shape == (width,) and not found.any()
    assert min(times) < 0.005 and (_bytes_read() - read) < 5 * 1_000_000


def _bytes_read():
    with open("/proc/self/io") as file:
        return int(next(line for line in file if line.startswith("rchar")).split()[1])


class TestShards:
    def make(self, folder, **changes):
        tw.save(folder / "m-00001-of-00002.safetensors", {"a": np.arange(3), "b": np.zeros(2)})
        tw.save(folder / "m-00002-of-00002.safetensors", {"c": np.ones((4, 2), np.float16)})
        index = {
            "metadata": {"total_size": 56, "who": "hub"},
            "weight_map": (
                {
                    "c": "m-00002-of-00002.safetensors",
                    "a": "m-00001-of-00002.safetensors",
                    "b": "m-00001-of-00002.safetensors",
                }
                | changes
            ),
        }
        (folder / "m.safetensors.index.json").write_text(json.dumps(index))
        return folder / "m.safetensors.index.json"

    def test_one_model(self, tmp_path):
        path = self.make(tmp_path)
        for mmap in (False, True):
            with tw.open(path, mmap=mmap) as f:
                assert (
                    list(f) == ["c", "a", "b"]
                    and f["c"][1:3].shape == (2, 2)
                    and f.metadata == {"total_size": "56", "who": "hub"}
                )
                assert tw.equal(
                    f.load(),
                    {"c": np.ones((4, 2), np.float16), "a": np.arange(3), "b": np.zeros(2)},
                )
        assert tw.equal(tw.load(path)["a"], np.arange(3)) and list(tw.load(path, names=["b"])) == [
            "b"
        ]
        assert tw.inspect(path).tensors[0].name == "c" and tw.verify(path)

    @pytest.mark.parametrize(
        "changes",
        [
            {"x": "../m-00001-of-00002.safetensors"},
            {"x": "/etc/passwd"},
            {"x": ".."},
            {"x": 3},
            {"x": "m-00002-of-00002.safetensors"},
        ],
    )
    def test_lies(self, tmp_path, changes):
        with pytest.raises(tw.DecodeError) as caught:
            tw.open(self.make(tmp_path, **changes))
        assert caught.value.path

    def test_a_missing_shard(self, tmp_path):
        with pytest.raises(FileNotFoundError):
            tw.open(self.make(tmp_path, x="gone.safetensors"))


class TestInspectAndVerify:
    def test_summary(self, tmp_path):
        path = tmp_path / "f.safetensors"
        tw.save(path, VALUE, checksum=True, metadata={"model": "nmt"})
        summary = tw.inspect(path)
        assert (
            summary.format == "safetensors"
            and summary.size == path.stat().st_size
            and summary.checksums
            and summary.metadata == {"model": "nmt"}
        )
        assert {tensor.name: tensor.kind for tensor in summary.tensors}["tokens"] == "ragged"
        assert json.loads(json.dumps(summary.json()))["tensors"][0]["shape"] == [100, 6]
        assert "logits" in str(summary) and "[100, ?]" in str(summary)

    def test_whole(self, tmp_path):
        for format, options in (
            ("safetensors", {"checksum": True}),
            ("safetensors", {}),
            ("tensorproto", {}),
        ):
            found = tw.verify(tw.dumps(VALUE, format, **options))
            assert (
                found
                and found.tensors == 14
                and found.checksums is bool(options)
                and found.problems == []
            )

    def test_damaged(self):
        blob = bytearray(tw.dumps({"a": np.zeros(100), "b": np.ones(100)}, checksum=True))
        blob[-5] ^= 1
        found = tw.verify(blob)
        assert (
            not found
            and found.tensors == 1
            and len(found.problems) == 1
            and "tensor b" in found.problems[0]
        )
        assert (
            not tw.verify(b"garbage")
            and not tw.verify(bytes(blob[:-1]))
            and tw.verify(b"garbage").format is None
        )


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-3, 9)
    | st.just(1 << 70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=2),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["list", "dict", "sparse", "ragged", "strings", "dtype", "same"]),
            inner,
            max_size=2,
        )
    ),
    max_leaves=4,
)


def edited(draw, node):
    """A spec with one thing in it replaced by something else."""
    if draw(st.integers(0, 3)) == 0 or not isinstance(node, (dict, list)) or not node:
        return draw(JSON)
    keys = list(node) if isinstance(node, dict) else range(len(node))
    key = draw(st.sampled_from(list(keys)))
    copy = dict(node) if isinstance(node, dict) else list(node)
    copy[key] = edited(draw, copy[key])
    return copy


@given(st.data())
def test_specs_that_lie_give_our_errors_only(data):
    """Through loads, and through every way to look at a tensor of an open file."""
    value = data.draw(st.sampled_from([{name: VALUE[name]} for name in VALUE] + [VALUE]))
    blob = tw.dumps(value)
    size = int.from_bytes(blob[:8], "little")
    header = json.loads(blob[8 : 8 + size])
    ours = json.loads(
        header.get("__metadata__", {}).get(
            "tensorwire", '{"version":1,"spec":{"dict":{"logits":{}}}}'
        )
    )
    ours["spec"] = edited(data.draw, ours["spec"])
    header["__metadata__"] = {"tensorwire": json.dumps(ours)}
    text = json.dumps(header).encode()
    damaged = len(text).to_bytes(8, "little") + text + blob[8 + size :]
    for limits in (None, tw.Limits()):  # with the kernel and without
        try:
            tw.loads(damaged, limits=limits)
        except tw.DecodeError:
            pass
    try:
        f = tw.open(damaged)
    except tw.DecodeError:
        return
    for name in f:
        for look in (
            lambda t: repr(t),
            lambda t: t.read(),
            lambda t: t[1:3],
            lambda t: t[0],
            lambda t: len(t),
        ):
            try:
                look(f[name])
            except (tw.DecodeError, IndexError, TypeError) as error:
                assert (
                    isinstance(error, tw.DecodeError)
                    or "row" in str(error)
                    or "0-d" in str(error)
                    or "range" in str(error)
                    or "string" in str(error)
                ), error
