"""The parser of REST request bodies, with the rules of TensorFlow Serving.

1. Valid bodies take the fast path of this module: one pass over the text, in which kernels write
   the numbers of a list directly into an array, and regular expressions read strings in blocks.
   Only small things, such as keys, become Python objects.
2. The fast path does not explain. Whatever it does not accept raises DecodeError, even a valid body
   in an unusual form.
3. Then a body of up to `EXPLAINED` bytes is parsed again into Python values, and `serving_rules`
   accepts it or refuses it with Serving's status, message and path. Longer bodies would take too
   much memory that way. They are refused with the fast path's message, and `place` computes the
   path from the offset.
4. Keys come in any order. If `signature_name` comes after the tensors, which were then read with
   the default signature, they are read again.
5. Limits of size and depth apply on both paths.
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
"""The size of a body in bytes up to which a fault has Serving's message; the Python values of a
longer one would take too much memory.
"""
_STRETCH = 1 << 20
_Find = Callable[[str], "Signature"]
Tensors = dict[str, Array | Strings]


class RestRequest(NamedTuple):
    """A parsed predict request."""

    inputs: Tensors
    layout: str
    """"rows" or "columns"; the answer has the same layout."""
    signature_name: str
    """Empty if the body has none."""


def read(
    body: Buffer,
    signatures: Signature | Mapping[str, Signature],
    verb: str,
    limits: Limits = DEFAULT,
) -> RestRequest | RestExamples:
    """Return a parsed request; raise RequestRefused if Serving would refuse it."""
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
    body_values = document(text.data)
    if verb != "predict":
        return examples.made(serving_rules.classify(body_values))
    name, signature, layout, inputs = serving_rules.predict(body_values, find)
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
    """Return the fault of a body, or None. The shapes are compared with the signature last."""
    try:
        request = read(body, signatures, verb, limits)
        if isinstance(request, RestRequest):
            signature = _finder(signatures)(request.signature_name)
            takes_lists = request.layout == "columns" and _takes_empty_lists(signature)
            for name, tensor in request.inputs.items():
                expected = signature.inputs[name]
                if not (takes_lists and _is_empty_list(tensor, expected)):
                    _check_shape(tensor, expected, request.layout)
    except RequestRefused as refused:
        return _hinted(refused.fault, memory.flat(body), signatures)
    return None


def _finder(signatures: Signature | Mapping[str, Signature]) -> _Find:
    """Return a function that returns the signature of a name, or refuses the request."""

    def find(name: str) -> Signature:
        by_name = (
            signatures
            if isinstance(signatures, Mapping)
            else {signatures.name: signatures, "": signatures}
        )
        key = name or (DEFAULT_NAME if isinstance(signatures, Mapping) else "")
        if key not in by_name:
            why = f'Serving signature name: "{key}" not found in signature def'
            refuse(
                why, "$.signature_name", hint=f"known: {', '.join(filter(None, by_name)) or 'none'}"
            )
        return by_name[key]

    return find


class _Predict:
    """The fast path for predict; DecodeError means that `serving_rules` must decide."""

    def __init__(self, text: RequestText, find: _Find) -> None:
        self.text, self.find = text, find

    def read(self) -> RestRequest:
        name, places, tensors = "", {}, {}

        def take(key: str, offset: int) -> int:
            nonlocal name
            if key not in ("instances", "inputs", "signature_name"):
                return self.text.ignore(offset)
            places[key] = offset
            if key == "signature_name":
                name, end = self.text.string(offset)
                return end
            try:
                tensors[key], end = self._tensors(key, offset, self.find(name))
                return end
            except (DecodeError, RequestRefused):
                # The signature_name may follow, and select another signature.
                return self.text.end(offset)

        self.text.finish(self.text.each_key(self.text.space(0), take))
        if ("instances" in places) == ("inputs" in places):
            self.text.fail("expected either instances or inputs", 0)
        key, signature = "instances" if "instances" in places else "inputs", self.find(name)
        if key not in tensors or places.get("signature_name", 0) > places[key]:
            tensors[key], _ = self._tensors(key, places[key], signature)
        return RestRequest(tensors[key], "rows" if key == "instances" else "columns", name)

    def _tensors(self, key: str, start: int, signature: Signature) -> tuple[Tensors, int]:
        kinds = {name: spec.dtype for name, spec in signature.inputs.items()}
        unsupported = sorted(set(kinds.values()) - set(DTYPES))
        if unsupported and len(self.text.data) > EXPLAINED:
            status = UNIMPLEMENTED if key == "inputs" else INVALID
            refuse(
                f"Conversion of JSON Value: ... to type: {serving_rules.tf_name(unsupported[0])}",
                f"$.{key}",
                status,
            )
        if unsupported or not kinds:
            self.text.fail("the inputs cannot be sent as JSON", start)
        return self._rows(start, kinds) if key == "instances" else self._columns(start, kinds)

    def _single(self, start: int, kinds: Mapping[str, str]) -> tuple[Tensors, int]:
        """Read the only input, which has no name."""
        if len(kinds) != 1:
            self.text.fail("expected an object", start)
        ((name, dtype),) = kinds.items()
        tensor, end = self.text.tensor(start, dtype)
        return {name: tensor}, end

    def _columns(self, start: int, kinds: Mapping[str, str]) -> tuple[Tensors, int]:
        if not self.text.is_object(start):
            return self._single(start, kinds)
        tensors: Tensors = {}

        def take(key: str, offset: int) -> int:
            if key not in kinds:
                return self.text.ignore(offset)
            tensors[key], end = self.text.tensor(offset, kinds[key])
            return end

        end = self.text.each_key(start, take)
        if tensors.keys() != kinds.keys():
            self.text.fail("an input is missing", start)
        return {name: tensors[name] for name in kinds}, end

    def _rows(self, start: int, kinds: Mapping[str, str]) -> tuple[Tensors, int]:
        first = self.text.space(start + 1)
        if self.text.data[start] != ord("[") or self.text.data[first] == ord("]"):
            self.text.fail("expected a list of rows", start)
        return (
            read_rows(self.text, start, kinds)
            if self.text.is_object(first)
            else self._single(start, kinds)
        )


def _made(given: Given, dtype: str) -> Array | Strings:
    if dtype == "string":
        return Strings.of(given.values, given.shape, text=False)
    # A number out of the range of float32 becomes infinite, as in Serving.
    with np.errstate(over="ignore"):
        return np.array(given.values, dtypes.named(dtype).numpy).reshape(given.shape)


# Faults


def _check_depth(text: RequestText) -> None:
    try:
        text.end(text.space(0))
    except LimitError as error:
        refuse(f"JSON Parse error: {error.message} at offset: {error.offset}", "$")
    except DecodeError:
        # The rules find the error again, and have Serving's message for it.
        pass


def place(data: memoryview, offset: int) -> str:
    """Return the path of the value at an offset of a long body of nested lists.

    The brackets and commas are counted without a parser. Those inside strings count, too, and can
    make the path wrong.

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
    """Return the number of commas before an offset in each list that is open there, from the
    outermost to the innermost.
    """
    # The text is processed in stretches to bound the memory. `counts` carries the numbers of the
    # lists that are open at the end of a stretch into the next one.
    counts: list[int] = []
    for begin in range(start, offset, _STRETCH):
        text = np.frombuffer(data[begin : min(begin + _STRETCH, offset)], np.uint8)
        depth = len(counts) + np.cumsum((text == ord("[")).astype(np.int32) - (text == ord("]")))
        if depth.min() < 0 or depth.max() > validate.NUMPY_RANK + 2:
            # Such a depth means that there were brackets in strings.
            return []
        commas, updated = text == ord(","), []
        for level in range(1, int(depth[-1]) + 1):
            outside = np.flatnonzero(depth < level)
            opened = int(outside[-1]) + 1 if len(outside) else 0
            before = 0 if len(outside) or level > len(counts) else counts[level - 1]
            updated.append(
                before + int(np.count_nonzero(commas[opened:] & (depth[opened:] == level)))
            )
        counts = updated
    return counts


EMPTY = (
    "Serving reads [] as a tensor of shape [0]: send it by gRPC, by rows, or in the serialized form"
    " if the model has it; models written by tensorwire.serving.export as parts accept it, too"
)


def _takes_empty_lists(signature: Signature) -> bool:
    """Return whether the model restores the dimensions of []: its inputs are named like the parts
    that `export` writes.
    """
    return any(group.name not in group.parts.values() for group in signature.groups())


def _is_empty_list(tensor: Array | Strings, expected: Input) -> bool:
    """Return whether a tensor is [] that has lost its inner dimensions."""
    return tensor.shape == (0,) and expected.shape is not None and len(expected.shape) > 1


def _check_shape(tensor: Array | Strings, expected: Input, layout: str) -> None:
    shape, wanted = tensor.shape, expected.shape
    if wanted is not None and (
        len(shape) != len(wanted)
        or any(want not in (None, dim) for dim, want in zip(shape, wanted, strict=True))
    ):
        why = f"input {expected.name} has the shape {list(shape)}"
        hint = (
            f"the signature has {expected}; Serving's answer to another shape depends on the model"
        )
        if _is_empty_list(tensor, expected):
            hint = f"the signature has {expected}. {EMPTY}"
        refuse(why, "$.instances" if layout == "rows" else "$.inputs", hint=hint)


def _hinted(
    fault: RestFault, data: memoryview, signatures: Signature | Mapping[str, Signature]
) -> RestFault:
    """Return the fault with a hint if the body has a sparse tensor as one object, which is a common
    mistake.
    """
    try:
        nested = _nested(document(data)) if len(data) <= EXPLAINED else None
    except RequestRefused:
        return fault
    if nested is None:
        return fault
    path, name = nested
    candidates = list(signatures.values()) if isinstance(signatures, Mapping) else [signatures]
    group = next(
        (
            group
            for signature in candidates
            for group in signature.groups()
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
    expected = "this signature takes" if group else "a model can take it as"
    hint = (
        f"{path} is a sparse tensor as one object, which TensorFlow Serving does not support;"
        f' {expected} {{"inputs": {{{form}}}}}'
    )
    return fault._replace(hint=f"{hint}; rest.build does this for a tw.Sparse")


def _nested(doc: Mapping[str, Any]) -> tuple[str, str] | None:
    """Return (path, name) of the first object that looks like a sparse tensor."""
    rows = doc.get("instances")
    first = rows[0] if isinstance(rows, list) and rows else None
    for path, parent in (("$.inputs", doc.get("inputs")), ("$.instances[0]", first), ("$", doc)):
        for name, value in parent.items() if isinstance(parent, dict) else ():
            if isinstance(value, dict) and {"indices", "values"} <= value.keys():
                return step(path, name), name
    return None
