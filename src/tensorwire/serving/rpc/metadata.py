"""Messages of GetModelMetadata, which returns the signatures of a model, and of GetModelStatus,
which returns the states of its versions.

GetModelMetadataRequest   {1 model_spec, 2 metadata_field}
GetModelMetadataResponse  {1 model_spec, 2 map of Any {1 type_url, 2 value}}; "signature_def" is a
                          SignatureDefMap {1 map of SignatureDef}
GetModelStatusRequest     {1 model_spec}
GetModelStatusResponse    {1 for each version {1 version, 2 state,
                          3 status {1 error_code, 2 error_message}}}
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
"""The only metadata_field that TensorFlow Serving supports."""
_TYPE = "tensorflow.serving.SignatureDefMap"
_URL = "type.googleapis.com/" + _TYPE
_SHARE = 20
_OTHERS = {"invalid": 0, "string": dtypes.STRING, "resource": 20, "variant": dtypes.VARIANT}
STATES = {0: "UNKNOWN", 10: "START", 20: "LOADING", 30: "AVAILABLE", 40: "UNLOADING", 50: "END"}


class RpcMetadata(NamedTuple):
    """A parsed metadata request."""

    model: ModelSpec
    fields: tuple[str, ...]


class VersionStatus(NamedTuple):
    """The state of one version of a model."""

    version: int | str
    """A number; in KServe a string, or 0 if no version was requested."""
    state: str
    """UNKNOWN, START, LOADING, AVAILABLE, UNLOADING or END."""
    code: int = 0
    """The gRPC status code of the error, if the version is not available."""
    message: str = ""


# Metadata


def build_metadata(model: ModelSpec) -> list[Any]:
    """Return a request for the signatures of a model, in chunks.

    >>> build_metadata(ModelSpec("m"))
    [b'\\n\\x03\\n\\x01m', b'\\x12\\rsignature_def']
    """
    return whole([piece(1, write_spec(model)), text(2, SIGNATURES)])


def parse_metadata(data: Buffer, limits: Limits = DEFAULT) -> RpcMetadata:
    """Return a parsed metadata request.

    >>> parse_metadata(b"".join(build_metadata(ModelSpec("m")))).fields
    ('signature_def',)
    """
    reader = Fields(data, limits, _SHARE)
    fields = reader.take(reader.whole, once=(1,), many=(2,))
    return RpcMetadata(reader.spec(fields[1]), tuple(reader.text(name) for name in fields[2]))


def build_metadata_answer(model: ModelSpec, signatures: Mapping[str, Signature]) -> list[Any]:
    """Return an answer with the signatures of a model, in chunks.

    >>> signature = Signature.given({"x": ("float32", [None, 3])}, {"y": ("float32", [None])})
    >>> answer = b"".join(build_metadata_answer(ModelSpec("m", 1), {"serving_default": signature}))
    >>> print(parse_metadata_answer(answer)[1]["serving_default"])
    serving_default (predict)
      x: float32 [?, 3]
    gives
      y: float32 [?]
    """
    listed = b"".join(
        _entry(1, name, _signature(signature)) for name, signature in signatures.items()
    )
    return whole(
        [piece(1, write_spec(model)), _entry(2, SIGNATURES, text(1, _URL) + piece(2, listed))]
    )


def parse_metadata_answer(
    data: Buffer, limits: Limits = DEFAULT
) -> tuple[ModelSpec, dict[str, Signature]]:
    """Return the model and its signatures by name, without TensorFlow's internal ones."""
    reader = Fields(data, limits, _SHARE)
    fields = reader.take(reader.whole, once=(1,), many=(2,))
    model = reader.spec(fields[1])
    entries = reader.entries(fields[2])
    if SIGNATURES not in entries:
        raise DecodeError(f"missing {SIGNATURES!r} in the metadata", format=FORMAT, offset=0)
    packed = reader.take(entries[SIGNATURES], once=(1, 2))
    if reader.text(packed[1]).rpartition("/")[2] != _TYPE:
        raise DecodeError(
            f"expected {SIGNATURES!r} of type {_TYPE}, got {reader.text(packed[1])!r:.80}",
            format=FORMAT,
            offset=entries[SIGNATURES][0],
        )
    listed = reader.entries(reader.take(packed[2], many=(1,))[1] if packed[2] is not None else [])
    signatures = {}
    for name in sorted(listed, key=saved_model.order):
        if name not in saved_model.INTERNAL:
            definition = reader.take(listed[name], once=(3,), many=(1, 2))
            inputs, outputs = (_read_tensors(reader, definition[number]) for number in (1, 2))
            signatures[name] = Signature(
                name, inputs, outputs, saved_model.method(reader.text(definition[3]))
            )
    return model, signatures


def _read_tensors(reader: Fields, spans: list[Span]) -> dict[str, Input]:
    entries = reader.entries(spans)
    infos = {
        name: tensor_info(reader, entries[name]) for name in sorted(entries, key=saved_model.order)
    }
    return {name: Input(name, info.dtype, info.shape, info.kind) for name, info in infos.items()}


def _entry(number: int, key: str, value: bytes) -> bytes:
    return piece(number, piece(1, encoded(key)) + piece(2, value))


def _signature(signature: Signature) -> bytes:
    inputs = [_entry(1, name, _info(tensor)) for name, tensor in signature.inputs.items()]
    outputs = [_entry(2, name, _info(tensor)) for name, tensor in signature.outputs.items()]
    return b"".join([*inputs, *outputs, text(3, f"tensorflow/serving/{signature.method}")])


def _info(tensor: Input) -> bytes:
    """Return a TensorInfo. Its tensor name is made up: only a server needs that of the graph."""
    try:
        content = varint(2, _dtype(tensor.dtype)) + piece(3, _shape(tensor.shape))
    except TensorwireError as error:
        raise error.add(tensor=tensor.name, format=FORMAT) from None
    if tensor.kind == DENSE:
        return text(1, f"{tensor.name}:0") + content
    if tensor.kind == SPARSE:
        return content + piece(4, b"")
    return content + piece(5, piece(1, _ragged(tensor) if tensor.kind == RAGGED else b""))


def _ragged(tensor: Input) -> bytes:
    """Return a TypeSpecProto {1 class, 2 state}. The state is a StructuredValue with a tuple of
    shape, dtype and ragged rank.
    """
    # The last dimension that varies is the innermost partition. The rank is a signed varint
    # (zigzag), so it is doubled.
    varying = [
        number for number, dim in enumerate(tensor.shape or (None, None)) if dim is None and number
    ]
    state = [
        piece(31, _shape(tensor.shape)),
        varint(32, _dtype(tensor.dtype)),
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
        raise EncodeError(f"TensorFlow does not support the dtype {name}")
    return number


# Status


def build_status(model: ModelSpec) -> list[Any]:
    """Return a request for the versions of a model, in chunks.

    >>> build_status(ModelSpec("m"))
    [b'\\n\\x03\\n\\x01m']
    """
    return whole([piece(1, write_spec(model))])


def parse_status(data: Buffer, limits: Limits = DEFAULT) -> ModelSpec:
    """Return the model of a status request.

    >>> parse_status(b"".join(build_status(ModelSpec("m", label="stable")))).label
    'stable'
    """
    reader = Fields(data, limits, _SHARE)
    return reader.spec(reader.take(reader.whole, once=(1,))[1])


def build_status_answer(versions: Iterable[VersionStatus]) -> list[Any]:
    """Return the answer to a status request, in chunks.

    >>> b"".join(build_status_answer([VersionStatus(1, "AVAILABLE")])).hex(" ")
    '0a 06 08 01 10 1e 1a 00'
    """
    chunks = []
    numbers = {name: number for number, name in STATES.items()}
    for version in versions:
        if version.state not in numbers:
            raise EncodeError(
                f"unknown state {version.state!r}{choices(version.state, numbers)}", format=FORMAT
            )
        status = varint(1, version.code) + text(2, version.message)
        chunks.append(
            piece(
                1,
                varint(1, int(version.version))
                + varint(2, numbers[version.state])
                + piece(3, status),
            )
        )
    return whole(chunks)


def parse_status_answer(data: Buffer, limits: Limits = DEFAULT) -> list[VersionStatus]:
    """Return the versions of a model, in the server's order. Unknown states become UNKNOWN.

    >>> parse_status_answer(b"".join(build_status_answer([VersionStatus(1, "END", 5, "gone")])))
    [VersionStatus(version=1, state='END', code=5, message='gone')]
    """
    reader = Fields(data, limits, _SHARE)
    versions = []
    for _, span in reader.pieces(reader.whole, "versions"):
        fields = reader.take(span, once=(3,), numbers=(1, 2))
        status: dict[int, Any] = (
            reader.take(fields[3], once=(2,), numbers=(1,))
            if fields[3] is not None
            else {1: 0, 2: None}
        )
        versions.append(
            VersionStatus(
                signed(fields[1]),
                STATES.get(fields[2], STATES[0]),
                signed(status[1]),
                reader.text(status[2]),
            )
        )
    return versions
