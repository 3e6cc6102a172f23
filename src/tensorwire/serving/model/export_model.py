"""The model's side: SavedModels whose signatures take sparse and ragged tensors in a form that
TensorFlow Serving can feed.

`tf.saved_model.save` makes a sparse input `x` into inputs `x`, `x_1`, `x_2`, and Keras's
`model.export` quietly makes it dense. `export` gives the parts names that say what they are, puts
the tensors together again inside of the model, and checks them there.
"""

from __future__ import annotations

import contextlib
import keyword
import os
import re
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import ModuleType
from typing import TYPE_CHECKING, Any

from ..._errors import EncodeError
from ..._optional import require
from ...storage import files
from ..signature import DEFAULT, Signature
from . import callables, captures, reassembly
from .callables import Model
from .input_forms import InputForm, form

if TYPE_CHECKING:
    import tensorflow

_NAME = re.compile(r"[A-Za-z0-9.][A-Za-z0-9_./>-]*")


def export(
    model: Model,
    directory: str | os.PathLike[str],
    signature: Mapping[str, Any] | None = None,
    *,
    name: str = DEFAULT,
    forms: str | Sequence[str] = ("parts",),
    outputs: str | Sequence[str] | None = None,
    version: int | None = None,
    overwrite: bool = False,
) -> dict[str, Signature]:
    """Writes a SavedModel of a function, tf.function, tf.Module or Keras model; returns its
    signatures. Needs TensorFlow.

    signature   {input: spec}: (dtype, shape), ("sparse", dtype, shape), ("ragged", dtype, shape),
                or TensorFlow's TensorSpec,
                SparseTensorSpec, RaggedTensorSpec. Keras models with known inputs, and tf.functions
                with an input_signature, need none.
    name        of the first form's signature; the others are called name_FORM
    forms       how sparse and ragged inputs come: "parts" (x_indices, x_values, x_dense_shape;
                x_values, x_row_splits_0), "serialized"
                (one string input [N, 3] of serialized rows each), "example" (one string input of tf.train.Examples): see docs/serving.md
    outputs     names, if the model does not return a dict; else output_0, output_1, ...
    version     writes to directory/version, as TensorFlow Serving wants its models; None writes to
                the directory itself
    overwrite   whether a SavedModel that is there already may be replaced

    The model is called by the names of its parameters if they are those of the signature; with one
    dict if it takes one thing and the signature has several. The folder appears whole or not at
    all, so a server that watches it never loads half a model. `tf.saved_model.load(directory)`
    gives back something that can be called like the model, too.

    >>> import tempfile
    >>> directory = os.path.join(tempfile.mkdtemp(), "ranker")
    >>> inputs = {"ids": ("sparse", "int64", [None, 100]), "x": ("float32", [None, 3])}
    >>> signatures = export(lambda ids, x: x * 2, directory, inputs, version=1)
    >>> print(signatures["serving_default"])
    serving_default (predict)
      ids_dense_shape: int64 [2]
      ids_indices: int64 [?, 2]
      ids_values: int64 [?]
      x: float32 [?, 3]
    gives
      output_0: float32 [?, 3]
    where
      ids: sparse int64 [?, 100] = ids_indices (indices), ids_values (values), ids_dense_shape
      (dense_shape)
    """
    tf = require("tensorflow")
    target = os.path.join(os.fspath(directory), *([] if version is None else [_version(version)]))
    specs = callables.specs(model, signature)
    wanted = [forms] if isinstance(forms, str) else list(forms)
    if not wanted or len(set(wanted)) != len(wanted):
        raise EncodeError(
            f"forms are some of 'parts', 'serialized' and 'example', each once, not {forms!r}"
        )
    made = {
        name if not number else f"{name}_{each}": form(each, specs)
        for number, each in enumerate(wanted)
    }
    for each in made.values():
        _check_names(each.inputs)
    if (
        not overwrite
        and os.path.lexists(target)
        and (not os.path.isdir(target) or os.listdir(target))
    ):
        raise FileExistsError(f"{target} is there already; overwrite=True replaces it")
    call = callables.function(tf, model, specs)
    served = {
        key: _served(tf, each, lambda found: call(*(found[name] for name in specs)), outputs)
        for key, each in made.items()
    }
    root = tf.Module()
    root.used = captures.used_by(
        tf, [each.get_concrete_function() for each in served.values()], model
    )
    setattr(root, "__call__", call)  # noqa: B010  TensorFlow keeps it by that name, and gives it back as the object's own call
    with _replacing(target) as folder:
        _save(tf, root, folder, served)
    return {key: Signature.from_saved_model(target, key) for key in made}


def _version(version: int) -> str:
    if isinstance(version, bool) or not isinstance(version, int) or version < 0:
        raise EncodeError(f"a version is a number such as 1, not {version!r}")
    return str(version)


def _check_names(names: Iterable[str]) -> None:
    """Before TensorFlow does, and in clearer words. It makes other names of them, without signs and
    case, and these must differ too.
    """
    words: dict[str, str] = {}
    for name in names:
        if not _NAME.fullmatch(name) or keyword.iskeyword(name):
            what = "letters, digits and _ . / - only, and no word of Python's"
            raise EncodeError(f"{name!r} is no name that TensorFlow takes: {what}", tensor=name)
        other = words.setdefault(re.sub(r"\W", "_", name, flags=re.A).lower(), name)
        if other != name:
            raise EncodeError(
                f"to TensorFlow {name!r} and {other!r} are the same name; rename one of them",
                tensor=name,
            )


def _served(
    tf: ModuleType,
    form: InputForm,
    call: Callable[[dict[str, Any]], Any],
    outputs: str | Sequence[str] | None,
) -> Any:
    """A tf.function of plain tensors, with the names and shapes of a form's inputs."""

    def serve(*tensors: Any) -> Any:
        found = form.rebuild(tf, dict(zip(form.inputs, tensors, strict=True)))
        flat: dict[str, Any] = {}
        for name, tensor in _named(tf, call(found), outputs).items():
            for part, value in reassembly.parts_of(tf, tensor, name).items():
                if part in flat:
                    raise EncodeError(f"two outputs would be called {part!r}", tensor=name)
                flat[part] = value
        _check_names(flat)
        return flat

    specs = [
        tf.TensorSpec(part.shape, tf.as_dtype(part.dtype), name=part.name)
        for part in form.inputs.values()
    ]
    return callables.positional(tf, serve, list(form.inputs), specs)


def _named(tf: ModuleType, result: object, outputs: str | Sequence[str] | None) -> dict[str, Any]:
    """What a model returns, by name."""
    if isinstance(result, Mapping):
        if outputs is not None:
            raise EncodeError(
                "the model returns a dict, whose keys are the outputs' names; outputs= is for those"
                " that return none"
            )
        if not result or not all(isinstance(name, str) for name in result):
            raise EncodeError(
                "the outputs' names are the keys of the dict that the model returns: at least one,"
                " and all of them text"
            )
        return dict(result)
    values: list[Any] = [result]
    if isinstance(result, (list, tuple)) and not tf.is_tensor(result):
        values = list(result)
    if isinstance(result, tuple) and hasattr(result, "_fields") and outputs is None:
        outputs = result._fields
    names = (
        [outputs]
        if isinstance(outputs, str)
        else list(outputs or [f"output_{number}" for number in range(len(values))])
    )
    if len(names) != len(values) or len(set(names)) != len(names) or not values:
        raise EncodeError(f"the model returns {len(values)} tensors, and outputs= names {names}")
    return dict(zip(names, values, strict=True))


def _save(
    tf: ModuleType, root: tensorflow.Module, folder: str, signatures: Mapping[str, Any]
) -> None:
    options = tf.saved_model.SaveOptions(experimental_custom_gradients=False)
    try:
        tf.saved_model.save(root, folder, signatures=dict(signatures), options=options)
    except AssertionError as error:
        if "untracked" not in str(error):
            raise
        raise EncodeError(
            "the function uses a table or another resource that is in none of its closure, globals"
            " or attributes, so it cannot be saved; make it an attribute of a tf.Module, and export"
            " that"
        ) from error


@contextlib.contextmanager
def _replacing(target: str) -> Any:
    """A folder to write into, which takes the place of the target at the end, and is gone after an
    error.

    It lies in a private folder with a random name beside the target; a server takes neither for a
    version.
    """
    parent, base = os.path.split(os.path.abspath(target))
    os.makedirs(parent, exist_ok=True)
    with tempfile.TemporaryDirectory(
        prefix=f".{base[:50]}.", suffix=files.TEMPORARY, dir=parent
    ) as private:
        fresh, old = os.path.join(private, "new"), os.path.join(private, "old")
        os.mkdir(fresh)
        yield fresh
        if os.path.lexists(target):
            os.rename(target, old)
        try:
            os.rename(fresh, target)
        except BaseException:
            if os.path.lexists(old):
                os.rename(old, target)
            raise
