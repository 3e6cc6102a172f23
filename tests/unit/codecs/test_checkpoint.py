"""TensorFlow's checkpoints: read equal to TensorFlow, written so that TensorFlow restores them, and
safe on whatever claims to be one.
"""

import errno
import importlib
import os
import pickle
import random
import resource
import subprocess
import sys
import time

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tensorwire as tw
from support.checkpoint_files import Made, entry, field, header
from support.tiers import PURE
from tensorwire import checkpoint
from tensorwire.codecs.checkpoint import names
from tensorwire.codecs.checkpoint.data import data_path
from tensorwire.codecs.checkpoint.graph import make_graph, read_graph
from tensorwire.codecs.checkpoint.slices import slice_key
from tensorwire.testing import check_codec
from tensorwire.testing.strategies import values
from tensorwire.wire import leveldb

SUFFIX = "/.ATTRIBUTES/VARIABLE_VALUE"
DTYPES = [
    *(
        "float64",
        "float32",
        "float16",
        "bfloat16",
        "float8_e5m2",
        "float8_e4m3fn",
        "float8_e4m3fnuz",
        "float8_e4m3b11fnuz",
    ),
    *(
        "float8_e5m2fnuz",
        "float4_e2m1fn",
        "int64",
        "int32",
        "int16",
        "int8",
        "int4",
        "int2",
        "uint64",
        "uint32",
        "uint16",
        "uint8",
    ),
    *("uint4", "uint2", "bool", "complex64", "complex128"),
]


def array(name, count=6):
    dtype = np.dtype(getattr(ml_dtypes, name, name))
    high = 2 if name in ("bool", "int2", "uint2") else 7
    return (np.arange(count) % high).astype(np.int8).astype(dtype).reshape(-1, 2)


def raw_save(tf, prefix, tensors):
    names = list(tensors)
    tf.raw_ops.SaveV2(
        prefix=str(prefix),
        tensor_names=names,
        shape_and_slices=[""] * len(names),
        tensors=list(tensors.values()),
    )
    return str(prefix)


def assert_as_tensorflow(tf, prefix, **options):
    """Every key that TensorFlow knows, with the same shape, dtype and bytes."""
    reader = tf.train.load_checkpoint(str(prefix))
    shapes = reader.get_variable_to_shape_map()
    with tw.open(prefix, readable=False, **options) as f:
        assert set(f) == set(shapes)
        assert {name: list(shape) for name, shape in f.shapes().items()} == shapes
        for key in shapes:
            ours, theirs = f[key].read(), reader.get_tensor(key)
            if isinstance(ours, tw.Strings):
                assert (
                    ours.shape == np.shape(theirs)
                    and np.asarray(ours).tolist() == np.asarray(theirs, object).tolist()
                )
            else:
                theirs = np.asarray(theirs)
                assert (ours.dtype, ours.shape) == (
                    theirs.dtype,
                    theirs.shape,
                ) and ours.tobytes() == theirs.tobytes(), key
    assert tw.verify(prefix, "checkpoint")
    return shapes


@pytest.mark.tensorflow
class TestTensorFlowWrites:
    def test_every_dtype(self, tf, tmp_path):
        tensors = {name: tf.constant(array(name)) for name in DTYPES}
        tensors |= {
            "empty": np.zeros((0, 3), np.float32),
            "scalar": np.float64(3),
            "strings": tf.constant([[b"abc", b""], [b"x" * 300, b"\xff"]]),
        }
        prefix = raw_save(tf, tmp_path / "x", tensors)
        assert len(assert_as_tensorflow(tf, prefix)) == len(DTYPES) + 3
        assert_as_tensorflow(tf, prefix, mmap=True)
        found = tw.load(prefix)
        assert isinstance(found, tw.Bundle) and found["strings"].tolist() == [
            [b"abc", b""],
            [b"x" * 300, b"\xff"],
        ]
        assert found["int4"].dtype == ml_dtypes.int4 and found["int4"].flags.writeable

    def test_objects_and_slots(self, tf, tmp_path):
        v1 = tf.compat.v1
        variable = tf.Variable(np.arange(6, dtype=np.float32).reshape(2, 3))
        optimizer = v1.train.AdamOptimizer(0.1)
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(variable**2)
        optimizer.apply_gradients([(tape.gradient(loss, variable), variable)])
        net = tf.Module()
        net.kernel, net.words = variable, tf.Variable(["a", "bc"])
        path = tf.train.Checkpoint(net=net, optimizer=optimizer).save(f"{tmp_path}/model.ckpt")
        assert_as_tensorflow(tf, path)
        with tw.open(path) as f:
            assert {
                "net/kernel",
                "net/words",
                "save_counter",
                "optimizer/slots/m/net/kernel",
                "optimizer/slots/v/net/kernel",
            } <= set(f)
            np.testing.assert_array_equal(f["net/kernel"].read(), variable.numpy())
            np.testing.assert_array_equal(f[f"net/kernel{SUFFIX}"].read(), variable.numpy())
            assert (
                f.names(readable=False)[0].endswith(SUFFIX)
                and names.GRAPH not in list(f)
                and f.unlisted == [names.GRAPH]
            )
            assert f.tensor_metadata["net/kernel"] == {"key": f"net/kernel{SUFFIX}"}
            graph = read_graph(f[names.GRAPH].read().data.tobytes())
        assert (
            checkpoint.full_names(graph)[f"net/kernel{SUFFIX}"] == variable.name.partition(":")[0]
        )
        assert "net" in graph[0].children and any(
            slot.name == "m" for node in graph for slot in node.slots
        )
        assert checkpoint.latest(tmp_path) == path == tf.train.latest_checkpoint(str(tmp_path))
        with tw.open(tmp_path) as f:
            assert f.format == "checkpoint" and f["save_counter"].read() == 1

    def test_names_with_dots_and_slashes(self, tf, tmp_path):
        holder = tf.train.Checkpoint(a=tf.Variable(1.0))
        inner = tf.Module()
        inner.table = {"layer.0": tf.Variable(2.0), "x/y": tf.Variable(3.0)}
        holder.inner = inner
        path = holder.write(f"{tmp_path}/x")
        with tw.open(path) as f:
            assert {"a", "inner/table/layer.0", "inner/table/x/y"} == set(f)
            assert f["inner/table/x/y"].read() == 3

    def test_keras(self, tf, tmp_path):
        keras = tf.keras
        model = keras.Sequential(
            [keras.layers.Input((4,)), keras.layers.Dense(3, name="hidden"), keras.layers.Dense(2)]
        )
        model.compile("adam", "mse")
        model.fit(np.ones((8, 4), np.float32), np.ones((8, 2), np.float32), verbose=0)
        path = tf.train.Checkpoint(model=model).save(f"{tmp_path}/k")
        assert_as_tensorflow(tf, path)
        found = tw.load(path)
        kernels = [x for x in found.values() if isinstance(x, np.ndarray) and x.shape == (4, 3)]
        assert any(np.array_equal(one, model.layers[0].kernel.numpy()) for one in kernels)

    def test_saver_of_tensorflow_1(self, tf, tmp_path):
        v1 = tf.compat.v1
        with tf.Graph().as_default(), v1.Session() as session:
            v1.get_variable("net/kernel", initializer=np.arange(6, dtype=np.float32).reshape(2, 3))
            v1.get_variable("step", initializer=np.int64(7))
            rows = v1.get_variable("rows", [11, 3], partitioner=v1.fixed_size_partitioner(4))
            v1.get_variable("columns", [3, 11], partitioner=v1.fixed_size_partitioner(3, axis=1))
            v1.get_variable(
                "long",
                [20_000, 1],
                tf.int8,
                v1.zeros_initializer(),
                partitioner=v1.fixed_size_partitioner(3),
            )
            session.run(v1.global_variables_initializer())
            path = v1.train.Saver().save(session, f"{tmp_path}/model.ckpt", global_step=1000)
            whole = session.run(tf.convert_to_tensor(rows))
        assert path.endswith("model.ckpt-1000")
        assert set(assert_as_tensorflow(tf, path)) == {
            "net/kernel",
            "step",
            "rows",
            "columns",
            "long",
        }
        with tw.open(path) as f:
            assert f["rows"].shape == (11, 3) and f["rows"].kind == "dense"
            np.testing.assert_array_equal(f["rows"].read(), whole)
            np.testing.assert_array_equal(f["rows"][2:8], whole[2:8])
            np.testing.assert_array_equal(f["rows"][10], whole[10])
            np.testing.assert_array_equal(f["columns"][1:], f["columns"].read()[1:])
        with tw.open(tmp_path) as f:
            assert f["step"].read() == 7

    def test_several_data_files(self, tf, tmp_path):
        parts = [
            raw_save(
                tf,
                tmp_path / f"part-{i}",
                {f"v{i}": np.full((3, 2), i, np.float32), f"s{i}": tf.constant([b"x" * i])},
            )
            for i in range(3)
        ]
        tf.raw_ops.MergeV2Checkpoints(
            checkpoint_prefixes=parts, destination_prefix=f"{tmp_path}/whole", delete_old_dirs=False
        )
        assert (tmp_path / "whole.data-00002-of-00003").exists()
        assert len(assert_as_tensorflow(tf, f"{tmp_path}/whole")) == 6
        assert_as_tensorflow(tf, f"{tmp_path}/whole", mmap=True)

    def test_saved_model(self, tf, tmp_path):
        module = tf.Module()
        module.weight = tf.Variable(np.arange(3.0))
        tf.saved_model.save(module, f"{tmp_path}/m")
        assert_as_tensorflow(tf, f"{tmp_path}/m/variables/variables")
        with tw.open(tmp_path / "m") as f:
            np.testing.assert_array_equal(f["weight"].read(), np.arange(3.0))

    def test_iterators(self, tf, tmp_path):
        """Variants come as the messages that they are."""
        iterator = iter(tf.data.Dataset.range(10))
        next(iterator)
        path = tf.train.Checkpoint(it=iterator, v=tf.Variable(1.0)).write(f"{tmp_path}/x")
        with tw.open(path) as f:
            assert all(b"Iterator" in one for one in f["it/ITERATOR_STATE"].read().tolist())
        assert tw.verify(path).ok

    def test_big_endian_is_read_as_tensorflow_reads_it(self, tf, tmp_path):
        made = Made(big=True)
        for name in (
            "float32",
            "int64",
            "int16",
            "float64",
            "uint8",
            "bool",
            "complex64",
            "complex128",
        ):
            made.add(name, array(name))
        made.add("strings", [b"abc", b"", b"x" * 200])
        assert_as_tensorflow(tf, made.write(tmp_path / "x"))

    def test_snappy_is_read_as_tensorflow_reads_it(self, tf, tmp_path):
        cramjam = importlib.import_module("cramjam")
        made = Made()
        for i in range(300):
            made.add(f"layer_{i}/kernel", array("float32") + i)
        prefix = made.write(
            tmp_path / "old", lambda block: bytes(cramjam.snappy.compress_raw(block))
        )
        assert len(assert_as_tensorflow(tf, prefix)) == 300


@pytest.mark.tensorflow
class TestTensorFlowReads:
    def test_every_dtype(self, tf, tmp_path):
        tensors = {name: array(name) for name in DTYPES} | {
            "e": np.zeros((0, 3), np.float32),
            "s": np.array(3.0),
        }
        tensors["strings"] = tw.Strings.of([b"abc", b"", b"x" * 300, b"\xff"], (2, 2))
        for shards in (1, 3):
            prefix = f"{tmp_path}/x-{shards}"
            tw.save(prefix, tw.Bundle(tensors), "checkpoint", graph=False, shards=shards)
            assert os.path.exists(data_path(prefix, shards - 1, shards))
            shapes = assert_as_tensorflow(tf, prefix)
            assert set(shapes) - {"__tensorwire__"} == set(tensors)

    def test_restore_by_the_object_graph(self, tf, tmp_path):
        value = {
            "net": {
                "kernel": np.arange(6, dtype=np.float32).reshape(2, 3),
                "layer.0": np.int64([4]),
            },
            "words": tw.Strings.of(["a", "bc"]),
        }
        prefix = f"{tmp_path}/model.ckpt-1"
        tw.save(prefix, value | {"save_counter": np.int64(5)})
        net = tf.Module()
        net.kernel = tf.Variable(np.zeros((2, 3), np.float32))
        holder = tf.train.Checkpoint(net=net, words=tf.Variable(["", ""]))
        holder.restore(prefix).assert_existing_objects_matched()
        np.testing.assert_array_equal(net.kernel.numpy(), value["net"]["kernel"])
        assert holder.words.numpy().tolist() == [b"a", b"bc"] and int(holder.save_counter) == 5
        assert tf.train.list_variables(prefix)

    def test_restore_into_the_root(self, tf, tmp_path):
        module = tf.Module()
        module.layers = [tf.Variable(np.zeros(2)), tf.Variable(np.zeros(3))]
        tw.save(
            f"{tmp_path}/x",
            {"layers": [np.arange(2.0), np.arange(3.0)], "save_counter": np.int64(1)},
            "checkpoint",
        )
        tf.train.Checkpoint(root=module).restore(f"{tmp_path}/x").assert_consumed()
        np.testing.assert_array_equal(module.layers[1].numpy(), np.arange(3.0))

    def test_a_keras_model_goes_through_us(self, tf, tmp_path):
        keras = tf.keras

        def made():
            return keras.Sequential(
                [keras.layers.Input((4,)), keras.layers.Dense(3), keras.layers.Dense(2)]
            )

        model, other = made(), made()
        path = tf.train.Checkpoint(root=model).write(f"{tmp_path}/theirs")
        found = tw.load(path)
        tw.save(f"{tmp_path}/ours", dict(found) | {"save_counter": np.int64(1)}, "checkpoint")
        tf.train.Checkpoint(root=other).restore(
            f"{tmp_path}/ours"
        ).assert_existing_objects_matched()
        for ours, theirs in zip(other.get_weights(), model.get_weights(), strict=True):
            np.testing.assert_array_equal(ours, theirs)

    def test_slots_by_their_keys(self, tf, tmp_path):
        key = f"w/.OPTIMIZER_SLOT/opt/m{SUFFIX}"
        tw.save(
            f"{tmp_path}/x",
            {
                "w": np.ones(2, np.float32),
                key: np.full(2, 7, np.float32),
                "opt/beta1_power": np.float32(0.5),
            },
            "checkpoint",
        )
        variable, optimizer = (
            tf.Variable(np.zeros(2, np.float32)),
            tf.compat.v1.train.AdamOptimizer(0.1),
        )
        tf.train.Checkpoint(w=variable, opt=optimizer).restore(f"{tmp_path}/x")
        optimizer.apply_gradients([(tf.zeros(2), variable)])
        assert optimizer.get_slot(variable, "m").numpy().tolist() == pytest.approx([6.3, 6.3])

    def test_saver_of_tensorflow_1(self, tf, tmp_path):
        v1 = tf.compat.v1
        tw.save(
            f"{tmp_path}/x",
            {"net/kernel": np.arange(6, dtype=np.float32).reshape(2, 3)},
            "checkpoint",
            graph=False,
        )
        with tf.Graph().as_default(), v1.Session() as session:
            kernel = v1.get_variable("net/kernel", [2, 3])
            v1.train.Saver().restore(session, f"{tmp_path}/x")
            np.testing.assert_array_equal(session.run(kernel), np.arange(6.0).reshape(2, 3))

    def test_the_latest(self, tf, tmp_path):
        for step in (1, 2):
            tw.save(f"{tmp_path}/model.ckpt-{step}", {"x": np.int64(step)})
            checkpoint.save_state(
                tmp_path, f"{tmp_path}/model.ckpt-{step}", [f"{tmp_path}/model.ckpt-1"][: step - 1]
            )
        assert (
            tf.train.latest_checkpoint(str(tmp_path))
            == f"{tmp_path}/model.ckpt-2"
            == checkpoint.latest(tmp_path)
        )
        assert (
            tf.train.get_checkpoint_state(str(tmp_path)).all_model_checkpoint_paths
            == checkpoint.all_checkpoints(tmp_path)[1:]
        )
        assert tw.load(tmp_path) == {"x": 2}

    def test_the_writer(self, tf, tmp_path):
        with checkpoint.Writer(tmp_path / "x") as writer:
            for i in range(5):
                writer.add(f"net/{i}", tf.constant(np.full((100, 10), i, np.float32)))
            writer.add("words", tw.Strings.of(["a", "b"]))
        assert set(assert_as_tensorflow(tf, f"{tmp_path}/x")) == {
            *(f"net/{i}{SUFFIX}" for i in range(5)),
            f"words{SUFFIX}",
            names.GRAPH,
        }


VALUES = [
    {"b": np.arange(3), "a": np.zeros((2, 0))},
    np.arange(4),
    [np.arange(4), {"n": 3, "x": None, "f": float("nan")}, (b"raw", "text")],
    {
        "sparse": tw.Sparse([[0, 1]], np.float32([2]), (3, 4)),
        "ragged": tw.Ragged(np.arange(4), [0, 1, 4]),
        "s": tw.Strings.of(["é", ""]),
    },
    tw.Bundle({"x": np.arange(2)}, {"model": "nmt"}, {"x": {"unit": "m"}}),
    {
        "a": {"b": np.ones(1)},
        "a/b": np.zeros(1),
        "~": np.zeros(1),
        "": np.zeros(1),
        "a.b": np.ones(2),
        "a//b": np.ones(3),
    },
    {},
    tw.Bundle({}),
    {f"x{SUFFIX}": np.arange(3)},
]


class TestOurs:
    @pytest.mark.parametrize("value", VALUES, ids=range(len(VALUES)))
    @pytest.mark.parametrize("options", [{}, {"graph": False}, {"shards": 3}], ids=str)
    def test_it_comes_back_as_it_was(self, tmp_path, value, options):
        if options == {"graph": False} and isinstance(value, dict) and "" in value:
            with pytest.raises(tw.EncodeError, match="invalid checkpoint key"):
                tw.save(tmp_path / "x", value, "checkpoint", **options)
            return
        tw.save(tmp_path / "x", value, "checkpoint", **options)
        assert tw.equal(tw.load(tmp_path / "x"), value)
        with tw.open(tmp_path / "x", mmap=True) as f:
            assert tw.equal(f.load(), value)
        assert tw.equal(tw.loads(tw.dumps(value, "checkpoint", **options), "checkpoint"), value)
        assert tw.verify(tmp_path / "x").ok

    @given(values())
    def test_any_value(self, value):
        try:
            data = tw.dumps(value, "checkpoint")
        except (
            tw.EncodeError
        ) as error:  # keys that begin with a zero byte are TensorFlow's, for slices
            assert error.message.startswith("invalid checkpoint key '\\x00")
            return
        assert tw.equal(tw.loads(data, "checkpoint"), value)

    def test_every_kind_and_dtype(self):
        report = check_codec("checkpoint", hostile=1 if PURE else 15)
        assert set(report.values()) == {"exact"}

    def test_quantized_and_metadata(self, tmp_path):
        x = np.linspace(-1, 1, 100, dtype=np.float32)
        tw.save(tmp_path / "x", {"x": x}, "checkpoint", quantize="int8", metadata={"model": "nmt"})
        with tw.open(tmp_path / "x") as f:
            assert (
                f.metadata == {"model": "nmt"}
                and f["x"].quantized == "int8"
                and f["x"].dtype == np.float32
            )
        np.testing.assert_allclose(tw.load(tmp_path / "x")["x"], x, atol=0.01)

    def test_a_plain_bundle_needs_no_words(self, tmp_path):
        tw.save(
            tmp_path / "x",
            tw.Bundle({"a": np.zeros(2), "b": np.zeros(3)}),
            "checkpoint",
            graph=False,
        )
        with tw.open(tmp_path / "x", readable=False) as f:
            assert list(f) == ["a", "b"]

    def test_names_that_cannot_be(self, tmp_path):
        for name in ("__tensorwire__", "_CHECKPOINTABLE_OBJECT_GRAPH", "\0x", ""):
            with pytest.raises(tw.EncodeError, match="invalid checkpoint key"):
                tw.save(tmp_path / "x", {name: np.zeros(1)}, "checkpoint", graph=False)
        with pytest.raises(tw.EncodeError, match="two tensors"):
            tw.save(tmp_path / "x", {"a": np.zeros(1), f"a{SUFFIX}": np.zeros(1)}, "checkpoint")
        with pytest.raises(tw.EncodeError, match="compressed"):
            tw.save(tmp_path / "x", {"a": np.zeros(1)}, "checkpoint", compression="gzip")
        with pytest.raises(tw.EncodeError, match="data files"):
            tw.save(tmp_path / "x", {"a": np.zeros(1)}, "checkpoint", shards=0)
        assert os.listdir(tmp_path) == []

    def test_numbers_lie_at_multiples_of_64(self, tmp_path):
        tw.save(
            tmp_path / "x",
            {
                "a": np.ones(3, np.int8),
                "b": np.arange(1000.0),
                "s": tw.Strings.of(["x"]),
                "c": np.arange(500),
            },
            "checkpoint",
        )
        with tw.open(tmp_path / "x", mmap=True) as f:
            for name in ("b", "c"):
                found = f[name].read()
                assert (
                    found.__array_interface__["data"][0] % 64 == 0
                    and not found.flags.writeable
                    and not found.flags.owndata
                )


class TestOpening:
    def made(self, folder):
        made = (
            Made(shards=2)
            .add("a", np.arange(20.0).reshape(10, 2))
            .add("b", [b"one", b"two", b"three"], shard=1)
        )
        return made.write(folder / "model.ckpt-1000")

    def test_by_prefix_index_data_and_format(self, tmp_path):
        prefix = self.made(tmp_path)
        for path in (prefix, f"{prefix}.index", data_path(prefix, 1, 2)):
            for options in ({}, {"format": "checkpoint"}, {"format": ("checkpoint", "npz")}):
                with tw.open(path, **options) as f:
                    assert f.format == "checkpoint" and list(f) == ["a", "b"] and f.path == prefix
        assert tw.load(prefix, names=["b"])["b"].tolist() == [b"one", b"two", b"three"]
        with (
            open(f"{prefix}.index", "rb") as file,
            open(data_path(prefix, 0, 2), "rb") as one,
            open(data_path(prefix, 1, 2), "rb") as two,
        ):
            assert tw.equal(
                tw.loads(one.read() + two.read() + file.read(), "checkpoint"), tw.load(prefix)
            )
        with pytest.raises(FileNotFoundError):
            tw.open(prefix, "npz")

    def test_other_files_are_not_mistaken_for_it(self, tmp_path):
        tw.save(tmp_path / "x.safetensors", {"x": np.zeros(2)})
        self.made(tmp_path)
        os.rename(tmp_path / "model.ckpt-1000.index", tmp_path / "x.safetensors.index")
        assert tw.load(tmp_path / "x.safetensors")["x"].shape == (2,)
        (tmp_path / "other.index").write_bytes(b"\x93NUMPY")
        with pytest.raises(tw.DecodeError):
            tw.open(tmp_path / "other.index")
        with pytest.raises(FileNotFoundError):
            tw.open(tmp_path / "nothing")
        with pytest.raises(FileNotFoundError):
            tw.open(tmp_path / "nothing", "checkpoint")
        with pytest.raises(tw.DecodeError, match="folder"):
            tw.open(tmp_path, "checkpoint")

    def test_inspect_and_pickle(self, tmp_path):
        prefix = self.made(tmp_path)
        found = tw.inspect(prefix)
        assert [(one.name, one.kind, one.dtype, one.shape) for one in found.tensors] == [
            ("a", "dense", "float64", (10, 2)),
            ("b", "strings", "bytes", (3,)),
        ]
        assert found.checksums and found.size == sum(
            os.path.getsize(tmp_path / name) for name in os.listdir(tmp_path)
        )
        with tw.open(prefix) as f, pickle.loads(pickle.dumps(f)) as again:
            np.testing.assert_array_equal(again["a"].read(), f["a"].read())
        with pytest.raises(ValueError, match="closed"):
            f["a"].read()
        with pytest.raises(TypeError, match="unknown option"):
            tw.open(prefix, nonsense=1)

    def test_an_index_alone_can_be_looked_at(self, tmp_path):
        prefix = self.made(tmp_path)
        os.unlink(data_path(prefix, 0, 2))
        with tw.open(prefix) as f:
            assert f["a"].shape == (10, 2) and f["b"].read().size == 3
            with pytest.raises(tw.DecodeError, match="missing") as caught:
                f["a"].read()
        assert caught.value.path == data_path(prefix, 0, 2) and caught.value.tensor == "a"
        assert "missing" in tw.verify(prefix).problems[0]

    @pytest.mark.parametrize("big", [False, True])
    def test_rows_read_only_their_bytes(self, tmp_path, big, monkeypatch):
        x = np.arange(3000.0).reshape(1000, 3)
        made = Made(big=big).add("x", x)
        made.partitioned(
            "p",
            (1000, 3),
            [([(i * 100, 100), (0, None)], x[i * 100 : i * 100 + 100]) for i in range(10)],
        )
        prefix = made.write(tmp_path / "x")
        seen = []
        from tensorwire.storage.files import FileSource

        inner = FileSource.read_into
        monkeypatch.setattr(
            FileSource,
            "read_into",
            lambda self, at, out: (seen.append(len(out)), inner(self, at, out))[1],
        )
        with tw.open(prefix) as f:
            assert seen == [os.path.getsize(f"{prefix}.index")]
            seen.clear()
            for name in ("x", "p"):
                np.testing.assert_array_equal(f[name][95:205], x[95:205])
                np.testing.assert_array_equal(f[name][999], x[999])
                assert sum(seen) == 111 * 24
                seen.clear()
            np.testing.assert_array_equal(f["p"].read(), x)
            assert f["p"][3:3].shape == (0, 3)

    def test_rows_of_strings(self, tmp_path):
        strings = [bytes([65 + i % 26]) * (i * 7 % 300) for i in range(500)]
        prefix = Made().add("s", strings).write(tmp_path / "x")
        for options in ({}, {"mmap": True}):
            with tw.open(prefix, **options) as f:
                assert (
                    f["s"].read().tolist() == strings
                    and f["s"][100:300].tolist() == strings[100:300]
                    and f["s"][499] == strings[499]
                )

    def test_slices_in_two_dimensions(self, tmp_path):
        x = np.arange(24, dtype=np.int32).reshape(4, 6)
        boxes = [[(0, 3), (0, 2)], [(3, 1), (0, 2)], [(0, 1), (2, 4)], [(1, 3), (2, 4)]]
        pieces = [
            (box, x[box[0][0] : sum(box[0]), box[1][0] : sum(box[1])].copy()) for box in boxes
        ]
        prefix = Made().partitioned("p", (4, 6), pieces).write(tmp_path / "x")
        with tw.open(prefix) as f:
            np.testing.assert_array_equal(f["p"].read(), x)
            for start in range(4):
                np.testing.assert_array_equal(f["p"][start:], x[start:])

    def test_large_numbers_in_the_keys_of_slices(self):
        """test_saver_of_tensorflow_1 has such ones of TensorFlow's own."""
        assert (
            slice_key("v", [(64, 8192), (1 << 20, None)]).hex()
            == "007600010102c040e02000f01000007f"
        )

    def test_readable_names(self):
        keys = [
            "a",
            f"a{SUFFIX}",
            f"b{SUFFIX}",
            f"c..d.Se{SUFFIX}",
            "it/.ATTRIBUTES/STATE",
            f"k/.OPTIMIZER_SLOT/o/m{SUFFIX}",
            "plain.name",
        ]
        had = np.array([key.endswith(SUFFIX) for key in keys])
        stems = [key.removesuffix(SUFFIX) for key in keys]
        assert names.all_readable(stems, had) == [
            "a",
            f"a{SUFFIX}",
            "b",
            "c.d/e",
            "it/STATE",
            "o/slots/m/k",
            "plain.name",
        ]

    @given(
        st.lists(
            st.text(max_size=6)
            | st.sampled_from(["a", "a/b", "a.b", "a/.ATTRIBUTES/x", f"a{SUFFIX}"]),
            unique=True,
            max_size=12,
        )
    )
    def test_names_are_different_and_keys_reach_everything(self, keys):
        made = Made()
        kept = sorted(
            {
                key
                for key in [*keys, *map(names.key_of, keys)]
                if key and key[0] != "\0" and key not in names.HIDDEN
            }
        )
        for i, key in enumerate(kept):
            made.add(key, np.int64(i))
        data = made.data[0] + made.index()
        f = tw.open(data, "checkpoint")
        assert len(set(f)) == len(list(f)) == len(kept)
        for i, key in enumerate(kept):
            assert f[list(f)[i]].read() == i and f[key].read() == i

    @given(
        st.lists(
            st.text(st.characters(blacklist_categories=["Cs"]), max_size=8), unique=True, max_size=8
        )
    )
    def test_graphs(self, found):
        keys = [names.key_of(name) for name in found if not name.endswith(SUFFIX)]
        nodes = make_graph(keys)
        assert sorted(one.key for node in nodes for one in node.attributes) == sorted(keys)
        for name in (name for name in found if not name.endswith(SUFFIX)):
            at = 0
            for part in name.split("/") if name else []:
                at = nodes[at].children[part]
            assert [one.key for one in nodes[at].attributes] == [names.key_of(name)]


class TestState:
    def test_what_tensorflow_may_write(self, tmp_path):
        (tmp_path / "checkpoint").write_text(
            'model_checkpoint_path: "a \\"b\\"\\303\\251"\nall_model_checkpoint_paths:'
            ' "old"\nlast_preserved_timestamp: 1.5e9\n'
        )
        assert checkpoint.all_checkpoints(tmp_path) == [
            os.path.join(tmp_path, 'a "b"é'),
            os.path.join(tmp_path, "old"),
        ]
        assert checkpoint.latest(tmp_path / "nothing") is None

    def test_a_folder_that_was_moved(self, tmp_path):
        Made().add("x", np.arange(2)).write(tmp_path / "m-1")
        (tmp_path / "checkpoint").write_text('model_checkpoint_path: "/gone/away/m-1"\n')
        assert checkpoint.latest(tmp_path) == f"{tmp_path}/m-1"
        assert tw.load(tmp_path)["x"].tolist() == [0, 1]

    @pytest.mark.parametrize(
        "text",
        [
            b"",
            b"model_checkpoint_path",
            b'model_checkpoint_path: "a\n',
            b"\xff",
            b'x: "y"',
            b'model_checkpoint_path: ""',
        ],
    )
    def test_what_is_none(self, tmp_path, text):
        (tmp_path / "checkpoint").write_bytes(text)
        with pytest.raises(tw.DecodeError):
            checkpoint.latest(tmp_path)

    @given(
        st.text(
            st.characters(blacklist_categories=["Cs"], blacklist_characters="/\0"),
            min_size=1,
            max_size=20,
        ).filter(lambda s: s not in (".", ".."))
    )
    def test_any_name(self, name):
        import tempfile

        with tempfile.TemporaryDirectory() as folder:
            checkpoint.save_state(folder, os.path.join(folder, name), durable=False)
            assert checkpoint.latest(folder) == os.path.join(folder, name)


class TestReplacing:
    def test_the_old_one_is_there_until_the_new_one_is(self, tmp_path, monkeypatch):
        prefix = str(tmp_path / "x")
        tw.save(prefix, {"x": np.arange(3)}, "checkpoint")
        before = tw.load(prefix)
        calls = []

        def failing(real):
            def call(*arguments):
                calls.append(arguments)
                if len(calls) == failing.number:
                    raise OSError(errno.EIO, "no")
                real(*arguments)

            return call

        for name in ("replace", "link"):
            monkeypatch.setattr(os, name, failing(getattr(os, name)))
        for failing.number in (1, 2, 3):
            calls.clear()
            with pytest.raises(OSError, match="no"):
                tw.save(prefix, {"x": np.zeros(5)}, "checkpoint")
            assert tw.equal(tw.load(prefix), before)
            assert sorted(os.listdir(tmp_path)) == ["x.data-00000-of-00001", "x.index"]
        failing.number = 0
        tw.save(prefix, {"x": np.zeros(5)}, "checkpoint")
        assert tw.load(prefix)["x"].shape == (5,)
        assert sorted(os.listdir(tmp_path)) == [
            "x.data-00000-of-00002",
            "x.data-00001-of-00002",
            "x.index",
        ]
        tw.save(prefix, {"x": np.zeros(6)}, "checkpoint")
        assert sorted(os.listdir(tmp_path)) == ["x.data-00000-of-00001", "x.index"] and tw.load(
            prefix
        )["x"].shape == (6,)

    def test_a_writer_that_fails_leaves_nothing(self, tmp_path):
        with pytest.raises(RuntimeError), checkpoint.Writer(tmp_path / "x") as writer:
            writer.add("a", np.zeros(10))
            raise RuntimeError
        assert os.listdir(tmp_path) == []
        with checkpoint.Writer(tmp_path / "x") as writer:
            with pytest.raises(tw.EncodeError, match="several arrays"):
                writer.add("s", tw.Sparse([[0]], np.ones(1), (2,)))
            with pytest.raises(tw.EncodeError, match="two tensors"):
                writer.add("b", np.zeros(1)) or writer.add("b", np.zeros(1))
            writer.add("c", np.asfortranarray(np.arange(6.0).reshape(2, 3)))
            assert not os.path.exists(tmp_path / "x.index")
        with pytest.raises(ValueError, match="closed"):
            writer.add("d", np.zeros(1))
        np.testing.assert_array_equal(tw.load(tmp_path / "x")["c"], np.arange(6.0).reshape(2, 3))
        with checkpoint.Writer(tmp_path / "x") as writer:
            writer.add("e", np.zeros(1))
        assert list(tw.load(tmp_path / "x")) == ["e"] and len(os.listdir(tmp_path)) == 3

    @pytest.mark.timing
    @pytest.mark.skipif(sys.platform != "linux", reason="ru_maxrss is in kilobytes on Linux")
    def test_the_writer_keeps_nothing(self, tmp_path):
        code = (
            "import resource, sys, numpy as np\nfrom tensorwire.checkpoint import Writer\nx"
            " = np.ones(1 << 20)\nbefore = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\nwith"
            " Writer(sys.argv[1], durable=False) as w:\n    for i in range(40): w.add(f'x{i}', x +"
            " i)\nprint(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)"
        )
        found = subprocess.run(
            [sys.executable, "-c", code, str(tmp_path / "x")],
            capture_output=True,
            text=True,
            check=True,
        )
        assert int(found.stdout) < 40_000  # of 320 MB


def sliced(shape, pieces, listed=None):
    made = Made()
    made.partitioned(
        "p", shape, [(extents, np.zeros(dims, np.float32)) for extents, dims in pieces]
    )
    if listed is not None:
        made.items[b"p"] = entry(1, shape, slices=listed)
    return made


def lying(value, data=bytes(100), **more):
    made = Made()
    made.data = [data]
    made.items |= {b"x": value} | {key.encode(): found for key, found in more.items()}
    return made


def headed(value):
    made = Made().add("x", np.zeros(2))
    made.items[b""] = value
    return made


HOSTILE = {
    "negative dim": (lying(entry(1, (-1,), 0, 4)), "negative"),
    "product past 2**63": (lying(entry(1, (1 << 40, 1 << 40), 0, 4)), "is too large"),
    "zero among huge": (lying(entry(1, (0, 1 << 40, 1 << 40), 0, 0)), "is too large"),
    "unknown rank": (lying(field(1, 1) + field(2, b"\x18\x01")), "negative"),
    "300 dims": (lying(entry(1, (1,) * 300, 0, 4)), "254 dimensions"),
    "100 dims": (lying(entry(1, (1,) * 100, 0, 4)), "rank 100"),
    "too many bytes": (lying(entry(1, (2,), 0, 12)), "size of a tensor does not match"),
    "too few bytes": (lying(entry(1, (2,), 0, 7)), "size of a tensor does not match"),
    "huge tensor": (lying(entry(1, (1 << 50,), 0, 1 << 52)), "data file has"),
    "huge offset": (lying(entry(1, (1,), (1 << 63) - 4, 4)), "does not fit"),
    "far away": (lying(entry(1, (1,), 1 << 50, 4)), "data file has"),
    "negative offset": (lying(entry(1, (1,), -4, 4)), "does not fit"),
    "negative size": (lying(entry(1, (1,), 0, -4)), "does not fit"),
    "negative shard": (lying(entry(1, (1,), 0, 4, shard=-1)), "does not fit"),
    "wrong shard": (lying(entry(1, (1,), 0, 4, shard=1)), "data file that does not exist"),
    "unknown dtype": (lying(entry(99, (1,), 0, 4)), "dtype"),
    "huge dtype": (lying(entry(1 << 40, (1,), 0, 4)), "unknown dtype"),
    "resource": (lying(entry(20, (1,), 0, 4)), "dtype"),
    "overlap": (lying(entry(1, (2,), 0, 8), y=entry(1, (2,), 4, 8)), "overlap"),
    "the same bytes": (lying(entry(1, (2,), 0, 8), y=entry(1, (2,), 0, 8)), "overlap"),
    "fields twice": (lying(entry(1, (2,), 0, 8) * 2), "appears twice"),
    "an entry of another wire type": (lying(field(1, b"xx")), "wire type"),
    "more strings than bytes": (lying(entry(7, (1 << 40,), 0, 100)), "offsets"),
    "more strings than there is room": (lying(entry(7, (101,), 0, 100)), "101 strings"),
    "strings that are cut": (lying(entry(7, (3,), 0, 20), b"\xff" * 20), "cut off"),
    "lengths that lie": (lying(entry(7, (2,), 0, 20), b"\x7f\x7f" + bytes(18)), "lengths"),
    "huge lengths": (
        lying(entry(7, (2,), 0, 22), (b"\xff" * 8 + b"\x7f") * 2 + bytes(4)),
        "lengths",
    ),
    "a checksum of lengths": (lying(entry(7, (1,), 0, 8), b"\x03" + bytes(4) + b"abc"), "checksum"),
    "variants": (lying(entry(21, (2,), 0, 20), b"\x7f" * 20), "variant"),
    "no header": (headed(b""), "0 data files"),
    "two billion shards": (headed(header(1 << 40)), "data files"),
    "byte order": (headed(b"\x08\x01\x10\x07"), "byte order"),
    "a newer version": (headed(header(1, version=b"\x08\x09\x10\x09")), "version 9"),
    "slices with a hole": (
        sliced((4, 2), [([(0, 2), (0, 2)], (2, 2)), ([(3, 1), (0, 2)], (1, 2))]),
        "elements",
    ),
    "slices that overlap": (sliced((4,), [([(0, 2)], (2,)), ([(1, 2)], (2,))]), "overlap"),
    "slices that overlap in a corner": (
        sliced(
            (4, 4),
            [([(0, 2), (0, 4)], (2, 4)), ([(1, 2), (0, 2)], (2, 2)), ([(2, 2), (2, 2)], (2, 2))],
        ),
        "overlap",
    ),
    "slices past the end": (sliced((4,), [([(0, 2)], (2,)), ([(3, 2)], (2,))]), "does not fit"),
    "a slice of another shape": (
        sliced((4,), [([(0, 2)], (3,)), ([(2, 2)], (2,))]),
        "does not fit",
    ),
    "a slice of another rank": (sliced((4,), [([(0, 4), (0, 1)], (4, 1))]), "does not fit"),
    "a slice that is not there": (
        sliced((4,), [([(0, 4)], (4,))], [[(0, 3)], [(3, 1)]]),
        "no entry for the slice",
    ),
    "a slice twice": (sliced((4,), [([(0, 2)], (2,))], [[(0, 2)], [(0, 2)]]), "overlap"),
    "a negative slice": (
        sliced((4,), [([(0, 4)], (4,))], [[(-1, 5)]]),
        "no entry for the slice|does not fit",
    ),
    "slices of nothing": (sliced((1 << 40,), [([(0, 0)], (0,))]), "elements"),
}


class TestHostile:
    @pytest.mark.parametrize("mmap", [False, True])
    @pytest.mark.parametrize("name", HOSTILE)
    def test_it_is_an_error(self, tmp_path, name, mmap):
        made, words = HOSTILE[name]
        prefix = made.write(tmp_path / "x")
        start, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        with pytest.raises(tw.DecodeError, match=words) as caught, tw.open(prefix, mmap=mmap) as f:
            f.load()
        assert time.perf_counter() - start < 2
        assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 64 << 10
        error = caught.value
        assert (
            error.format == "checkpoint"
            and error.offset is not None
            and error.path.startswith(prefix)
        )
        verified = tw.verify(prefix)
        assert verified.problems or (verified.unsupported and name in ("unknown dtype", "resource"))
        with pytest.raises(tw.DecodeError):
            tw.loads(made.data[0] + made.index(), "checkpoint")

    def test_many_slices(self, tmp_path):
        """What would be compared with each other is bounded, what lies in one row is not, and there
        is an end to both.
        """
        count = 300 if PURE else 5000
        pieces = [([(i, 1), (0, 2)], np.zeros((1, 2), np.int8)) for i in range(count)]
        prefix = Made().partitioned("p", (count, 2), pieces).write(tmp_path / "x")
        with tw.open(prefix) as f:
            assert f["p"][5:9].shape == (4, 2)
        grid = [([(i, 1), (j, 1)], np.zeros((1, 1), np.int8)) for i in range(65) for j in range(65)]
        for made in (
            sliced((4,), [([(0, 4)], (4,))], [[(0, 4)]] * 100_000),
            Made().partitioned("p", (65, 65), grid),
        ):
            made.write(tmp_path / "x")
            start = time.perf_counter()
            with pytest.raises(tw.LimitError), tw.open(prefix) as f:
                f["p"].read()
            assert time.perf_counter() - start < (20 if PURE else 4)

    def test_a_spec_that_lies(self):
        for spec in (
            b"",
            b"{",
            b'{"version": 9, "spec": {}}',
            b'{"version": 1}',
            b'{"version": 1, "spec": {"list": 9}}',
            b"[]",
            b"\xff",
        ):
            made = Made().add("x", np.zeros(2)).add("__tensorwire__", [spec])
            made.items[b"__tensorwire__"] = made.items[b"__tensorwire__"].replace(
                b"\x12\x04\x12\x02\x08\x01", b"\x12\x00"
            )
            with pytest.raises(tw.DecodeError) as caught:
                tw.loads(made.data[0] + made.index(), "checkpoint")
            assert caught.value.format and caught.value.offset is not None

    @given(st.binary(max_size=300))
    def test_garbage(self, data):
        for made in (
            data,
            data + leveldb.MAGIC,
            data + leveldb.write([(b"", header()), (b"x", data)]),
        ):
            try:
                tw.loads(made, "checkpoint")
            except tw.DecodeError as error:
                assert error.format and error.offset is not None

    @given(st.binary(max_size=60))
    def test_any_graph(self, data):
        try:
            read_graph(data)
        except tw.DecodeError as error:
            assert error.format == "checkpoint"


class TestDamage:
    """Promise 5: no flip ever yields another value or name; a cut is an error."""

    def made(self):
        made = (
            Made(shards=2)
            .add("net/kernel" + SUFFIX, np.arange(6, dtype=np.float32))
            .add("s", [b"abc", b"", b"de"], shard=1)
        )
        made.add("flag", np.array([True, False]), shard=1)
        made.partitioned("p", (4,), [([(0, 1)], np.int16([1])), ([(1, 3)], np.int16([2, 3, 4]))])
        return made

    def files(self, prefix):
        return [f"{prefix}.index", data_path(prefix, 0, 2), data_path(prefix, 1, 2)]

    @pytest.mark.parametrize("mmap", [False, True])
    def test_every_flip(self, tmp_path, mmap):
        prefix = self.made().write(tmp_path / "x")
        whole = tw.load(prefix)
        for path in self.files(prefix):
            with open(path, "rb") as file:
                data = file.read()
            places = [(at, bit) for at in range(len(data)) for bit in range(8)]
            if PURE:
                places = random.Random(1).sample(places, min(len(places), 300))
            for at, bit in places:
                with open(path, "r+b") as file:
                    file.seek(at)
                    file.write(bytes([data[at] ^ 1 << bit]))
                with (
                    pytest.raises(tw.DecodeError) as caught,
                    tw.open(prefix, "checkpoint", mmap=mmap) as f,
                ):
                    f.load()
                assert caught.value.offset is not None and caught.value.path == path
                with open(path, "r+b") as file:
                    file.seek(at)
                    file.write(data[at : at + 1])
        assert tw.equal(tw.load(prefix), whole)

    def test_every_cut(self, tmp_path):
        prefix = self.made().write(tmp_path / "x")
        for path in self.files(prefix):
            with open(path, "rb") as file:
                data = file.read()
            for size in range(len(data)):
                with open(path, "wb") as file:
                    file.write(data[:size])
                with pytest.raises(tw.DecodeError) as caught:
                    tw.load(prefix, "checkpoint")
                assert caught.value.path == path
            with open(path, "wb") as file:
                file.write(data)

    def test_ours(self):
        value = {"b": np.arange(3), "a": [tw.Strings.of(["x", "yz"]), {"n": 3}]}
        data = tw.dumps(value, "checkpoint")
        random_ = random.Random(3)
        places = [(at, bit) for at in range(len(data)) for bit in range(8)]
        for at, bit in random_.sample(places, 200 if PURE else 4000):
            bad = bytearray(data)
            bad[at] ^= 1 << bit
            try:
                found = tw.loads(bytes(bad), "checkpoint")
            except tw.DecodeError:
                continue
            assert tw.equal(found, value)  # in the gaps between tensors, which nobody reads
