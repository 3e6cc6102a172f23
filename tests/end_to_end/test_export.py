"""The model's side: SavedModels whose signatures take the parts of sparse and ragged tensors, with
answers as the model itself gives.
"""

import collections
import functools
import json
import os
import subprocess
import sys

import numpy as np
import pytest

import tensorwire as tw
from support import serving_models as models
from tensorwire.core import dtypes
from tensorwire.serving import export, rebuild
from tensorwire.serving.lower import example_rows, plan
from tensorwire.serving.signature import Signature
from tensorwire.testing.sampling import numbers

pytestmark = pytest.mark.tensorflow
LOADED = {}
FORMS = ("parts", "serialized", "example")
ROWS = [("float32", [None, 3])]


def foreign(tensors):
    return {name: tw.to(tw.tensor(tensor), "tensorflow") for name, tensor in tensors.items()}


def call(tf, folder, tensors, name="serving_default"):
    """A signature, called with plain tensors."""
    return loaded(tf, folder).signatures[name](**foreign(tensors))


def loaded(tf, folder):
    """A SavedModel, loaded once as long as it stays the same."""
    key = str(folder), os.stat(os.path.join(folder, "saved_model.pb")).st_mtime_ns
    if LOADED.get("key") != key:
        LOADED.update(key=key, model=tf.saved_model.load(str(folder)))
    return LOADED["model"]


def same(found, wanted):
    assert found.keys() == wanted.keys()
    for name, tensor in found.items():
        assert tw.equal(tensor, wanted[name]), name
    return True


@pytest.fixture(scope="module")
def exported(tf, tmp_path_factory):
    model = models.recommender(tf)
    folder = tmp_path_factory.mktemp("model") / "ranker"
    return model, folder, export(model, folder, models.SIGNATURE, forms=FORMS, version=3)


class TestTheRecommendationModel:
    @pytest.mark.parametrize("rows", [1, 4, 33])
    def test_every_form_answers_as_the_model(self, tf, exported, rows):
        model, folder, _ = exported
        tensors = models.inputs(rows)
        wanted = model(**foreign(tensors))
        assert same(call(tf, folder / "3", models.parts(tensors)), wanted)
        assert same(
            call(tf, folder / "3", models.serialized(tf, tensors), "serving_default_serialized"),
            wanted,
        )
        assert same(
            call(tf, folder / "3", models.examples(tf, tensors), "serving_default_example"), wanted
        )
        assert same(loaded(tf, folder / "3")(**foreign(tensors)), wanted)

    def test_what_clients_make_of_tensors(self, tf, exported):
        """The plan for each signature is what the model takes."""
        model, folder, signatures = exported
        tensors = models.inputs(9)
        for name, signature in signatures.items():
            assert same(
                call(tf, folder / "3", plan(tensors, signature).inputs, name),
                model(**foreign(tensors)),
            )

    def test_signatures(self, exported):
        _, folder, signatures = exported
        assert list(signatures) == [
            "serving_default",
            "serving_default_serialized",
            "serving_default_example",
        ]
        assert signatures == Signature.all_of_saved_model(folder)  # the latest version
        default = signatures["serving_default"]
        assert {str(part) for part in default.inputs.values()} == {
            "clicks_indices: int64 [?, 2]",
            "clicks_values: float32 [?]",
            "clicks_dense_shape: int64 [2]",
            "tags_indices: int64 [?, 2]",
            "tags_values: int64 [?]",
            "tags_dense_shape: int64 [2]",
            "words_values: int64 [?]",
            "words_row_splits_0: int64 [?]",
            "country: string [?]",
            "profile: float32 [?, 3]",
        }
        assert {str(part) for part in default.outputs.values()} == {
            "score: float32 [?]",
            "items: int32 [?, 3]",
            "weights: float32 [?, 3]",
        }
        assert {
            (group.name, group.kind, group.dtype, group.shape) for group in default.groups()
        } == {
            (name, *spec[:2], tuple(spec[2]))
            for name, spec in models.SIGNATURE.items()
            if len(spec) == 3
        }
        serialized = {
            str(part) for part in signatures["serving_default_serialized"].inputs.values()
        }
        assert serialized >= {"clicks: string [?, 3]", "tags: string [?, 3]", "words: string [?]"}
        assert [str(part) for part in signatures["serving_default_example"].inputs.values()] == [
            "examples: string [?]"
        ]

    def test_rows_can_be_batched(self, tf, exported):
        """As a server does it: requests one after the other along the first dimension, answers cut
        again.
        """
        model, folder, _ = exported
        one, two = models.inputs(2, seed=5), models.inputs(3, seed=6)
        joined = {}
        for name, tensor in models.serialized(tf, one).items():
            joined[name] = tf.concat([tensor, models.serialized(tf, two)[name]], 0)
        found = call(tf, folder / "3", joined, "serving_default_serialized")
        assert same({name: tensor[:2] for name, tensor in found.items()}, model(**foreign(one)))
        assert same({name: tensor[2:] for name, tensor in found.items()}, model(**foreign(two)))


# What can be exported


SPARSE = tw.Sparse([[0, 1], [1, 0], [1, 2]], np.float32([1, 2, 3]), (2, 3))
PARTS = {
    "x_indices": SPARSE.indices,
    "x_values": SPARSE.values,
    "x_dense_shape": SPARSE.dense_shape,
}
SPEC = {"x": ("sparse", "float32", [None, 3])}


def doubled(tf):
    """A Dense without a name of its own: [2, 3] times [3, 2]."""
    return tf.Variable(np.arange(6, dtype=np.float32).reshape(3, 2))


GLOBAL = {}


class TestModels:
    def check(self, tf, model, folder, wanted=None, **options):
        export(model, folder, SPEC, **options)
        found = call(tf, folder, PARTS)
        wanted = (
            SPARSE.to_dense() @ np.arange(6, dtype=np.float32).reshape(3, 2)
            if wanted is None
            else wanted
        )
        assert tw.equal(found["output_0"], wanted)
        return found

    def test_a_bare_function_that_closes_over_a_variable(self, tf, tmp_path):
        weights = doubled(tf)
        self.check(tf, lambda x: tf.sparse.sparse_dense_matmul(x, weights), tmp_path)

    def test_variables_are_those_of_the_moment(self, tf, tmp_path):
        weights = doubled(tf)
        weights.assign(weights * 2)
        self.check(tf, lambda x: tf.sparse.sparse_dense_matmul(x, weights) / 2, tmp_path)

    def test_tf_function_and_partial(self, tf, tmp_path):
        weights = doubled(tf)

        @tf.function
        def predict(x, scale):
            return tf.sparse.sparse_dense_matmul(x, weights) * scale

        self.check(tf, functools.partial(predict, scale=1.0), tmp_path / "a")
        self.check(tf, tf.function(lambda x: predict(x, 1.0)), tmp_path / "b")

    def test_control_flow_becomes_a_graph(self, tf, tmp_path):
        def predict(x):
            if tf.reduce_sum(x.values) > 100.0:
                return tf.zeros([1])
            total = 0.0
            for value in x.values:
                total += value
            return tf.reshape(total, [1])

        self.check(tf, predict, tmp_path, np.float32([6]))

    def test_modules_and_their_methods(self, tf, tmp_path):
        class Model(tf.Module):
            def __init__(self):
                super().__init__()
                self.weights = doubled(tf)
                self.table = tf.lookup.StaticHashTable(
                    tf.lookup.KeyValueTensorInitializer([1], [1.0], tf.int64, tf.float32), -1.0
                )

            def __call__(self, x):
                return self.predict(x)

            def predict(self, x):
                return tf.sparse.sparse_dense_matmul(x, self.weights) * self.table.lookup(
                    tf.constant(1, tf.int64)
                )

            @tf.function
            def traced(self, x):
                return self.predict(x)

        model = Model()
        for number, each in enumerate(
            [model, model.predict, model.traced, lambda x: model(x), tf.function(model)]
        ):
            self.check(tf, each, tmp_path / str(number))

    def test_variables_that_are_made_on_the_first_call(self, tf, tmp_path):
        class Lazy(tf.Module):
            weights = None

            def __call__(self, x):
                if self.weights is None:
                    self.weights = doubled(tf)
                return tf.sparse.sparse_dense_matmul(x, self.weights)

        self.check(tf, Lazy(), tmp_path)

    def test_globals_and_lists_of_tables(self, tf, tmp_path):
        keys = tf.lookup.KeyValueTensorInitializer(["a"], tf.constant([2], tf.int64))
        GLOBAL["tables"] = [tf.lookup.StaticVocabularyTable(keys, 1)]
        GLOBAL["weights"] = doubled(tf)
        try:
            self.check(tf, _with_globals, tmp_path)
        finally:
            GLOBAL.clear()

    def test_a_vocabulary_file_is_saved_with_it(self, tf, tmp_path):
        (tmp_path / "words.txt").write_text("a\nb\n")
        table = tf.lookup.StaticVocabularyTable(
            tf.lookup.TextFileInitializer(
                str(tmp_path / "words.txt"),
                tf.string,
                tf.lookup.TextFileIndex.WHOLE_LINE,
                tf.int64,
                tf.lookup.TextFileIndex.LINE_NUMBER,
            ),
            1,
        )
        export(lambda w: table.lookup(w), tmp_path / "m", {"w": ("string", [None])})
        (tmp_path / "words.txt").unlink()
        assert call(tf, tmp_path / "m", {"w": ["b", "z", "a"]})["output_0"].numpy().tolist() == [
            1,
            2,
            0,
        ]

    def test_methods_of_plain_objects(self, tf, tmp_path):
        class Predictor:
            def __init__(self):
                self.held = {
                    "table": tf.lookup.experimental.DenseHashTable(
                        tf.int64, tf.float32, 1.0, -1, -2
                    )
                }
                self.weights = doubled(tf)

            def predict(self, x):
                return tf.sparse.sparse_dense_matmul(x, self.weights) * self.held["table"].lookup(
                    tf.constant(5, tf.int64)
                )

        self.check(tf, Predictor().predict, tmp_path)

    def test_what_cannot_be_found_is_said(self, tf, tmp_path):
        # a resource that no object stands for
        handle = tf.raw_ops.MutableHashTableV2(key_dtype=tf.int64, value_dtype=tf.float32)

        def predict(x):
            return tf.raw_ops.LookupTableFindV2(
                table_handle=handle, keys=x.indices, default_value=0.0
            )

        with pytest.raises(tw.EncodeError, match=r"tf\.Module"):
            export(predict, tmp_path / "m", SPEC)
        assert not os.listdir(tmp_path)

    def test_keras(self, tf, tmp_path):
        """A functional model with sparse, text and dense inputs needs no signature. Keras's own
        export makes the sparse one dense.
        """
        inputs = {
            "ids": tf.keras.Input((6,), sparse=True, name="ids"),
            "word": tf.keras.Input((), dtype="string", name="word"),
            "x": tf.keras.Input((2,), name="x"),
        }
        word = tf.keras.layers.Embedding(4, 3)(
            tf.keras.layers.StringLookup(vocabulary=["a", "b"])(inputs["word"])
        )
        joined = tf.keras.layers.Concatenate()(
            [tf.keras.layers.Dense(3)(inputs["ids"]), word, inputs["x"]]
        )
        dropped = tf.keras.layers.Dropout(0.9)(tf.keras.layers.BatchNormalization()(joined))
        model = tf.keras.Model(inputs, {"score": tf.keras.layers.Dense(1)(dropped)})
        model.compile("adam", "mse")
        tensors = {
            "ids": tw.Sparse([[0, 5], [1, 0]], np.float32([1, 2]), (2, 6)),
            "word": tw.Strings.of(["b", "zz"]),
            "x": np.float32([[1, 2], [3, 4]]),
        }
        # now the optimizer has variables of its own
        model.fit(foreign(tensors), np.float32([[1], [2]]), verbose=0)
        signatures = export(model, tmp_path, forms=FORMS, overwrite=True)
        assert [group.name for group in signatures["serving_default"].groups()] == ["ids"]
        wanted = model(foreign(tensors), training=False)["score"].numpy()
        names = [getattr(used, "name", "") for used in loaded(tf, tmp_path).used]
        # the vocabulary too, but nothing of the optimizer's
        assert len(names) > 8 and not [name for name in names if "adam" in name]
        for name, signature in signatures.items():
            found = call(tf, tmp_path, plan(tensors, signature).inputs, name)["score"]
            np.testing.assert_allclose(found, wanted, rtol=1e-5)

    def test_keras_with_other_inputs(self, tf, tmp_path):
        a, b = tf.keras.Input((2,), name="a"), tf.keras.Input((2,), name="b")
        x = {"a": np.float32([[1, 2]]), "b": np.float32([[3, 5]])}
        listed = tf.keras.Model([a, b], tf.keras.layers.Subtract()([a, b]))
        export(
            listed, tmp_path / "list", {"b": ("float32", [None, 2]), "a": ("float32", [None, 2])}
        )
        assert call(tf, tmp_path / "list", x)["output_0"].numpy().tolist() == [[-2, -3]]
        single = tf.keras.Model(a, tf.keras.layers.Rescaling(2.0)(a))
        assert list(export(single, tmp_path / "one")["serving_default"].inputs) == ["a"]
        assert call(tf, tmp_path / "one", {"a": x["a"]})["output_0"].numpy().tolist() == [[2, 4]]
        sequential = tf.keras.Sequential([tf.keras.Input((2,)), tf.keras.layers.Rescaling(3.0)])
        export(sequential, tmp_path / "sequential", {"mine": ("float32", [None, 2])})
        assert call(tf, tmp_path / "sequential", {"mine": x["a"]})["output_0"].numpy().tolist() == [
            [3, 6]
        ]

        class Own(tf.keras.Model):
            def __init__(self):
                super().__init__()
                self.dense = tf.keras.layers.Dense(1, kernel_initializer="ones")

            def call(self, inputs, training=None):
                return self.dense(inputs["a"] + inputs["b"]) * (0.0 if training else 1.0)

        own = Own()
        with pytest.raises(tw.EncodeError, match="call it once"):
            export(
                own, tmp_path / "own", {"a": ("float32", [None, 2]), "b": ("float32", [None, 2])}
            )
        own(foreign(x))
        export(own, tmp_path / "own", {"a": ("float32", [None, 2]), "b": ("float32", [None, 2])})
        assert call(tf, tmp_path / "own", x)["output_0"].numpy().tolist() == [[11]]
        for wrong in (listed, single):
            with pytest.raises(tw.EncodeError, match="c"):
                export(
                    wrong,
                    tmp_path / "no",
                    {"a": ("float32", [None, 2]), "c": ("float32", [None, 2])},
                )
        with pytest.raises(tw.EncodeError, match="does not declare its inputs"):
            export(own, tmp_path / "no")

    def test_a_keras_model_with_a_ragged_input(self, tf, tmp_path):
        class Total(tf.keras.layers.Layer):
            def build(self, shape):
                self.weight = self.add_weight(shape=(10,), initializer="ones")

            def call(self, ids):
                return tf.reduce_sum(tf.gather(tf.convert_to_tensor(self.weight), ids), 1)

            def compute_output_shape(self, shape):
                return shape[:1]

        ids = tf.keras.Input((None,), ragged=True, name="ids", dtype="int32")
        signature = export(tf.keras.Model(ids, Total()(ids)), tmp_path / "m")["serving_default"]
        assert [str(group) for group in signature.groups()] == [
            "ids: ragged int32 [?, ?] = ids_values (values), ids_row_splits_0 (row_splits_0)"
        ]
        given = plan({"ids": [[1, 2], [], [3]]}, signature).inputs
        assert call(tf, tmp_path / "m", given)["output_0"].numpy().tolist() == [2, 0, 1]

    def test_keras_on_something_else(self, tf, tmp_path, monkeypatch):
        import keras

        model = tf.keras.Sequential([tf.keras.Input((2,)), tf.keras.layers.Rescaling(3.0)])
        monkeypatch.setattr(keras.backend, "backend", lambda: "jax")
        with pytest.raises(tw.EncodeError, match="KERAS_BACKEND=tensorflow"):
            export(model, tmp_path / "m")

    def test_a_function_that_says_itself_what_it_takes(self, tf, tmp_path):
        class Model(tf.Module):
            @tf.function(
                input_signature=[
                    tf.SparseTensorSpec([None, 3], tf.float32),
                    tf.TensorSpec([], tf.float32, "factor"),
                ]
            )
            def __call__(self, x, scale):
                return tf.sparse.to_dense(x) * scale

        for number, model in enumerate([Model(), Model().__call__]):
            found = export(model, tmp_path / str(number))["serving_default"]
            assert sorted(found.inputs) == ["scale", "x_dense_shape", "x_indices", "x_values"]
            assert tw.equal(
                call(tf, tmp_path / str(number), PARTS | {"scale": np.float32(2)})["output_0"],
                SPARSE.to_dense() * 2,
            )
        with pytest.raises(tw.EncodeError, match="inputs of the model are unknown"):
            export(lambda x: x, tmp_path / "no")

    def test_how_arguments_are_passed(self, tf, tmp_path):
        one, two = {"x": ("float32", [None])}, {"a": ("float32", [None]), "b": ("float32", [None])}
        x, ab = {"x": np.float32([1])}, {"a": np.float32([5]), "b": np.float32([3])}
        for number, (model, spec, given, wanted) in enumerate(
            [
                (lambda x: x, one, x, [1]),
                (lambda anything: anything, one, x, [1]),
                (lambda x, scale=2.0: x * scale, one, x, [2]),
                (lambda b, a: a - b, two, ab, [2]),
                (lambda *, b, a: a - b, two, ab, [2]),
                (lambda **kw: kw["a"] - kw["b"], two, ab, [2]),
                (lambda features: features["a"] - features["b"], two, ab, [2]),
            ]
        ):
            export(model, tmp_path / str(number), spec)
            assert call(tf, tmp_path / str(number), given)["output_0"].numpy().tolist() == wanted
        for model in (lambda a, c: a, lambda: 1, lambda a, b, c: a):
            with pytest.raises(tw.EncodeError, match="the same names"):
                export(model, tmp_path / "no", two)
        with pytest.raises(tw.EncodeError, match="is not callable"):
            export(object(), tmp_path / "no", one)
        with pytest.raises(tw.UsageError, match="a dict of names"):
            export(lambda x: x, tmp_path / "no", ROWS)


def _with_globals(x):
    import tensorflow as tf

    index = GLOBAL["tables"][0].lookup(tf.constant("a"))
    return tf.sparse.sparse_dense_matmul(x, GLOBAL["weights"]) * tf.cast(index - 1, tf.float32)


class TestOutputs:
    def outputs(self, tf, folder, model, **options):
        export(model, folder, SPEC, **options)
        return call(tf, folder, PARTS)

    def test_names(self, tf, tmp_path):
        pair = collections.namedtuple("Pair", "first second")
        for number, (model, options, names) in enumerate(
            [
                (lambda x: x.values, {}, ["output_0"]),
                (lambda x: x.values, {"outputs": "score"}, ["score"]),
                (lambda x: (x.values, x.indices), {}, ["output_0", "output_1"]),
                (lambda x: [x.values, x.indices], {"outputs": ["v", "i"]}, ["v", "i"]),
                (lambda x: pair(x.values, x.indices), {}, ["first", "second"]),
                (lambda x: {"b/c": x.values, "a-1": 1.5}, {}, ["a-1", "b/c"]),
            ]
        ):
            folder = tmp_path / str(number)
            assert sorted(self.outputs(tf, folder, model, **options)) == sorted(names)
            assert sorted(Signature.from_saved_model(folder).outputs) == sorted(names)

    def test_sparse_and_ragged_ones_as_parts(self, tf, tmp_path):
        ragged = tf.ragged.constant(
            [[[1, 2], []], [[3]]], dtype=tf.int16, row_splits_dtype=tf.int32
        )
        found = self.outputs(tf, tmp_path, lambda x: {"s": x, "r": ragged})
        assert same(
            {role: found[f"s_{role}"] for role in ("indices", "values", "dense_shape")},
            dict(zip(("indices", "values", "dense_shape"), PARTS.values(), strict=True)),
        )
        splits = {"r_row_splits_0": np.int32([0, 2, 3]), "r_row_splits_1": np.int32([0, 2, 2, 3])}
        assert same(
            {name: found[name] for name in found if name.startswith("r")},
            {"r_values": np.int16([1, 2, 3]), **splits},
        )
        outputs = Signature.from_saved_model(tmp_path).outputs
        assert str(outputs["s_dense_shape"]) == "s_dense_shape: int64 [2]" and all(
            part.kind == "dense" for part in outputs.values()
        )

    @pytest.mark.parametrize(
        ("model", "options", "why"),
        [
            (lambda x: {"s": x, "s_values": x.values}, {}, "s_values"),
            (lambda x: {"s": {"t": x}}, {}, "must return tensors"),
            (lambda x: {}, {}, "at least one key"),
            (lambda x: {1: x}, {}, "strings"),
            (lambda x: None, {}, "must return tensors"),
            (lambda x: {"a": x}, {"outputs": "b"}, "dict"),
            (lambda x: (x, x), {"outputs": ["a"]}, "2 tensors"),
            (lambda x: (x, x), {"outputs": ["a", "a"]}, "2 tensors"),
            (lambda x: {"a b": x}, {}, "invalid tensor name"),
        ],
    )
    def test_mistakes(self, tmp_path, model, options, why):
        with pytest.raises(tw.EncodeError, match=why):
            export(model, tmp_path / "m", SPEC, **options)
        assert not os.listdir(tmp_path)


# Every kind and dtype through every form

RAGGED = {
    "one": ([None, None], tw.Ragged(np.arange(5), [0, 3, 3, 5])),
    "vectors": ([None, None, 2], tw.Ragged(np.arange(10).reshape(5, 2), [0, 3, 3, 5])),
    "two": ([None, None, None], tw.Ragged(np.arange(5), [[0, 2, 2, 4], [0, 3, 3, 3, 5]])),
    "three": (
        [None, None, None, None],
        tw.Ragged(np.arange(3), [[0, 1, 3, 3], [0, 2, 2, 3], [0, 1, 1, 3]]),
    ),
    "two of vectors": (
        [None, None, None, 2],
        tw.Ragged(np.arange(10).reshape(5, 2), [[0, 2, 2, 4], [0, 3, 3, 3, 5]]),
    ),
    "uniform": (
        [None, 2, None],
        tw.Ragged(np.arange(5), [[0, 2, 4, 6], [0, 3, 3, 3, 5, 5, 5]], [2, None]),
    ),
    "one row": ([None, None], tw.Ragged(np.arange(0), [0, 0])),
}
SPARSES = {
    "matrix": ([None, 4], tw.Sparse([[0, 3], [2, 0], [2, 1]], np.arange(3), (3, 4))),
    "cube": ([None, 4, 2], tw.Sparse([[0, 3, 1], [2, 0, 0], [2, 1, 1]], np.arange(3), (3, 4, 2))),
    "open": ([None, None], tw.Sparse([[0, 3], [2, 0], [2, 1]], np.arange(3), (3, 7))),
    "half open": (
        [None, None, 2],
        tw.Sparse([[0, 3, 1], [2, 0, 0], [2, 1, 1]], np.arange(3), (3, 7, 2)),
    ),
    "empty": ([None, 4], tw.Sparse(np.zeros((0, 2), np.int64), np.arange(0), (3, 4))),
}
FLOATS = ["float32", "float64", "float16", "bfloat16"]
DTYPES = [
    *FLOATS,
    "int8",
    "int16",
    "int32",
    "int64",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
    "bool",
    "complex64",
    "string",
]
IN_LISTS = set(DTYPES) - {"float64", "uint64", "complex64"}


def whole(tf, found, spec):
    """The model's output, put together again."""
    return rebuild(found, {"y": spec})["y"]


def values(dtype, shape):
    count = int(np.prod(shape))
    return (
        tw.Strings.of([b"", b"\xff", b"a" * 300, "é".encode(), b"x"][:count], shape)
        if dtype == "string"
        else numbers(dtypes.named(dtype), shape)
    )


@pytest.mark.parametrize("form", FORMS)
class TestForms:
    def round_trip(self, tf, folder, spec, tensor, form, hand):
        export(lambda x: {"y": x}, folder, {"x": spec}, forms=form)
        signature = Signature.from_saved_model(folder)
        wanted = tw.to(tensor, "tensorflow")
        for inputs in (hand(tf, {"x": tensor}), plan({"x": tensor}, signature).inputs):
            back = whole(tf, call(tf, folder, inputs), spec)
            assert back.shape.is_compatible_with(spec[2])
            assert tw.equal(tw.tensor(back), tw.tensor(wanted))

    hands = {
        "parts": lambda tf, tensors: models.parts(tensors),
        "serialized": models.serialized,
        "example": models.examples,
    }

    @pytest.mark.parametrize("name", RAGGED)
    def test_ragged(self, tf, tmp_path, form, name):
        shape, tensor = RAGGED[name]
        self.round_trip(
            tf, tmp_path / "m", ("ragged", "int64", shape), tensor, form, self.hands[form]
        )

    @pytest.mark.parametrize("name", SPARSES)
    def test_sparse(self, tf, tmp_path, form, name):
        shape, tensor = SPARSES[name]
        self.round_trip(
            tf, tmp_path / "m", ("sparse", "int64", shape), tensor, form, self.hands[form]
        )

    def test_dtypes(self, tf, tmp_path, form):
        """The dtype is that of the spec; one that an Example has no list for is refused when the
        model is exported.
        """
        inputs, tensors = {}, {}
        for dtype in DTYPES:
            spec = {
                "s": ("sparse", dtype, [None, 4]),
                "r": ("ragged", dtype, [None, None]),
                "d": (dtype, [None, 1]),
            }
            if form == "example" and dtype not in IN_LISTS:
                for one in spec.values():
                    with pytest.raises(tw.EncodeError, match=dtype):
                        export(lambda x: x, tmp_path / "m", {"x": one}, forms=form)
                continue
            inputs |= {f"{kind}_{dtype}": each for kind, each in spec.items()}
            tensors[f"s_{dtype}"] = tw.Sparse([[0, 3], [2, 0], [2, 1]], values(dtype, (3,)), (3, 4))
            tensors[f"r_{dtype}"] = tw.Ragged(values(dtype, (5,)), [0, 3, 3, 5])
            tensors[f"d_{dtype}"] = values(dtype, (3, 1))
        signature = export(lambda **x: x, tmp_path / "m", inputs, forms=form)["serving_default"]
        found = rebuild(call(tf, tmp_path / "m", plan(tensors, signature).inputs), inputs)
        assert len(found) >= 36
        for name, tensor in tensors.items():
            mine, theirs = tw.tensor(found[name]), tw.tensor(tw.to(tensor, "tensorflow"))
            if form == "example" and "bfloat16" in name:  # TensorFlow's cast makes all NaNs one
                mine, theirs = (
                    getattr(each, "values", each).astype(np.float32) for each in (mine, theirs)
                )
                assert np.array_equal(mine, theirs, equal_nan=True)
            else:
                assert tw.equal(mine, theirs), name


class TestFormsSayWhatTheyCannot:
    @pytest.mark.parametrize(
        ("form", "spec", "why"),
        [
            ("serialized", ("sparse", "float32", [5]), "no rows"),
            ("example", ("sparse", "float32", [None]), "no rows"),
            ("example", ("float32", [3]), "need a batch dimension"),
            ("example", ("float32", []), "need a batch dimension"),
            ("example", ("float32", None), "need a batch dimension"),
            ("example", ("float32", [None, 2, None]), "only its first dimension"),
            ("exampel", ("float32", [None]), "did you mean 'example'"),
        ],
    )
    def test_refused(self, tmp_path, form, spec, why):
        with pytest.raises((tw.EncodeError, tw.UsageError), match=why):
            export(lambda x: x.values, tmp_path / "m", {"x": spec}, forms=form)
        assert not os.listdir(tmp_path)

    def test_forms_once_each(self, tmp_path):
        for forms in ((), ("parts", "parts")):
            with pytest.raises(tw.UsageError, match="each once"):
                export(lambda x: x, tmp_path / "m", {"x": ROWS[0]}, forms=forms)

    def test_ragged_of_unknown_shape(self, tf, tmp_path):
        spec = tf.RaggedTensorSpec(None, tf.int64, 1)
        with pytest.raises(tw.EncodeError, match="unknown rank"):
            export(lambda x: x, tmp_path / "m", {"x": spec}, forms="serialized")
        export(lambda x: x.flat_values, tmp_path / "m", {"x": spec})
        assert call(tf, tmp_path / "m", {"x_values": [[1, 2]], "x_row_splits_0": [0, 1]})[
            "output_0"
        ].shape == (1, 2)

    def test_features_that_meet(self, tmp_path):
        spec = {"x": ("sparse", "float32", [None, 2]), "x_values": ("float32", [None])}
        for form in ("parts", "example"):
            with pytest.raises(tw.EncodeError, match="x_values"):
                export(lambda **x: x, tmp_path / "m", spec, forms=form)
        export(lambda **x: x["x_values"], tmp_path / "m", spec, forms="serialized")

    def test_examples_with_rows_of_unknown_length(self, tf, tmp_path):
        """Dense is dense: rows of different lengths are an error of the request's, not padded."""
        export(lambda x: x, tmp_path / "m", {"x": ("int32", [None, None, 2])}, forms="example")
        rows = np.arange(12, dtype=np.int32).reshape(2, 3, 2)
        assert tw.equal(
            call(tf, tmp_path / "m", {"examples": example_rows.examples({"x": rows})})["output_0"],
            rows,
        )
        uneven = example_rows.examples({"x": tw.Ragged(np.arange(6, dtype=np.int32), [0, 2, 6])})
        with pytest.raises(tf.errors.InvalidArgumentError, match="the same number of values"):
            call(tf, tmp_path / "m", {"examples": uneven})


@pytest.fixture(scope="module")
def folder(tf, tmp_path_factory):
    folder = tmp_path_factory.mktemp("m")
    spec = {"x": ("sparse", "float32", [None, 3]), "r": ("ragged", "int64", [None, 2, None])}
    export(
        lambda x, r: (tf.shape(x.values), tf.shape(r.flat_values)),
        folder,
        spec,
        forms=FORMS,
        overwrite=True,
    )
    return folder


class TestRequestsThatAreWrong:
    """Parts that are no tensor are an error of the request's (400), and say which."""

    good = PARTS | {
        "r_values": np.arange(3),
        "r_row_splits_0": np.int64([0, 2]),
        "r_row_splits_1": np.int64([0, 1, 3]),
    }

    @pytest.mark.parametrize(
        ("change", "why"),
        [
            ({"x_indices": np.int64([[0, 1], [1, 0], [1, 3]])}, "x: an index is outside"),
            ({"x_indices": np.int64([[0, 1], [1, 0], [-1, 2]])}, "x: an index is outside"),
            (
                {"x_indices": np.int64([[0, 1], [1, 0]])},
                "x: there must be as many indices as values",
            ),
            (
                {"x_dense_shape": np.int64([2, 9])},
                r"x: the model takes \[\?, 3\], so dense_shape\[1\] must be 3",
            ),
            ({"x_dense_shape": np.int64([1, 3])}, "x: an index is outside"),
            (
                {"r_row_splits_1": np.int64([0, 4, 3])},
                "r: row_splits_1 must start at 0, never decrease",
            ),
            ({"r_row_splits_1": np.int64([0, 1, 2])}, "r: row_splits_1 must .* end at the number"),
            ({"r_row_splits_1": np.int64([1, 1, 3])}, "r: row_splits_1 must start at 0"),
            ({"r_row_splits_1": np.int64([])}, "r: row_splits_1 must start at 0"),
            ({"r_row_splits_0": np.int64([0, 0])}, "r: row_splits_0 must"),
            (
                {"r_row_splits_0": np.int64([0, 1, 2])},
                r"r: the model takes \[\?, 2, \?\], so all rows of dimension 1 must have 2",
            ),
        ],
    )
    def test_parts(self, tf, folder, change, why):
        assert call(tf, folder, self.good)["output_0"].numpy() == [3]
        with pytest.raises(tf.errors.InvalidArgumentError, match=why):
            call(tf, folder, self.good | change)

    def test_serialized_rows(self, tf, folder):
        row = tf.io.serialize_tensor
        ragged = [[row(tf.constant([1, 2], tf.int64)), row(tf.constant([0, 1, 2], tf.int64))]]
        good = {
            "x": tf.io.serialize_many_sparse(tw.to(SPARSE, "tensorflow"))[:1],
            "r": tf.convert_to_tensor(ragged),
        }
        ask = loaded(tf, folder).signatures["serving_default_serialized"]
        assert ask(**good)["output_1"].numpy() == [2]
        for change in (
            # reaches beyond its values
            {"r": [[row(tf.constant([1, 2], tf.int64)), row(tf.constant([0, 1, 3], tf.int64))]]},
            {"r": [[row(tf.constant([1, 2], tf.int64)), row(tf.constant([1, 1, 2], tf.int64))]]},
            # of another dtype
            {"r": [[row(tf.constant([1, 2], tf.int32)), row(tf.constant([0, 1, 2], tf.int64))]]},
            {"r": [[b"no tensor", row(tf.constant([0, 1, 2], tf.int64))]]},
            {"x": [[b"", b"", b""]]},
        ):
            with pytest.raises(tf.errors.InvalidArgumentError):
                ask(
                    **(
                        good
                        | {
                            name: tf.convert_to_tensor(rows, tf.string)
                            for name, rows in change.items()
                        }
                    )
                )

    def test_examples(self, tf, folder):
        signature = loaded(tf, folder).signatures["serving_default_example"]

        def ask(**features):
            base = {
                "x_indices": np.int64([1]),
                "x_values": np.float32([2]),
                "r": np.int64([4, 5]),
                "r_row_splits_1": np.int64([0, 1, 2]),
            }
            return signature(examples=tf.constant([example_rows.serialize(base | features)]))

        assert ask()["output_0"].numpy() == [1]
        for features in (
            {"x_indices": np.int64([3])},
            {"x_indices": np.int64([0, 1])},
            {"r_row_splits_1": np.int64([0, 2])},
            {"r_row_splits_1": np.int64([0, 1, 3])},
        ):
            with pytest.raises(tf.errors.InvalidArgumentError):
                ask(**features)


class TestFolders:
    spec = {"x": ("float32", [None])}

    def test_versions_appear_whole(self, tf, tmp_path, monkeypatch):
        seen = []
        save = tf.saved_model.save

        def watched(root, folder, **options):
            save(root, folder, **options)
            seen.append(sorted(name for name in os.listdir(tmp_path) if name.isdigit()))

        monkeypatch.setattr(tf.saved_model, "save", watched)
        for version in (1, 2):
            export(lambda x: x, tmp_path, self.spec, version=version)
        assert seen == [[], ["1"]] and sorted(os.listdir(tmp_path)) == ["1", "2"]

    def test_an_error_leaves_what_was_there(self, tf, tmp_path, monkeypatch):
        export(lambda x: x, tmp_path / "m", self.spec)

        def fail(*_, **__):
            raise OSError("disk full")

        monkeypatch.setattr(tf.saved_model, "save", fail)
        with pytest.raises(OSError, match="disk full"):
            export(lambda x: x + 1, tmp_path / "m", self.spec, overwrite=True)
        assert os.listdir(tmp_path) == ["m"] and call(tf, tmp_path / "m", {"x": np.float32([1])})[
            "output_0"
        ].numpy() == [1]

    def test_an_error_at_the_last_moment(self, tf, tmp_path, monkeypatch):
        export(lambda x: x, tmp_path / "m", self.spec)
        rename = os.rename

        def fail(source, target):
            if str(source).endswith("new"):
                raise OSError("no rename")
            rename(source, target)

        monkeypatch.setattr(os, "rename", fail)
        with pytest.raises(OSError, match="no rename"):
            export(lambda x: x + 1, tmp_path / "m", self.spec, overwrite=True)
        assert os.listdir(tmp_path) == ["m"] and call(tf, tmp_path / "m", {"x": np.float32([1])})[
            "output_0"
        ].numpy() == [1]

    def test_overwrite(self, tf, tmp_path):
        export(lambda x: x, tmp_path / "m", self.spec)
        with pytest.raises(FileExistsError, match="overwrite=True"):
            export(lambda x: x + 1, tmp_path / "m", self.spec)
        export(lambda x: x + 1, tmp_path / "m", self.spec, overwrite=True)
        assert call(tf, tmp_path / "m", {"x": np.float32([1])})["output_0"].numpy() == [
            2
        ] and os.listdir(tmp_path) == ["m"]
        os.mkdir(tmp_path / "empty")
        export(lambda x: x, tmp_path / "empty", self.spec)

    def test_versions_are_numbers(self, tmp_path):
        for version in ("1", -1, True, 1.0):
            with pytest.raises(tw.UsageError, match="expected a version number"):
                export(lambda x: x, tmp_path / "m", self.spec, version=version)

    @pytest.mark.parametrize("name", ["a b", "a:b", "é", "_x", "class", ""])
    def test_names_that_tensorflow_does_not_take(self, tmp_path, name):
        with pytest.raises(tw.EncodeError, match="invalid tensor name"):
            export(lambda x: x, tmp_path / "m", {name: ("float32", [None])})

    def test_names_that_python_does_not_have(self, tf, tmp_path):
        spec = {name: ("float32", [None]) for name in ("user-id", "a/b", "c.d", "1st", "B")}
        export(lambda inputs: dict(inputs), tmp_path / "m", spec)
        given = {name: np.float32([number]) for number, name in enumerate(spec)}
        assert same(call(tf, tmp_path / "m", given), given)
        assert same(tf.saved_model.load(str(tmp_path / "m"))(*foreign(given).values()), given)

    def test_names_that_are_the_same_to_tensorflow(self, tmp_path):
        for one, other in (("a/b", "a_b"), ("A", "a")):
            with pytest.raises(tw.EncodeError, match=f"'{other}' and '{one}' are the same"):
                export(
                    lambda **x: x,
                    tmp_path / "m",
                    {one: ("float32", [None]), other: ("float32", [None])},
                )

    def test_another_name_for_the_signature(self, tmp_path):
        assert list(
            export(
                lambda x: x, tmp_path / "m", self.spec, name="score", forms=("serialized", "parts")
            )
        ) == ["score", "score_parts"]


def test_without_tensorflow(tmp_path):
    code = """
import sys
sys.modules["tensorflow"] = None
import tensorwire as tw
from tensorwire.serving import export
from tensorwire.serving import rebuild
for call in (lambda: export(len, sys.argv[1], {"x": ("float32", [None])}), lambda: rebuild({}, ("float32", []))):
    try:
        call()
    except tw.MissingDependencyError as error:
        print(error)
"""
    found = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=True
    ).stdout
    assert found.count("pip install tensorflow") == 2


# The seeds


class TestSeed003:
    """003 ex. 3: "Leveraging TensorFlow's SavedModel", with a bare function."""

    def test_as_written(self, tf, tmp_path):
        @tf.function
        def prediction_function(input_tensor):
            return input_tensor * 2.0

        with pytest.raises((ValueError, AttributeError)):  # which of them depends on the version
            tf.saved_model.save(prediction_function, str(tmp_path))

    def test_exported(self, tf, tmp_path):
        weights = tf.Variable([[1.0], [2.0]])

        @tf.function
        def prediction_function(input_tensor):
            return input_tensor @ weights

        export(
            prediction_function, tmp_path / "saved_model", {"input_tensor": ("float32", [None, 2])}
        )
        reloaded_model = tf.saved_model.load(str(tmp_path / "saved_model"))
        input_tensor = tf.constant([[1.0, 2.0], [3.0, 4.0]])
        # the seed's line, and it returns the tensor directly
        prediction = reloaded_model(input_tensor)
        assert prediction.numpy().tolist() == [[5.0], [11.0]]
        assert reloaded_model.signatures["serving_default"](input_tensor=input_tensor)[
            "output_0"
        ].numpy().tolist() == [[5.0], [11.0]]


class TestSeed004:
    """004 ex. 3: "Decoding within TensorFlow": the sparse tensor is rebuilt inside of the model."""

    received = json.loads(
        '{"sparse_input": {"indices": [[0, 0], [1, 2], [2, 3]], "values": [1, 2, 3], "dense_shape":'
        " [3, 4]}}"
    )

    def test_rebuilt_from_json(self, tf):
        """The dtype is the spec's; the seed writes tf.float32, whatever the model takes."""
        for dtype in ("float32", "float64", "int32", "bfloat16", "uint8"):
            found = rebuild(self.received["sparse_input"], ("sparse", dtype, [None, 4]))
            assert isinstance(found, tf.SparseTensor) and found.dtype == tf.as_dtype(dtype)
            wanted = np.zeros((3, 4))
            wanted[[0, 1, 2], [0, 2, 3]] = [1, 2, 3]
            assert (
                tf.cast(tf.sparse.to_dense(found), tf.float64).numpy().tolist() == wanted.tolist()
            )

    def test_inside_of_a_model_of_ones_own(self, tf, tmp_path):
        spec = {"sparse_input": ("sparse", "float32", [None, 4])}

        class Model(tf.Module):
            @tf.function(
                input_signature=[
                    tf.TensorSpec([None, 2], tf.int64),
                    tf.TensorSpec([None], tf.float32),
                    tf.TensorSpec([2], tf.int64),
                ]
            )
            def serve(self, sparse_input_indices, sparse_input_values, sparse_input_dense_shape):
                parts = {
                    "sparse_input_indices": sparse_input_indices,
                    "sparse_input_values": sparse_input_values,
                    "sparse_input_dense_shape": sparse_input_dense_shape,
                }
                found = rebuild(parts, spec)["sparse_input"]
                assert found.shape.as_list() == [None, 4]
                return {"total": tf.sparse.reduce_sum(found, 1)}

        model = Model()
        tf.saved_model.save(model, str(tmp_path), signatures=model.serve)
        signature = Signature.from_saved_model(tmp_path)
        assert [group.name for group in signature.groups()] == ["sparse_input"]
        found = call(tf, tmp_path, plan(self.received, signature).inputs)
        assert found["total"].numpy().tolist() == [1, 2, 3]

    def test_exported(self, tf, tmp_path):
        """And without a line of one's own in the model."""
        signature = export(
            tf.sparse.to_dense,
            tmp_path,
            {"sp_input": ("sparse", "int32", [None, 4])},
            overwrite=True,
        )["serving_default"]
        found = call(
            tf, tmp_path, plan({"sp_input": self.received["sparse_input"]}, signature).inputs
        )["output_0"]
        assert (
            found.numpy().tolist() == [[1, 0, 0, 0], [0, 0, 2, 0], [0, 0, 0, 3]]
            and found.dtype == tf.int32
        )


class TestRebuild:
    def test_ragged_and_dense(self, tf):
        found = rebuild(
            {"values": [1, 2, 3], "row_splits": [0, 2, 3]}, ("ragged", "int8", [None, None])
        )
        assert tw.equal(found, tw.Ragged(np.int8([1, 2, 3]), [0, 2, 3]))
        assert rebuild({"values": [[1, 2]]}, ("float16", [None, 2])).dtype == tf.float16
        empty = rebuild(
            {"indices": [], "values": [], "dense_shape": [0, 3]}, ("sparse", "string", [None, 3])
        )
        assert empty.indices.shape == (0, 2) and empty.dtype == tf.string

    def test_many(self, tf):
        specs = {
            "x": ("sparse", "float32", [None, 3]),
            "r": tf.RaggedTensorSpec([None, None], tf.string, 1, tf.int32),
            "d": ("int8", []),
        }
        found = rebuild(PARTS | {"r_values": ["a"], "r_row_splits_0": [0, 1], "d": 3}, specs)
        assert (
            list(found) == ["x", "r", "d"]
            and found["r"].row_splits.dtype == tf.int32
            and tw.equal(tw.tensor(found["x"]), SPARSE)
        )

    @pytest.mark.parametrize(
        ("parts", "spec", "why"),
        [
            (
                {"indices": [[0]], "values": [1]},
                ("sparse", "int8", [None]),
                "missing part 'dense_shape'",
            ),
            (
                {"indices": [[0]], "values": [1], "dense_shape": [2], "shape": [2]},
                ("sparse", "int8", [None]),
                "unknown part 'shape'",
            ),
            (
                {"indices": [["a"]], "values": [1], "dense_shape": [2]},
                ("sparse", "int8", [None]),
                "to int64",
            ),
            ({"values": [1.5]}, ("int8", [None]), "to int8"),
            ({"x_indices": [[0]]}, {"x": ("sparse", "int8", [None])}, "missing part 'x_values'"),
        ],
    )
    def test_mistakes(self, parts, spec, why):
        with pytest.raises(tw.EncodeError, match=why):
            rebuild(parts, spec)

    def test_a_tensor_of_another_dtype(self, tf):
        with pytest.raises(tw.EncodeError, match="expected a part of dtype float32, got int32"):
            rebuild({"values": tf.constant([1])}, ("float32", [None]))

    def test_checks_can_be_left_out(self, tf):
        parts = {"indices": [[9]], "values": [1.0], "dense_shape": [2]}
        with pytest.raises(tf.errors.InvalidArgumentError, match="an index is outside"):
            rebuild(parts, ("sparse", "float32", [None]))
        assert rebuild(
            parts, ("sparse", "float32", [None]), validate=False
        ).indices.numpy().tolist() == [[9]]
