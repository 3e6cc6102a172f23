"""Messages of Predict: PredictRequest {1 model_spec, 2 map of inputs, 3 output_filter},
PredictResponse {1 map of outputs, 2 model_spec}.

Tensors are TensorProtos. Requests have their values in tensor_content. TensorFlow Serving answers
in typed fields such as float_val by default, and many clients read nothing else, so the local
server does the same. Both forms are parsed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np

from ... import frameworks
from ..._errors import DecodeError, EncodeError, TensorwireError
from ..._limits import DEFAULT, Limits
from ...codecs import tensorproto
from ...core import dtypes
from ...core.memory import Buffer
from ...core.tensors import Array, Strings, TensorLike, describe
from ...wire.protobuf import Span
from ...wire.status import REPEATED, problem
from .fields import FORMAT, Fields, ModelSpec, encoded, header, located, piece, whole, write_spec

Tensors = dict[str, Array | Strings]
_SHARE = 10
"""The divisor of `Limits.names` for the number of tensors, because models have fewer tensors than
files.
"""


class Predict(NamedTuple):
    """A parsed predict request."""

    model: ModelSpec
    inputs: Tensors
    outputs: tuple[str, ...] = ()
    """The names of the requested outputs; empty for all of them."""


def build_predict(
    model: ModelSpec, inputs: Mapping[str, Any], outputs: Iterable[str] = ()
) -> list[Any]:
    """Return a predict request, in chunks.

    >>> b"".join(build_predict(ModelSpec("m"), {"x": np.int8([1, 2])})).hex(" ")
    '0a 03 0a 01 6d 12 11 0a 01 78 12 0c 08 06 12 04 12 02 08 02 22 02 01 02'
    """
    return whole(
        [
            piece(1, write_spec(model)),
            *_map(2, inputs),
            *(piece(3, encoded(name)) for name in outputs),
        ]
    )


def parse_predict(data: Buffer, limits: Limits = DEFAULT, copy: bool | None = None) -> Predict:
    """Return a parsed predict request.

    >>> parse_predict(b"".join(build_predict(ModelSpec("m"), {"x": np.int8([1, 2])}, ["y"])))
    Predict(model=ModelSpec(name='m', version=None, label=None, signature=''), inputs={'x':
    array([1, 2], dtype=int8)}, outputs=('y',))
    """
    reader = Fields(data, limits, share=4)
    model, inputs, names = _read(reader, copy, spec=1, tensors=2, names=3)
    return Predict(model, inputs, tuple(reader.text(name) for name in names))


def build_predict_answer(
    model: ModelSpec, outputs: Mapping[str, Any], typed: bool = False
) -> list[Any]:
    """Return the answer to a predict request, in chunks.

    `typed` writes the values into the fields of their types, such as float_val, as TensorFlow
    Serving does by default, instead of tensor_content.

    >>> b"".join(build_predict_answer(ModelSpec("m"), {"y": np.int8([3])})).hex(" ")
    '0a 10 0a 01 79 12 0b 08 06 12 04 12 02 08 01 22 01 03 12 03 0a 01 6d'
    """
    return whole([*_map(1, outputs, typed), piece(2, write_spec(model))])


def parse_predict_answer(
    data: Buffer, limits: Limits = DEFAULT, copy: bool | None = None
) -> tuple[ModelSpec, Tensors]:
    """Return the model and the tensors of an answer, in the order of the message.

    >>> parse_predict_answer(b"".join(build_predict_answer(ModelSpec("m", 7), {"y": np.int8([3])})))
    (ModelSpec(name='m', version=7, label=None, signature=''), {'y': array([3], dtype=int8)})
    """
    model, outputs, _ = _read(Fields(data, limits, share=4), copy, spec=2, tensors=1)
    return model, outputs


def _map(number: int, tensors: Mapping[str, Any], typed: bool = False) -> list[Any]:
    chunks: list[Any] = []
    for name, value in tensors.items():
        try:
            inner = tensorproto.write(_sendable(value), typed)
        except TensorwireError as error:
            raise error.add(tensor=str(name), format=FORMAT) from None
        size = sum(map(len, inner))
        head = piece(1, encoded(name)) + header(2, size)
        # The first chunk is a header of a few bytes, or a whole small tensor. It is joined with the
        # headers of the map entry, so that there are fewer chunks to send.
        first, *rest = inner
        chunks += (
            [header(number, len(head) + size) + head + first, *rest]
            if len(first) < 1 << 16
            else [header(number, len(head) + size) + head, *inner]
        )
    return chunks


def _sendable(value: TensorLike) -> Array | Strings:
    tensor = value
    if not isinstance(tensor, Strings) and (
        type(tensor) is not np.ndarray or tensor.dtype.kind in "OSUT"
    ):
        tensor = frameworks.tensor(value)
    if not isinstance(tensor, (np.ndarray, Strings)):
        raise EncodeError(
            f"expected a dense tensor, got {describe(tensor)}", hint="pass the model's signature"
        )
    if isinstance(tensor, np.ndarray) and dtypes.of(tensor.dtype).tf is None:
        raise EncodeError(
            f"TensorFlow does not support the dtype {dtypes.of(tensor.dtype).name}",
            hint="convert it with x.astype(...)",
        )
    return tensor


def _read(
    reader: Fields, copy: bool | None, *, spec: int, tensors: int, names: int = 0
) -> tuple[ModelSpec, Tensors, list[Span]]:
    budget = reader.limits.call(len(reader.view), reader.limits.answer)
    codec, most = tensorproto.TensorProto(limits=budget), max(1, reader.limits.names // _SHARE)
    by_name: Tensors = {}
    name_spans: list[Span] = []
    spec_span: Span | None = None
    for field in reader.fields(reader.whole):
        if field.number == tensors:
            reader.check(len(by_name), most, "tensors", field.offset)
            name, span = reader.entry(field)
            if name in by_name:
                raise DecodeError(
                    f"duplicate tensor {name!r:.60}", format=FORMAT, offset=field.offset
                )
            try:
                by_name[name] = codec.part(reader.view, *span, copy)
            except DecodeError as error:
                raise error.add(tensor=name, format=FORMAT) from None
        elif field.number == spec:
            if spec_span is not None:
                raise problem(REPEATED, field.offset, FORMAT)
            spec_span = located(field)
        elif field.number == names:
            name_spans.append(located(field))
    return reader.spec(spec_span), by_name, name_spans
