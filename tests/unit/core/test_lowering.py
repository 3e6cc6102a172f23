"""The one lowering: spec and parts, and back; names that follow from the spec; specs that lie."""

import numpy as np
import pytest
from hypothesis import given

import tensorwire as tw
from tensorwire import lowering
from tensorwire.testing import strategies as tws


def bytes_only(row):
    return row.name in ("uint8", "uint16", "int64", "int32", "float64", "float32")


@given(tws.values())
def test_round_trip(value):
    for options in ({}, {"strings": True}, {"holds": bytes_only}):
        spec, parts = lowering.lower(value, **options)
        assert tw.equal(lowering.lift(spec, parts), value)
        names = lowering.names(spec, len(parts))
        assert len(names) == len(parts) == len(set(names))


def test_names_follow_the_way():
    value = {
        "layers": [{"kernel": np.zeros(1)}, tw.Ragged.of([["a"]])],
        "layers/0/kernel": np.ones(1),
        "s": tw.Sparse([[0]], [1], [1]),
    }
    spec, parts = lowering.lower(value)
    assert lowering.names(spec, len(parts)) == [
        "layers/0/kernel", "layers/1/values/data", "layers/1/values/offsets", "layers/1/row_splits/0",
        "layers/0/kernel~1", "s/indices", "s/values", "s/dense_shape",
    ]  # fmt: skip
    assert lowering.names(*_spec_and_count(np.zeros(2))) == ["tensor"]


def _spec_and_count(value):
    spec, parts = lowering.lower(value)
    return spec, len(parts)


def test_a_long_list_of_arrays_has_a_short_spec():
    assert lowering.lower([np.zeros(1)] * 1000).spec == {"list": 1000}
    assert lowering.lower({"a": (np.zeros(1), np.zeros(2))}).spec == {"dict": {"a": {"tuple": 2}}}


def test_parts_are_not_copied():
    array = np.arange(10)
    assert lowering.lower([array]).parts[0] is array


@pytest.mark.parametrize(
    ("value", "why"),
    [
        ({1.5: np.zeros(1)}, "keys must be str or int"),
        ({"a\ud800": 1}, "surrogate"),
        (["\udfff"], "surrogate"),
        (object(), "neither a tensor"),
        ([1j], "np.complex128"),
        (bytearray(2), r"bytes\(x\)"),
        (1 << 5000, "4096 bits"),
        (np.zeros(1, "M8[s]"), "int64"),
        (np.zeros(1, [("a", int)]), "field"),
        (np.zeros(1, np.longdouble), "astype"),
        (np.array([1, "a"], object), "not int"),
        (np.ma.masked_array([1, 2], [True, False]), "mask"),
        ({1, 2}, "neither a tensor"),
    ],
)
def test_what_is_refused(value, why):
    with pytest.raises(tw.EncodeError, match=why):
        lowering.lower(value)


def test_errors_say_where():
    with pytest.raises(tw.EncodeError) as caught:
        tw.dumps({"model": {"layer": np.zeros(1, "M8[s]")}})
    assert caught.value.tensor == "model/layer"


def test_namedtuples_are_refused_and_dict_subclasses_taken():
    import collections

    point = collections.namedtuple("point", "x y")(1, 2)
    with pytest.raises(tw.EncodeError, match="_asdict"):
        tw.dumps([point])
    state = collections.OrderedDict(b=np.zeros(1), a=np.ones(1))
    assert tw.equal(tw.loads(tw.dumps(state)), dict(state))


def test_depth():
    deep = []
    for _ in range(63):
        deep = [deep]
    assert tw.equal(tw.loads(tw.dumps(deep)), deep)
    with pytest.raises(tw.EncodeError, match="nested"):
        tw.dumps([deep])
    loop = []
    loop.append(loop)
    with pytest.raises(tw.EncodeError, match="contain themselves"):
        tw.dumps(loop)


PART = np.zeros(3)
LIES = [
    {"list": 2}, {"list": -1}, {"list": 10**18}, {"list": "x"}, {"list": [{}, {}]}, {"tuple": None}, {"dict": []},
    {"dict": {"a": [1]}}, [], {"what": 1}, {"list": 1, "x": 2}, {"dtype": "int4"}, {"dtype": "float33"}, {"dtype": 3},
    {"dtype": "qint8"}, {"dtype": "complex128"}, {"text": True}, {"text": 1}, {"strings": [3]}, {"strings": 3},
    {"strings": [-1]}, {"strings": [1.5]}, {"sparse": {}}, {"sparse": {"sparse": {}}}, {"sparse": 3},
    {"ragged": {}, "splits": 1}, {"ragged": {}, "splits": 10**12}, {"ragged": {}}, {"ragged": {}, "splits": 1, "uniform": 3},
    {"float": "zz"}, {"float": 1}, {"float": "00"}, {"bytes": "*"}, {"bytes": 7}, {"bundle": {"a": 3}},
    {"bundle": {}, "metadata": {"a": 1}}, {"bundle": {"a": {}}, "tensor_metadata": {"b": {}}},
    {"bundle": {"a": {}}, "tensor_metadata": {"a": 3}}, {"bundle": 3}, 7, {"dict": {}},
]  # fmt: skip


@pytest.mark.parametrize("spec", LIES, ids=str)
def test_specs_that_lie(spec):
    """All of them ask for more, less or other than the one part that there is."""
    with pytest.raises(tw.DecodeError):
        lowering.lift(spec, [PART])
    try:
        assert len(lowering.names(spec, 1)) <= 1
    except tw.DecodeError:
        pass


def test_inner_splits_that_are_no_vector():
    with pytest.raises(tw.DecodeError, match="vector"):
        lowering.lift({"ragged": {}, "splits": 2}, [np.zeros(1), np.array([0, 1]), np.array(0)])


def test_hostile_depth():
    spec = {}
    for _ in range(70):
        spec = {"list": [spec]}
    with pytest.raises(tw.LimitError):
        lowering.lift(spec, [PART])
    spec = {}
    for _ in range(300):
        spec = {"sparse": spec}
    with pytest.raises(tw.DecodeError):
        lowering.lift(spec, [PART])
    assert len(lowering.names(spec, 1000)) < 1000
