"""Signatures: specs in words, groups by names, TensorFlow Serving's metadata."""

import json
import pickle
from dataclasses import replace

import pytest

import tensorwire as tw
from support.checkpoint_files import field
from tensorwire.serving.composite import by_number, by_role
from tensorwire.serving.signature import Group, Input, Signature
from tensorwire.serving.spec import Spec

ANY = (None,)


def signature(**inputs):
    """Names, dtypes and shapes only, as a server's metadata has them."""
    return replace(Signature.given(inputs), known=None)


def groups(**inputs):
    return {group.name: group for group in signature(**inputs).groups()}


SPARSE = {
    "indices": ("int64", [None, 2]),
    "values": ("float32", ANY),
    "dense_shape": ("int64", [2]),
}


class TestNamedParts:
    @pytest.mark.parametrize("between", ["_", "/", ":", "."])
    @pytest.mark.parametrize("shape", ["dense_shape", "shape"])
    def test_sparse(self, between, shape):
        names = [f"ids{between}{role}" for role in ("indices", "values", shape)]
        found = groups(**dict(zip(names, SPARSE.values(), strict=True)))
        assert found == {
            "ids": Group(
                "ids", "sparse", dict(zip(SPARSE, names, strict=True)), "float32", (None, None)
            )
        }

    def test_by_the_role_alone(self):
        assert groups(**SPARSE)[""].parts == {
            "indices": "indices",
            "values": "values",
            "dense_shape": "dense_shape",
        }
        assert groups(flat_values=("int64", ANY), row_splits=("int64", ANY))[""].kind == "ragged"

    @pytest.mark.parametrize(
        "names",
        [
            ["r_values", "r_row_splits"],
            ["r_values", "r_row_splits_0", "r_row_splits_1"],
            ["r_values", "r_row_splits_1", "r_row_splits_2"],
            [
                "r_flat_values",
                "r_nested_row_splits_0",
                "r_nested_row_splits_1",
                "r_nested_row_splits_2",
            ],
            ["r/flat_values", "r/row_splits/0"],
            ["r.values", "r.row_splits.0"],
        ],
    )
    @pytest.mark.parametrize("dtype", ["int32", "int64"])
    def test_ragged(self, names, dtype):
        inputs = {
            name: ("string", [None, 4]) if "values" in name else (dtype, ANY)
            for name in reversed(names)
        }
        found = groups(**inputs)["r"]
        assert (
            found.kind == "ragged"
            and [*found.parts.values()] == names
            and found.splits == tuple(names[1:])
        )
        assert [*found.parts] == [
            "values",
            *(f"row_splits_{level}" for level in range(len(names) - 1)),
        ]
        assert (found.dtype, found.shape) == ("string", (None,) * len(names) + (4,))

    def test_several_beside_others(self):
        inputs = {f"a_{role}": each for role, each in SPARSE.items()} | {
            f"a_b_{role}": each for role, each in SPARSE.items()
        }
        found = groups(
            **inputs,
            c_values=("int64", ANY),
            c_row_splits_0=("int64", ANY),
            values=("float32", ANY),
            shape=("int64", ANY),
        )
        assert {name: group.kind for name, group in found.items()} == {
            "a": "sparse",
            "a_b": "sparse",
            "c": "ragged",
        }

    @pytest.mark.parametrize(
        "change",
        [
            {"x_indices": ("float32", [None, 2])},
            {"x_indices": ("int64", ANY)},
            {"x_values": ("float32", [None, 2])},
            {"x_dense_shape": ("int64", [3])},
            {"x_dense_shape": ("string", [2])},
            {"x_dense_shape": None},
        ],
    )
    def test_what_does_not_fit_is_no_group(self, change):
        inputs = {f"x_{role}": each for role, each in SPARSE.items()} | change
        assert groups(**{name: each for name, each in inputs.items() if each}) == {}

    @pytest.mark.parametrize("levels", [[0, 2], [2, 3], [5]])
    def test_levels_without_a_gap(self, levels):
        splits = {f"x_row_splits_{level}": ("int64", ANY) for level in levels}
        assert groups(x_values=("int64", ANY), **splits) == {}

    def test_unknown_ranks(self):
        found = groups(
            x_indices=("int64", None), x_values=("float32", None), x_dense_shape=("int64", None)
        )
        assert found["x"].shape is None
        assert groups(x_values=("float32", None), x_row_splits=("int64", None))["x"].shape is None


class TestNumberedParts:
    """What TensorFlow makes of one argument."""

    def test_sparse(self):
        found = groups(x=("int64", [None, 3]), x_1=("string", ANY), x_2=("int64", [3]))
        assert found == {
            "x": Group(
                "x",
                "sparse",
                {"indices": "x", "values": "x_1", "dense_shape": "x_2"},
                "string",
                (None, None, None),
            )
        }

    @pytest.mark.parametrize("depth", [1, 2, 5])
    def test_ragged(self, depth):
        found = groups(
            r=("float32", [None, 7]), **{f"r_{level + 1}": ("int32", ANY) for level in range(depth)}
        )["r"]
        assert found.splits == tuple(
            f"r_{level + 1}" for level in range(depth)
        ) and found.shape == (None,) * (depth + 1) + (7,)

    def test_integers_are_told_apart_by_the_rank(self):
        """Of int64 values [?, 2] and two row_splits, and indices, int64 values and dense_shape,
        only one says the rank twice.
        """
        assert (
            groups(x=("int64", [None, 2]), x_1=("int64", ANY), x_2=("int64", [2]))["x"].kind
            == "sparse"
        )
        assert (
            groups(x=("int64", [None, 2]), x_1=("int64", ANY), x_2=("int64", ANY))["x"].kind
            == "ragged"
        )
        assert (
            groups(x=("int64", [None, None]), x_1=("float32", ANY), x_2=("int64", ANY))["x"].kind
            == "sparse"
        )

    def test_a_dict_as_one_argument(self):
        found = groups(
            f=("float32", []),
            f_1=("int64", [None, 2]),
            f_2=("string", ANY),
            f_3=("int64", [2]),
            f_4=("string", ANY),
            f_5=("int64", ANY),
        )
        assert {name: (group.kind, *group.parts.values()) for name, group in found.items()} == {
            "f_1": ("sparse", "f_1", "f_2", "f_3"),
            "f_4": ("ragged", "f_4", "f_5"),
        }

    def test_an_argument_whose_own_name_has_a_number(self):
        assert groups(
            x=("int64", [None, 2]), x_1=("float32", ANY), x_1_1=("int64", ANY), x_2=("int64", [2])
        ).keys() == {"x"}
        found = groups(r_1=("float32", ANY), r_1_1=("int64", ANY))
        assert found["r_1"].parts == {"values": "r_1", "row_splits_0": "r_1_1"}

    def test_no_group(self):
        assert groups(x=("float32", [None, 3]), x_1=("float32", [None, 3])) == {}
        assert groups(x=("float32", []), x_1=("int64", ANY)) == {}
        assert groups(x=("float32", ANY), x_2=("int64", ANY)) == {}
        assert groups(x=("float32", ANY), x_1=("int64", [4])) == {}

    def test_each_function_by_itself(self):
        inputs = [
            Input(name, *about)
            for name, about in {
                "x": ("int64", (None, 2)),
                "x_1": ("float32", ANY),
                "x_2": ("int64", (2,)),
            }.items()
        ]
        assert by_role(inputs) == [] and len(by_number(inputs)) == 1 and by_number([]) == []


class TestSpecs:
    def test_parts_are_groups(self):
        """What export writes is what groups finds."""
        inputs = {
            "s": ("sparse", "bool", [None, 3, 4]),
            "r": ("ragged", "string", [None, 2, None, 5]),
            "d": ("float32", []),
        }
        given = Signature.given(inputs)
        assert {(group.name, group.kind, group.dtype, group.shape) for group in given.groups()} == {
            ("s", "sparse", "bool", (None, 3, 4)),
            ("r", "ragged", "string", (None, 2, None, 5)),
        }
        again = {group.name: group.parts for group in replace(given, known=None).groups()}
        assert again == {group.name: group.parts for group in given.groups()}

    @pytest.mark.parametrize(
        ("shape", "rank", "values"),
        [
            ([None, None], 1, ANY),
            ([None, None, 3], 1, (None, 3)),
            ([None, 2, None], 2, ANY),
            ([5, None, None, 2, 2], 2, (None, 2, 2)),
        ],
    )
    def test_ragged_shapes(self, shape, rank, values):
        spec = Spec.of(("ragged", "int32", shape))
        assert (
            spec.ragged_rank == rank
            and spec.parts("x")["values"].shape == values
            and len(spec.parts("x")) == rank + 1
        )

    @pytest.mark.parametrize(
        ("given", "why"),
        [
            ("float32", "invalid spec"),
            (("dens", "float32", [None]), "invalid spec"),
            (("float31", [None]), "float31"),
            (("float32", 3), "expected a shape"),
            (("float32", [None, -2]), "expected a dimension"),
            (("float32", [2.5]), "expected a dimension"),
            (("float32", "ab"), "expected a shape"),
            (("ragged", "float32", [None, 3]), "no ragged dimension"),
            (("ragged", "float32", None), "no ragged dimension"),
            (None, "invalid spec"),
        ],
    )
    def test_mistakes(self, given, why):
        with pytest.raises(tw.EncodeError, match=why) as caught:
            Signature.given({"x": given})
        assert caught.value.tensor == "x"

    def test_names_that_meet(self):
        with pytest.raises(tw.EncodeError, match="x_values"):
            Signature.given({"x_values": ("float32", ANY), "x": ("sparse", "float32", [None, 2])})

    @pytest.mark.tensorflow
    def test_those_of_tensorflow(self, tf):
        given = {
            "d": tf.TensorSpec([None, 3], tf.bfloat16),
            "u": tf.TensorSpec(None, tf.string),
            "s": tf.SparseTensorSpec([None, 5], tf.float64),
            "r": tf.RaggedTensorSpec([None, None, None, 2], tf.int8, 2, tf.int32),
            "flat": tf.RaggedTensorSpec([None, 2], tf.int8, 0),
        }
        assert {name: Spec.of(spec) for name, spec in given.items()} == {
            "d": Spec("dense", "bfloat16", (None, 3)),
            "u": Spec("dense", "string", None),
            "s": Spec("sparse", "float64", (None, 5)),
            "r": Spec("ragged", "int8", (None, None, None, 2), 2, "int32"),
            "flat": Spec("dense", "int8", (None, 2)),
        }


def test_looks():
    made = Signature.given(
        {"s": ("sparse", "int64", [None, 9]), "u": ("string", None), "o": ("bool", [])},
        {"y": ("sparse", "float32", [None, 2])},
    )
    assert str(made).splitlines() == [
        "serving_default (predict)",
        "  s_indices: int64 [?, 2]",
        "  s_values: int64 [?]",
        "  s_dense_shape: int64 [2]",
        "  u: string [...]",
        "  o: bool []",
        "gives",
        "  y: sparse float32 [?, 2]",
        "where",
        (
            "  s: sparse int64 [?, 9] = s_indices (indices), s_values (values), s_dense_shape"
            " (dense_shape)"
        ),
    ]
    assert json.loads(json.dumps(made.json())) == {
        "name": "serving_default",
        "method": "predict",
        "inputs": {
            "s_indices": {"dtype": "int64", "shape": [None, 2]},
            "s_values": {"dtype": "int64", "shape": [None]},
            "s_dense_shape": {"dtype": "int64", "shape": [2]},
            "u": {"dtype": "string", "shape": None},
            "o": {"dtype": "bool", "shape": []},
        },
        "outputs": {"y": {"dtype": "float32", "shape": [None, 2], "kind": "sparse"}},
        "groups": [
            {
                "name": "s",
                "kind": "sparse",
                "dtype": "int64",
                "shape": [None, 9],
                "parts": {
                    "indices": "s_indices",
                    "values": "s_values",
                    "dense_shape": "s_dense_shape",
                },
                "by": "given",
            }
        ],
    }
    assert pickle.loads(pickle.dumps(made)) == made


def info(dtype="DT_FLOAT", dims=("-1",), **more):
    return {
        "dtype": dtype,
        "tensor_shape": {
            "dim": [{"size": size, "name": ""} for size in dims],
            "unknown_rank": False,
        },
        "name": "x:0",
    } | more


def answer(**signatures):
    return {
        "model_spec": {"name": "m", "signature_name": "", "version": "1"},
        "metadata": {"signature_def": {"signature_def": signatures}},
    }


class TestMetadata:
    def test_read(self):
        about = {
            "inputs": {
                "x_2": info("DT_INT64", ["2"]),
                "x": info("DT_INT64", ["-1", "2"]),
                "x_1": info("DT_HALF"),
                "u": info("DT_STRING", [], tensor_shape={"dim": [], "unknown_rank": True}),
                "s": info("DT_DOUBLE", [], tensor_shape={}),
                "v": info("DT_FLOAT_REF", ["3"]),
            },
            "outputs": {
                "y": info("DT_BFLOAT16"),
                "sparse": info("DT_FLOAT", ["-1", "5"], coo_sparse={"values_tensor_name": "v:0"}),
                "ragged": info(
                    "DT_INVALID",
                    [],
                    composite_tensor={"type_spec": {"type_spec_class": "RAGGED_TENSOR_SPEC"}},
                ),
                "other": info("DT_INVALID", [], composite_tensor={}),
            },
            "method_name": "tensorflow/serving/predict",
        }
        init = {
            "inputs": {},
            "outputs": {"__saved_model_init_op": info("DT_INVALID", ["0"])},
            "method_name": "",
        }
        many = answer(
            serving_default=about,
            __saved_model_init_op=init,
            other=about | {"method_name": "tensorflow/serving/classify"},
        )
        found = Signature.from_metadata(many)
        assert {name: (part.dtype, part.shape) for name, part in found.inputs.items()} == {
            "s": ("float64", ()),
            "u": ("string", None),
            "v": ("float32", (3,)),
            "x": ("int64", (None, 2)),
            "x_1": ("float16", ANY),
            "x_2": ("int64", (2,)),
        }
        assert {name: part.kind for name, part in found.outputs.items()} == {
            "other": "composite",
            "ragged": "ragged",
            "sparse": "sparse",
            "y": "dense",
        }
        assert [group.name for group in found.groups()] == ["x"] and found.groups()[0].by == "names"
        assert Signature.from_metadata(many, "other").method == "classify"
        assert Signature.all_of_metadata(many).keys() == {"serving_default", "other"}
        with pytest.raises(tw.SchemaError, match="did you mean 'other'"):
            Signature.from_metadata(many, "othr")

    @pytest.mark.parametrize(
        "bad",
        [
            None,
            [],
            {},
            {"error": "Could not find any versions of model m"},
            {"metadata": []},
            {"metadata": {"signature_def": {}}},
            answer(serving_default=[]),
            answer(serving_default={"inputs": [], "outputs": {}}),
            answer(serving_default={"inputs": {"x": 1}}),
            answer(serving_default={"inputs": {"x": info("DT_FLOT")}}),
            answer(serving_default={"inputs": {"x": info("float32")}}),
            answer(serving_default={"inputs": {"x": info(3)}}),
            answer(serving_default={"inputs": {"x": info(dims=["-2"])}}),
            answer(serving_default={"inputs": {"x": info(dims=["1e3"])}}),
            answer(serving_default={"inputs": {"x": info(dims=["1_0"])}}),
            answer(serving_default={"inputs": {"x": info(dims=["9" * 30])}}),
            answer(serving_default={"inputs": {"x": info(dims=[True])}}),
            answer(serving_default={"inputs": {"x": info(dims=[None])}}),
            answer(serving_default={"inputs": {"x": info(tensor_shape=[])}}),
            answer(serving_default={"inputs": {"x": info(tensor_shape={"dim": {}})}}),
            answer(serving_default={"inputs": {"x": info(tensor_shape={"dim": ["1"] * 300})}}),
            answer(serving_default={"inputs": {}, "outputs": {}, "method_name": 3}),
        ],
    )
    def test_what_no_server_answers(self, bad):
        with pytest.raises(tw.DecodeError) as caught:
            Signature.from_metadata(bad)
        assert caught.value.format == "metadata" and caught.value.offset == 0

    def test_numbers_are_taken_too(self):
        assert Signature.from_metadata(
            answer(serving_default={"inputs": {"x": info(dims=[-1, 3])}})
        ).inputs["x"].shape == (None, 3)


@pytest.mark.parametrize(
    ("word", "number", "name"),
    [("FLOAT", 1, "float32"), ("HALF", 19, "float16"), ("STRING", 7, "string")],
)
def test_dtypes_of_variables_of_tensorflow_1(word, number, name, tmp_path):
    """DT_FLOAT_REF is float32, in a SavedModel and in the metadata of a server."""
    info = {"dtype": f"DT_{word}_REF", "tensor_shape": {"dim": [{"size": "3"}]}, "name": "x:0"}
    entry = {
        "inputs": {"x": info},
        "outputs": {"y": info},
        "method_name": "tensorflow/serving/predict",
    }
    answer = {"metadata": {"signature_def": {"signature_def": {"serving_default": entry}}}}
    found = tw.serving.Signature.from_metadata(answer)
    assert found.inputs["x"].dtype == name and found.inputs["x"].shape == (3,)
    tensor = field(1, b"x:0") + field(2, 100 + number) + field(3, field(2, field(1, 3)))
    aliased = field(1, b"x") + field(2, tensor)
    signature = field(1, aliased) + field(2, aliased) + field(3, b"tensorflow/serving/predict")
    graph = field(1, field(4, b"serve")) + field(
        5, field(1, b"serving_default") + field(2, signature)
    )
    (tmp_path / "saved_model.pb").write_bytes(field(1, 1) + field(2, graph))
    found = tw.serving.Signature.from_saved_model(tmp_path)
    assert found.inputs["x"].dtype == name and found.inputs["x"].shape == (3,)
