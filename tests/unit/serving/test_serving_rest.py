"""TensorFlow Serving's JSON rules, as a table: what it takes, and what it refuses with which
status, in which words, and where.
"""

import json
import math
import subprocess
import sys
import time

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import tensorwire as tw
from support.serving_rules import ONE, REFUSED, REFUSED_EXAMPLES, TAKEN, TWO, F, H, S
from tensorwire._limits import DEFAULT, Limits
from tensorwire.core import dtypes
from tensorwire.serving import rest
from tensorwire.serving.rest import answers, faults, requests, serving_rules
from tensorwire.serving.rest.json_text import RequestText, write, write_rows
from tensorwire.serving.signature import Signature
from tensorwire.serving.spec import Input


def sig(inputs=ONE, outputs=None, name="serving_default"):
    return Signature.given(inputs, outputs or {}, name)


def read(body, inputs=ONE, **more):
    return rest.parse_request(
        body if isinstance(body, bytes) else body.encode(), sig(inputs), **more
    )


@pytest.mark.parametrize("name", TAKEN)
def test_taken(name):
    body, inputs, layout, tensors = TAKEN[name]
    found = read(body, inputs)
    assert (
        found.layout == layout
        and found.signature_name == ""
        and found.inputs.keys() == tensors.keys()
    )
    for key, tensor in tensors.items():
        assert tw.equal(found.inputs[key], tensor), key
    assert rest.check(body.encode(), sig(inputs)) is None
    # The readable twin says the same.
    given_ = serving_rules.predict(faults.document(body.encode()), lambda name: sig(inputs))
    for key, tensor in tensors.items():
        assert tw.equal(requests._array(given_.inputs[key], inputs[key][0]), tensor), key


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name):
    body, inputs, status, message, path = REFUSED[name]
    fault = rest.check(body.encode(), sig(inputs))
    assert fault is not None and (fault.status, fault.path) == (status, path)
    words, _, offset = fault.message.partition(" at offset: ")
    assert words == message or (
        message in words and words.startswith(("JSON Value: {", "Failed to process element"))
    )
    assert not offset or int(offset) <= len(body.encode())
    with pytest.raises(tw.ModelError) as error:
        read(body, inputs)
    assert error.value.args == (status, fault.message) and error.value.path == path
    assert str(path) in str(fault)


def test_every_dtype_is_taken_or_answered_with_501():
    for row in dtypes.TABLE:
        token = "true" if row.name == "bool" else "1"
        fault = rest.check(
            f'{{"inputs": [{token}]}}'.encode(), Signature("s", {"x": Input("x", row.name)}, {})
        )
        assert (fault is None) == (row.name in rest.DTYPES), row.name
        assert fault is None or (fault.status == 501 and "gRPC" in fault.hint)


def test_hints():
    def hint(body, inputs=ONE):
        return rest.check(body.encode(), sig(inputs)).hint

    assert "without quotes" in hint('{"inputs": ["NaN"]}', F)
    assert "neither a decimal point nor an exponent" in hint('{"inputs": [1.0]}')
    assert "row_splits" in hint('{"inputs": [[1], [2, 3]]}')
    assert "missing in this row: s" in hint('{"instances": [{"a": 1}]}', TWO)


FLAT = {
    "sparse_input": Input("sparse_input", "int64", (None, 2)),
    "sparse_input_1": Input("sparse_input_1", "int32", (None,)),
    "sparse_input_2": Input("sparse_input_2", "int64", (2,)),
}


def test_the_seeds_nested_form_is_refused_with_the_form_that_works():
    nested = {"indices": [[0, 0], [1, 2], [2, 3]], "values": [1, 2, 3], "dense_shape": [3, 4]}
    signature = Signature("serving_default", FLAT, {})
    for body, path in (
        ({"sparse_input": nested}, "$.sparse_input"),
        ({"inputs": {"sparse_input": nested}}, "$.inputs.sparse_input"),
        ({"instances": [{"sparse_input": nested}]}, "$.instances[0].sparse_input"),
    ):
        fault = rest.check(json.dumps(body).encode(), signature)
        assert fault.status == 400 and path in fault.hint
        assert (
            '{"inputs": {"sparse_input": indices, "sparse_input_1": values, "sparse_input_2":'
            " dense_shape}}" in fault.hint
        )
    fault = rest.check(json.dumps({"x": nested}).encode(), sig())
    assert '"x_indices": indices' in fault.hint
    body = b"".join(rest.build({"sparse_input": nested}, signature))
    assert rest.check(body, signature) is None
    assert json.loads(body) == {
        "inputs": {
            "sparse_input": nested["indices"],
            "sparse_input_1": [1, 2, 3],
            "sparse_input_2": [3, 4],
        }
    }


def test_shapes_are_checked_last_and_in_our_words():
    fault = rest.check(b'{"inputs": [[1, 2]]}', sig({"x": ("int32", [None, 3])}))
    assert fault.status == 400 and "[1, 2]" in fault.message and "x: int32 [?, 3]" in fault.hint
    assert rest.check(b'{"inputs": [[1, 2]]}', sig({"x": ("int32", [None, 2])})) is None
    # as Serving does
    assert rest.parse_request(b'{"inputs": [[1, 2]]}', sig({"x": ("int32", [None, 3])})).inputs[
        "x"
    ].shape == (1, 2)


def test_several_signatures():
    both = {"serving_default": sig(), "text": sig({"t": ("string", None)}, name="text")}
    assert rest.parse_request(b'{"inputs": [1]}', both).inputs["x"].tolist() == [1]
    for body in (
        b'{"signature_name": "text", "inputs": ["a"]}',
        b'{"inputs": ["a"], "signature_name": "text"}',
    ):
        found = rest.parse_request(body, both)
        assert found.inputs["t"].tolist() == [b"a"] and found.signature_name == "text"
    found = rest.parse_request(
        b'{"inputs": [[1]], "signature_name": "i"}',
        {"serving_default": sig(), "i": sig({"x": ("int64", None)}, name="i")},
    )
    assert found.inputs["x"].dtype == np.int64  # read again, by the signature whose name came late
    fault = rest.check(b'{"signature_name": "txt", "inputs": ["a"]}', both)
    assert fault.status == 400 and "text" in fault.hint


@pytest.mark.large
def test_a_long_body_gets_the_place_and_our_words():
    x = np.zeros((3000, 1000), np.float32)
    body = b"".join(rest.build({"x": x}, layout="rows"))
    assert len(body) > requests.EXPLAINED
    signature = sig({"x": ("float32", [None, 1000])})
    assert rest.check(body, signature) is None
    middle = body.index(b"],[", len(body) // 2) + 3
    fault = rest.check(body[:middle] + b'"a",' + body[middle:], signature)
    row = body[:middle].count(b"],[")
    assert (
        fault.status == 400
        and fault.path == f"$.instances[{row}][0]"
        and str(middle) in fault.message
    )
    assert rest.check(body, sig(H)).status == 400
    assert rest.check(body.replace(b"instances", b"inputs"), sig(H)).status == 501
    rows = b"".join(rest.build({"a": x[:, :300], "b": np.arange(3000)}, layout="rows"))
    assert len(rows) > requests.EXPLAINED or len(rows) > 3_000_000
    both = sig({"a": ("float32", None), "b": ("int64", None)})
    assert rest.check(rows, both) is None


def test_the_way_does_not_lose_itself_in_strings():
    for brackets in ("[", "]"):
        body = json.dumps({"instances": [brackets * 3_000_000, 1]}).encode()
        start = time.perf_counter()
        fault = rest.check(body, sig(S))
        assert (
            fault.status == 400 and fault.path == "$.instances" and time.perf_counter() - start < 5
        )


@pytest.mark.parametrize("offset", range(1, 60, 3))
def test_the_way_to_an_offset(offset):
    body = b'{"instances": [[1, 2], [3, [4, [5, 6]]], [7, 8], 9, [[10]]]} '
    path = requests.place(memoryview(body), offset)
    counts = []
    for char in body[body.index(b"[") : offset].decode():
        if char == "[":
            counts.append(0)
        elif char == "]":
            counts.pop()
        elif char == ",":
            counts[-1] += 1
    expected = (
        "$.instances" + "".join(f"[{count}]" for count in counts)
        if offset > body.index(b"[")
        else "$"
    )
    assert path == expected
    old, requests._STRETCH = requests._STRETCH, 5
    try:
        assert requests.place(memoryview(body), offset) == expected
    finally:
        requests._STRETCH = old


# The quick reader and the readable rules

TOKENS = [
    "1",
    "-0",
    "0",
    "255",
    "300",
    "16777216",
    "16777217",
    "1e3",
    "1.5",
    "-2.0",
    "1e39",
    "NaN",
    "-Infinity",
    "true",
    "false",
    "null",
    '"a"',
    '"NaN"',
    '"\\u00e9"',
    '{"b64": "YQ=="}',
    '{"b64": "*"}',
    "9007199254740993",
    "18446744073709551615",
    "18446744073709551616",
]
cells = st.recursive(
    st.sampled_from(TOKENS),
    lambda inner: st.lists(inner, max_size=3).map(lambda items: f"[{', '.join(items)}]"),
    max_leaves=8,
)
names = st.sampled_from(["x", "y", "z"])
objects = st.dictionaries(names, cells, max_size=3).map(
    lambda members: "{" + ", ".join(f'"{name}": {cell}' for name, cell in members.items()) + "}"
)
values = st.one_of(
    cells, objects, st.lists(objects, max_size=3).map(lambda items: f"[{','.join(items)}]")
)
bodies = st.tuples(st.sampled_from(["instances", "inputs"]), values).map(
    lambda pair: f'{{"{pair[0]}": {pair[1]}}}'
)


@settings(max_examples=5 * settings.default.max_examples)
@given(bodies, st.sampled_from(rest.DTYPES), st.booleans())
@example('{"instances": [{"x": [[1]], "y": 1}, {"y": 2, "x": [[1]]}]}', "int32", True)
def test_the_quick_reader_agrees_with_the_rules(body, dtype, two):
    inputs = {"x": (dtype, None)} | ({"y": ("float32", None)} if two else {})
    signature = sig(inputs)
    try:
        quick = requests._Predict(
            RequestText(memoryview(body.encode()), DEFAULT, exact=True), lambda name: signature
        ).read()
    except tw.DecodeError:
        quick = None
    try:
        slow = serving_rules.predict(faults.document(body.encode()), lambda name: signature)
    except faults.RequestRefused:
        slow = None
    if quick is not None:
        assert slow is not None and slow.layout == quick.layout
        for name, found in slow.inputs.items():
            made = requests._array(found, inputs[name][0])
            same = quick.inputs[name]
            assert made.shape == same.shape
            # of -0 Serving makes 0
            assert tw.equal(made, same) or np.array_equal(made, same, equal_nan=True)
    if slow is not None and '"x"' in body and not two:
        assert rest.check(body.encode(), signature) is None


@given(
    st.lists(st.lists(st.binary(max_size=12), min_size=2, max_size=2), max_size=12),
    st.sampled_from([None, True, False]),
    st.booleans(),
)
def test_strings_of_any_bytes(rows, coded, deep):
    strings = tw.Strings.of([word for row in rows for word in row], (len(rows), 2), text=False)
    strings = strings.reshape(len(rows), 1, 2) if deep else strings
    text = write(strings, coded)
    found, end = RequestText(memoryview(text), DEFAULT, exact=True).strings(0)
    assert end == len(text) and found.tolist() == strings.tolist()
    spaced = (
        text.replace(b"[", b" [\n")
        if b'"[' not in text and all(b"[" not in word for row in rows for word in row)
        else text
    )
    assert (
        RequestText(memoryview(spaced), DEFAULT, exact=True).strings(0)[0].tolist()
        == strings.tolist()
    )
    rows_of = [
        RequestText(memoryview(row), DEFAULT, exact=True).strings(0)[0].tolist()
        for row in write_rows(strings, coded)
    ]
    assert rows_of == strings.tolist()


def test_rows_that_do_not_look_like_the_first():
    count = 300
    rows = [
        (
            {
                "a": i,
                "s": f'{{"[{i}]", }}',
                "f": [[i / 2, 1.5]],
                "w": [[["x", "}"]]],
                "d": [[[[[1]]]]],
            }
            if i % 3
            else {
                "d": [[[[[1]]]]],
                "w": [[["x", "}"]]],
                "f": [[i / 2, 1.5]],
                "s": f'{{"[{i}]", }}',
                "a": i,
            }
        )
        for i in range(count)
    ]
    inputs = {
        "a": ("int64", None),
        "s": ("string", None),
        "f": ("float32", None),
        "w": ("string", None),
        "d": ("uint8", None),
    }
    for text in (
        json.dumps(rows),
        json.dumps(rows, indent=2),
        json.dumps(rows, separators=(",", ":")),
    ):
        found = rest.parse_request(f'{{"instances": {text}}}'.encode(), sig(inputs)).inputs
        assert found["a"].tolist() == list(range(count)) and found["s"].tolist() == [
            row["s"].encode() for row in rows
        ]
        assert found["f"].shape == (count, 1, 2) and found["f"][:, 0, 0].tolist() == [
            i / 2 for i in range(count)
        ]
        assert found["w"].shape == (count, 1, 1, 2) and found["d"].shape == (count, 1, 1, 1, 1, 1)
    body = json.dumps({"instances": [*rows, {**rows[0], "a": 1.5}]}).encode()
    assert rest.check(body, sig(inputs)).path == f"$.instances[{count}].a"


# Building

DENSE = {
    name: (
        np.array([[0, 1, 1], [1, 0, 1]]).astype(name)
        if name == "bool"
        else np.array([[1, 2, 3], [4, 5, 100]]).astype(name)
    )
    for name in rest.DTYPES
    if name != "string"
}


@pytest.mark.parametrize("layout", ["rows", "columns"])
@pytest.mark.parametrize("dtype", DENSE)
def test_what_is_built_is_what_is_read(dtype, layout):
    x = DENSE[dtype]
    strings = tw.Strings.of([b"\xff\x00", b'"']), tw.Strings.of(["é\n", "\\"])
    inputs = {"x": x, "b": strings[0], "t": strings[1]}
    signature = sig({"x": (dtype, [None, 3]), "b": ("string", [None]), "t": ("string", [None])})
    body = b"".join(rest.build(inputs, signature, layout=layout))
    found = rest.parse_request(body, signature)
    assert found.layout == layout and tw.equal(found.inputs["x"], x)
    assert (
        found.inputs["b"].tolist() == strings[0].tolist()
        and found.inputs["t"].astext().tolist() == strings[1].tolist()
    )
    alone = b"".join(rest.build({"x": x}, layout=layout))
    assert tw.equal(rest.parse_request(alone, sig({"x": (dtype, None)})).inputs["x"], x)


def test_the_bytes_of_a_body():
    x = np.float32([[1, np.nan], [np.inf, 1e20]])
    assert b"".join(rest.build({"x": x})) == b'{"inputs":{"x":[[1.0,NaN],[Infinity,1e+20]]}}'
    assert (
        b"".join(rest.build({"x": x}, layout="rows"))
        == b'{"instances":[[1.0,NaN],[Infinity,1e+20]]}'
    )
    assert (
        b"".join(rest.build({"x": x[0], "i": [1, 2]}, layout="rows"))
        == b'{"instances":[{"x":1.0,"i":1},{"x":NaN,"i":2}]}'
    )
    assert b"".join(rest.build({"x": np.float32(2)})) == b'{"inputs":{"x":2.0}}'
    # {"b64": "a"} would be a string
    assert b"".join(rest.build({"b64": ["a"]})) == b'{"inputs":["a"]}'
    assert (
        b"".join(rest.build({"b": [b"\xff"], 'q"': [1]}))
        == b'{"inputs":{"b":[{"b64":"/w=="}],"q\\"":[1]}}'
    )
    assert (
        b"".join(rest.build({"x": [1]}, sig({"x": ("int32", None)}, name="other")))
        == b'{"signature_name":"other","inputs":{"x":[1]}}'
    )
    assert b"".join(rest.build({"x": [1]}, sig(), signature_name="mine")).startswith(
        b'{"signature_name":"mine",'
    )
    assert b"".join(rest.build({"x": np.empty(0, np.int32)})) == b'{"inputs":{"x":[]}}'
    assert b"".join(rest.build({"x": np.empty((0, 3), np.int32)})) == b'{"instances":[]}'
    assert (
        b"".join(rest.build({"x": np.empty((2, 0, 3), np.int32), "y": [1, 2]}, layout="rows"))
        == b'{"instances":[{"x":[],"y":1},{"x":[],"y":2}]}'
    )
    assert (
        b"".join(rest.build({"x": np.zeros((2, 2, 1), np.int32), "y": [1, 2]}, layout="rows"))
        == b'{"instances":[{"x":[[0],[0]],"y":1},{"x":[[0],[0]],"y":2}]}'
    )


def test_large_integers_in_floats_are_written_so_that_serving_takes_them():
    for dtype in ("float32", "float64"):
        x = np.array([1 << 24, 1 << 53, 1e15, 123456789012345680], dtype)
        body = b"".join(rest.build({"x": x}))
        assert rest.check(body, sig({"x": (dtype, None)})) is None


@pytest.mark.parametrize(
    "dtype", ["float16", "bfloat16", "uint16", "complex64", "complex128", "float8_e5m2", "int4"]
)
def test_what_cannot_be_sent_names_grpc(dtype):
    import ml_dtypes

    x = np.ones(2, getattr(ml_dtypes, dtype, dtype))
    with pytest.raises(tw.EncodeError, match="gRPC") as error:
        rest.build({"x": x})
    assert error.value.tensor == "x" and error.value.path == "$.inputs.x"


def test_what_cannot_be_built():
    sparse = tw.Sparse([[0, 0]], np.float32([1]), (1, 2))
    for inputs, more, words in (
        ({"x": sparse}, {}, "signature"),
        ({"x": tw.Ragged.of([[1], []])}, {}, "signature"),
        ({}, {}, "no inputs"),
        ([1], {}, "by name"),
        ({"x": [1, 2], "y": [1]}, {"layout": "rows"}, 'layout="columns"'),
        ({"x": np.float32(1)}, {"layout": "rows"}, "scalar"),
        ({"x": [1]}, {"layout": "row"}, "did you mean 'rows'"),
        ({"x": [1]}, {"verb": "predikt"}, "did you mean 'predict'"),
        ({"x": np.empty((1 << 40, 0))}, {}, "1 GiB"),
        ({1: [1]}, {}, "a name that is a string"),
    ):
        with pytest.raises(tw.EncodeError, match=words):
            rest.build(inputs, **more)
    outputs = {"y": Input("y", "float32", (None, None), "sparse")}
    with pytest.raises(tw.EncodeError, match="gRPC"):
        rest.build({"x": [1]}, Signature("serving_default", {"x": Input("x", "int32")}, outputs))


# Answers

ANSWERS = {
    "one, rows": (
        b'{"predictions": [[0.5, 1.5], [2.5, NaN]]}',
        {"y": ("float32", [None, 2])},
        {"y": np.float32([[0.5, 1.5], [2.5, np.nan]])},
    ),
    "one, columns": (b'{"outputs": [1, 2]}', {"y": ("int64", [None])}, {"y": np.int64([1, 2])}),
    "a scalar": (b'{"outputs": 1.5}', {"y": ("float64", [])}, {"y": np.float64(1.5)}),
    "several, rows": (
        b'{"predictions": [{"a": 1, "s": "x"}, {"a": 2, "s": "y"}]}',
        {"s": ("string", [None]), "a": ("int32", [None])},
        {"s": tw.Strings.of([b"x", b"y"]), "a": np.int32([1, 2])},
    ),
    "several, columns": (
        b'{"outputs": {"a": [[1]], "s_bytes": [{"b64": "/w=="}, {"b64": ""}]}}',
        {"a": ("uint8", [None, 1]), "s_bytes": ("string", [None])},
        {"a": np.uint8([[1]]), "s_bytes": tw.Strings.of([b"\xff", b""])},
    ),
    "bytes that are not text": (
        b'{"predictions": ["\xff\xfe", "\\u0001\xe9", "\xc3\xa9"]}',
        {"y": ("string", [None])},
        {"y": tw.Strings.of([b"\xff\xfe", b"\x01\xe9", b"\xc3\xa9"])},
    ),
    "escapes": (
        b'{"predictions": ["\\u20ac\\ud83d\\ude00", "\xc3\xa9\\n"]}',
        {"y": ("string", [None])},
        {"y": tw.Strings.of(["€😀".encode(), "é\n".encode()])},
    ),
    "no rows": (
        b'{"predictions": []}',
        {"y": ("float32", [None, 3])},
        {"y": np.empty((0, 3), np.float32)},
    ),
    "no rows of several": (
        b'{"predictions": []}',
        {"y": ("float32", [None, 3]), "s": ("string", [None])},
        {"y": np.empty((0, 3), np.float32), "s": tw.Strings.of([], text=False)},
    ),
    "rows of nothing": (
        b'{"outputs": [[], []]}',
        {"y": ("int32", [None, None, 5])},
        {"y": np.empty((2, 0, 5), np.int32)},
    ),
    "one, but by name": (
        b'{"outputs": {"y": [1]}}',
        {"y": ("int32", [None])},
        {"y": np.int32([1])},
    ),
    "other keys": (
        b'{"model": {"a": [1]}, "outputs": [1], "z": null}',
        {"y": ("int32", [None])},
        {"y": np.int32([1])},
    ),
    "half, of another server": (
        b'{"outputs": [1.5, NaN]}',
        {"y": ("float16", [None])},
        {"y": np.float16([1.5, np.nan])},
    ),
}


@pytest.mark.parametrize("name", ANSWERS)
def test_answers(name):
    body, outputs, tensors = ANSWERS[name]
    found = rest.parse_answer(body, sig(ONE, outputs))
    assert list(found) == list(outputs)
    for key, tensor in tensors.items():
        assert tw.equal(found[key], tensor), key


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("[1, 2]", np.int64([1, 2])),
        ("[1, 2.5]", np.float64([1, 2.5])),
        ("[1, NaN]", np.float64([1, np.nan])),
        ("[[true], [false]]", np.array([[True], [False]])),
        ("[18446744073709551615]", np.uint64([2**64 - 1])),
        ('["a", {"b64": "Yg=="}]', tw.Strings.of([b"a", b"b"])),
        ("[]", np.empty(0, np.int64)),
        ("7", np.int64(7)),
    ],
)
def test_answers_without_a_signature(text, expected):
    found = rest.parse_answer(f'{{"outputs": {text}}}'.encode())
    assert list(found) == [answers.UNNAMED] and tw.equal(found[answers.UNNAMED], expected)
    named = rest.parse_answer(f'{{"outputs": {{"a": {text}, "b": [1]}}}}'.encode())
    assert list(named) == ["a", "b"] and tw.equal(named["a"], expected)


def test_rows_without_a_signature():
    found = rest.parse_answer(b'{"predictions": [{"a": 1.0, "b": "x"}, {"b": "y", "a": 2.0}]}')
    assert tw.equal(found["a"], np.float64([1, 2])) and found["b"].tolist() == [b"x", b"y"]


def test_error_answers():
    for body, status, message in (
        (b'{"error": "Servable not found"}', 404, "Servable not found"),
        (b'{ "error": "a \\"quoted\\" \xc3\xa9" }', 400, 'a "quoted" é'),
        (
            b"<html>Bad Gateway</html>",
            502,
            "no error message in the answer: <html>Bad Gateway</html>",
        ),
        (b"", 503, "empty answer"),
        (b'{"error": 7}', 500, 'no error message in the answer: {"error": 7}'),
        (b'{"error": "in disguise"}', 200, "in disguise"),
    ):
        with pytest.raises(tw.ModelError) as error:
            rest.parse_answer(body, status=status)
        assert error.value.args == (status, message)


def test_answers_that_are_not_those_of_the_signature():
    two = sig(ONE, {"a": ("int32", None), "b": ("int32", None)})
    for body, kind in (
        (b'{"outputs": [1]}', tw.SchemaError),
        (b'{"outputs": {"a": [1]}}', tw.SchemaError),
        (b'{"outputs": {"a": [1], "b": [1], "c": [1]}}', tw.SchemaError),
        (b'{"outputs": {"a": [1], "b": [1.5]}}', tw.DecodeError),
        (b'{"outputs": {"a": [1], "b": ["x"]}}', tw.DecodeError),
        (b'{"predictions": [{"a": 1, "b": 1}, {"a": 1}]}', tw.DecodeError),
        (b'{"predictions": [{"a": 1, "b": 1}, 7]}', tw.DecodeError),
        (b'{"predictions": [{"a": 1, "b": [1]}, {"a": 1, "b": [[1]]}]}', tw.DecodeError),
        (b'{"outputs": {"a": [1], "a": [1]}}', tw.DecodeError),
        (b'{"outputs": {"a": [1], "b": [1, 2}}', tw.DecodeError),
        (b'{"outputs": {"a": [1], "b": [1]}, "predictions": []}', tw.DecodeError),
        (b'{"results": 1}', tw.DecodeError),
        (b"{}", tw.DecodeError),
        (b"[]", tw.DecodeError),
        (b"", tw.DecodeError),
        (b'{"outputs": {"a": [1], "b": [1]}} x', tw.DecodeError),
        (b'{"outputs": {"a": [2147483648], "b": [1]}}', tw.DecodeError),
        (b'{"results": [[["a", 1]], [["a", 1], ["b", 2]]]}', tw.DecodeError),
        (b'{"results": [[["a"]]]}', tw.DecodeError),
    ):
        with pytest.raises(kind) as error:
            rest.parse_answer(body, two)
        assert error.value.format == "json"
        assert kind is tw.SchemaError or error.value.offset is not None


@pytest.mark.parametrize("layout", ["rows", "columns"])
def test_what_a_server_answers_is_what_a_client_reads(layout):
    tensors = {
        "y": np.float32([[1, np.nan], [-np.inf, 0.1]]),
        "t": tw.Strings.of([b"\xffraw", 'é"'.encode()]),
        "t_bytes": tw.Strings.of([b"\xff", b""]),
        "i": np.uint64([1, 2**64 - 1]),
        "f": np.array([True, False]),
    }
    outputs = {
        "y": ("float32", None),
        "t": ("string", None),
        "t_bytes": ("string", None),
        "i": ("uint64", None),
        "f": ("bool", None),
    }
    body = b"".join(rest.build_answer(tensors, layout))
    assert (
        body.startswith(b'{"predictions":[{' if layout == "rows" else b'{"outputs":{')
        and b'"t_bytes":' in body
        and b'{"b64":"/w=="}' in body
    )
    found = rest.parse_answer(body, sig(ONE, outputs))
    for name, tensor in tensors.items():
        assert tw.equal(found[name], tensor), name
        alone = rest.parse_answer(
            b"".join(rest.build_answer({name: tensor}, layout)), sig(ONE, {name: outputs[name]})
        )
        assert tw.equal(alone[name], tensor), name


def test_what_a_server_cannot_answer():
    for outputs, layout, message in (
        ({}, "rows", "Cannot convert empty tensor map to JSON"),
        ({"y": np.float32(1)}, "rows", "Tensor name: y has no shape information "),
        (
            {"y": np.zeros(2), "z": np.zeros(3)},
            "rows",
            "Tensor name: z has inconsistent batch size: 3 expecting: 2",
        ),
        (
            {"y": np.zeros(2, np.complex64)},
            "columns",
            "Failed to write JSON value for tensor type: complex64",
        ),
        (
            {"y": np.zeros(2, np.float16)},
            "rows",
            "Failed to write JSON value for tensor type: half",
        ),
    ):
        with pytest.raises(tw.ModelError) as error:
            rest.build_answer(outputs, layout)
        assert error.value.args == (400, message)
    with pytest.raises(tw.EncodeError, match="as separate outputs"):
        rest.build_answer({"y": tw.Sparse([[0]], np.float32([1]), (1,))})
    for empty in ({"y": np.zeros((0, 2))}, {"y": np.zeros((0, 2)), "z": tw.Strings.of([])}):
        assert b"".join(rest.build_answer(empty, "rows")) == b'{"predictions":[]}'


# classify and regress

EXAMPLES = [
    {
        "names": [b"foo", b"\xff"],
        "ratings": [8.0, 9, math.nan],
        "age": 20,
        "ok": [True, False],
        "none": [],
    },
    {"names": "bar", "ratings": np.float32([6.5]), "age": np.int16(3)},
]


@pytest.mark.parametrize("verb", ["classify", "regress"])
def test_examples(verb):
    body = b"".join(
        rest.build(EXAMPLES, verb=verb, context={"query": "pizza", "age": 7}, signature_name="s")
    )
    assert (
        body == b'{"signature_name":"s","context":{"query":"pizza","age":7},"examples":['
        b'{"names":[{"b64":"Zm9v"},{"b64":"/w=="}],"ratings":[8.0,9.0,NaN],"age":20,"ok":[true,false],"none":[]},'
        b'{"names":"bar","ratings":[6.5],"age":3}]}'
    )
    found = rest.parse_request(body, sig(), verb=verb)
    assert (
        found.signature_name == "s"
        and found.context["query"].tolist() == [b"pizza"]
        and len(found.examples) == 2
    )
    first, second = found.examples
    assert (
        first["names"].tolist() == [b"foo", b"\xff"]
        and first["ok"].tolist() == [1, 0]
        and first["none"].size == 0
    )
    assert tw.equal(first["ratings"], np.float32([8, 9, np.nan])) and tw.equal(
        first["age"], np.int64([20])
    )
    assert second["names"].tolist() == [b"bar"] and tw.equal(second["ratings"], np.float32([6.5]))
    parsed = tw.io.parse_example(
        found.serialized(),
        {"age": tw.io.FixedLenFeature([], "int64"), "query": tw.io.FixedLenFeature([], "string")},
    )
    # an example's own feature counts
    assert parsed["age"].tolist() == [20, 3] and parsed["query"].tolist() == [b"pizza"] * 2


def test_examples_by_columns():
    columns = {
        "x": np.float32([[1, 2], [3, 4]]),
        "i": [1, 2],
        "w": ["a", "b"],
        "r": tw.Ragged.of([[1], []]),
        "s": tw.Sparse([[1, 3]], np.float32([5]), (2, 4)),
    }
    found = rest.parse_request(
        b"".join(rest.build(columns, verb="classify")), sig(), verb="classify"
    ).examples
    assert [each["x"].tolist() for each in found] == [[1, 2], [3, 4]] and [
        each["r"].tolist() for each in found
    ] == [[1], []]
    assert [each["s_values"].tolist() for each in found] == [[], [5]] and [
        each["s_indices"].tolist() for each in found
    ] == [[], [3]]


@pytest.mark.parametrize("name", REFUSED_EXAMPLES)
def test_refused_examples(name):
    body, message, path = REFUSED_EXAMPLES[name]
    for verb in ("classify", "regress"):
        fault = rest.check(body.encode(), sig(), verb=verb)
        assert fault.status == 400 and message in fault.message and fault.path == path


def test_examples_that_cannot_be_built():
    for examples, words in (
        ([], "at least one"),
        ("abc", "list of dicts"),
        ([1], r"dict of features, got int \(path \$\.examples\[0\]"),
        ([{"a": [[1]]}], r"path \$\.examples\[0\]\.a.*flatten it first"),
        ([{"a": np.float64([0.1])}], "astype"),
        ([{"a": np.uint64([2**63])}], r"2\*\*63"),
        ([{"a": 1e39}], "out of range for float32"),
        ([{"a": np.complex64(1)}], "cannot hold complex64"),
        ({"a": [1, 2], "b": [1]}, "first dimension"),
    ):
        with pytest.raises(tw.EncodeError, match=words):
            rest.build(examples, verb="classify")


def test_results():
    labels, scores = (
        tw.Strings.of([b"car", b"bike", b"\xff", b'"'], (2, 2)),
        np.float32([[0.2, 0.7], [np.nan, 1]]),
    )
    body = b"".join(rest.build_answer({"classes": labels, "scores": scores}, verb="classify"))
    assert body == b'{"results":[[["car",0.2],["bike",0.7]],[["\xff",NaN],["\\"",1.0]]]}'
    found = rest.parse_answer(body)
    assert tw.equal(found["classes"], labels) and tw.equal(found["scores"], scores)
    only = rest.parse_answer(b"".join(rest.build_answer({"scores": scores}, verb="classify")))
    assert only["classes"].tolist() == [[b"", b""]] * 2
    assert (
        rest.parse_answer(b"".join(rest.build_answer({"classes": labels}, verb="classify")))[
            "scores"
        ].tolist()
        == [[0, 0]] * 2
    )
    values = np.float32([0.2, np.inf, -np.inf, np.nan])
    for shape in ((4,), (4, 1)):
        body = b"".join(rest.build_answer({"outputs": values.reshape(shape)}, verb="regress"))
        assert body == b'{"results":[0.2,Infinity,-Infinity,NaN]}'
        assert tw.equal(rest.parse_answer(body)["outputs"], values)
    for outputs, verb, message in (
        (
            {"scores": np.zeros((0, 2))},
            "classify",
            "Cannot convert empty ClassificationResults to JSON",
        ),
        (
            {"scores": np.zeros(2)},
            "classify",
            "Expected Tensor shape: [batch_size num_classes] but got [2]",
        ),
        ({"x": np.zeros(2)}, "classify", "Cannot convert empty ClassificationResults to JSON"),
        ({"outputs": np.zeros(0)}, "regress", "Cannot convert empty RegressionResults to JSON"),
        (
            {"outputs": np.zeros((2, 2))},
            "regress",
            (
                "Expected output Tensor shape to be either [batch_size] or [batch_size, 1] but got"
                " [2,2]"
            ),
        ),
    ):
        with pytest.raises(tw.ModelError) as error:
            rest.build_answer(outputs, verb=verb)
        assert error.value.args == (400, message)


# Hostile bodies


SAMPLES = [
    (
        b'{"predictions": [{"a": 1, "s": "x\\u20ac", "f": [1.5, NaN]}, {"a": 2, "s": {"b64":'
        b' "YQ=="}, "f": [-2e3, Infinity]}]}'
    ),
    b'{"outputs": {"a": [[1], [2]], "s": [["\\ud83d\\ude00"], [""]], "f": [0.1]}}',
    b'{"results": [[["a", 0.5], ["b", 1]], [["c", 2], ["d", 3]]]}',
    b'{"error": "no\\n"}',
]


@pytest.mark.parametrize("sample", SAMPLES)
def test_every_flip_and_cut_of_an_answer(sample):
    signature = sig(ONE, {"a": ("int32", None), "s": ("string", None), "f": ("float32", None)})
    for at in range(len(sample)):
        for damaged in [
            sample[:at],
            *(sample[:at] + bytes([sample[at] ^ 1 << bit]) + sample[at + 1 :] for bit in range(8)),
        ]:
            for known in (signature, None):
                try:
                    rest.parse_answer(damaged, known)
                except (tw.DecodeError, tw.SchemaError) as error:
                    assert error.format == "json"
                    assert isinstance(error, tw.SchemaError) or 0 <= error.offset <= len(damaged)
                except tw.ModelError:
                    pass


@pytest.mark.parametrize("name", list(TAKEN))
def test_every_flip_and_cut_of_a_request(name):
    body, inputs = TAKEN[name][0].encode(), TAKEN[name][1]
    for at in range(len(body)):
        for damaged in (body[:at], body[:at] + bytes([body[at] ^ 1 << at % 8]) + body[at + 1 :]):
            fault = rest.check(damaged, sig(inputs))
            assert fault is None or (fault.status in (400, 501) and fault.message)
            rest.check(damaged, sig(inputs), verb="classify")


def test_limits():
    big = b'{"outputs": [' + b"1," * 1000 + b"1]}"
    small = Limits(tensor=100)
    with pytest.raises(tw.LimitError):
        rest.parse_answer(big, limits=small)
    with pytest.raises(tw.LimitError):
        rest.parse_answer(b'{"outputs": [' + b'"abc",' * 100 + b'"a"]}', limits=small)
    deep = b'{"outputs": ' + b"[" * 100_000 + b"]" * 100_000 + b"}"
    for known in (None, sig(ONE, {"y": ("string", None)}), sig(ONE, {"y": ("float32", None)})):
        with pytest.raises(tw.DecodeError):
            rest.parse_answer(deep, known)
    with pytest.raises(tw.DecodeError):
        rest.parse_answer(b'{"a": ' + b'{"a": ' * 100_000)
    assert rest.check(deep.replace(b"outputs", b"inputs"), sig()).status == 400
    many = b'{"examples": [' + b"{}," * 100 + b"{}]}"
    assert rest.check(many, sig(), verb="classify") is None
    assert (
        "more than 100 examples"
        in rest.check(many, sig(), verb="classify", limits=Limits(names=100)).message
    )
    rows = many.replace(b"examples", b"instances").replace(b"{}", b'{"x": 1}')
    assert rest.check(rows, sig()) is None
    assert "more than 100 rows" in rest.check(rows, sig(), limits=Limits(names=100)).message


BOMBS = """
import resource
import numpy as np, tensorwire as tw
from tensorwire.serving import rest
from tensorwire.serving.signature import Signature
size = {size} << 20
def body(unit, head=b'{{"outputs": [', tail=b"]}}"):
    return head + unit * (size // len(unit)) + unit.rstrip(b",") + tail
rest.parse_answer(b'{{"outputs": ["a", 1.5]}}'.replace(b', 1.5', b'')); rest.parse_answer(b'{{"outputs": [1.5]}}')
strings = Signature.given({{"x": ("int32", None)}}, {{"y": ("string", None)}})
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
refused = 0
for unit in (b"[],", b'[""],', b'"",', b'"ab",', b'{{"b64":""}},', b'{{"a":1}},', b"1,", b"[[[1]]],", b"{{}},", b'["a",[]],', b"true,"):
    for key, known in (("outputs", None), ("outputs", strings), ("predictions", None), ("results", None), ("other", None)):
        try:
            rest.parse_answer(body(unit, b'{{"%b": [' % key.encode()), known)
        except tw.TensorwireError:
            refused += 1
print(refused, (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024)
"""


@pytest.mark.large
def test_hostile_answers_take_bounded_memory():
    size = 4
    done = subprocess.run(
        [sys.executable, "-c", BOMBS.format(size=size)], capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 0, done.stderr
    refused, grown = map(int, done.stdout.split())
    assert refused > 20 and grown < 64 + 12 * size


def test_every_exported_name_exists():
    assert [name for name in rest.__all__ if not hasattr(rest, name)] == []
