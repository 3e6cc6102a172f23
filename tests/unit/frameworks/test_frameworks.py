"""Foreign objects in and out: NumPy's many strings and layouts, TensorFlow's many tensors."""

import importlib
import io

import numpy as np
import pytest

import tensorwire as tw
from tensorwire.testing import check_framework

STRING_DTYPE = getattr(np.dtypes, "StringDType", None)


@pytest.mark.parametrize("framework", ["numpy", "object"])
def test_numpy_conforms(framework):
    assert set(check_framework(framework).values()) == {"exact"}


@pytest.mark.tensorflow
def test_tensorflow_conforms(tf):
    report = check_framework("tensorflow")
    assert all(
        found == "exact"
        for (kind, dtype), found in report.items()
        if kind != "hybrid"
        and dtype
        not in (
            "float8_e8m0fnu",
            "float8_e4m3",
            "float8_e3m4",
            "float6_e2m3fn",
            "float6_e3m2fn",
        )
    )
    assert all(found == "refused" for (kind, _), found in report.items() if kind == "hybrid")


@pytest.mark.parametrize(
    ("array", "text"),
    [
        (np.array([b"a", b"", b"bc\0"]), False),
        (np.array(["a", "", "é日本"]), True),
        (np.array(["abc", "", "d"]), True),
        (np.array([["a", "b"], ["c", "dd"]]).T, True),
        (np.array(["x", "yé"], ">U2"), True),
        (np.array([b"raw\0", b""], object), False),
        (np.array(["raw\0", ""], object), True),
        (np.zeros((2, 0), "U1"), True),
        (np.zeros(2, "S0"), False),
        (np.array("scalar"), True),
        *([(np.array(["a", "é", ""], STRING_DTYPE()), True)] if STRING_DTYPE else []),
    ],
    ids=str,
)
def test_numpy_strings(array, text):
    strings = tw.tensor(array)
    assert isinstance(strings, tw.Strings) and strings.text is text and strings.shape == array.shape
    assert strings.tolist() == array.astype(object).tolist()


@pytest.mark.parametrize("items", [["a", b"b"], [None, "a"], [1, 2], ["\ud800"]], ids=repr)
def test_numpy_strings_refused(items):
    array = np.array(items, object)
    with pytest.raises(tw.EncodeError):
        tw.tensor(array)


@pytest.mark.skipif(STRING_DTYPE is None, reason="NumPy 1 has no StringDType")
def test_missing_strings():
    with pytest.raises(tw.EncodeError, match="missing"):
        tw.tensor(np.array(["a", None], STRING_DTYPE(na_object=None)))


@pytest.mark.parametrize(
    ("obj", "dtype", "shape"),
    [
        ([1, 2, 3], "int64", (3,)), ([[1.5], [2]], "float64", (2, 1)), (True, "bool", ()), (3, "int64", ()), (1j, "complex128", ()),
        ([], "float64", (0,)),
        ([[]], "float64", (1, 0)), ([1 << 63], "uint64", (1,)), (np.float32(2), "float32", ()), ((1, 2), "int64", (2,)),
    ],
    ids=str,
)  # fmt: skip
def test_nested_lists(obj, dtype, shape):
    array = tw.tensor(obj)
    assert array.dtype == dtype and array.shape == shape


def test_lists_of_strings_keep_their_nuls():
    assert tw.tensor([b"a\0", b""]).tolist() == [b"a\0", b""] and tw.tensor(
        [["a"], ["b\0"]]
    ).tolist() == [["a"], ["b\0"]]
    assert tw.tensor("one").shape == () and tw.tensor(np.str_("x"))[()] == "x"


@pytest.mark.parametrize(
    "obj",
    [
        [1, [2]],
        [[1], [2, 3]],
        [["a"], ["b", "c"]],
        [1 << 63, -1],
        [1 << 64],
        [1, None],
        [1, "a"],
        ["a", 1],
        None,
        {"a": 1},
    ],
)
def test_lists_that_make_no_array(obj):
    with pytest.raises(tw.EncodeError):
        tw.tensor(obj)


def test_plain_arrays_are_not_copied():
    array = np.arange(1000.0)
    assert tw.tensor(array) is array and tw.tensor(array[3:]).base is array
    assert np.shares_memory(tw.buffers(array, "raw")[0], array) and np.shares_memory(
        tw.buffers(array)[1], array
    )


def test_other_objects_are_refused_clearly():
    class Odd:
        def __array__(self):
            return np.zeros(2)

    with pytest.raises(tw.EncodeError, match=r"np\.asarray"):
        tw.tensor(Odd())
    with pytest.raises(tw.UsageError, match="did you mean 'tensorflow'"):
        tw.to(np.zeros(1), "tensorflwo")
    with pytest.raises(tw.UsageError, match="no devices"):
        tw.to(np.zeros(1), "numpy", device="cpu:0")


def test_keep_device():
    bundle = tw.loads(tw.dumps(np.zeros(2), keep_device=True))
    assert bundle.tensor_metadata == {"tensor": {"device": "cpu"}}
    bundle = tw.loads(
        tw.dumps({"a": np.zeros(2), "b": np.ones(1)}, "tensorproto", keep_device=True)
    )
    assert list(bundle) == ["a", "b"] and bundle.tensor_metadata["b"] == {"device": "cpu"}


class TestBundles:
    """A Bundle stays a Bundle with its metadata, whatever `to=` says."""

    VALUES = {"w": np.float32([[1, 2], [3, 4]]), "b": np.int32([7])}
    BUNDLE = tw.Bundle(VALUES, {"model": "nmt"}, {"w": {"device": "cuda:0"}})

    def check(self, bundle, kind):
        assert type(bundle) is tw.Bundle and list(bundle) == ["w", "b"]
        assert bundle.metadata == {"model": "nmt"}
        assert bundle.tensor_metadata == {"w": {"device": "cuda:0"}}
        assert all(isinstance(tensor, kind) for tensor in bundle.values())
        assert tw.equal(dict(bundle), self.VALUES)

    def everywhere(self, framework, kind, folder):
        self.check(tw.to(self.BUNDLE, framework), kind)
        for format in ("safetensors", "tensorproto", "npy", "npz", "arrow", "protobuf", "json"):
            path = folder / f"x.{format}"
            tw.save(path, self.BUNDLE, format)
            self.check(tw.load(path, format, to=framework), kind)
            self.check(tw.loads(path.read_bytes(), format, to=framework), kind)
            loaded = tw.load(path, format, to=framework)
            self.check(tw.loads(tw.dumps(loaded, format), format), np.ndarray)
            self.check(tw.loads(tw.dumps(loaded, format), format, to=framework), kind)
        stream = io.BytesIO()
        tw.write(stream, self.BUNDLE)
        stream.seek(0)
        self.check(tw.read(stream, to=framework), kind)
        tw.save(folder / "x", self.BUNDLE, "checkpoint")
        self.check(tw.load(folder / "x", to=framework), kind)
        with tw.open(folder / "x.npz") as file:
            self.check(tw.to(file.load(), framework), kind)
        kept = tw.loads(tw.dumps(self.VALUES["w"], "npy", keep_device=True), to=framework)
        assert type(kept) is tw.Bundle and isinstance(kept["tensor"], kind)
        assert kept.tensor_metadata == {"tensor": {"device": "cpu"}}
        bare = tw.loads(tw.dumps(tw.to(self.BUNDLE, framework), drop_metadata=True))
        assert type(bare) is tw.Bundle and not bare.metadata and not bare.tensor_metadata
        more = tw.dumps(tw.to(self.BUNDLE, framework), metadata={"step": "3"})
        assert tw.loads(more).metadata == {"model": "nmt", "step": "3"}

    @pytest.mark.tensorflow
    def test_tensorflow(self, tf, tmp_path):
        self.everywhere("tensorflow", tf.Tensor, tmp_path)

    @pytest.mark.torch
    @pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
    def test_torch(self, tmp_path):
        torch = importlib.import_module("torch")
        self.everywhere("torch", torch.Tensor, tmp_path)
        tied = tw.Bundle({"a": self.VALUES["w"], "b": self.VALUES["w"]})
        made = tw.to(tied, "torch")
        assert made["a"] is made["b"]
        lists = torch.nested.nested_tensor([torch.ones(2), torch.ones(3)])
        with pytest.raises(tw.EncodeError) as failure:
            tw.dumps(tw.Bundle({"lists": lists}))
        assert failure.value.tensor == "lists"

    @pytest.mark.jax
    def test_jax(self, tmp_path):
        jax = importlib.import_module("jax")
        self.everywhere("jax", jax.Array, tmp_path)

    @pytest.mark.arrow
    def test_numpy_and_arrow(self, tmp_path):
        pa = importlib.import_module("pyarrow")
        self.everywhere("numpy", np.ndarray, tmp_path)
        made = tw.to(tw.Bundle({"s": tw.Strings.of(["a", "b"])}, {"m": "1"}), "arrow")
        assert (
            type(made) is tw.Bundle
            and isinstance(made["s"], pa.Array)
            and made.metadata == {"m": "1"}
        )
        assert "pyarrow" in repr(made) and made._repr_html_()
        objects = tw.to(tw.Bundle({"s": tw.Strings.of(["a", "b"])}), "object")
        assert type(objects) is tw.Bundle and objects["s"].dtype == object

    @pytest.mark.torch
    def test_nested_and_shown(self):
        value = {"inner": [self.BUNDLE, 3], "other": self.BUNDLE}
        torch = importlib.import_module("torch")
        loaded = tw.loads(tw.dumps(value), to="torch")
        self.check(loaded["inner"][0], torch.Tensor)
        assert loaded["inner"][1] == 3 and "torch.Tensor" in repr(loaded["other"])
        assert tw.equal(loaded["other"], self.BUNDLE) and loaded["other"]._repr_html_()

    def test_a_bundle_still_refuses_what_is_not_a_tensor(self):
        for bad in ([1], 3, "a", b"a", None, {"a": np.zeros(1)}, object(), np.float32(1)):
            with pytest.raises(tw.EncodeError):
                tw.Bundle({"x": bad})


@pytest.mark.tensorflow
@pytest.mark.parametrize(
    "array", [np.array(["a", "é"]), np.array([b"a", b"bc"]), np.array(["a"], object)]
)
def test_string_arrays_go_to_frameworks(array, tf):
    assert type(tw.to(array, "numpy")) is tw.Strings
    assert tw.to(array, "object").tolist() == array.tolist()
    made = tw.to(array, "tensorflow")
    assert made.dtype == tf.string and tw.equal(
        tw.tensor(made).astext(tw.tensor(array).text), tw.tensor(array)
    )


@pytest.mark.tensorflow
class TestTensorFlow:
    def test_no_copy_of_host_memory(self, tf):
        tensor = tf.range(1000.0)
        a, b = tw.tensor(tensor), tw.tensor(tensor)
        assert (
            a.__array_interface__["data"][0] == b.__array_interface__["data"][0]
            and not a.flags.writeable
        )

    def test_variables(self, tf):
        variable = tf.Variable([1.0, 2.0], name="kernel")
        before = tw.tensor(variable)
        variable.assign([3.0, 4.0])
        assert before.tolist() == [1.0, 2.0] and tw.tensor(variable).tolist() == [3.0, 4.0]
        bundle = tw.loads(tw.dumps(variable, keep_device=True))
        assert bundle.tensor_metadata == {
            "kernel:0": {
                "device": "/job:localhost/replica:0/task:0/device:CPU:0",
                "name": "kernel:0",
            }
        }

    def test_keras_variables(self, tf):
        import keras

        layer = keras.layers.Dense(2)
        layer.build((None, 3))
        assert tw.equal(tw.tensor(layer.kernel), layer.kernel.numpy())
        assert (
            "kernel"
            in tw.tensor(layer.kernel, keep_device=True).tensor_metadata[layer.kernel.path]["name"]
        )
        with pytest.raises(tw.EncodeError, match="no values"):
            tw.tensor(keras.Input((3,)))

    def test_symbolic_tensors(self, tf):
        seen = []

        @tf.autograph.experimental.do_not_convert
        def work(x):
            with pytest.raises(tw.EncodeError, match=r"use tf\.io there") as caught:
                tw.io.serialize_tensor(x)
            seen.append(caught.value)
            return x

        tf.function(work)(tf.constant([1.0]))
        list(tf.data.Dataset.from_tensors([1.0]).map(work))
        assert len(seen) == 2

    def test_ragged_and_sparse(self, tf):
        ragged = tf.RaggedTensor.from_uniform_row_length(
            tf.ragged.constant([[1], [2, 3], [], [4]]), 2
        )
        ours = tw.tensor(ragged)
        assert ours.shape == (2, 2, None) and ours.uniform == (2, None)
        back = tw.to(ours, "tensorflow")
        assert back.shape.as_list() == [2, 2, None] and back.to_list() == ragged.to_list()
        assert (
            tw.to(tw.Ragged([1], np.array([0, 1], np.int32)), "tensorflow").row_splits.dtype
            == tf.int32
        )
        sparse = tf.SparseTensor([[0, 1]], ["x"], [2, 2])
        assert (
            tw.equal(tw.loads(tw.dumps(sparse)), tw.tensor(sparse))
            and tw.tensor(sparse).dtype == "string"
        )

    def test_loads_to_tensorflow(self, tf):
        value = {
            "x": np.float32([1]),
            "l": [tw.Strings.of(["é"]), tw.Ragged.of([[1]])],
            "n": 3,
            "t": (tw.Sparse([[0]], [1], [1]),),
        }
        back = tw.loads(tw.dumps(value), to="tensorflow")
        assert (
            isinstance(back["x"], tf.Tensor)
            and back["l"][0].dtype == tf.string
            and isinstance(back["l"][1], tf.RaggedTensor)
        )
        assert back["n"] == 3 and isinstance(back["t"][0], tf.SparseTensor)
        assert tw.to(np.zeros(1), "tensorflow", device="/CPU:0").device.endswith("CPU:0")

    def test_what_has_no_values(self, tf):
        for bad in (
            tf.ragged.constant([[1]])._to_variant(),
            tf.quantization.quantize([1.0], 0.0, 1.0, tf.quint8).output,
            tf.TensorShape([1]),
        ):
            with pytest.raises(tw.EncodeError):
                tw.tensor(bad)
        with pytest.raises(tw.EncodeError, match="no hybrid"):
            tw.to(tw.Sparse([[0]], np.zeros((1, 2)), (3, 2)), "tensorflow")
