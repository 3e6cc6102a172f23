"""Predict: PredictRequest {1 model_spec, 2 map of inputs, 3 output_filter}, PredictResponse {1 map
of outputs, 2 model_spec}.

Tensors are TensorProtos. Requests have their values in tensor_content. TensorFlow Serving answers
in typed fields such as float_val by default, and many clients read nothing else, so the local
server does, too. Both are read.
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
"""No model takes or gives as many tensors as there may be names in a file; one of so many is
enough, and quick.
"""


class Predict(NamedTuple):
    """What a predict request asks for."""

    model: ModelSpec
    inputs: Tensors
    outputs: tuple[str, ...] = ()
    """The outputs that are wanted; all of them if none is named."""


def build_predict(
    model: ModelSpec, inputs: Mapping[str, Any], outputs: Iterable[str] = ()
) -> list[Any]:
    """A predict request, in pieces.

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
    """What a predict request says.

    >>> parse_predict(b"".join(build_predict(ModelSpec("m"), {"x": np.int8([1, 2])}, ["y"])))
    Predict(model=ModelSpec(name='m', version=None, label=None, signature=''), inputs={'x':
    array([1, 2], dtype=int8)}, outputs=('y',))
    """
    where = Fields(data, limits, share=4)
    model, inputs, names = _read(where, copy, spec=1, tensors=2, names=3)
    return Predict(model, inputs, tuple(where.text(name) for name in names))


def build_predict_answer(
    model: ModelSpec, outputs: Mapping[str, Any], typed: bool = False
) -> list[Any]:
    """The answer to a predict request, in pieces. `typed` puts the values into the fields of their
    types, as TensorFlow Serving does by default, instead of tensor_content.

    >>> b"".join(build_predict_answer(ModelSpec("m"), {"y": np.int8([3])})).hex(" ")
    '0a 10 0a 01 79 12 0b 08 06 12 04 12 02 08 01 22 01 03 12 03 0a 01 6d'
    """
    return whole([*_map(1, outputs, typed), piece(2, write_spec(model))])


def parse_predict_answer(
    data: Buffer, limits: Limits = DEFAULT, copy: bool | None = None
) -> tuple[ModelSpec, Tensors]:
    """The tensors of an answer, and the model that gave them. The order of a map means nothing:
    theirs is kept.

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
        first, *rest = inner  # a header of a few bytes, or all of a small tensor
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
            f"{describe(tensor)} is no dense tensor; with the model's signature it is taken apart"
        )
    if isinstance(tensor, np.ndarray) and dtypes.of(tensor.dtype).tf is None:
        raise EncodeError(
            f"TensorFlow has no dtype {dtypes.of(tensor.dtype).name}; convert it with x.astype(...)"
        )
    return tensor


def _read(
    where: Fields, copy: bool | None, *, spec: int, tensors: int, names: int = 0
) -> tuple[ModelSpec, Tensors, list[Span]]:
    budget = where.limits.call(len(where.view), where.limits.answer)
    codec, most = tensorproto.TensorProto(limits=budget), max(1, where.limits.names // _SHARE)
    found: Tensors = {}
    more: list[Span] = []
    about: Span | None = None
    for field in where.fields(where.whole):
        if field.number == tensors:
            where.check(len(found), most, "tensors", field.offset)
            name, place = where.entry(field)
            if name in found:
                raise DecodeError(
                    f"the tensor {name!r:.60} stands twice", format=FORMAT, offset=field.offset
                )
            try:
                found[name] = codec.part(where.view, *place, copy)
            except DecodeError as error:
                raise error.add(tensor=name, format=FORMAT) from None
        elif field.number == spec:
            if about is not None:
                raise problem(REPEATED, field.offset, FORMAT)
            about = located(field)
        elif field.number == names:
            more.append(located(field))
    return where.spec(about), found, more
