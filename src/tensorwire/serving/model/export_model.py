"""Export of SavedModels whose signatures take sparse and ragged tensors in a form that TensorFlow
Serving can feed.

`tf.saved_model.save` turns a sparse input `x` into inputs `x`, `x_1`, `x_2`, and Keras's
`model.export` silently makes it dense. `export` names the parts by their roles. The exported model
validates them and reassembles the tensors.
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

from ..._errors import EncodeError, UsageError
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
    """Write a SavedModel of a function, tf.function, tf.Module or Keras model and return its
    signatures, by name. Needs TensorFlow.

    signature   {input: spec}: (dtype, shape), ("sparse", dtype, shape), ("ragged", dtype, shape),
                or TensorFlow's TensorSpec, SparseTensorSpec, RaggedTensorSpec. Not needed for Keras
                models with declared inputs and tf.functions with an input_signature.
    name        the name of the first form's signature; the others are called name_FORM
    forms       how sparse and ragged inputs are sent: "parts" (x_indices, x_values, x_dense_shape;
                x_values, x_row_splits_0), "serialized" (one string input of serialized rows for
                each) or "example" (one string input of tf.train.Examples); see docs/exporting.md
    outputs     names of the outputs, if the model does not return a dict; by default output_0,
                output_1, ...
    version     write to directory/version, the layout of TensorFlow Serving; None writes to the
                directory itself
    overwrite   whether an existing SavedModel may be replaced

    The model is called by the names of its parameters if they are those of the signature, and with
    one dict if it has one parameter and the signature several inputs. The folder is written next to
    the target and renamed, so a server that watches the directory never loads an incomplete model.
    `tf.saved_model.load(directory)` returns an object that can be called like the model.

    Raises EncodeError if the model cannot be exported, UsageError for an invalid argument, and
    FileExistsError if the target exists and `overwrite` is false.

    >>> import os, tempfile
    >>> import tensorwire as tw
    >>> directory = os.path.join(tempfile.mkdtemp(), "ranker")
    >>> inputs = {"ids": ("sparse", "int64", [None, 100]), "x": ("float32", [None, 3])}
    >>> signatures = tw.serving.export(lambda ids, x: x * 2, directory, inputs, version=1)
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
        raise UsageError(
            f"expected forms out of 'parts', 'serialized' and 'example', each once, got {forms!r}"
        )
    made = {
        name if not number else f"{name}_{kind}": form(kind, specs)
        for number, kind in enumerate(wanted)
    }
    for input_form in made.values():
        _check_names(input_form.inputs)
    if (
        not overwrite
        and os.path.lexists(target)
        and (not os.path.isdir(target) or os.listdir(target))
    ):
        raise FileExistsError(f"{target} exists already; overwrite=True replaces it")
    call = callables.function(tf, model, specs)
    served = {
        key: _served(
            tf, input_form, lambda tensors: call(*(tensors[name] for name in specs)), outputs
        )
        for key, input_form in made.items()
    }
    root = tf.Module()
    root.used = captures.used_by(
        tf, [function.get_concrete_function() for function in served.values()], model
    )
    # TensorFlow saves the function under this name, and the loaded object is callable by it.
    setattr(root, "__call__", call)  # noqa: B010
    with _replacing(target) as folder:
        _save(tf, root, folder, served)
    return {key: Signature.from_saved_model(target, key) for key in made}


def _version(version: int) -> str:
    if isinstance(version, bool) or not isinstance(version, int) or version < 0:
        raise UsageError(f"expected a version number such as 1, got {version!r}")
    return str(version)


def _check_names(names: Iterable[str]) -> None:
    """Raise EncodeError for names that TensorFlow does not accept."""
    # TensorFlow also derives identifiers from the names, in lower case and with underscores for all
    # other characters. They must differ, too.
    words: dict[str, str] = {}
    for name in names:
        if not _NAME.fullmatch(name) or keyword.iskeyword(name):
            what = "use letters, digits, '_', '.', '/' and '-', and no Python keyword"
            raise EncodeError(f"invalid tensor name {name!r} for TensorFlow: {what}", tensor=name)
        other = words.setdefault(re.sub(r"\W", "_", name, flags=re.A).lower(), name)
        if other != name:
            raise EncodeError(
                f"{name!r} and {other!r} are the same name in TensorFlow",
                tensor=name,
                hint="rename one of them",
            )


def _served(
    tf: ModuleType,
    form: InputForm,
    call: Callable[[dict[str, Any]], Any],
    outputs: str | Sequence[str] | None,
) -> Any:
    """Return a tf.function of dense tensors, with the names and shapes of a form's inputs."""

    def serve(*tensors: Any) -> Any:
        rebuilt = form.rebuild(tf, dict(zip(form.inputs, tensors, strict=True)))
        flat: dict[str, Any] = {}
        for name, tensor in _named(tf, call(rebuilt), outputs).items():
            for part, value in reassembly.parts_of(tf, tensor, name).items():
                if part in flat:
                    raise EncodeError(f"duplicate output name {part!r}", tensor=name)
                flat[part] = value
        _check_names(flat)
        return flat

    specs = [
        tf.TensorSpec(part.shape, tf.as_dtype(part.dtype), name=part.name)
        for part in form.inputs.values()
    ]
    return callables.positional(tf, serve, list(form.inputs), specs)


def _named(tf: ModuleType, result: object, outputs: str | Sequence[str] | None) -> dict[str, Any]:
    """Return the results of a model, by name."""
    if isinstance(result, Mapping):
        if outputs is not None:
            raise EncodeError(
                "the model returns a dict, whose keys are the names of the outputs",
                hint="leave out outputs=",
            )
        if not result or not all(isinstance(name, str) for name in result):
            raise EncodeError(
                "the model must return a dict with at least one key, and all keys must be strings"
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
        raise EncodeError(f"the model returns {len(values)} tensors, but outputs= is {names}")
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
            "cannot save a resource, such as a lookup table, that is not in the function's closure,"
            " globals or attributes",
            hint="make it an attribute of a tf.Module, and export the module",
        ) from error


@contextlib.contextmanager
def _replacing(target: str) -> Any:
    """Yield a new folder that replaces the target at the end, and is removed after an error."""
    # The folder is inside a private folder with a random name next to the target. Its name does not
    # look like a version, so a server that watches the parent does not load it.
    parent, base = os.path.split(os.path.abspath(target))
    os.makedirs(parent, exist_ok=True)
    with tempfile.TemporaryDirectory(
        prefix=f".{base[:50]}.", suffix=files.TEMPORARY, dir=parent
    ) as private:
        fresh, old = os.path.join(private, "new"), os.path.join(private, "old")
        os.mkdir(fresh)
        yield fresh
        # Two renames: a folder cannot replace one that is not empty. If the second one fails, the
        # old folder is put back.
        if os.path.lexists(target):
            os.rename(target, old)
        try:
            os.rename(fresh, target)
        except BaseException:
            if os.path.lexists(old):
                os.rename(old, target)
            raise
