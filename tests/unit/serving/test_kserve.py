"""KServe's v2 bodies: JSON and the binary extension, both ways, byte for byte, and hostile ones."""

import json
import struct

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tensorwire as tw
from tensorwire._limits import Limits
from tensorwire.core import dtypes
from tensorwire.serving import kserve
from tensorwire.serving.signature import Signature

NAMED = {row.name: row for row in dtypes.TABLE if row.kserve}
X = np.float32([[1, np.nan], [-np.inf, 0.1]])
WORDS = tw.Strings.of([b"a", b"", b"\xff\x00\xfe"], (3, 1))


def tensor_of(name):
    return np.array([[0, 1], [1, 0]] if name == "bool" else [[1, 2], [3, 100]]).astype(
        NAMED[name].numpy
    )


def test_the_bytes_of_a_request_in_json():
    body = kserve.build(
        {"x": X[:1], "i": np.int64([1]), "t": ["é", '"']}, binary=False, id="7", outputs=["y"]
    )
    assert (
        body.joined().decode()
        == '{"id":"7","inputs":[{"name":"x","shape":[1,2],"datatype":"FP32","data":[1.0,NaN]},'
        '{"name":"i","shape":[1],"datatype":"INT64","data":[1]},'
        '{"name":"t","shape":[2],"datatype":"BYTES","data":["é","\\""]}],"outputs":[{"name":"y"}]}'
    )
    assert body.headers == {"Content-Type": "application/json"}


def test_the_bytes_of_a_request_in_binary():
    body = kserve.build(
        {"x": X, "w": WORDS, "h": np.float16([1.5]), "b": np.array([1.5], ml_dtypes.bfloat16)},
        outputs=["y", "z"],
    )
    head = (
        b'{"inputs":[{"name":"x","shape":[2,2],"datatype":"FP32","parameters":{"binary_data_size":16}},'
        b'{"name":"w","shape":[3,1],"datatype":"BYTES","parameters":{"binary_data_size":16}},'
        b'{"name":"h","shape":[1],"datatype":"FP16","parameters":{"binary_data_size":2}},'
        b'{"name":"b","shape":[1],"datatype":"BF16","parameters":{"binary_data_size":2}}],'
        b'"outputs":[{"name":"y","parameters":{"binary_data":true}},{"name":"z","parameters":{"binary_data":true}}]}'
    )
    words = b"".join(struct.pack("<I", len(word)) + word for word in (b"a", b"", b"\xff\x00\xfe"))
    assert body.joined() == head + X.tobytes() + words + struct.pack("<e", 1.5) + b"\xc0\x3f"
    assert body.headers == {
        "Content-Type": "application/octet-stream",
        "Inference-Header-Content-Length": str(len(head)),
    }
    assert json.loads(kserve.build({"x": X}).chunks[0])["parameters"] == {
        "binary_data_output": True
    }


def test_large_arrays_are_not_copied():
    x = np.zeros((1000, 1000), np.float32)
    assert any(
        np.shares_memory(x, np.frombuffer(chunk, np.uint8))
        for chunk in kserve.build({"x": x}).chunks
    )


@pytest.mark.parametrize("binary", [True, False])
@pytest.mark.parametrize("name", NAMED)
def test_every_dtype(name, binary):
    x = tensor_of(name)
    if not binary and name in ("float16", "bfloat16"):
        with pytest.raises(tw.EncodeError, match="binary=True"):
            kserve.build({"x": x}, binary=False)
        return
    sent = kserve.build({"x": x, "e": x[:0], "s": x[0, 0]}, binary=binary)
    found = kserve.parse_request(sent.joined(), sent.headers)
    assert (
        tw.equal(found["x"], x)
        and found["e"].shape == (0, 2)
        and found["s"].shape == ()
        and tw.equal(found["s"], x[0, 0])
    )
    answer = kserve.build_answer({"y": x}, binary=binary, model="m", version="1", id="q")
    assert tw.equal(kserve.parse_answer(answer.joined(), answer.headers)["y"], x)
    head = json.loads(answer.chunks[0])
    assert (head["model_name"], head["model_version"], head["id"]) == ("m", "1", "q")
    assert head["outputs"][0]["datatype"] == NAMED[name].kserve


def test_what_it_lacks():
    for row in dtypes.TABLE:
        if not row.kserve and not row.reading_only:
            with pytest.raises(tw.EncodeError, match="no datatype") as error:
                kserve.build({"x": np.zeros(1, row.numpy)})
            assert error.value.tensor == "x"
    for inputs, words in (
        ({"x": tw.Sparse([[0]], np.float32([1]), (1,))}, "signature"),
        ({}, "no inputs"),
        ([1], "by name"),
        ({1: [1]}, "string"),
    ):
        with pytest.raises(tw.EncodeError, match=words):
            kserve.build(inputs)
    with pytest.raises(tw.EncodeError, match="binary=True"):
        kserve.build({"x": WORDS}, binary=False)


@given(st.lists(st.binary(max_size=40), max_size=30), st.booleans())
def test_bytes(words, same):
    if same and words:
        words = [words[0].ljust(3)[:3]] * len(words)
    strings = tw.Strings.of(words, text=False)
    sent = kserve.build({"w": strings})
    assert sent.joined().endswith(b"".join(struct.pack("<I", len(word)) + word for word in words))
    assert tw.equal(kserve.parse_request(sent.joined(), sent.headers)["w"], strings)


def test_by_a_signature():
    about = {
        "name": "m",
        "inputs": [
            {"name": "ids_indices", "datatype": "INT64", "shape": [-1, 2]},
            {"name": "ids_values", "datatype": "FP32", "shape": [-1]},
            {"name": "ids_dense_shape", "datatype": "INT64", "shape": [2]},
            {"name": "t", "datatype": "BYTES", "shape": [-1]},
        ],
        "outputs": [{"name": "y", "datatype": "FP16", "shape": [-1, 3]}],
    }
    signature = kserve.signature(about)
    assert (
        str(signature.outputs["y"]) == "y: float16 [?, 3]"
        and signature.inputs["t"].dtype == "string"
    )
    sent = kserve.build(
        {"ids": tw.Sparse([[0, 1]], np.float32([1]), (1, 2)), "t": ["a"]}, signature
    )
    found = kserve.parse_request(sent.joined(), sent.headers)
    assert (
        found["ids_indices"].tolist() == [[0, 1]]
        and found["ids_dense_shape"].tolist() == [1, 2]
        and found["t"].tolist() == [b"a"]
    )
    assert isinstance(signature, Signature)
    for bad in (
        None,
        {"inputs": 1},
        {"inputs": [1]},
        {"inputs": [{"name": 1}]},
        {"inputs": [{"name": "x", "datatype": "FP7", "shape": []}]},
        {"inputs": [{"name": "x", "datatype": "FP32", "shape": [-2]}]},
    ):
        with pytest.raises(tw.DecodeError):
            kserve.signature(bad)


def answer(*outputs, raw=b"", length=True, **more):
    head = json.dumps({"outputs": list(outputs), **more}).encode()
    return head + raw, ({"inference-header-content-length": str(len(head))} if length else {})


def out(name="y", shape=(2,), datatype="FP32", **more):
    return {"name": name, "shape": list(shape), "datatype": datatype, **more}


def size(count):
    return {"parameters": {"binary_data_size": count}}


def test_answers():
    nested = kserve.parse_answer(*answer(out(shape=(2, 2), data=[[1, 2], [3, 4]]), length=False))
    assert tw.equal(nested["y"], np.float32([[1, 2], [3, 4]]))
    flat = kserve.parse_answer(
        *answer(
            out(shape=(2, 2), data=[1, 2, 3, 4]),
            out("h", datatype="FP16", data=[1.5, 2]),
            length=False,
        )
    )
    assert tw.equal(flat["y"], np.float32([[1, 2], [3, 4]])) and tw.equal(
        flat["h"], np.float16([1.5, 2])
    )
    mixed = kserve.parse_answer(
        *answer(
            out(**size(8)),
            out("t", (1,), "BYTES", data=["a"]),
            out("b", (1,), "BYTES", **size(5)),
            raw=np.float32([1, 2]).tobytes() + b"\1\0\0\0x",
        )
    )
    assert (
        mixed["y"].tolist() == [1, 2]
        and mixed["t"].tolist() == [b"a"]
        and mixed["b"].tolist() == [b"x"]
    )
    before = (
        b'{"outputs": [{"data": [1, 2], "shape": [2], "name": "y", "datatype": "INT8"}],'
        b' "model_name": "m"}'
    )
    # the data come before anyone knows what they are
    assert tw.equal(kserve.parse_answer(before)["y"], np.int8([1, 2]))


TRITON = (
    b'{"inputs":[{"name":"x","shape":[2,2],"datatype":"FP32","parameters":{"binary_data_size":16}},{"name":"w","shape":[3],"datatype":'
    b'"BYTES","parameters":{"binary_data_size":15}}],"outputs":[{"name":"y","parameters":{"binary_data":true}}]}'
)
"""What tritonclient 2.73.0 writes for these inputs and one output, up to the raw bytes."""


def test_tritons_own_client():
    raw = np.float32([[1, 2], [3, 4]]).tobytes() + b"\1\0\0\0a\2\0\0\0\xff\x00\0\0\0\0"
    found = kserve.parse_request(TRITON + raw, {kserve.LENGTH: str(len(TRITON))})
    assert found["x"].tolist() == [[1, 2], [3, 4]] and found["w"].tolist() == [
        b"a",
        b"\xff\x00",
        b"",
    ]
    ours = kserve.build(found, outputs=["y"])
    assert ours.joined() == TRITON + raw and ours.headers[kserve.LENGTH] == str(len(TRITON))


def test_memory():
    sent = kserve.build_answer({"y": np.arange(1000, dtype=np.float32)})
    padded = b" " * (-len(sent.chunks[0]) % 64)
    body = bytearray(padded + sent.joined())
    headers = {kserve.LENGTH: str(len(padded) + len(sent.chunks[0]))}
    view = kserve.parse_answer(body, headers)["y"]
    assert not view.flags.writeable and np.shares_memory(view, np.frombuffer(body, np.uint8))
    mine = kserve.parse_answer(body, headers, copy=True)["y"]
    assert mine.flags.writeable and not np.shares_memory(mine, np.frombuffer(body, np.uint8))
    assert kserve.parse_answer(body, headers, copy=False)["y"].tolist() == mine.tolist()


def test_errors_of_the_server():
    for body, status, message in (
        (b'{"error": "unknown model"}', 404, "unknown model"),
        (b'{"error": "odd"}', 200, "odd"),
        (b"<html>", 502, "no error message in the answer: <html>"),
    ):
        with pytest.raises(tw.ModelError) as error:
            kserve.parse_answer(body, status=status)
        assert error.value.args == (status, message)


HOSTILE = {
    "no JSON": (b"nope", {}),
    "nothing": (b"", {}),
    "no outputs": (b"{}", {}),
    "a length past the end": (b"{}", {kserve.LENGTH: "3"}),
    "a negative length": (b"{}", {kserve.LENGTH: "-1"}),
    "a length that is no number": (b"{}", {kserve.LENGTH: "²"}),
    "a length inside of the JSON": (answer(out(**size(8)))[0], {kserve.LENGTH: "10"}),
    "a size past the end": answer(out(**size(8)), raw=bytes(7)),
    "a size that is not the shape's": answer(out(**size(4)), raw=bytes(4)),
    "a huge size": answer(out(**size(1 << 70)), raw=bytes(8)),
    "a negative size": answer(out(**size(-8)), raw=bytes(8)),
    "a size that is a bool": answer(out(**size(True)), raw=bytes(8)),
    "bytes left over": answer(out(**size(8)), raw=bytes(9)),
    "a huge shape": answer(out(shape=(1 << 40, 1 << 40), **size(8)), raw=bytes(8)),
    "a huge shape of nothing": answer(out(shape=(1 << 62, 1 << 62, 0), **size(0))),
    "a negative dimension": answer(out(shape=(-2,), **size(8)), raw=bytes(8)),
    "a shape of floats": answer(out(shape=(2.0,), **size(8)), raw=bytes(8)),
    "too many dimensions": answer(out(shape=(1,) * 65, data=[1])),
    "both data and bytes": answer(out(data=[1, 2], **size(8)), raw=bytes(8)),
    "neither": answer(out()),
    "too few values": answer(out(data=[1])),
    "ragged values": answer(out(shape=(2, 2), data=[[1, 2], [3]])),
    "another kind of values": answer(out(data=["a", "b"])),
    "an unknown datatype": answer(out(datatype="FP7", data=[1, 2])),
    "no name": answer({"shape": [1], "datatype": "FP32", "data": [1]}),
    "a name twice": answer(out(data=[1, 2]), out(data=[1, 2])),
    "a bool that is 2": answer(out(datatype="BOOL", **size(2)), raw=b"\1\2"),
    "a string past the end": answer(out(shape=(1,), datatype="BYTES", **size(5)), raw=b"\2\0\0\0x"),
    "a huge string": answer(out(shape=(1,), datatype="BYTES", **size(5)), raw=b"\xff\xff\xff\xffx"),
    "half a length": answer(
        out(shape=(2,), datatype="BYTES", **size(9)), raw=b"\1\0\0\0x\1\0\0\0"[:7] + b"\0\0"
    ),
    "more lengths than bytes": answer(
        out(shape=(1 << 60,), datatype="BYTES", **size(8)), raw=bytes(8)
    ),
    "fewer strings than bytes": answer(out(shape=(1,), datatype="BYTES", **size(8)), raw=bytes(8)),
    "a tensor that is a list": (b'{"outputs": [[]]}', {}),
    "outputs that are an object": (b'{"outputs": {}}', {}),
    "parameters that are a list": answer(out(parameters=[], data=[1, 2])),
    "nested too deep": (b'{"outputs": ' + b"[" * 100_000, {}),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile(name):
    body, headers = HOSTILE[name]
    with pytest.raises(tw.DecodeError) as error:
        kserve.parse_answer(body, headers)
    assert error.value.format == "kserve" and 0 <= error.value.offset <= len(body)


def test_every_flip_and_cut():
    samples = [
        answer(
            out(**size(8)),
            out("w", (2,), "BYTES", **size(9)),
            raw=np.float32([1, 2]).tobytes() + b"\1\0\0\0x\0\0\0\0",
        ),
        answer(out(data=[1.5, 2]), out("t", (1,), "BYTES", data=["é"]), length=False),
    ]
    for body, headers in samples:
        for at in range(len(body)):
            for damaged in [
                body[:at],
                *(body[:at] + bytes([body[at] ^ 1 << bit]) + body[at + 1 :] for bit in range(8)),
            ]:
                try:
                    kserve.parse_answer(damaged, headers)
                except tw.DecodeError as error:
                    assert error.format == "kserve" and 0 <= error.offset <= len(damaged)
                except tw.ModelError:
                    pass


def test_limits():
    with pytest.raises(tw.LimitError):
        kserve.parse_answer(
            *answer(out(shape=(100,), datatype="BYTES", **size(400)), raw=bytes(400)),
            limits=Limits(tensor=100),
        )
    with pytest.raises(tw.LimitError):
        kserve.parse_answer(
            *answer(out(data=[1, 2]), out("z", data=[1, 2]), length=False), limits=Limits(names=1)
        )
