"""What a server says of its models: GetModelMetadata gives signatures, GetModelStatus the versions
and how they are.

GetModelMetadataRequest   {1 model_spec, 2 metadata_field}
GetModelMetadataResponse  {1 model_spec, 2 map of Any {1 type_url, 2 value}}; "signature_def" is a
                          SignatureDefMap {1 map of SignatureDef}
GetModelStatusRequest     {1 model_spec}
GetModelStatusResponse    {1 for each version {1 version, 2 state, 3 status {1 error_code, 2
                          error_message}}}
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from ..._errors import DecodeError, EncodeError, TensorwireError, choices
from ..._limits import DEFAULT, Limits
from ...codecs.saved_model import signatures as saved_model
from ...codecs.saved_model.specs import tensor_info
from ...core import dtypes
from ...core.memory import Buffer
from ...wire.protobuf import Span
from ..signature import Signature
from ..spec import DENSE, RAGGED, SPARSE, Input, Shape
from .fields import (
    FORMAT,
    Fields,
    ModelSpec,
    encoded,
    piece,
    signed,
    text,
    varint,
    whole,
    write_spec,
)

SIGNATURES = "signature_def"
"""The only metadata that there is."""
_TYPE = "tensorflow.serving.SignatureDefMap"
_URL = "type.googleapis.com/" + _TYPE
_SHARE = 20
_OTHERS = {"invalid": 0, "string": dtypes.STRING, "resource": 20, "variant": dtypes.VARIANT}
STATES = {0: "UNKNOWN", 10: "START", 20: "LOADING", 30: "AVAILABLE", 40: "UNLOADING", 50: "END"}


class RpcMetadata(NamedTuple):
    """What a metadata request asks for."""

    model: ModelSpec
    fields: tuple[str, ...]


class VersionStatus(NamedTuple):
    """How one version of a model is."""

    version: int | str
    """A number; by KServe text, or 0 if no version was asked for."""
    state: str
    """UNKNOWN, START, LOADING, AVAILABLE, UNLOADING or END."""
    code: int = 0
    """Why it is not available: one of gRPC's codes."""
    message: str = ""


# Metadata


def build_metadata(model: ModelSpec) -> list[Any]:
    """A request for a model's signatures, in pieces.

    >>> build_metadata(ModelSpec("m"))
    [b'\\n\\x03\\n\\x01m', b'\\x12\\rsignature_def']
    """
    return whole([piece(1, write_spec(model)), text(2, SIGNATURES)])


def parse_metadata(data: Buffer, limits: Limits = DEFAULT) -> RpcMetadata:
    """What a metadata request says.

    >>> parse_metadata(b"".join(build_metadata(ModelSpec("m")))).fields
    ('signature_def',)
    """
    where = Fields(data, limits, _SHARE)
    found = where.take(where.whole, once=(1,), many=(2,))
    return RpcMetadata(where.spec(found[1]), tuple(where.text(name) for name in found[2]))


def build_metadata_answer(model: ModelSpec, signatures: Mapping[str, Signature]) -> list[Any]:
    """The answer with a model's signatures, in pieces.

    >>> signature = Signature.given({"x": ("float32", [None, 3])}, {"y": ("float32", [None])})
    >>> answer = b"".join(build_metadata_answer(ModelSpec("m", 1), {"serving_default": signature}))
    >>> print(parse_metadata_answer(answer)[1]["serving_default"])
    serving_default (predict)
      x: float32 [?, 3]
    gives
      y: float32 [?]
    """
    listed = b"".join(_entry(1, name, _signature(one)) for name, one in signatures.items())
    return whole(
        [piece(1, write_spec(model)), _entry(2, SIGNATURES, text(1, _URL) + piece(2, listed))]
    )


def parse_metadata_answer(
    data: Buffer, limits: Limits = DEFAULT
) -> tuple[ModelSpec, dict[str, Signature]]:
    """The signatures of a model, by name. Those that TensorFlow keeps for itself are left out."""
    where = Fields(data, limits, _SHARE)
    found = where.take(where.whole, once=(1,), many=(2,))
    model = where.spec(found[1])
    entries = where.entries(found[2])
    if SIGNATURES not in entries:
        raise DecodeError(f"metadata without {SIGNATURES!r}", format=FORMAT, offset=0)
    packed = where.take(entries[SIGNATURES], once=(1, 2))
    if where.text(packed[1]).rpartition("/")[2] != _TYPE:
        raise DecodeError(
            f"{SIGNATURES!r} is {where.text(packed[1])!r:.80}, and no {_TYPE}",
            format=FORMAT,
            offset=entries[SIGNATURES][0],
        )
    listed = where.entries(where.take(packed[2], many=(1,))[1] if packed[2] is not None else [])
    signatures = {}
    for name in sorted(listed, key=saved_model.order):
        if name not in saved_model.INTERNAL:
            about = where.take(listed[name], once=(3,), many=(1, 2))
            inputs, outputs = (_read_tensors(where, about[number]) for number in (1, 2))
            signatures[name] = Signature(
                name, inputs, outputs, saved_model.method(where.text(about[3]))
            )
    return model, signatures


def _read_tensors(where: Fields, spans: list[Span]) -> dict[str, Input]:
    entries = where.entries(spans)
    infos = {
        name: tensor_info(where, entries[name]) for name in sorted(entries, key=saved_model.order)
    }
    return {name: Input(name, info.dtype, info.shape, info.kind) for name, info in infos.items()}


def _entry(number: int, key: str, value: bytes) -> bytes:
    return piece(number, piece(1, encoded(key)) + piece(2, value))


def _signature(signature: Signature) -> bytes:
    inputs = [_entry(1, name, _info(one)) for name, one in signature.inputs.items()]
    outputs = [_entry(2, name, _info(one)) for name, one in signature.outputs.items()]
    return b"".join([*inputs, *outputs, text(3, f"tensorflow/serving/{signature.method}")])


def _info(one: Input) -> bytes:
    """A TensorInfo. The tensor's name in the graph is not known here; nobody but the server needs
    it.
    """
    try:
        said = varint(2, _dtype(one.dtype)) + piece(3, _shape(one.shape))
    except TensorwireError as error:
        raise error.add(tensor=one.name, format=FORMAT) from None
    if one.kind == DENSE:
        return text(1, f"{one.name}:0") + said
    if one.kind == SPARSE:
        return said + piece(4, b"")
    return said + piece(5, piece(1, _ragged(one) if one.kind == RAGGED else b""))


def _ragged(one: Input) -> bytes:
    """A TypeSpecProto {1 class, 2 state}; the state is a tuple of shape, dtype and ragged rank, as
    values of a StructuredValue.
    """
    varying = [
        number for number, dim in enumerate(one.shape or (None, None)) if dim is None and number
    ]
    state = [
        piece(31, _shape(one.shape)),
        varint(32, _dtype(one.dtype)),
        varint(12, 2 * max(varying, default=1)),
    ]
    return varint(1, 3) + piece(2, piece(52, b"".join(piece(1, value) for value in state)))


def _shape(shape: Shape) -> bytes:
    return (
        varint(3, 1)
        if shape is None
        else b"".join(piece(2, varint(1, -1 if dim is None else dim)) for dim in shape)
    )


def _dtype(name: str) -> int:
    if name in _OTHERS:
        return _OTHERS[name]
    number = dtypes.named(name).tf
    if number is None:
        raise EncodeError(f"TensorFlow has no dtype {name}")
    return number


# Status


def build_status(model: ModelSpec) -> list[Any]:
    """A request for the versions of a model, in pieces.

    >>> build_status(ModelSpec("m"))
    [b'\\n\\x03\\n\\x01m']
    """
    return whole([piece(1, write_spec(model))])


def parse_status(data: Buffer, limits: Limits = DEFAULT) -> ModelSpec:
    """Which model a status request asks for.

    >>> parse_status(b"".join(build_status(ModelSpec("m", label="stable")))).label
    'stable'
    """
    where = Fields(data, limits, _SHARE)
    return where.spec(where.take(where.whole, once=(1,))[1])


def build_status_answer(versions: Iterable[VersionStatus]) -> list[Any]:
    """The answer to a status request, in pieces.

    >>> b"".join(build_status_answer([VersionStatus(1, "AVAILABLE")])).hex(" ")
    '0a 06 08 01 10 1e 1a 00'
    """
    chunks = []
    numbers = {name: number for number, name in STATES.items()}
    for one in versions:
        if one.state not in numbers:
            raise EncodeError(f"no state {one.state!r}{choices(one.state, numbers)}", format=FORMAT)
        status = varint(1, one.code) + text(2, one.message)
        chunks.append(
            piece(1, varint(1, int(one.version)) + varint(2, numbers[one.state]) + piece(3, status))
        )
    return whole(chunks)


def parse_status_answer(data: Buffer, limits: Limits = DEFAULT) -> list[VersionStatus]:
    """The versions of a model, in the server's order. A state that is not known here is UNKNOWN.

    >>> parse_status_answer(b"".join(build_status_answer([VersionStatus(1, "END", 5, "gone")])))
    [VersionStatus(version=1, state='END', code=5, message='gone')]
    """
    where = Fields(data, limits, _SHARE)
    found = []
    for _, at in where.pieces(where.whole, "versions"):
        one = where.take(at, once=(3,), numbers=(1, 2))
        status: dict[int, Any] = (
            where.take(one[3], once=(2,), numbers=(1,)) if one[3] is not None else {1: 0, 2: None}
        )
        found.append(
            VersionStatus(
                signed(one[1]),
                STATES.get(one[2], STATES[0]),
                signed(status[1]),
                where.text(status[2]),
            )
        )
    return found
