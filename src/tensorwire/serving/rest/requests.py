"""A request's body to tensors, as TensorFlow Serving reads it: good bodies quickly here, all others
by its rules in `serving_rules`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ..._errors import DecodeError, LimitError
from ..._limits import DEFAULT, Limits
from ...core import dtypes, memory, validate
from ...core.memory import Buffer
from ...core.tensors import Array, Strings
from ..spec import Input
from . import examples, serving_rules
from .examples import RestExamples
from .faults import INVALID, UNIMPLEMENTED, RequestRefused, RestFault, document, refuse, step
from .json_rows import read_rows
from .json_text import DTYPES, RequestText
from .serving_rules import Given

if TYPE_CHECKING:
    from ..signature import Signature

DEFAULT_NAME = "serving_default"
EXPLAINED = 1 << 20
"""Bytes of a body up to which a fault is put in Serving's words; Python's values of a longer one
would take too much memory.
"""
_STRETCH = 1 << 20
_Find = Callable[[str], "Signature"]
Tensors = dict[str, Array | Strings]


class RestRequest(NamedTuple):
    """What a predict request asks for."""

    inputs: Tensors
    layout: str
    """"rows" or "columns"; the answer is laid out in the same way."""
    signature_name: str
    """Empty if it says none."""


def read(
    body: Buffer,
    signatures: Signature | Mapping[str, Signature],
    verb: str,
    limits: Limits = DEFAULT,
) -> RestRequest | RestExamples:
    """A request, or Refused."""
    text, find = RequestText(memory.flat(body), limits, exact=True), _finder(signatures)
    try:
        return _Predict(text, find).read() if verb == "predict" else examples.read(text)
    except LimitError as error:
        refuse(f"JSON Parse error: {error.message} at offset: {error.offset}", "$")
    except DecodeError as error:
        if len(text.data) > EXPLAINED:
            refuse(
                f"JSON Value: {error.message} at offset: {error.offset}",
                place(text.data, error.offset or 0),
            )
    _check_depth(text)
    found = document(text.data)
    if verb != "predict":
        return examples.made(serving_rules.classify(found))
    name, signature, layout, inputs = serving_rules.predict(found, find)
    return RestRequest(
        {key: _made(given, signature.inputs[key].dtype) for key, given in inputs.items()},
        layout,
        name,
    )


def check(
    body: Buffer,
    signatures: Signature | Mapping[str, Signature],
    verb: str,
    limits: Limits = DEFAULT,
) -> RestFault | None:
    """What Serving would say against a body, and then whether the shapes are those of the
    signature.
    """
    try:
        found = read(body, signatures, verb, limits)
        if isinstance(found, RestRequest):
            signature = _finder(signatures)(found.signature_name)
            takes_lists = found.layout == "columns" and _takes_empty_lists(signature)
            for name, tensor in found.inputs.items():
                expected = signature.inputs[name]
                if not (takes_lists and _is_empty_list(tensor, expected)):
                    _check_shape(tensor, expected, found.layout)
    except RequestRefused as refused:
        return _hinted(refused.fault, memory.flat(body), signatures)
    return None


def _finder(signatures: Signature | Mapping[str, Signature]) -> _Find:
    def find(name: str) -> Signature:
        known = (
            signatures
            if isinstance(signatures, Mapping)
            else {signatures.name: signatures, "": signatures}
        )
        wanted = name or (DEFAULT_NAME if isinstance(signatures, Mapping) else "")
        if wanted not in known:
            why = f'Serving signature name: "{wanted}" not found in signature def'
            refuse(
                why, "$.signature_name", hint=f"known: {', '.join(filter(None, known)) or 'none'}"
            )
        return known[wanted]

    return find


class _Predict:
    """A body that may be a good one. DecodeError says that it is not, or that its rules are not
    known here.
    """

    def __init__(self, text: RequestText, find: _Find) -> None:
        self.text, self.find = text, find

    def read(self) -> RestRequest:
        name, places, found = "", {}, {}

        def take(key: str, at: int) -> int:
            nonlocal name
            if key not in ("instances", "inputs", "signature_name"):
                return self.text.ignore(at)
            places[key] = at
            if key == "signature_name":
                name, end = self.text.string(at)
                return end
            try:
                found[key], end = self._tensors(key, at, self.find(name))
                return end
            except (
                DecodeError,
                RequestRefused,
            ):  # a name may still come, and with it another signature
                return self.text.end(at)

        self.text.finish(self.text.each_key(self.text.space(0), take))
        if ("instances" in places) == ("inputs" in places):
            self.text.fail("either instances or inputs should stand here", 0)
        key, signature = "instances" if "instances" in places else "inputs", self.find(name)
        if key not in found or places.get("signature_name", 0) > places[key]:
            found[key], _ = self._tensors(key, places[key], signature)
        return RestRequest(found[key], "rows" if key == "instances" else "columns", name)

    def _tensors(self, key: str, at: int, signature: Signature) -> tuple[Tensors, int]:
        kinds = {name: each.dtype for name, each in signature.inputs.items()}
        odd = sorted(set(kinds.values()) - set(DTYPES))
        if odd and len(self.text.data) > EXPLAINED:
            status = UNIMPLEMENTED if key == "inputs" else INVALID
            refuse(
                f"Conversion of JSON Value: ... to type: {serving_rules.tf_name(odd[0])}",
                f"$.{key}",
                status,
            )
        if odd or not kinds:
            self.text.fail("nothing that JSON could hold", at)
        return self._rows(at, kinds) if key == "instances" else self._columns(at, kinds)

    def _one(self, at: int, kinds: Mapping[str, str]) -> tuple[Tensors, int]:
        if len(kinds) != 1:
            self.text.fail("an object should stand here", at)
        ((name, dtype),) = kinds.items()
        tensor, end = self.text.tensor(at, dtype)
        return {name: tensor}, end

    def _columns(self, at: int, kinds: Mapping[str, str]) -> tuple[Tensors, int]:
        if not self.text.is_object(at):
            return self._one(at, kinds)
        found: Tensors = {}

        def take(key: str, place: int) -> int:
            if key not in kinds:
                return self.text.ignore(place)
            found[key], end = self.text.tensor(place, kinds[key])
            return end

        end = self.text.each_key(at, take)
        if found.keys() != kinds.keys():
            self.text.fail("an input is missing", at)
        return {name: found[name] for name in kinds}, end

    def _rows(self, at: int, kinds: Mapping[str, str]) -> tuple[Tensors, int]:
        first = self.text.space(at + 1)
        if self.text.data[at] != ord("[") or self.text.data[first] == ord("]"):
            self.text.fail("a list of rows should stand here", at)
        return (
            read_rows(self.text, at, kinds) if self.text.is_object(first) else self._one(at, kinds)
        )


def _made(given: Given, dtype: str) -> Array | Strings:
    if dtype == "string":
        return Strings.of(given.values, given.shape, text=False)
    with np.errstate(over="ignore"):  # a float past the range of float32 is infinite, as in Serving
        return np.array(given.values, dtypes.named(dtype).numpy).reshape(given.shape)


# What is said of a fault


def _check_depth(text: RequestText) -> None:
    try:
        text.end(text.space(0))
    except LimitError as error:
        refuse(f"JSON Parse error: {error.message} at offset: {error.offset}", "$")
    except DecodeError:
        pass  # the rules have better words for it


def place(data: memoryview, offset: int) -> str:
    """The way to an offset in a long body that has lists of numbers; what is inside of strings
    confuses it.

    >>> place(memoryview(b'{"instances": [[1, 2], [3, "x"]]}'), 27)
    '$.instances[1][1]'
    """
    head = bytes(data[:4096])
    start = head.find(b"[")
    key = next(
        (
            key
            for key in ("instances", "inputs", "examples")
            if f'"{key}"'.encode() in head[: max(start, 0)]
        ),
        None,
    )
    if key is None or start >= offset:
        return "$"
    return step("$", key) + "".join(f"[{count}]" for count in _counts(data, start, offset))


def _counts(data: memoryview, start: int, offset: int) -> list[int]:
    """How many commas stand before an offset in each of the lists that are open there, from the
    outermost in.
    """
    counts: list[int] = []
    for begin in range(start, offset, _STRETCH):
        text = np.frombuffer(data[begin : min(begin + _STRETCH, offset)], np.uint8)
        depth = len(counts) + np.cumsum((text == ord("[")).astype(np.int32) - (text == ord("]")))
        if depth.min() < 0 or depth.max() > validate.NUMPY_RANK + 2:
            return []  # those were brackets in strings
        commas, found = text == ord(","), []
        for level in range(1, int(depth[-1]) + 1):
            outside = np.flatnonzero(depth < level)
            opened = int(outside[-1]) + 1 if len(outside) else 0
            before = 0 if len(outside) or level > len(counts) else counts[level - 1]
            found.append(
                before + int(np.count_nonzero(commas[opened:] & (depth[opened:] == level)))
            )
        counts = found
    return counts


EMPTY = (
    "Serving reads [] as a tensor of shape [0]: send it by gRPC, by rows, or in the serialized form"
    " if the model has it; models that tensorwire.serving.export has written as parts take it, too"
)


def _takes_empty_lists(signature: Signature) -> bool:
    """Whether the inputs are named as `export` names the parts of a tensor, so that the model gives
    [] the dimensions that it lost."""
    return any(group.name not in group.parts.values() for group in signature.groups())


def _is_empty_list(tensor: Array | Strings, expected: Input) -> bool:
    """Whether a tensor is [], which has lost its inner dimensions."""
    return tensor.shape == (0,) and expected.shape is not None and len(expected.shape) > 1


def _check_shape(tensor: Array | Strings, expected: Input, layout: str) -> None:
    shape, wanted = tensor.shape, expected.shape
    if wanted is not None and (
        len(shape) != len(wanted)
        or any(want not in (None, dim) for dim, want in zip(shape, wanted, strict=True))
    ):
        why = f"input {expected.name} has the shape {list(shape)}"
        hint = (
            f"the signature says {expected}; what Serving answers to another shape depends on the"
            " model"
        )
        if _is_empty_list(tensor, expected):
            hint = f"the signature says {expected}. {EMPTY}"
        refuse(why, "$.instances" if layout == "rows" else "$.inputs", hint=hint)


def _hinted(
    fault: RestFault, data: memoryview, signatures: Signature | Mapping[str, Signature]
) -> RestFault:
    """With a word on a sparse tensor that is written as one object, which is what people try first."""
    try:
        nested = _nested(document(data)) if len(data) <= EXPLAINED else None
    except RequestRefused:
        return fault
    if nested is None:
        return fault
    path, name = nested
    each = list(signatures.values()) if isinstance(signatures, Mapping) else [signatures]
    group = next(
        (
            group
            for one in each
            for group in one.groups()
            if group.kind == "sparse" and group.name == name
        ),
        None,
    )
    parts = (
        group.parts
        if group
        else {
            "indices": f"{name}_indices",
            "values": f"{name}_values",
            "dense_shape": f"{name}_dense_shape",
        }
    )
    form = ", ".join(f'"{part}": {role}' for role, part in parts.items())
    known = "this signature takes" if group else "a model can take it as"
    hint = (
        f"{path} is a sparse tensor as one object, which TensorFlow Serving does not take; {known}"
        f' {{"inputs": {{{form}}}}}'
    )
    return fault._replace(hint=f"{hint}; rest.build makes that of a tw.Sparse")


def _nested(doc: Mapping[str, Any]) -> tuple[str, str] | None:
    """(where it stands, its name) of the first object that looks like a sparse tensor."""
    rows = doc.get("instances")
    first = rows[0] if isinstance(rows, list) and rows else None
    for path, where in (("$.inputs", doc.get("inputs")), ("$.instances[0]", first), ("$", doc)):
        for name, value in where.items() if isinstance(where, dict) else ():
            if isinstance(value, dict) and {"indices", "values"} <= value.keys():
                return step(path, name), name
    return None
