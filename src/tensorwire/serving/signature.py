"""Signatures: the named inputs and outputs of a model, from a server's metadata, from a SavedModel
on disk, or given by the caller.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from .._errors import DecodeError, EncodeError, SchemaError, choices
from ..codecs.saved_model import signatures as saved_model
from ..core import display, dtypes
from ..core.memory import Buffer
from . import composite as _groups
from .composite import Group
from .spec import Input, Shape, Spec

__all__ = ["DEFAULT", "Group", "Input", "Signature"]

DEFAULT = "serving_default"
FORMAT = "metadata"
_ODD = {"DT_FLOAT": "float32", "DT_DOUBLE": "float64", "DT_HALF": "float16", "DT_STRING": "string"}
_WORDS = {name: word for word, name in _ODD.items()}
_MOST_DIMS = 254


@dataclass(frozen=True)
class Signature:
    """The named inputs and outputs of one signature of a model.

    >>> import tensorwire as tw
    >>> inputs = {"x": ("float32", [None, 3]), "ids": ("sparse", "int64", [None, 100])}
    >>> signature = tw.serving.Signature.given(inputs, {"score": ("float32", [None])})
    >>> print(signature)
    serving_default (predict)
      x: float32 [?, 3]
      ids_indices: int64 [?, 2]
      ids_values: int64 [?]
      ids_dense_shape: int64 [2]
    gives
      score: float32 [?]
    where
      ids: sparse int64 [?, 100] = ids_indices (indices), ids_values (values), ids_dense_shape
      (dense_shape)
    """

    name: str
    inputs: Mapping[str, Input]
    outputs: Mapping[str, Input]
    method: str = "predict"
    """"predict", "classify" or "regress"."""
    known: tuple[Group, ...] | None = None
    """The groups that the SavedModel or the caller declared; None if groups can only be recognized
    by the names of the inputs.
    """

    @classmethod
    def given(
        cls,
        inputs: Mapping[str, Any],
        outputs: Mapping[str, Any] | None = None,
        name: str = DEFAULT,
        method: str = "predict",
    ) -> Signature:
        """Return a signature with these inputs and outputs.

        `inputs` and `outputs` are {name: spec}. A spec is (dtype, shape), ("sparse", dtype, shape),
        ("ragged", dtype, shape) or TensorFlow's TensorSpec, SparseTensorSpec or RaggedTensorSpec.
        Sparse and ragged inputs become the parts that `tw.serving.export` makes of them. Raises
        EncodeError for an invalid spec, or if two inputs get the same name.

        >>> import tensorwire as tw
        >>> tw.serving.Signature.given({"x": ("float32", [None, 3])}).inputs["x"]
        Input(name='x', dtype='float32', shape=(None, 3), kind='dense')
        """
        checked: dict[str, Input] = {}
        declared = []
        for name_, spec_like in inputs.items():
            spec = Spec.of(spec_like, name_)
            parts = spec.parts(name_)
            for part in parts.values():
                if part.name in checked:
                    raise EncodeError(
                        f"duplicate input name {part.name!r}: it is also a part of the {spec.kind}"
                        f" input {name_!r}",
                        tensor=name_,
                    )
                checked[part.name] = part
            if len(parts) > 1:
                declared.append(
                    _groups.made(spec.kind, list(parts.values()), name_, spec.shape, "given")
                )
        results = {
            name_: Input(name_, *_plain(Spec.of(spec_like, name_)))
            for name_, spec_like in (outputs or {}).items()
        }
        return cls(name, checked, results, method, tuple(declared))

    @classmethod
    def from_saved_model(
        cls,
        path: str | os.PathLike[str] | Buffer,
        name: str = DEFAULT,
        tags: tuple[str, ...] | None = ("serve",),
    ) -> Signature:
        """Return a signature of a SavedModel, without TensorFlow.

        `path` is the folder of the SavedModel, a folder of numbered versions (the latest one is
        read) or the bytes of a saved_model.pb. `tags` selects the graph. Raises SchemaError if
        there is no signature of that name.

        >>> import tensorwire as tw
        >>> tw.serving.Signature.from_saved_model("model")  # doctest: +SKIP
        Signature(name='serving_default', ...)
        """
        definitions = saved_model.signatures(path, tags)
        if name not in definitions:
            raise SchemaError(
                f"no signature {name!r}{choices(name, definitions)}",
                path=str(path) if isinstance(path, (str, os.PathLike)) else None,
            )
        return cls._saved(name, definitions[name])

    @classmethod
    def all_of_saved_model(
        cls, path: str | os.PathLike[str] | Buffer, tags: tuple[str, ...] | None = ("serve",)
    ) -> dict[str, Signature]:
        """Return all signatures of a SavedModel, by name; the arguments are those of
        `from_saved_model`.

        >>> import tensorwire as tw
        >>> list(tw.serving.Signature.all_of_saved_model("model"))  # doctest: +SKIP
        ['serving_default']
        """
        return {
            name: cls._saved(name, definition)
            for name, definition in saved_model.signatures(path, tags).items()
        }

    @classmethod
    def _saved(cls, name: str, definition: saved_model.SignatureDef) -> Signature:
        inputs = {
            alias: Input(alias, info.dtype, info.shape, info.kind)
            for alias, info in definition.inputs.items()
        }
        outputs = {
            alias: Input(alias, info.dtype, info.shape, info.kind)
            for alias, info in definition.outputs.items()
        }
        declared: tuple[Group, ...] | None = None
        if definition.composites is not None:
            exact = [
                (composite.kind, [inputs[alias] for alias in composite.inputs], composite.shape)
                for composite in definition.composites
            ]
            declared = tuple(
                _groups.made(kind, parts, shape=shape, by="structure")
                for kind, parts, shape in exact
                if _groups.fits(kind, parts)
            )
        elif definition.arguments is not None:
            rows = [[inputs[alias] for alias in row] for row in definition.arguments]
            declared = tuple(
                group for row in rows for group in _groups.in_a_row(row, by="structure")
            )
        if declared is not None:
            declared = tuple(_renamed(group, inputs) for group in declared)
        return cls(name, inputs, outputs, definition.method, declared)

    @classmethod
    def from_metadata(cls, answer: Mapping[str, Any], name: str = DEFAULT) -> Signature:
        """Return a signature from the parsed JSON that TensorFlow Serving answers to
        `GET /v1/models/NAME/metadata`.

        Raises DecodeError if the JSON is not such an answer, and SchemaError if there is no
        signature of that name.

        >>> import tensorwire as tw
        >>> shape = {"dim": [{"size": "-1", "name": ""}], "unknown_rank": False}
        >>> x = {"dtype": "DT_FLOAT", "tensor_shape": shape, "name": "x:0"}
        >>> entry = {"inputs": {"x": x}, "outputs": {}, "method_name": "tensorflow/serving/predict"}
        >>> answer = {"metadata": {"signature_def": {"signature_def": {"serving_default": entry}}}}
        >>> print(tw.serving.Signature.from_metadata(answer).inputs["x"])
        x: float32 [?]
        """
        signatures = cls.all_of_metadata(answer)
        if name not in signatures:
            raise SchemaError(f"no signature {name!r}{choices(name, signatures)}")
        return signatures[name]

    @classmethod
    def all_of_metadata(cls, answer: Mapping[str, Any]) -> dict[str, Signature]:
        """Return all signatures of a metadata answer, by name; TensorFlow's internal ones are left
        out. Raises DecodeError if the JSON is not such an answer.
        """
        entries = _entry(
            _entry(_entry(answer, "metadata", "the answer"), "signature_def", "metadata"),
            "signature_def",
            "signature_def",
        )
        signatures = {}
        for name, entry in entries.items():
            if name in saved_model.INTERNAL:
                continue
            inputs, outputs = (
                _tensors(_entry(entry, key, name, {}), f"{name}.{key}")
                for key in ("inputs", "outputs")
            )
            method = _text(entry.get("method_name", ""), f"{name}.method_name")
            signatures[name] = cls(name, inputs, outputs, saved_model.method(method))
        return signatures

    def metadata(self) -> dict[str, Any]:
        """Return the signature as an entry of TensorFlow Serving's metadata.

        >>> import tensorwire as tw
        >>> signature = tw.serving.Signature.given({"x": ("float32", [None, 3])})
        >>> signature.metadata()["inputs"]["x"]["tensor_shape"]["dim"]
        [{'size': '-1', 'name': ''}, {'size': '3', 'name': ''}]
        """
        inputs, outputs = (
            {name: _info(part) for name, part in tensors.items()}
            for tensors in (self.inputs, self.outputs)
        )
        return {
            "inputs": inputs,
            "outputs": outputs,
            "method_name": f"tensorflow/serving/{self.method}",
        }

    def groups(self) -> tuple[Group, ...]:
        """Return the groups of inputs that are the parts of one sparse or ragged tensor: the
        declared groups, then those recognized by their names.

        >>> import dataclasses
        >>> import tensorwire as tw
        >>> inputs = {"x": ("int64", [None, 2]), "x_1": ("float32", [None]), "x_2": ("int64", [2])}
        >>> signature = tw.serving.Signature.given(inputs)
        >>> dataclasses.replace(signature, known=None).groups()[0].parts
        {'indices': 'x', 'values': 'x_1', 'dense_shape': 'x_2'}
        """
        # Numbered names (x, x_1) are a guess, so they count only if no groups were declared.
        groups = list(self.known or ())
        for recognize in (
            (_groups.by_role, _groups.by_number) if self.known is None else (_groups.by_role,)
        ):
            taken = {name for group in groups for name in group.parts.values()}
            groups += recognize(
                part
                for part in self.inputs.values()
                if part.name not in taken and part.kind == "dense"
            )
        return tuple(groups)

    def json(self) -> dict[str, Any]:
        """Return the signature as JSON data.

        >>> import tensorwire as tw
        >>> tw.serving.Signature.given({"x": ("string", None)}).json()["inputs"]
        {'x': {'dtype': 'string', 'shape': None}}
        """
        return {
            "name": self.name,
            "method": self.method,
            "inputs": {name: part.json() for name, part in self.inputs.items()},
            "outputs": {name: part.json() for name, part in self.outputs.items()},
            "groups": [group.json() for group in self.groups()],
        }

    def __str__(self) -> str:
        lines = [f"{self.name} ({self.method})", *(f"  {part}" for part in self.inputs.values())]
        lines += ["gives", *(f"  {part}" for part in self.outputs.values())] if self.outputs else []
        groups = self.groups()
        return "\n".join(lines + (["where", *(f"  {group}" for group in groups)] if groups else []))

    _repr_html_ = display.html


def _renamed(group: Group, inputs: Mapping[str, Input]) -> Group:
    """Return a group declared by a SavedModel; if its parts are named by their roles, with the name
    that they have in common.
    """
    named = [
        other.name
        for other in _groups.by_role(inputs[part] for part in group.parts.values())
        if other.parts == group.parts
    ]
    return replace(group, name=named[0]) if named else group


def _plain(spec: Spec) -> tuple[str, Shape, str]:
    return spec.dtype, spec.shape, spec.kind


def _info(part: Input) -> dict[str, Any]:
    word = _WORDS.get(part.dtype, f"DT_{part.dtype.upper()}")
    dims = [{"size": str(-1 if dim is None else dim), "name": ""} for dim in part.shape or ()]
    return {
        "dtype": word,
        "tensor_shape": {"dim": dims, "unknown_rank": part.shape is None},
        "name": "",
    }


def _entry(parent: object, name: str, location: str, default: object = None) -> Any:
    entry = parent.get(name, default) if isinstance(parent, Mapping) else None
    if not isinstance(entry, Mapping):
        raise DecodeError(
            f"expected an object {name!r} in {location}, as in TensorFlow Serving's /metadata",
            format=FORMAT,
            offset=0,
        )
    return entry


def _text(value: object, location: str) -> str:
    if not isinstance(value, str):
        raise DecodeError(
            f"{location} must be a string, not {value!r:.60}", format=FORMAT, offset=0
        )
    return value


def _tensors(infos: Mapping[str, Any], location: str) -> dict[str, Input]:
    return {
        name: _tensor(name, infos[name], f"{location}.{name}")
        for name in sorted(infos, key=saved_model.order)
    }


def _tensor(name: str, info: object, location: str) -> Input:
    if not isinstance(info, Mapping):
        raise DecodeError(f"{location} must be an object", format=FORMAT, offset=0)
    kind = "sparse" if "coo_sparse" in info else "dense"
    if isinstance(composite := info.get("composite_tensor"), Mapping):
        spec = composite.get("type_spec")
        spec_class = spec.get("type_spec_class") if isinstance(spec, Mapping) else None
        kind = {"RAGGED_TENSOR_SPEC": "ragged", "SPARSE_TENSOR_SPEC": "sparse"}.get(
            str(spec_class), "composite"
        )
    return Input(
        name,
        _dtype(info.get("dtype", "DT_INVALID"), location),
        _shape(info.get("tensor_shape", {}), location),
        kind,
    )


def _dtype(value: object, location: str) -> str:
    word = _text(value, f"{location}.dtype").removesuffix("_REF")
    name = _ODD.get(word, word.removeprefix("DT_").lower())
    if not word.startswith("DT_") or (
        name not in dtypes.BY_NAME and name not in ("string", "variant", "resource", "invalid")
    ):
        raise DecodeError(
            f"{location}.dtype is an unknown dtype: {word!r:.60}", format=FORMAT, offset=0
        )
    return name


def _shape(value: object, location: str) -> Shape:
    """Return a shape, whose dimensions may be strings because protobuf writes int64 so in JSON."""
    dims = value.get("dim", []) if isinstance(value, Mapping) else None
    if not isinstance(value, Mapping) or not isinstance(dims, list) or len(dims) > _MOST_DIMS:
        raise DecodeError(f"{location}.tensor_shape is not a valid shape", format=FORMAT, offset=0)
    if value.get("unknown_rank") is True:
        return None
    return tuple(
        _dim(dim.get("size", 0) if isinstance(dim, Mapping) else dim, location) for dim in dims
    )


def _dim(size: object, location: str) -> int | None:
    if (
        isinstance(size, bool)
        or not isinstance(size, (str, int))
        or not re.fullmatch(r"-1|\d{1,18}", str(size), re.A)
    ):
        raise DecodeError(
            f"{location}.tensor_shape has an invalid dimension: {size!r:.40}",
            format=FORMAT,
            offset=0,
        )
    return None if int(size) == -1 else int(size)
