"""Weights of Keras models: the same as Keras reads, called as Keras calls them, and nothing in a
file ever executed.
"""

import importlib
import io
import json
import os
import random
import resource
import signal
import subprocess
import sys
import time
import warnings
import zipfile
from concurrent.futures import ThreadPoolExecutor

import ml_dtypes
import numpy as np
import pytest

import tensorwire as tw
from support.tiers import TORTURE

h5py = importlib.import_module("h5py")


@pytest.fixture(scope="module")
def keras(tf):
    return importlib.import_module("keras")


@pytest.fixture(scope="module")
def model(keras):
    """One of each layer whose variables have names of their own."""
    layers = keras.layers
    inputs = keras.Input((8,))
    x = layers.Dense(4, dtype="bfloat16", name="first")(inputs)
    x = layers.Reshape((2, 2))(x)
    x = layers.Bidirectional(layers.GRU(3, return_sequences=True), name="both")(x)
    x = layers.LSTM(4, return_sequences=True, name="memory")(x)
    x = layers.MultiHeadAttention(2, 3, name="attention")(x, x)
    x = layers.TimeDistributed(layers.Dense(3), name="each")(x)
    x = layers.SeparableConv1D(2, 1, name="separable")(x)
    x = layers.Conv1D(2, 1, use_bias=False)(x)
    x = layers.DepthwiseConv1D(1)(x)
    x = layers.PReLU()(x)
    x = layers.GroupNormalization(1)(x)
    x = layers.LayerNormalization(center=False)(x)
    x = layers.BatchNormalization(scale=False)(x)
    x = layers.EinsumDense("abc,cd->abd", (None, 2), name="einsum")(x)
    x = keras.Sequential(
        [layers.Dense(3, name="q"), layers.Dropout(0.1), layers.Dense(2, name="r")], name="tower"
    )(x)
    normalization = layers.Normalization(name="normal")
    normalization.adapt(np.random.default_rng(0).random((5, 2, 2)))
    made = keras.Model(inputs, normalization(x))
    made.compile("adam", "mse")
    made.optimizer.build(made.trainable_variables)
    return made


@pytest.fixture(scope="module")
def folder(model, tmp_path_factory):
    found = tmp_path_factory.mktemp("keras")
    model.save(found / "m.keras")
    model.save_weights(found / "m.weights.h5")
    return found


def weights(model):
    """Name -> value, as Keras has them."""
    return {weight.path: np.asarray(weight.numpy()) for weight in model.weights}


@pytest.mark.tensorflow
class TestReading:
    def test_names_and_values_are_those_of_keras(self, folder, model):
        expected = weights(model)
        with tw.open(folder / "m.keras") as f:
            assert f.format == "keras" and f.lazy
            found = {
                name: tensor for name, tensor in f.items() if not name.startswith("optimizer/")
            }
            assert set(found) == set(expected)
            for name, tensor in found.items():
                assert tw.equal(tensor.read(), expected[name]), name
                assert tensor.shape == expected[name].shape and str(tensor.dtype) == str(
                    expected[name].dtype
                )
            assert found["first/kernel"].dtype == ml_dtypes.bfloat16
            assert f.tensor_metadata["first/kernel"] == {"path": "layers/dense/vars/0"}
            assert (
                json.loads(f.metadata["config"])["class_name"] == "Functional"
                and f.metadata["keras_version"]
            )
        optimizer = {name for name in tw.load(folder / "m.keras") if name.startswith("optimizer/")}
        assert len(optimizer) == len(model.optimizer.variables)

    def test_rows(self, folder, model):
        with tw.open(folder / "m.keras") as f:
            kernel = weights(model)["memory/lstm_cell/kernel"]
            tensor = f["memory/lstm_cell/kernel"]
            assert (
                tw.equal(tensor[2:5], kernel[2:5])
                and tw.equal(tensor[-1], kernel[-1])
                and tw.equal(tensor[::2], kernel[::2])
            )
            assert f["normal/count"].shape == () and int(f["normal/count"].read()) == 0

    def test_weights_alone_are_called_by_their_place(self, folder, model):
        with tw.open(folder / "m.weights.h5") as f, tw.open(folder / "m.keras") as whole:
            paths = {texts["path"]: name for name, texts in whole.tensor_metadata.items()}
            assert "layers/dense/vars/0" in f and f.metadata == {}
            for path, tensor in f.items():
                assert tw.equal(tensor.read(), whole[paths.get(path, path)].read()), path

    def test_older_files(self, keras, tmp_path):
        model = keras.Sequential(
            [
                keras.Input((3,)),
                keras.layers.Dense(2, name="hidden"),
                keras.layers.Dense(1, name="out"),
            ]
        )
        with warnings.catch_warnings(action="ignore"):  # it would rather have another format
            model.save(tmp_path / "m.h5")
        with tw.open(tmp_path / "m.h5") as f:
            assert {name: tensor.shape for name, tensor in f.items()} == {
                weight.path: tuple(weight.shape) for weight in model.weights
            }
            for name, expected in weights(model).items():
                assert tw.equal(f[name].read(), expected)
            assert "Sequential" in f.metadata["config"] and f.metadata["keras_version"]

    def test_custom_layers_and_more_variables_than_expected(self, keras, tmp_path):
        class Block(keras.layers.Layer):
            def build(self, shape):
                self.inner = keras.layers.Dense(2, name="inside")
                self.inner.build(shape)
                self.extra = self.add_weight(shape=(3,), name="extra")

            def call(self, x):
                return self.inner(x)

        model = keras.Sequential(
            [keras.Input((3,)), Block(name="block"), keras.layers.Dense(1, name="out")]
        )
        model.save(tmp_path / "m.keras")
        assert set(tw.open(tmp_path / "m.keras")) == {
            "layers/block/inner/vars/0", "layers/block/inner/vars/1", "layers/block/vars/0", "out/kernel", "out/bias",
        }  # fmt: skip
        small = keras.Sequential([keras.Input((8,)), keras.layers.Dense(4, name="d")])
        small.layers[-1].quantize("int8")
        small.save(tmp_path / "q.keras")
        with tw.open(tmp_path / "q.keras") as f:
            assert len(f) == 3 and f["layers/dense/vars/0"].dtype == np.int8

    def test_everything_that_takes_a_file(self, folder, model, tmp_path):
        source = folder / "m.keras"
        report = tw.convert(
            source, tmp_path / "m.safetensors", exclude="optimizer/*", dtype="float32"
        )
        assert report.format == "keras" and report.cast == 2
        tw.convert(source, tmp_path / "m.npz")
        assert tw.diff(source, tmp_path / "m.npz").equal
        assert tw.equal(tw.load(source), tw.load(tmp_path / "m.npz")) and bool(tw.verify(source))
        shown = str(tw.inspect(source))
        assert (
            "first/kernel" in shown
            and "path=layers/dense/vars/0" in shown
            and max(map(len, shown.splitlines())) < 400
        )
        assert tw.equal(tw.loads(source.read_bytes()), tw.load(source)) and set(
            tw.load(source, names=["normal/mean"])
        ) == {"normal/mean"}
        with open(source, "rb") as file:
            assert len(tw.open(file)) == len(tw.load(source))
        for work in (
            lambda: tw.dumps({"x": np.ones(2)}, "keras"),
            lambda: tw.save(tmp_path / "x.keras", {"x": np.ones(2)}),
        ):
            with pytest.raises(tw.EncodeError, match="only read"):
                work()

    def test_zipped_again(self, folder, tmp_path):
        with (
            zipfile.ZipFile(folder / "m.keras") as old,
            zipfile.ZipFile(tmp_path / "m.keras", "w", zipfile.ZIP_DEFLATED) as new,
        ):
            for name in reversed(old.namelist()):
                new.writestr(name, old.read(name))
        assert tw.diff(folder / "m.keras", tmp_path / "m.keras").equal


LOOK = """
import sys, tensorwire as tw

def work(path):
    tw.load(path), str(tw.inspect(path)), tw.verify(path)

work(sys.argv[1])  # which imports what is needed
armed, seen = True, []
sys.addaudithook(lambda event, args: seen.append(event) if armed else None)
work(sys.argv[2])
armed = False
print(*{event.split("/")[0] for event in seen})
print(*sys.modules)
"""


@pytest.mark.tensorflow
def test_nothing_is_executed(keras, folder, tmp_path):
    """A Lambda with code, which Keras would run: it is text, and neither Keras, nor marshal, nor
    pickle is asked.
    """
    model = keras.Sequential(
        [keras.Input((3,)), keras.layers.Lambda(lambda x: x * 2), keras.layers.Dense(1, name="out")]
    )
    model.save(tmp_path / "lambda.keras")
    with zipfile.ZipFile(tmp_path / "lambda.keras") as file:
        assert b"__lambda__" in file.read("config.json")
    found = subprocess.run(
        [sys.executable, "-c", LOOK, str(folder / "m.keras"), str(tmp_path / "lambda.keras")],
        capture_output=True,
        text=True,
    )
    assert found.returncode == 0, found.stderr
    events, modules = found.stdout.splitlines()
    # subprocess.Popen is the child in which h5py runs, which gets nothing of the config.
    assert not {
        "exec",
        "compile",
        "marshal.loads",
        "pickle.find_class",
        "import",
        "os.system",
    } & set(events.split())
    assert not {"keras", "tensorflow", "dill"} & set(modules.split())


def hdf5(**groups):
    """A file in memory; each argument gets the root group."""
    stream = io.BytesIO()
    with h5py.File(stream, "w") as file:
        for work in groups.values():
            work(file)
    return stream.getvalue()


class TestHostile:
    def test_plain_hdf5(self):
        blob = hdf5(
            a=lambda f: f.create_dataset("x/y", data=np.arange(6.0).reshape(2, 3)),
            b=lambda f: f.create_dataset("flag", data=np.array([True])),
        )
        found = tw.loads(blob)
        assert tw.equal(found, {"flag": np.array([True]), "x/y": np.arange(6.0).reshape(2, 3)})

    @pytest.mark.parametrize(
        "options",
        [
            {"compression": "gzip"},
            {"compression": "lzf", "shuffle": True},
            {"fletcher32": True},
            {"chunks": (7, 3)},
        ],
    )
    def test_filters_of_its_own(self, options):
        data = np.arange(300, dtype=np.float32).reshape(30, 10)
        blob = hdf5(a=lambda f: f.create_dataset("x", data=data, **options))
        assert tw.equal(tw.loads(blob)["x"], data) and tw.equal(tw.open(blob)["x"][5:9], data[5:9])

    def test_big_endian_and_empty(self):
        blob = hdf5(
            a=lambda f: f.create_dataset("x", data=np.arange(3, dtype=">f8")),
            b=lambda f: f.create_dataset("none", shape=(0, 3), dtype="i4"),
        )
        assert tw.equal(tw.loads(blob), {"none": np.zeros((0, 3), np.int32), "x": np.arange(3.0)})

    def test_links_out_of_the_file(self, tmp_path):
        with h5py.File(tmp_path / "secret.h5", "w") as file:
            file["x"] = np.ones(3)
        cases = [
            lambda f: f.__setitem__("out", h5py.ExternalLink(str(tmp_path / "secret.h5"), "/x")),
            lambda f: f.__setitem__("soft", h5py.SoftLink("/a")),
            lambda f: f.__setitem__("nowhere", h5py.SoftLink("/nothing")),
        ]
        for case in cases:
            blob = hdf5(a=lambda f: f.create_dataset("a", data=np.ones(2)), b=case)
            with pytest.raises(tw.DecodeError, match="never followed"):
                tw.open(blob)

    def test_data_in_other_files(self, tmp_path):
        secret = tmp_path / "secret.bin"
        secret.write_bytes(b"password" * 8)
        with h5py.File(tmp_path / "a.h5", "w") as file:
            file.create_dataset("x", shape=(64,), dtype="u1", external=[(str(secret), 0, 64)])
        with pytest.raises(tw.DecodeError, match="another file"):
            tw.open(tmp_path / "a.h5")
        with h5py.File(tmp_path / "source.h5", "w") as file:
            file["x"] = np.ones(4)
        with h5py.File(tmp_path / "b.h5", "w") as file:
            layout = h5py.VirtualLayout(shape=(4,), dtype="f8")
            layout[:] = h5py.VirtualSource(str(tmp_path / "source.h5"), "x", shape=(4,))
            file.create_virtual_dataset("x", layout)
        with pytest.raises(tw.DecodeError, match="virtual dataset"):
            tw.open(tmp_path / "b.h5")

    def test_filters_that_others_have(self):
        blob = hdf5(a=lambda f: f.create_dataset("x", data=np.arange(100), scaleoffset=0))
        with pytest.raises(tw.DecodeError, match="filter 6"):
            tw.open(blob)

    def test_sizes_that_are_not_there(self):
        """A terabyte that nothing is stored of, and many that are small each."""
        blob = hdf5(
            a=lambda f: f.create_dataset("x", shape=(1 << 40,), dtype="u1", chunks=(1 << 20,))
        )
        with pytest.raises(tw.LimitError, match="expansion"):
            tw.loads(blob)
        with tw.open(blob) as file, pytest.raises(tw.LimitError, match="expansion"):
            file["x"].read()
        many = hdf5(
            a=lambda f: [
                f.create_dataset(f"x{i}", shape=(60 << 20,), dtype="u1", chunks=(1 << 20,))
                for i in range(40)
            ]
        )
        with pytest.raises(tw.LimitError):
            tw.loads(many)
        fits = hdf5(a=lambda f: f.create_dataset("x", shape=(1 << 10,), dtype="u1"))
        assert tw.equal(tw.loads(fits), {"x": np.zeros(1 << 10, np.uint8)})
        with pytest.raises(tw.LimitError, match="names"):
            tw.open(
                hdf5(a=lambda f: [f.create_dataset(f"x{i}", data=1) for i in range(20)]),
                limits=tw.Limits(names=10),
            )

    def test_round_and_round(self):
        def loop(file):
            file.create_group("a/b")
            file["a/b/c"] = file["a"]

        with pytest.raises(tw.DecodeError, match="contains itself"):
            tw.open(hdf5(a=loop))
        deep = hdf5(a=lambda f: f.create_group("/".join("x" * 100)))
        with pytest.raises(tw.LimitError, match="deep"):
            tw.open(deep)

    @pytest.mark.parametrize(
        "data",
        [
            np.zeros(2, [("a", "i4"), ("b", "f4")]),
            np.array([b"ab"], "S2"),
            np.void(b"abc"),
            np.array(["x"], h5py.string_dtype()),
        ],
    )
    def test_what_is_no_number(self, data):
        blob = hdf5(a=lambda f: f.create_dataset("x", data=data))
        with pytest.raises(tw.DecodeError, match="only numbers") as failure:
            tw.loads(blob)
        assert failure.value.tensor == "x"
        assert [row.kind for row in tw.inspect(blob).tensors] == ["unreadable"]

    def test_nothing_and_a_named_type(self):
        with pytest.raises(tw.DecodeError, match="null dataspace"):
            tw.open(hdf5(a=lambda f: f.create_dataset("x", data=h5py.Empty("f4"))))
        with pytest.raises(tw.DecodeError, match="neither a group nor a dataset"):
            tw.open(hdf5(a=lambda f: f.__setitem__("t", np.dtype("f8"))))

    def test_archives(self):
        def archive(**members):
            stream = io.BytesIO()
            with zipfile.ZipFile(stream, "w") as file:
                for name, data in members.items():
                    file.writestr(name.replace("__", "."), data)
            return stream.getvalue()

        weights = hdf5(a=lambda f: f.create_dataset("layers/dense/vars/0", data=np.ones(3)))
        for config in (
            b"{",
            b"[1]",
            b'{"config": {"layers": [{"config": 3}, 5, {"name": 7}]}}',
            b'{"a": NaN}',
            b"[" * 100_000,
            b'{"config": 5}',
        ):
            blob = archive(
                metadata__json=b"{}", config__json=config, **{"model__weights.h5": weights}
            )
            assert tw.equal(tw.loads(blob), {"layers/dense/vars/0": np.ones(3)}), config[:20]
        for blob in (
            archive(metadata__json=b"{}", config__json=b"{}"),
            archive(config__json=b"\xff", **{"model__weights.h5": weights}),
            archive(config__json=b"{}", **{"model__weights.h5": b"no HDF5"}),
            archive(config__json=b"{}", **{"model__weights.h5": weights[:1000]}),
            archive(config__json=b"{}", **{"model__weights.h5": weights})[:-30],
        ):
            with pytest.raises(tw.DecodeError) as caught:
                tw.open(blob)
            assert caught.value.format == "keras" and caught.value.offset is not None

    def test_a_deflated_bomb(self):
        stream = io.BytesIO()
        with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as file:
            file.writestr("config.json", b"{}")
            file.writestr("model.weights.h5", bytes(200 << 20))
        with pytest.raises(tw.LimitError, match="expansion"):
            tw.open(stream.getvalue())

    @pytest.mark.slow
    @pytest.mark.torture
    def test_flips_and_cuts(self, tmp_path, record_property):
        """HDF5 is a library of others: whatever it makes of damaged bytes, it is an answer or our
        error. In a process of its own.
        """
        blob = hdf5(
            a=lambda f: f.create_dataset(
                "layers/dense/vars/0", data=np.arange(600.0).reshape(20, 30)
            ),
            b=lambda f: f.create_dataset(
                "layers/dense/vars/1", data=np.arange(600), compression="gzip"
            ),
            c=lambda f: f["layers/dense/vars"].attrs.__setitem__("name", "hidden"),
        )
        (tmp_path / "a.h5").write_bytes(blob)
        code = """
import random, sys, tensorwire as tw
blob, chance, wrong = open(sys.argv[1], "rb").read(), random.Random(int(sys.argv[2])), 0
for _ in range(int(sys.argv[3])):
    data = bytearray(blob)
    if chance.random() < 0.2:
        del data[chance.randrange(8, len(data)):]
    for _ in range(chance.randrange(1, 4)):
        data[chance.randrange(8, min(len(data), 4000))] = chance.randrange(256)
    try:
        tw.loads(bytes(data), "keras")
    except tw.TensorwireError as error:
        wrong += 1
        assert error.format == "keras", error
print(wrong)
"""
        mutants = 4_000 if TORTURE else 60
        command = [sys.executable, "-c", code, str(tmp_path / "a.h5"), "7", str(mutants)]
        found = subprocess.run(
            command, capture_output=True, text=True, timeout=300 if mutants < 100 else 7200
        )
        record_property("cases", mutants)
        assert found.returncode == 0, found.stderr[-2000:]
        assert int(found.stdout) > 5


def small_weights(file):
    """What Keras writes, without Keras."""
    for number in range(3):
        group = file.create_group(f"layers/dense_{number}/vars")
        group.attrs["name"] = f"dense_{number}"
        group.create_dataset("0", data=np.ones((4, 4), np.float32))
        group.create_dataset("1", data=np.zeros(4, np.float32))
    file.create_group("optimizer/vars")


def chunked(file):
    values = np.random.default_rng(0).integers(0, 50, (64, 16)).astype(np.float32)
    for number in range(3):
        options = {"chunks": (16, 16), "shuffle": True, "fletcher32": True, "compression": "gzip"}
        file.create_dataset(f"x{number}", data=values + number, **options)


def children():
    """Processes that this one has started, by their id."""
    with open(f"/proc/self/task/{os.getpid()}/children") as file:
        return set(map(int, file.read().split()))


class TestChild:
    """h5py runs in a process of its own, because the HDF5 library crashes or hangs on changed
    bytes.
    """

    @pytest.mark.slow
    @pytest.mark.parametrize(("place", "read"), [(4016, tw.inspect), (4064, tw.loads)])
    def test_a_file_that_hangs_hdf5(self, place, read):
        blob = bytearray(hdf5(a=small_weights))
        blob[place : place + 2] = bytes(2)
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        try:
            read(bytes(blob))
        except tw.DecodeError as error:
            assert (error.format, error.offset) == ("keras", 0)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        assert after.ru_utime - before.ru_utime < 10

    def test_a_file_that_is_cut_while_it_is_open(self, tmp_path):
        """The child waits for bytes that are gone: it is not asked again."""
        with importlib.import_module("h5py").File(tmp_path / "a.h5", "w") as file:
            data = np.random.default_rng(0).random(1_000_000)
            file.create_dataset("x1", data=data, chunks=(10_000,), compression="gzip")
        with tw.open(tmp_path / "a.h5") as file:
            os.truncate(tmp_path / "a.h5", 100)
            start = time.monotonic()
            for _ in range(2):
                with pytest.raises(tw.DecodeError):
                    file["x1"].read()
            assert time.monotonic() - start < 30

    def test_many_open_files(self):
        """select() takes no descriptor past 1023."""
        many = [os.open(os.devnull, os.O_RDONLY) for _ in range(1100)]
        try:
            assert "x1" in tw.loads(hdf5(a=chunked))
        finally:
            for descriptor in many:
                os.close(descriptor)

    @pytest.mark.slow
    def test_mutants(self):
        """A value or our error, and never a signal."""
        blob, rng = hdf5(a=chunked), random.Random(0)
        outcomes = set()
        for _ in range(16):
            mutant = bytearray(blob)
            for _ in range(rng.choice([1, 2, 4, 8])):
                mutant[rng.randrange(len(mutant))] = rng.choice([0, 255, 1, rng.randrange(256)])
            try:
                outcomes.add(type(tw.loads(bytes(mutant), "keras")))
            except tw.DecodeError as error:
                assert error.format == "keras" and error.offset is not None
                outcomes.add(type(error))
        assert outcomes - {dict}

    @pytest.mark.skipif(
        not os.path.exists("/proc/self/task"), reason="children are listed by Linux"
    )
    def test_a_crash_is_a_decode_error(self):
        before = children()
        with tw.open(hdf5(a=chunked)) as file:
            (child,) = children() - before
            os.kill(child, signal.SIGSEGV)
            with pytest.raises(tw.DecodeError) as caught:
                file["x1"].read()
            assert (caught.value.format, caught.value.tensor) == ("keras", "x1")
            assert file["x1"][3, 0] == file["x0"][3, 0] + 1  # by another child
        assert children() <= before

    @pytest.mark.skipif(
        not os.path.exists("/proc/self/task"), reason="children are listed by Linux"
    )
    def test_arrays_that_are_stored_as_they_are_need_no_child(self):
        before = children()
        with tw.open(hdf5(a=small_weights)) as file:
            assert children() <= before
            assert file["layers/dense_1/vars/0"][1:3].tolist() == [[1.0] * 4] * 2

    def test_the_parent_does_not_import_h5py(self, tmp_path):
        (tmp_path / "a.h5").write_bytes(hdf5(a=chunked))
        code = "import sys, tensorwire as tw; tw.load(sys.argv[1]); print('h5py' in sys.modules)"
        found = subprocess.run(
            [sys.executable, "-c", code, str(tmp_path / "a.h5")], capture_output=True, text=True
        )
        assert found.stdout.strip() == "False", found.stderr

    def test_numbers_that_numpy_does_not_have(self):
        """Integers of 12 bits in 16, which HDF5 converts."""

        def twelve(file):
            kind = h5py.h5t.STD_I16LE.copy()
            kind.set_precision(12)
            kind.set_offset(4)
            space = h5py.h5s.create_simple((3,))
            dataset = h5py.h5d.create(file.id, b"x", kind, space)
            dataset.write(h5py.h5s.ALL, h5py.h5s.ALL, np.int16([1, -2, 3]))

        assert tw.loads(hdf5(a=twelve))["x"].tolist() == [1, -2, 3]

    def test_threads(self):
        with tw.open(hdf5(a=chunked)) as file, ThreadPoolExecutor(4) as pool:
            found = list(
                pool.map(lambda number: file[f"x{number % 3}"].read()[0, 0] - number % 3, range(12))
            )
        assert len(set(found)) == 1


def test_without_h5py(tmp_path):
    (tmp_path / "a.weights.h5").write_bytes(
        hdf5(a=lambda f: f.create_dataset("x", data=np.ones(2)))
    )
    code = """
import sys; sys.modules["h5py"] = None
import tensorwire as tw
try:
    tw.open(sys.argv[1])
except tw.MissingDependencyError as error:
    print(error)
"""
    found = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "a.weights.h5")],
        capture_output=True,
        text=True,
        env=dict(os.environ),
    )
    assert "pip install 'tensorwire[keras]'" in found.stdout, found.stderr


def test_two_layers_of_one_name():
    from tensorwire.codecs.keras import names as keras_names

    dense = {"class_name": "Dense", "config": {"name": "d", "use_bias": True}}
    config = {"class_name": "Sequential", "config": {"layers": [dense, dense]}}
    paths = [f"layers/{group}/vars/{i}" for group in ("dense", "dense_1") for i in range(2)]
    # two of one name: neither has it
    assert keras_names.names(paths, {"layers/dense": "d", "layers/dense_1": "d"}, config) == {}
    assert keras_names.names(paths, {}, config) == {}
