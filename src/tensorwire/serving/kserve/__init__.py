"""KServe's v2 protocol, which Triton and others speak too: its bodies, both ways, without any I/O.

    POST /v2/models/NAME[/versions/V]/infer    {"id": ..., "inputs": [TENSOR, ...], "outputs":
                                               [{"name": ...}, ...]}
    the answer                                 {"model_name": ..., "outputs": [TENSOR, ...]}, or
                                               {"error": MESSAGE} and a status
    TENSOR                                     {"name": ..., "shape": [2, 3], "datatype": "FP32",
                                               "data": [...]}

With the binary extension a tensor has `"parameters": {"binary_data_size": N}` instead of data, and
its bytes stand behind the JSON, in the order of the tensors; the header
`Inference-Header-Content-Length` says where the JSON ends. Numbers are little-endian; of BYTES each
is a u32 length and the bytes. FP16 and BF16 exist in binary only. JSON has no place for bytes that
are not UTF-8.
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
    """What is sent: the pieces of the body, and the headers that go with it."""

    chunks: list[Any]
    headers: dict[str, str]

    def joined(self) -> bytes:
        return b"".join(self.chunks)


def build(
    inputs: Mapping[str, TensorLike] | TensorLike,
    signature: Signature | None = None,
    *,
    binary: bool = True,
    id: str | None = None,
    outputs: Sequence[str] | None = None,
) -> KserveBody:
    """A request. `inputs` is a Plan, or tensors by name, which the signature types and takes apart;
    without one they are sent as they are.

    `binary` sends the tensors as bytes, and asks for the outputs as bytes, too. `outputs` are the
    names of those that are wanted.

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
            f"inputs are tensors by name, not {type(tensors).__name__}" if tensors else "no inputs",
            format=FORMAT,
        )
    more: dict[str, Any] = (
        {} if outputs is None else {"outputs": [_asked(name, binary) for name in outputs]}
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
    """An answer, for servers and for tests of clients.

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
    """The outputs of an answer in either form, by name; ModelError if it is an error. `copy` as for
    `tw.loads`: binary arrays can be views. `watch` is called now and then, and may end it by
    raising an error.

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
    """The inputs of a request in either form, by name.

    >>> sent = build({"x": ["a", "b"]})
    >>> parse_request(sent.joined(), sent.headers)["x"].tolist()
    [b'a', b'b']
    """
    return read.parse(body, headers, "inputs", 200, copy, limits)


def signature(metadata: object) -> Signature:
    """What a model takes and gives, by the JSON that `GET /v2/models/NAME` answers.

    >>> print(signature({"name": "m", "inputs": [{"name": "x", "datatype": "FP32", "shape": [-1,
    ...     3]}], "outputs": []}).inputs["x"])
    x: float32 [?, 3]
    """
    if not isinstance(metadata, Mapping):
        raise DecodeError("a model's metadata is an object", format=FORMAT, offset=0)
    known = {}
    for what in ("inputs", "outputs"):
        listed = map(_input, _list(read.given(metadata, what, []), what))
        known[what] = {each.name: each for each in listed}
    return Signature(str(metadata.get("name", "")), known["inputs"], known["outputs"])


def described(
    signature: Signature, name: str = "", versions: Sequence[str] = (), platform: str = ""
) -> dict[str, Any]:
    """The other way: what a server answers to `GET /v2/models/NAME`.

    >>> described(Signature.given({"x": ("float32", [None, 3])}), "m")["inputs"]
    [{'name': 'x', 'datatype': 'FP32', 'shape': [-1, 3]}]
    """
    inputs, outputs = (
        [_described(part) for part in known.values()]
        for known in (signature.inputs, signature.outputs)
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
    """Whether there are NaN or infinite numbers, which strict JSON does not have.

    >>> has_odd_floats({"x": np.float32([1, np.nan])}), has_odd_floats({"x": np.int8([1])})
    (True, False)
    """
    floats = [
        each for each in tensors.values() if isinstance(each, np.ndarray) and each.dtype.kind == "f"
    ]
    return any(not np.isfinite(each).all() for each in floats)


def _input(about: object) -> Input:
    if not isinstance(about, Mapping) or not isinstance(about.get("name"), str):
        raise DecodeError("a tensor without a name in the metadata", format=FORMAT, offset=0)
    shape = [None if dim == -1 else dim for dim in _list(about.get("shape", []), "shape")]
    if any(dim is not None and (type(dim) is not int or dim < 0) for dim in shape):
        raise DecodeError(f"the shape {shape!r:.60}", format=FORMAT, offset=0, tensor=about["name"])
    return Input(about["name"], dtype_of(about.get("datatype"), 0), tuple(shape))


def _list(value: object, what: str) -> list[Any]:
    if not isinstance(value, list):
        raise DecodeError(f"{what} is a list", format=FORMAT, offset=0)
    return value


# From tensors


def _asked(name: str, binary: bool) -> dict[str, Any]:
    return {"name": name} | ({"parameters": {"binary_data": True}} if binary else {})


def _body(
    head: Mapping[str, Any],
    key: str,
    tensors: Mapping[str, Any],
    more: Mapping[str, Any],
    binary: bool,
) -> KserveBody:
    """The members of `head`, the tensors, the members of `more`; then the bytes of the tensors."""
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
    return json.dumps({name: value}, ensure_ascii=False, separators=(",", ":")).encode()[1:-1]


def _written(name: str, tensor: Tensor, binary: bool) -> tuple[bytes, list[Any]]:
    """(the tensor's object, its bytes if they stand behind)"""
    if not isinstance(name, str):
        raise EncodeError(f"names are text, not {name!r:.60}")
    if not isinstance(tensor, (np.ndarray, Strings)):
        raise EncodeError(
            f"{describe(tensor)} is no dense tensor; with the model's signature it is taken apart"
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
            f"{kind} has no form in JSON; servers with the binary extension take it, by binary=True"
        )
    return b'{%b,"data":%b}' % (head, _text(tensor)), []


def _text(tensor: Array | Strings) -> bytes:
    if isinstance(tensor, Strings):
        try:
            validate.utf8(tensor.data, tensor.offsets)
        except EncodeError as error:
            raise EncodeError(f"{error.message}; binary=True sends any bytes") from None
        return write(tensor.reshape(-1), coded=False)
    return write(tensor.reshape(-1))


def _counted(strings: Strings) -> list[Any]:
    """Each string behind its length, in one buffer: the lengths go where the offsets are moved to
    by the lengths before them.
    """
    lengths = np.diff(strings.offsets)
    if len(lengths) and lengths.max() >= 1 << 32:
        raise EncodeError("a string of 4 GiB or more, whose length BYTES cannot say")
    out = np.empty(len(strings.data) + 4 * len(lengths), np.uint8)
    starts = strings.offsets[:-1] + 4 * np.arange(len(lengths))
    said = np.zeros(len(out), np.bool_)
    places = starts[:, None] + np.arange(4)
    said[places.reshape(-1)] = True
    out[places] = lengths.astype("<u4").view(np.uint8).reshape(-1, 4)
    out[~said] = strings.data
    return [memory.chunk(out)]
