"""The json format: exact and readable, strict when read; plain JSON both ways; what other libraries
see in it.
"""

import importlib
import json
import math
import subprocess
import sys
import time

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tensorwire as tw
from support.tiers import require
from tensorwire.codecs.json import Json
from tensorwire.storage import files
from tensorwire.testing import check_codec
from tensorwire.testing import strategies as tws

orjson = require("orjson")


def dumps(value, **options):
    return tw.dumps(value, "json", **options)


def loads(text, **options):
    return tw.loads(text.encode() if isinstance(text, str) else text, "json", **options)


def parsed(value, **options):
    return json.loads(dumps(value, **options))


def test_every_kind_and_dtype_is_exact():
    report = check_codec("json", hostile=6)
    assert set(report.values()) == {"exact"}


@given(tws.values())
def test_any_value(value):
    blob = dumps(value)
    assert tw.equal(loads(blob), value)
    json.loads(blob)  # for any other parser, too
    if blob[:1] in b"{[":
        assert tw.equal(tw.loads(blob), value)  # and recognised


@given(tws.values(), st.integers(0, 4))
def test_any_value_indented(value, indent):
    blob = dumps(value, indent=indent)
    assert tw.equal(loads(blob), value) and json.loads(blob) == json.loads(dumps(value))


@given(tws.values(), st.data())
def test_damage_gives_a_value_or_our_error(value, data):
    blob = dumps(value)
    at = data.draw(st.integers(0, len(blob) - 1))
    flipped = bytearray(blob)
    flipped[at] ^= 1 << data.draw(st.integers(0, 7))
    swapped = (
        blob[:at]
        + bytes([data.draw(st.sampled_from(b'[]{},:"\\$-+.eE019ntf \n'))])
        + blob[at + 1 :]
    )
    for damaged in (blob[:at], bytes(flipped), swapped, blob + blob[:at]):
        for options in (
            {},
            {"plain": True},
            {"dtype": "float32"},
            {"dtype": "int64", "ragged": True},
            {"dtype": "text"},
        ):
            try:
                loads(damaged, **options)
            except tw.DecodeError as error:
                assert error.format == "json" and 0 <= error.offset <= len(damaged)


@given(tws.values())
def test_keys_in_any_order(value):
    """As any tool may leave them; only a tensor that is the same as another must stand after it."""
    blob = json.dumps(json.loads(dumps(value)), sort_keys=True)
    assert tw.equal(_sorted(loads(blob)), _sorted(value))


def _sorted(value):
    if isinstance(value, tw.Bundle):
        return tw.Bundle(dict(sorted(value.items())), value.metadata, value.tensor_metadata)
    if isinstance(value, dict):
        return {key: _sorted(value[key]) for key in sorted(value, key=str)}
    return type(value)(map(_sorted, value)) if isinstance(value, (list, tuple)) else value


# What it looks like


def test_what_tensors_look_like():
    assert (
        dumps({"x": np.float32([[0.1, 1], [-0.0, 1e-7]]), "step": 7})
        == b'{"x":{"$tensor":"float32","shape":[2,2],"data":[[0.1,1.0],[-0.0,1e-07]]},"step":7}'
    )
    assert parsed(np.array(2.5)) == {"$tensor": "float64", "shape": [], "data": 2.5}
    assert parsed(np.zeros((3, 0, 2), np.int8)) == {
        "$tensor": "int8",
        "shape": [3, 0, 2],
        "data": [],
    }
    assert parsed(np.array([True, False])) == {
        "$tensor": "bool",
        "shape": [2],
        "data": [True, False],
    }
    assert parsed(np.array([1 + 2j, -0.5j])) == {
        "$tensor": "complex128",
        "shape": [2],
        "data": [[1.0, 2.0], [-0.0, -0.5]],
    }
    assert parsed(np.array([7, -8], ml_dtypes.int4)) == {
        "$tensor": "int4",
        "shape": [2],
        "data": [7, -8],
    }
    # the fewest digits that are read as these
    assert parsed(np.array([0.1, 448], ml_dtypes.float8_e4m3fn))["data"] == [0.1, 450.0]
    assert parsed(np.array([1 << 63, (1 << 64) - 1], np.uint64))["data"] == [1 << 63, (1 << 64) - 1]
    assert parsed(tw.Strings.of(["é", ""], (2, 1))) == {
        "$tensor": "text",
        "shape": [2, 1],
        "data": [["é"], [""]],
    }
    assert parsed(tw.Strings.of([b"\xff"])) == {"$tensor": "bytes", "shape": [1], "data": ["/w=="]}


def test_what_other_kinds_look_like():
    int64 = {"$tensor": "int64", "shape": [3], "data": [1, 2, 3]}
    assert parsed(tw.Sparse([[0, 0], [1, 2], [2, 3]], np.int64([1, 2, 3]), (3, 4))) == {
        "$sparse": {"indices": [[0, 0], [1, 2], [2, 3]], "values": int64, "dense_shape": [3, 4]}
    }
    assert parsed(tw.Ragged(np.int64([1, 2, 3]), np.int32([0, 2, 2, 3]))) == {
        "$ragged": {"values": int64, "splits_dtype": "int32", "row_splits": [[0, 2, 2, 3]]}
    }
    assert parsed({"a": (1, b"\0\xff"), "$a": math.inf, "$$": None}) == {
        "a": {"$tuple": [1, {"$bytes": "AP8="}]},
        "$$a": {"$float": "inf"},
        "$$$": None,
    }
    bundle = tw.Bundle({"$x": np.int64([1, 2, 3])}, {"model": "nmt"}, {"$x": {"device": "cpu"}})
    assert parsed(bundle) == {
        "$bundle": {"$$x": int64},
        "metadata": {"model": "nmt"},
        "tensor_metadata": {"$x": {"device": "cpu"}},
    }


def test_nan_and_infinities():
    x = np.float32([np.nan, np.inf, -np.inf, -0.0])
    assert dumps(x, plain=True) == b'["NaN","Infinity","-Infinity",-0.0]'
    bare = dumps(x, bare_nonfinite=True)
    assert b"[NaN,Infinity,-Infinity,-0.0]" in bare and tw.equal(loads(bare), x)
    assert np.isnan(json.loads(bare)["data"][0])  # Python's own parser reads them, too
    assert math.isnan(loads(dumps(math.nan))) and loads(dumps(-math.inf)) == -math.inf


@pytest.mark.parametrize(
    "dtype",
    ["float64", "float32", "float16", "complex64", *(ml_dtypes.bfloat16, ml_dtypes.float8_e5m2)],
)
def test_other_nans_keep_their_bits(dtype):
    x = np.array([1, np.nan, 2, np.nan], dtype)
    raw = x.view(f"u{x.itemsize // (2 if x.dtype.kind == 'c' else 1)}")
    usual = raw.copy()
    raw[-1 if x.dtype.kind != "c" else -2] ^= 1
    assert tw.equal(loads(dumps(x)), x)
    assert "nan" in parsed(x) and "nan" not in parsed(usual.view(dtype))


def test_a_nan_that_arithmetic_makes():
    with np.errstate(invalid="ignore"):
        x = np.zeros(3, np.float32) / np.zeros(3, np.float32)  # negative on x86
    assert tw.equal(loads(dumps(x)), x)


def test_indented():
    value = {
        "x": np.arange(6, dtype=np.float32).reshape(2, 1, 3),
        "n": [1, 2, {"a": []}],
        "empty": {},
    }
    assert (
        dumps(value, indent=2).decode()
        == """{
  "x": {
    "$tensor": "float32",
    "shape": [2, 1, 3],
    "data": [
      [
        [0.0, 1.0, 2.0]
      ],
      [
        [3.0, 4.0, 5.0]
      ]
    ]
  },
  "n": [
    1,
    2,
    {
      "a": []
    }
  ],
  "empty": {}
}"""
    )
    with pytest.raises(tw.EncodeError, match="indent"):
        dumps(value, indent=-1)


def test_text_is_utf_8():
    assert dumps({"é": "中\n"}) == '{"é":"中\\n"}'.encode()
    assert loads(b'{"\\u00e9": "\\ud83d\\ude42"}') == {"é": "🙂"}


def test_metadata():
    x = np.arange(3)
    blob = dumps(x, metadata={"model": "nmt-v2"})
    assert list(json.loads(blob)) == ["$value", "metadata"] and tw.equal(loads(blob), x)
    assert Json().open(files.BytesSource(memoryview(blob))).metadata == {"model": "nmt-v2"}
    bundle = tw.Bundle({"x": x}, {"a": "b"})
    assert loads(dumps(bundle, metadata={"c": "d"})).metadata == {"a": "b", "c": "d"}
    with pytest.raises(tw.EncodeError, match="metadata"):
        dumps(x, metadata={"a": "b"}, plain=True)
    with pytest.raises(tw.EncodeError, match="metadata"):
        dumps(bundle, plain=True)
    assert json.loads(dumps(bundle, plain=True, drop_metadata=True)) == {"x": [0, 1, 2]}


def test_tied_tensors_stay_tied():
    torch = importlib.import_module("torch")
    w = torch.ones(2)
    value = {"a/b": [w], "~": (w,), "c": w}
    blob = dumps(value)
    assert [json.loads(blob)["~"]["$tuple"][0], json.loads(blob)["c"]] == [{"$same": "/a~1b/0"}] * 2
    back = loads(blob)
    assert back["c"] is back["a/b"][0] is back["~"][0]
    assert json.loads(dumps(value, plain=True)) == {
        "a/b": [[1.0, 1.0]],
        "~": [[1.0, 1.0]],
        "c": [1.0, 1.0],
    }
    with pytest.raises(tw.DecodeError, match="same"):
        loads('{"c": {"$same": "/a"}, "a": {"$tensor": "int8", "shape": [1], "data": [1]}}')


def test_quantized():
    x = np.linspace(-1, 1, 12, dtype=np.float32).reshape(3, 4)
    blob = dumps(x, quantize="int8", axis=0)
    assert list(json.loads(blob)["$quantized"]) == [
        "scheme",
        "dtype",
        "axis",
        "codes",
        "scale",
        "zero_point",
    ]
    assert loads(blob).dtype == np.float32 and np.abs(loads(blob) - x).max() < 0.01
    codes = loads(blob, dequantize=False)
    assert tw.equal(loads(dumps(codes), dequantize=False), codes)
    assert loads(dumps(x, quantize="float16"), dequantize=False).codes.dtype == np.float16
    with pytest.raises(tw.EncodeError, match="quantized"):
        dumps(codes, plain=True)


def test_memory_rules():
    blob = dumps({"x": np.arange(1000.0), "s": tw.Strings.of(["a"]), "r": tw.Ragged.of([[1], []])})
    assert not loads(blob)["x"].flags.writeable
    found = loads(blob, copy=True)
    assert (
        found["x"].flags.writeable
        and found["s"].data.flags.writeable
        and found["r"].row_splits[0].flags.writeable
    )
    with pytest.raises(tw.DecodeError, match="copy=False"):
        loads(blob, copy=False)
    assert loads(dumps({"a": [1, 2]}), copy=False) == {"a": [1, 2]}


# Plain JSON


def test_a_list_is_a_list():
    assert (
        loads("[[1, 2.5], [3, null]]") == [[1, 2.5], [3, None]]
        and loads("7") == 7
        and loads(' "x" ') == "x"
    )
    assert type(loads("[1, 2]")) is list


def test_seed_004_single_and_multiple_sparse_tensors():
    """What the recipes of the seed print is what json.dumps gives for these objects."""
    one = tw.Sparse([[0, 0], [1, 2], [2, 3]], np.int32([1, 2, 3]), (3, 4))
    theirs = json.dumps(
        {
            "sparse_input": {
                "indices": [[0, 0], [1, 2], [2, 3]],
                "values": [1, 2, 3],
                "dense_shape": [3, 4],
            }
        }
    )
    assert json.loads(dumps({"sparse_input": one}, plain=True)) == json.loads(theirs)
    assert dumps({"sparse_input": one}, plain=True).decode() == theirs.replace(" ", "")
    two = {
        "sparse_input_1": tw.Sparse([[0, 0], [1, 1]], np.int32([1, 2]), (2, 2)),
        "sparse_input_2": tw.Sparse([[0, 2], [2, 0]], np.int32([3, 4]), (3, 3)),
    }
    many = json.dumps({
        "sparse_input_1": {"indices": [[0, 0], [1, 1]], "values": [1, 2], "dense_shape": [2, 2]},
        "sparse_input_2": {"indices": [[0, 2], [2, 0]], "values": [3, 4], "dense_shape": [3, 3]},
    })  # fmt: skip
    assert dumps(two, plain=True).decode() == many.replace(" ", "")
    assert tw.equal(loads(theirs, dtype="int32"), {"sparse_input": one}) and tw.equal(
        loads(many, dtype=np.int32), two
    )
    assert tw.equal(loads(theirs, dtype={"sparse_input": "int32"}), {"sparse_input": one})
    reordered = (
        '{"sparse_input": {"dense_shape": [3, 4], "values": [1, 2, 3], "indices": [[0, 0], [1, 2],'
        " [2, 3]]}}"
    )
    assert tw.equal(loads(reordered, dtype="int32"), {"sparse_input": one})


def test_plain_is_what_tolist_gives():
    values = {
        "dense": np.arange(6).reshape(2, 3), "half": np.float16([0.5, 2]), "empty": np.zeros((2, 0, 3)), "flag": np.array(True),
        "ragged": tw.Ragged.of([[[1], []], [], [[2, 3]]]), "words": tw.Strings.of(["a", "b"], (2, 1)),
    }  # fmt: skip
    assert json.loads(dumps(values, plain=True)) == {
        name: value.tolist() for name, value in values.items()
    }
    assert json.loads(dumps((1, b"\xff", tw.Strings.of([b"\0"]), math.nan), plain=True)) == [
        1,
        {"b64": "/w=="},
        [{"b64": "AA=="}],
        "NaN",
    ]
    assert (
        dumps([math.nan, np.float32(math.inf)], plain=True, bare_nonfinite=True)
        == b"[NaN,Infinity]"
    )
    assert json.loads(dumps(tw.Ragged(tw.Strings.of([b"x", b"y"]), [0, 2, 2]), plain=True)) == [
        [{"b64": "eA=="}, {"b64": "eQ=="}],
        [],
    ]
    assert json.loads(
        dumps(tw.Ragged(np.float32([[1, 2], [3, 4]]), np.int32([0, 0, 2])), plain=True)
    ) == [[], [[1, 2], [3, 4]]]
    with pytest.raises(tw.EncodeError, match="empty lists"):
        dumps(np.zeros((1 << 40, 0)), plain=True)


@given(tws.arrays(dtype="float32"))
def test_plain_floats_come_back(x):
    back = loads(dumps(x, plain=True), dtype={"": "float32"})
    with np.errstate(invalid="ignore"):
        assert np.array_equal(back, x, equal_nan=True) if x.size else back.size == 0


def test_plain_with_dtype():
    text = (
        '{"x": [[1, 2], [3, 4]], "n": 3, "name": "a", "rows": [{"y": [0.5, "NaN"]}, {"y": []}],'
        ' "flags": [true], "words": ["a", "b"]}'
    )
    found = loads(text, dtype="float32")
    assert (
        tw.equal(found["x"], np.float32([[1, 2], [3, 4]]))
        and found["n"] == 3
        and type(found["n"]) is int
        and found["name"] == "a"
    )
    assert tw.equal(found["rows"][0]["y"], np.float32([0.5, np.nan])) and tw.equal(
        found["rows"][1]["y"], np.zeros(0, np.float32)
    )
    assert found["flags"] == [True] and found["words"] == ["a", "b"]
    named = loads(
        text,
        dtype={"x": "uint8", "n": np.int16, "rows/0/y": "float64", "words": str, "flags": bool},
    )
    assert tw.equal(named["x"], np.uint8([[1, 2], [3, 4]])) and tw.equal(
        named["n"], np.array(3, np.int16)
    )
    assert (
        named["rows"][1]["y"] == []
        and tw.equal(named["words"], tw.Strings.of(["a", "b"]))
        and named["flags"].dtype == bool
    )
    assert tw.equal(loads(text, dtype="text")["words"], tw.Strings.of(["a", "b"]))
    assert tw.equal(
        loads('[["a"], [{"b64": "/w=="}]]', dtype="bytes"), tw.Strings.of([b"a", b"\xff"], (2, 1))
    )
    assert tw.equal(loads("[[1, 2], [3, 4]]", dtype="complex64"), np.complex64([1 + 2j, 3 + 4j]))
    assert loads('{"$x": [1]}', plain=True) == {"$x": [1]}


def test_ragged_lists_are_refused_unless_asked_for():
    with pytest.raises(tw.DecodeError, match="ragged") as caught:
        loads('{"a": [[1, 2], [3]]}', dtype="float32")
    assert caught.value.offset == 17 and caught.value.tensor == "a"
    assert tw.equal(
        loads("[[1, 2], [], [3]]", dtype="int32", ragged=True),
        tw.Ragged(np.int32([1, 2, 3]), [0, 2, 2, 3]),
    )
    assert tw.equal(
        loads("[[[1], []], [], [[2, 3]]]", dtype="int64", ragged=True),
        tw.Ragged.of([[[1], []], [], [[2, 3]]]),
    )
    # whatever the lengths are
    assert tw.equal(loads("[[1], [2]]", dtype="int64", ragged=True), tw.Ragged.of([[1], [2]]))
    assert tw.equal(loads("[1, 2]", dtype="int64", ragged=True), np.array([1, 2]))
    with pytest.raises(tw.DecodeError, match="at the same depth"):
        loads("[[1], 2]", dtype="int64", ragged=True)


# Strictness


def tensor(dtype="int8", shape="[1]", data="[1]", more=""):
    return f'{{"$tensor":"{dtype}","shape":{shape},"data":{data}{more}}}'


def sparse(indices="[[0]]", values=None, dense_shape="[3]", more=""):
    return f'{{"$sparse":{{"indices":{indices},"values":{values or tensor()},"dense_shape":{dense_shape}{more}}}}}'


def ragged(splits="[[0,1]]", dtype="int64", more=""):
    return f'{{"$ragged":{{"values":{tensor()},"splits_dtype":"{dtype}","row_splits":{splits}{more}}}}}'


def nan(at, bits, data='["NaN"]', dtype="float32"):
    return tensor(dtype, "[1]", data, f',"nan":{{"at":{at},"bits":{bits}}}')


BAD = {
    "nothing": "",
    "only space": "  ",
    "cut": '{"a": [1, 2',
    "trailing": "[1] 2",
    "trailing comma": "[1,]",
    "single quotes": "{'a': 1}",
    "two values": "1 2",
    "comment": "[1] // x",
    "byte order mark": "\ufeff[1]",
    "key twice": '{"a": 1, "a": 2}',
    "key twice in a tensor": '{"$tensor":"int8","shape":[1],"shape":[1],"data":[1]}',
    "key twice beside a tensor": f'{{"a": 1, "a": {tensor()}}}',
    "NaN outside of tensors": "[NaN]",
    "1e400": "[1e400]",
    "lone surrogate": '["\\ud800"]',
    "surrogate in a key": '{"\\udfff": {"$bytes": ""}}',
    "control character": '["\x01"]',
    "control character in a key": '{"\x01": {"$bytes": ""}}',
    "not UTF-8": b'["\xff"]',
    "not UTF-8 in a tensor": b'{"$tensor":"text","shape":[1],"data":["\xff"]}',
    "not UTF-8 in a key": b'{"\xff": {"$bytes": ""}}',
    "deep": "[" * 100_000,
    "deep and closed": "[" * 70 + "]" * 70,
    "no colon": '{"a" {"$bytes": ""}}',
    "unknown form": '{"$tensors": 1}',
    "two forms": '{"$tuple": [], "$bytes": ""}',
    "key beside a form": '{"$tuple": [], "a": 1}',
    "key before a form": '{"a": 1, "$tuple": []}',
    "tuple of no list": '{"$tuple": {}}',
    "bytes of no base64": '{"$bytes": "a"}',
    "bytes with bits left over": '{"$bytes": "AAF="}',
    "bytes of a number": '{"$bytes": 3}',
    "float that is one": '{"$float": "3ff0000000000000"}',
    "float of nothing": '{"$float": ""}',
    "same as nothing": '{"$same": "/a"}',
    "value inside": '[{"$value": 1}]',
    "value and more": '{"metadata": {}, "$value": 1, "x": 2}',
    "metadata that is none": '{"$value": 1, "metadata": {"a": 1}}',
    "no shape": '{"$tensor":"int8","data":[1]}',
    "no data": '{"$tensor":"int8","shape":[1]}',
    "unknown dtype": tensor("int9"),
    "dtype of a number": '{"$tensor":8,"shape":[1],"data":[1]}',
    "dtype that is never written": tensor("qint8"),
    "shape too large": tensor(shape="[2]"),
    "shape too small": tensor(data="[1,2]"),
    "shape and rank": tensor(shape="[1,1]"),
    "shape of floats": tensor(shape="[1.0]"),
    "shape of bools": tensor(shape="[true]"),
    "shape of nothing": tensor(shape="null"),
    "negative shape": tensor(shape="[-1]", data="[]"),
    "huge shape": tensor(shape="[9223372036854775807]"),
    "huge shape with zero": tensor(shape="[4611686018427387904,4,0]", data="[]"),
    "data where the shape has none": tensor(shape="[0]"),
    "lists where the shape has none": tensor(shape="[2,0]", data="[[]]"),
    "scalar in a list": tensor(shape="[]"),
    "rank 65": tensor(shape=str([1] * 65)),
    "ragged": tensor(shape="[2,2]", data="[[1,2],[3]]"),
    "2**64": tensor("uint64", data="[18446744073709551616]"),
    "2**63": tensor("int64", data="[9223372036854775808]"),
    "256": tensor("uint8", data="[256]"),
    "-1": tensor("uint8", data="[-1]"),
    "1.5 as an integer": tensor(data="[1.5]"),
    "1.0 as an integer": tensor(data="[1.0]"),
    "1e2 as an integer": tensor(data="[1e2]"),
    "1e400 in a tensor": tensor("float64", data="[1e400]"),
    "1e39 as float32": tensor("float32", data="[1e39]"),
    "65520 as float16": tensor("float16", data="[65520]"),
    "an infinity that it lacks": tensor("float8_e4m3fn", data='["Infinity"]'),
    "a NaN that it lacks": tensor("float4_e2m1fn", data='["NaN"]'),
    "a sign that it lacks": tensor("float8_e8m0fnu", data="[-1]"),
    "mixed types": tensor("float32", "[2]", "[1,true]"),
    "null": tensor("float32", data="[null]"),
    "number as text": tensor("float32", data='["1"]'),
    "complex of no pairs": tensor("complex64"),
    "number in strings": tensor("text"),
    "strings and shape": tensor("text", "[2]", '["a"]'),
    "base64 in a tensor": tensor("bytes", data='["a"]'),
    "1 as bool": tensor("bool"),
    "leading zero": tensor(data="[01]"),
    "plus": tensor(data="[+1]"),
    "nan outside": nan([1], [2143289345]),
    "nan of a number": nan([0], [2143289345], "[1]"),
    "nan of no NaN": nan([0], [1]),
    "nan of other lengths": nan([0], []),
    "nan twice": nan([0, 0], [2143289345, 2143289346]),
    "nan without bits": tensor("float32", data='["NaN"]', more=',"nan":{"at":[0]}'),
    "nan of integers": nan([], [], "[1]", "int8"),
    "nan of strings": nan([], [], '["a"]', "text"),
    "sparse index": sparse("[[3]]"),
    "sparse of a list": sparse(values="[1]"),
    "sparse of a scalar": sparse("[]", tensor(shape="[]", data="1"), "[]"),
    "sparse without indices": sparse("[]"),
    "sparse without shape": f'{{"$sparse":{{"indices":[[0]],"values":{tensor()}}}}}',
    "sparse with more": sparse(more=',"x":1'),
    "ragged splits": ragged("[[0,2]]"),
    "ragged dtype": ragged(dtype="int8"),
    "ragged int32": ragged("[[0,4294967297]]", "int32"),
    "ragged flat": ragged("[0,1]"),
    "ragged uniform": ragged(more=',"uniform":[2]'),
    "ragged uniform text": ragged(more=',"uniform":"a"'),
    "bundle of numbers": '{"$bundle":{"a":1}}',
    "bundle that is none": '{"$bundle":{"$tuple":[]}}',
    "bundle metadata": '{"$bundle":{},"metadata":{"a":1}}',
    "quantized numbers": '{"$quantized":{"scheme":"int8","dtype":"float32","codes":1}}',
    "quantized scheme": (
        f'{{"$quantized":{{"scheme":"int7","dtype":"float32","codes":{tensor()}}}}}'
    ),
    "quantized axis": (
        f'{{"$quantized":{{"scheme":"int8","dtype":"float32","axis":0,"codes":{tensor()}}}}}'
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_text_is_refused(name):
    text = BAD[name] if isinstance(BAD[name], bytes) else BAD[name].encode()
    with pytest.raises(tw.DecodeError) as caught:
        loads(text)
    assert caught.value.format == "json" and 0 <= caught.value.offset <= len(text)


def test_the_good_twins_of_the_bad_ones():
    for text, value in {
        '{"$tensor":"int8","shape":[2],"data":[1,-128]}': np.int8([1, -128]),
        '{"data" : [ [1 , 2] ,\n[3,4]],\t"shape":[2,2],"$tensor":"int8"}\r\n': np.int8(
            [[1, 2], [3, 4]]
        ),
        '{"$tensor":"int8","shape":[3,0],"data":[[],[],[]]}': np.zeros((3, 0), np.int8),
        '{"$tensor":"float16","shape":[1],"data":[65519]}': np.float16([65504]),
        '{"$tensor":"float64","shape":[1],"data":[1e-400]}': np.zeros(1),
        '{"data": 1, "shape": [2], "x": {"$tuple": []}}': {"data": 1, "shape": [2], "x": ()},
        '{"metadata": {"a": 1}, "nan": [1], "x": {"$bytes": ""}}': {
            "metadata": {"a": 1},
            "nan": [1],
            "x": b"",
        },
        '{"$$tensor": 1}': {"$tensor": 1},
    }.items():
        assert tw.equal(loads(text), value), text


def test_errors_say_where():
    number = '{"x": {"$tensor": "int8", "shape": [2], "data": [1, 300]}}'
    for text, at in {number: 52, "[1, 2": 5, '{"é": {"$tuple": 7}}': 18, '["a", tru]': 6}.items():
        with pytest.raises(tw.DecodeError) as caught:
            loads(text)
        assert caught.value.offset == at, caught.value
    with pytest.raises(tw.LimitError):
        loads("[" * 65 + "]" * 65)
    assert loads("[" * 64 + "]" * 64)
    with pytest.raises(tw.LimitError):
        loads(dumps(np.zeros(100)), limits=tw.Limits(tensor=799))
    with pytest.raises(tw.LimitError):
        loads("[1, 2, 3]", dtype="float64", limits=tw.Limits(tensor=23))


def test_depth_is_that_of_values():
    value = tensor = np.float32(1) * np.ones((1,) * 40)
    for i in range(64):
        value = (value,) if i % 2 else [value]
    back = loads(dumps(value))
    for _ in range(64):
        (back,) = back
    assert tw.equal(back, tensor)
    with pytest.raises(tw.EncodeError, match="deep"):
        dumps([value])
    with pytest.raises(tw.LimitError):
        loads(b"[" + dumps(value) + b"]")


def test_every_flip_and_every_cut():
    sparse, ragged = tw.Sparse([[0, 1]], np.int8([2]), (2, 2)), tw.Ragged.of([["a"], []])
    value = {"x": np.float32([[1.5, np.nan]]), "s": sparse, "t": (1, b"a"), "r": ragged}
    blob, start = dumps(value), time.perf_counter()
    for at in range(len(blob)):
        for damaged in [
            blob[:at],
            *(blob[:at] + bytes([blob[at] ^ 1 << bit]) + blob[at + 1 :] for bit in range(8)),
        ]:
            try:
                found = loads(damaged)
            except tw.DecodeError as error:
                assert error.format == "json" and 0 <= error.offset <= len(damaged)
            else:
                assert len(damaged) == len(blob) and found is not None  # a cut is never a value
    assert time.perf_counter() - start < 60


BOMBS = """
import resource
import numpy as np, tensorwire as tw
tw.loads(tw.dumps({"a": [np.zeros(2)]}, "json"))
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
tensor = '{"$tensor":"%s","shape":%s,"data":%s}'
bombs = [
    tensor % ("float64", [1 << 40], "[1]"),
    tensor % ("complex128", [1 << 59], "[1]"),
    tensor % ("float64", [1 << 20, 1 << 20], "[[1]]"),
    tensor % ("text", [1 << 40], '["a"]'),
    tensor % ("float32", [2], "[" * 100000),
    tensor % ("float32", [1], "[1" + "0" * 1000000 + "]"),
    '{"$sparse":{"indices":[[0]],"values":%s,"dense_shape":[%d]}}' % (tensor % ("int8", [1], "[1]"), 1 << 64),
    '{"a":' * 100000,
    "[" * 1000000,
]
refused = 0
for bomb in bombs:
    for options in ({}, {"dtype": "float64"}):
        try:
            tw.loads(bomb.encode(), "json", **options)
        except tw.DecodeError:
            refused += 1
print(refused, (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024)
"""


@pytest.mark.slow
def test_bombs_cost_little_memory():
    refused, extra = map(
        int,
        subprocess.run(
            [sys.executable, "-c", BOMBS], capture_output=True, text=True, check=True
        ).stdout.split(),
    )
    assert refused == 18 and extra <= 64


def test_hostile_text_is_quick():
    """Numbers that need long arithmetic, keys that make us look twice, and nesting around a lot of
    text.
    """
    hard = ",".join(["9007199254740993"] * 50_000 + ["0." + "3" * 900] * 500)
    inside = "[" * 60 + "[" + "1," * 200_000 + '1],{"$tuple":[]}' + "]" * 60
    later = '{"data":' * 60 + "[" + "1," * 200_000 + "1]" + "}" * 60
    floats = {"dtype": "float64"}
    for text, options in (
        (f"[{hard}]", floats),
        (inside, {}),
        (later, floats),
        (f'{{"$tuple":[{later}]}}', {}),
    ):
        start = time.perf_counter()
        loads(text, **options)
        assert time.perf_counter() - start < 10  # two seconds on a machine that does nothing else


# Other libraries


def test_what_rivals_lose():
    """Other ways to JSON change values without a word; ours are exact, or an error."""
    x = np.float32([1, np.nan])
    assert orjson.dumps(x, option=orjson.OPT_SERIALIZE_NUMPY) == b"[1.0,null]"
    assert tw.equal(loads(dumps(x)), x)
    assert json.loads("[1e400]") == [math.inf] and json.loads('{"a": 1, "a": 2}') == {"a": 2}
    simdjson = importlib.import_module("simdjson")
    ragged = b"[[1.0, 2.0], [3.0]]"
    # as if it were flat
    assert np.frombuffer(simdjson.Parser().parse(ragged).as_buffer(of_type="d")).tolist() == [
        1,
        2,
        3,
    ]
    with pytest.raises(tw.DecodeError, match="ragged"):
        loads(ragged, dtype="float64")


@given(tws.arrays(dtype="float64"))
def test_orjson_reads_the_same_numbers(x):
    x = np.where(np.isfinite(x), x, 0)
    assert orjson.loads(dumps(x))["data"] == (x.tolist() if x.size else [])


def test_numbers_of_every_width_from_orjson():
    rng = np.random.default_rng(5)
    for dtype in ("float64", "float32", "int64", "uint64", "int8", "bool"):
        x = (rng.standard_normal((20, 5)) * 100).astype(dtype)
        assert tw.equal(loads(orjson.dumps(x, option=orjson.OPT_SERIALIZE_NUMPY), dtype=dtype), x)
        assert tw.equal(loads(json.dumps(x.tolist(), indent=1), dtype=dtype), x)


def test_numbers_of_a_large_file_are_writable(tmp_path):
    """Memory that a kernel allocated is writable already, and NumPy refuses to say so again."""
    value = {
        "sparse": tw.Sparse(np.array([[0, 1]]), np.float32([1]), np.array([3, 4])),
        "dense": np.arange(2000),
    }
    tw.save(tmp_path / "x.json", value)
    found = tw.load(tmp_path / "x.json")
    assert tw.equal(found, value)
    found["dense"][0] = found["sparse"].indices[0, 0] = 5
