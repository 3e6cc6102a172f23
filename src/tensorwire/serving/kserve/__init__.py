"""Bodies of KServe's v2 protocol, which Triton and other servers also implement: requests and
answers are built and parsed, without I/O.

    POST /v2/models/NAME[/versions/V]/infer
                  {"id": ..., "inputs": [TENSOR, ...], "outputs": [{"name": ...}, ...]}
    the answer    {"model_name": ..., "outputs": [TENSOR, ...]}, or {"error": MESSAGE} and a status
    TENSOR        {"name": ..., "shape": [2, 3], "datatype": "FP32", "data": [...]}

With the binary extension a tensor has `"parameters": {"binary_data_size": N}` instead of data. Its
bytes follow the JSON, in the order of the tensors, and the header `Inference-Header-Content-Length`
is the length of the JSON. Numbers are little-endian. Each element of a BYTES tensor is a u32 length
and the bytes. FP16 and BF16 exist only in binary, and JSON cannot hold bytes that are not UTF-8.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from ... import frameworks
from ..._errors import DecodeError, EncodeError, TensorwireError
from ..._limits import DEFAULT, Limits
from ...core import dtypes, memory, validate
from ...core.memory import Buffer
from ...core.tensors import Array, Strings, Tensor, TensorLike, describe
from ..lower import LoweringPlan, plan
from ..rest.json_text import write
from ..signature import Signature
from ..spec import Input
from . import read
from .read import BYTES, FORMAT, LENGTH, dtype_of

_BINARY_ONLY = ("FP16", "BF16")


class KserveBody(NamedTuple):
    """The chunks of a body, and its headers."""

    chunks: list[Any]
    headers: dict[str, str]

    def joined(self) -> bytes:
        """Return the body as one bytes object."""
        return b"".join(self.chunks)


def build(
    inputs: Mapping[str, TensorLike] | TensorLike,
    signature: Signature | None = None,
    *,
    binary: bool = True,
    id: str | None = None,
    outputs: Sequence[str] | None = None,
) -> KserveBody:
    """Return the body of an infer request.

    `inputs` is a LoweringPlan, or tensors by name, which are lowered to the signature; without a
    signature they are sent as they are. `binary` sends the tensors as bytes, and requests the
    outputs as bytes, too. `outputs` are the names of the requested outputs, by default all. Raises
    EncodeError if the inputs do not fit the signature or cannot be sent.

    >>> body = build({"x": np.float32([[1, 2]])}, binary=False)
    >>> body.joined(), body.headers
    (b'{"inputs":[{"name":"x","shape":[1,2],"datatype":"FP32","data":[1.0,2.0]}]}', {'Content-Type':
    'application/json'})
    """
    if not isinstance(inputs, LoweringPlan) and signature is not None:
        inputs = plan(inputs, signature)
    tensors = inputs.inputs if isinstance(inputs, LoweringPlan) else inputs
    if not isinstance(tensors, Mapping) or not tensors:
        raise EncodeError(
            f"expected tensors by name, got {type(tensors).__name__}" if tensors else "no inputs",
            format=FORMAT,
        )
    more: dict[str, Any] = (
        {} if outputs is None else {"outputs": [_requested(name, binary) for name in outputs]}
    )
    if binary and outputs is None:
        more["parameters"] = {"binary_data_output": True}
    return _body({} if id is None else {"id": id}, "inputs", tensors, more, binary)


def build_answer(
    outputs: Mapping[str, Any],
    *,
    binary: bool = True,
    model: str = "",
    version: str = "",
    id: str | None = None,
) -> KserveBody:
    """Return the body of an answer.

    >>> build_answer({"y": np.float32([0.5])}, model="m").headers["Inference-Header-Content-Length"]
    '109'
    """
    head = (
        {"model_name": model}
        | ({"model_version": version} if version else {})
        | ({} if id is None else {"id": id})
    )
    return _body(head, "outputs", outputs, {}, binary)


def parse_answer(
    body: Buffer,
    headers: Mapping[str, str] | None = None,
    *,
    status: int = 200,
    copy: bool | None = None,
    limits: Limits = DEFAULT,
    watch: Callable[[], object] | None = None,
) -> dict[str, Array | Strings]:
    """Return the outputs of an answer in JSON or binary, by name.

    `copy` is that of `tw.loads`: binary arrays can be views of the body. `watch` is called from
    time to time, and can stop the parser by raising an exception. Raises ModelError if the answer
    is an error, and DecodeError if it is invalid.

    >>> sent = build_answer({"y": np.float32([0.5])}, model="m")
    >>> parse_answer(sent.joined(), sent.headers)
    {'y': array([0.5], dtype=float32)}
    """
    return read.parse(body, headers, "outputs", status, copy, limits, watch)


def parse_request(
    body: Buffer,
    headers: Mapping[str, str] | None = None,
    *,
    copy: bool | None = None,
    limits: Limits = DEFAULT,
) -> dict[str, Array | Strings]:
    """Return the inputs of a request in JSON or binary, by name.

    >>> sent = build({"x": ["a", "b"]})
    >>> parse_request(sent.joined(), sent.headers)["x"].tolist()
    [b'a', b'b']
    """
    return read.parse(body, headers, "inputs", 200, copy, limits)


def signature(metadata: object) -> Signature:
    """Return the signature in the parsed JSON that a server answers to `GET /v2/models/NAME`.

    >>> x = {"name": "x", "datatype": "FP32", "shape": [-1, 3]}
    >>> print(signature({"name": "m", "inputs": [x], "outputs": []}).inputs["x"])
    x: float32 [?, 3]
    """
    if not isinstance(metadata, Mapping):
        raise DecodeError("expected the metadata of a model as an object", format=FORMAT, offset=0)
    tensors = {}
    for key in ("inputs", "outputs"):
        listed = map(_input, _list(read.given(metadata, key, []), key))
        tensors[key] = {tensor.name: tensor for tensor in listed}
    return Signature(str(metadata.get("name", "")), tensors["inputs"], tensors["outputs"])


def described(
    signature: Signature, name: str = "", versions: Sequence[str] = (), platform: str = ""
) -> dict[str, Any]:
    """Return the JSON that a server answers to `GET /v2/models/NAME`.

    >>> described(Signature.given({"x": ("float32", [None, 3])}), "m")["inputs"]
    [{'name': 'x', 'datatype': 'FP32', 'shape': [-1, 3]}]
    """
    inputs, outputs = (
        [_described(part) for part in tensors.values()]
        for tensors in (signature.inputs, signature.outputs)
    )
    return {
        "name": name,
        "versions": list(versions),
        "platform": platform,
        "inputs": inputs,
        "outputs": outputs,
    }


def _described(part: Input) -> dict[str, Any]:
    kind = (
        BYTES
        if part.dtype == "string"
        else dtypes.BY_NAME[part.dtype].kserve
        if part.dtype in dtypes.BY_NAME
        else None
    )
    if kind is None:
        raise EncodeError(
            f"KServe has no datatype for {part.dtype}", tensor=part.name, format=FORMAT
        )
    return {
        "name": part.name,
        "datatype": kind,
        "shape": [-1] if part.shape is None else [-1 if dim is None else dim for dim in part.shape],
    }


def has_odd_floats(tensors: Mapping[str, Any]) -> bool:
    """Return whether there are NaN or infinite numbers, which strict JSON does not allow.

    >>> has_odd_floats({"x": np.float32([1, np.nan])}), has_odd_floats({"x": np.int8([1])})
    (True, False)
    """
    floats = [
        tensor
        for tensor in tensors.values()
        if isinstance(tensor, np.ndarray) and tensor.dtype.kind == "f"
    ]
    return any(not np.isfinite(tensor).all() for tensor in floats)


def _input(entry: object) -> Input:
    if not isinstance(entry, Mapping) or not isinstance(entry.get("name"), str):
        raise DecodeError("expected a tensor with a name in the metadata", format=FORMAT, offset=0)
    shape = [None if dim == -1 else dim for dim in _list(entry.get("shape", []), "shape")]
    if any(dim is not None and (type(dim) is not int or dim < 0) for dim in shape):
        raise DecodeError(
            f"invalid shape {shape!r:.60}", format=FORMAT, offset=0, tensor=entry["name"]
        )
    return Input(entry["name"], dtype_of(entry.get("datatype"), 0), tuple(shape))


def _list(value: object, key: str) -> list[Any]:
    if not isinstance(value, list):
        raise DecodeError(f"expected {key} as a list", format=FORMAT, offset=0)
    return value


# Writing


def _requested(name: str, binary: bool) -> dict[str, Any]:
    return {"name": name} | ({"parameters": {"binary_data": True}} if binary else {})


def _body(
    head: Mapping[str, Any],
    key: str,
    tensors: Mapping[str, Any],
    more: Mapping[str, Any],
    binary: bool,
) -> KserveBody:
    """Return a body: the members of `head`, the tensors, the members of `more`, and then the bytes
    of the tensors.
    """
    texts, raw = [], []
    for name, value in tensors.items():
        try:
            text, data = _written(name, frameworks.tensor(value), binary)
        except TensorwireError as error:
            raise error.add(tensor=str(name), format=FORMAT) from None
        texts.append(text)
        raw += data
    members = [
        *(_member(*item) for item in head.items()),
        b'"%b":[%b]' % (key.encode(), b",".join(texts)),
        *(_member(*item) for item in more.items()),
    ]
    document = b"{%b}" % b",".join(members)
    if not binary:
        return KserveBody([document], {"Content-Type": "application/json"})
    return KserveBody(
        [document, *raw], {"Content-Type": "application/octet-stream", LENGTH: str(len(document))}
    )


def _member(name: str, value: object) -> bytes:
    """Return a member of a JSON object, without the braces."""
    return json.dumps({name: value}, ensure_ascii=False, separators=(",", ":")).encode()[1:-1]


def _written(name: str, tensor: Tensor, binary: bool) -> tuple[bytes, list[Any]]:
    """Return (the JSON object of a tensor, the bytes that follow the JSON)."""
    if not isinstance(name, str):
        raise EncodeError(f"expected a name that is a string, got {name!r:.60}")
    if not isinstance(tensor, (np.ndarray, Strings)):
        raise EncodeError(
            f"expected a dense tensor, got {describe(tensor)}", hint="pass the model's signature"
        )
    kind = BYTES if isinstance(tensor, Strings) else dtypes.of(tensor.dtype).kserve
    if kind is None:
        raise EncodeError(f"KServe has no datatype for {describe(tensor)}")
    head = (
        _member("name", name)
        + b","
        + _member("shape", list(tensor.shape))
        + b","
        + _member("datatype", kind)
    )
    if binary:
        data = _counted(tensor) if isinstance(tensor, Strings) else [memory.chunk(tensor)]
        return b'{%b,"parameters":{"binary_data_size":%d}}' % (head, sum(map(len, data))), data
    if kind in _BINARY_ONLY:
        raise EncodeError(
            f"{kind} cannot be sent as JSON",
            hint="use binary=True if the server has the binary extension",
        )
    return b'{%b,"data":%b}' % (head, _text(tensor)), []


def _text(tensor: Array | Strings) -> bytes:
    if isinstance(tensor, Strings):
        try:
            validate.utf8(tensor.data, tensor.offsets)
        except EncodeError as error:
            raise EncodeError(error.message, hint="use binary=True to send any bytes") from None
        return write(tensor.reshape(-1), coded=False)
    return write(tensor.reshape(-1))


def _counted(strings: Strings) -> list[Any]:
    """Return the strings in one buffer, each preceded by its length as a u32."""
    lengths = np.diff(strings.offsets)
    if len(lengths) and lengths.max() >= 1 << 32:
        raise EncodeError("a string of 4 GiB or more does not fit BYTES, whose lengths are 32 bits")
    # Before string number i there are i + 1 lengths of four bytes. So its length is at offsets[i] +
    # 4 * i, and all bytes that are not lengths are the data in order.
    out = np.empty(len(strings.data) + 4 * len(lengths), np.uint8)
    starts = strings.offsets[:-1] + 4 * np.arange(len(lengths))
    is_length = np.zeros(len(out), np.bool_)
    places = starts[:, None] + np.arange(4)
    is_length[places.reshape(-1)] = True
    out[places] = lengths.astype("<u4").view(np.uint8).reshape(-1, 4)
    out[~is_length] = strings.data
    return [memory.chunk(out)]
