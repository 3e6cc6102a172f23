"""Signatures: what a model takes and gives, by name; from a server's metadata, from a SavedModel on
disk, or said by the caller.
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
    """One way to call a model.

    >>> signature = Signature.given({"x": ("float32", [None, 3]), "ids": ("sparse", "int64", [None,
    ...     100])}, {"score": ("float32", [None])})
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
    """The groups that whoever wrote the signature speaks of; None if nobody does, and names are all
    there is.
    """

    @classmethod
    def given(
        cls,
        inputs: Mapping[str, Any],
        outputs: Mapping[str, Any] | None = None,
        name: str = DEFAULT,
        method: str = "predict",
    ) -> Signature:
        """A signature in your own words: {name: (dtype, shape)}; also ("sparse", dtype, shape) and
        ("ragged", dtype, shape), which stand for the parts that `tw.serving.export` makes of them.

        >>> Signature.given({"x": ("float32", [None, 3])}).inputs["x"]
        Input(name='x', dtype='float32', shape=(None, 3), kind='dense')
        """
        found: dict[str, Input] = {}
        known = []
        for name_, given in inputs.items():
            spec = Spec.of(given, name_)
            parts = spec.parts(name_)
            for part in parts.values():
                if part.name in found:
                    raise EncodeError(
                        f"two inputs would be called {part.name!r}: it is a part of the {spec.kind}"
                        f" {name_!r}",
                        tensor=name_,
                    )
                found[part.name] = part
            if len(parts) > 1:
                known.append(
                    _groups.made(spec.kind, list(parts.values()), name_, spec.shape, "given")
                )
        gives = {
            name_: Input(name_, *_plain(Spec.of(given, name_)))
            for name_, given in (outputs or {}).items()
        }
        return cls(name, found, gives, method, tuple(known))

    @classmethod
    def from_saved_model(
        cls,
        path: str | os.PathLike[str] | Buffer,
        name: str = DEFAULT,
        tags: tuple[str, ...] | None = ("serve",),
    ) -> Signature:
        """From a SavedModel's folder, or a folder of versions of which the latest counts.
        TensorFlow is not needed.
        """
        found = saved_model.signatures(path, tags)
        if name not in found:
            raise SchemaError(
                f"no signature {name!r}{choices(name, found)}",
                path=str(path) if isinstance(path, (str, os.PathLike)) else None,
            )
        return cls._saved(name, found[name])

    @classmethod
    def all_of_saved_model(
        cls, path: str | os.PathLike[str] | Buffer, tags: tuple[str, ...] | None = ("serve",)
    ) -> dict[str, Signature]:
        """Every signature of a SavedModel, by name."""
        return {
            name: cls._saved(name, found)
            for name, found in saved_model.signatures(path, tags).items()
        }

    @classmethod
    def _saved(cls, name: str, found: saved_model.SignatureDef) -> Signature:
        inputs = {
            alias: Input(alias, info.dtype, info.shape, info.kind)
            for alias, info in found.inputs.items()
        }
        outputs = {
            alias: Input(alias, info.dtype, info.shape, info.kind)
            for alias, info in found.outputs.items()
        }
        known: tuple[Group, ...] | None = None
        if found.composites is not None:
            exact = [
                (one.kind, [inputs[alias] for alias in one.inputs], one.shape)
                for one in found.composites
            ]
            known = tuple(
                _groups.made(kind, parts, shape=shape, by="structure")
                for kind, parts, shape in exact
                if _groups.fits(kind, parts)
            )
        elif found.arguments is not None:
            rows = [[inputs[alias] for alias in row] for row in found.arguments]
            known = tuple(group for row in rows for group in _groups.in_a_row(row, by="structure"))
        if known is not None:
            known = tuple(_renamed(group, inputs) for group in known)
        return cls(name, inputs, outputs, found.method, known)

    @classmethod
    def from_metadata(cls, answer: Mapping[str, Any], name: str = DEFAULT) -> Signature:
        """From the JSON that TensorFlow Serving answers to `GET /v1/models/NAME/metadata`.

        >>> x = {"dtype": "DT_FLOAT", "tensor_shape": {"dim": [{"size": "-1", "name": ""}],
        ...     "unknown_rank": False}, "name": "x:0"}
        >>> about = {"inputs": {"x": x}, "outputs": {}, "method_name": "tensorflow/serving/predict"}
        >>> print(Signature.from_metadata({"metadata": {"signature_def": {"signature_def":
        ...     {"serving_default": about}}}}).inputs["x"])
        x: float32 [?]
        """
        found = cls.all_of_metadata(answer)
        if name not in found:
            raise SchemaError(f"no signature {name!r}{choices(name, found)}")
        return found[name]

    @classmethod
    def all_of_metadata(cls, answer: Mapping[str, Any]) -> dict[str, Signature]:
        """Every signature of a metadata answer, by name."""
        known = _entry(
            _entry(_entry(answer, "metadata", "the answer"), "signature_def", "metadata"),
            "signature_def",
            "signature_def",
        )
        found = {}
        for name, about in known.items():
            if name in saved_model.INTERNAL:
                continue
            inputs, outputs = (
                _tensors(_entry(about, what, name, {}), f"{name}.{what}")
                for what in ("inputs", "outputs")
            )
            method = _text(about.get("method_name", ""), f"{name}.method_name")
            found[name] = cls(name, inputs, outputs, saved_model.method(method))
        return found

    def metadata(self) -> dict[str, Any]:
        """The other way: this signature as TensorFlow Serving's metadata has it.

        >>> signature = Signature.given({"x": ("float32", [None, 3])})
        >>> signature.metadata()["inputs"]["x"]["tensor_shape"]["dim"]
        [{'size': '-1', 'name': ''}, {'size': '3', 'name': ''}]
        """
        inputs, outputs = (
            {name: _info(part) for name, part in known.items()}
            for known in (self.inputs, self.outputs)
        )
        return {
            "inputs": inputs,
            "outputs": outputs,
            "method_name": f"tensorflow/serving/{self.method}",
        }

    def groups(self) -> tuple[Group, ...]:
        """The inputs that are the parts of one sparse or ragged tensor: those that are known, then
        those whose names say so.

        >>> inputs = {"x": ("int64", [None, 2]), "x_1": ("float32", [None]), "x_2": ("int64", [2])}
        >>> from dataclasses import replace
        >>> replace(Signature.given(inputs), known=None).groups()[0].parts
        {'indices': 'x', 'values': 'x_1', 'dense_shape': 'x_2'}
        """
        found = list(self.known or ())
        for more in (
            (_groups.by_role, _groups.by_number) if self.known is None else (_groups.by_role,)
        ):
            taken = {name for group in found for name in group.parts.values()}
            found += more(
                part
                for part in self.inputs.values()
                if part.name not in taken and part.kind == "dense"
            )
        return tuple(found)

    def json(self) -> dict[str, Any]:
        """Plain data, for `--json` and the like.

        >>> Signature.given({"x": ("string", None)}).json()["inputs"]
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
    """A group that the SavedModel knows of: where its parts are called by their roles, it has the
    name that they share.
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


def _entry(where: object, name: str, at: str, otherwise: object = None) -> Any:
    found = where.get(name, otherwise) if isinstance(where, Mapping) else None
    if not isinstance(found, Mapping):
        raise DecodeError(
            f"{at} has no object {name!r}; this is not what TensorFlow Serving answers to"
            " /metadata",
            format=FORMAT,
            offset=0,
        )
    return found


def _text(value: object, at: str) -> str:
    if not isinstance(value, str):
        raise DecodeError(f"{at} is no text: {value!r:.60}", format=FORMAT, offset=0)
    return value


def _tensors(infos: Mapping[str, Any], at: str) -> dict[str, Input]:
    return {
        name: _tensor(name, infos[name], f"{at}.{name}")
        for name in sorted(infos, key=saved_model.order)
    }


def _tensor(name: str, info: object, at: str) -> Input:
    if not isinstance(info, Mapping):
        raise DecodeError(f"{at} is no object", format=FORMAT, offset=0)
    kind = "sparse" if "coo_sparse" in info else "dense"
    if isinstance(composite := info.get("composite_tensor"), Mapping):
        spec = composite.get("type_spec")
        said = spec.get("type_spec_class") if isinstance(spec, Mapping) else None
        kind = {"RAGGED_TENSOR_SPEC": "ragged", "SPARSE_TENSOR_SPEC": "sparse"}.get(
            str(said), "composite"
        )
    return Input(
        name,
        _dtype(info.get("dtype", "DT_INVALID"), at),
        _shape(info.get("tensor_shape", {}), at),
        kind,
    )


def _dtype(said: object, at: str) -> str:
    word = _text(said, f"{at}.dtype").removesuffix("_REF")
    name = _ODD.get(word, word.removeprefix("DT_").lower())
    if not word.startswith("DT_") or (
        name not in dtypes.BY_NAME and name not in ("string", "variant", "resource", "invalid")
    ):
        raise DecodeError(
            f"{at}.dtype is {word!r:.60}, which no dtype is called", format=FORMAT, offset=0
        )
    return name


def _shape(said: object, at: str) -> Shape:
    """Its numbers are strings, as protobuf writes int64 in JSON."""
    dims = said.get("dim", []) if isinstance(said, Mapping) else None
    if not isinstance(said, Mapping) or not isinstance(dims, list) or len(dims) > _MOST_DIMS:
        raise DecodeError(f"{at}.tensor_shape is no shape", format=FORMAT, offset=0)
    if said.get("unknown_rank") is True:
        return None
    return tuple(_dim(dim.get("size", 0) if isinstance(dim, Mapping) else dim, at) for dim in dims)


def _dim(size: object, at: str) -> int | None:
    if (
        isinstance(size, bool)
        or not isinstance(size, (str, int))
        or not re.fullmatch(r"-1|\d{1,18}", str(size), re.A)
    ):
        raise DecodeError(
            f"{at}.tensor_shape has a dimension {size!r:.40}", format=FORMAT, offset=0
        )
    return None if int(size) == -1 else int(size)
