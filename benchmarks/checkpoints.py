"""Checkpoints that TensorFlow wrote, read by TensorFlow and by us: listed, one tensor, some rows of
one, and all of them.

TensorFlow's reader is `tf.train.load_checkpoint`, which gives NumPy arrays as we do, and its own
op, RestoreV2, which gives its tensors. Both check every CRC, and so do we. Importing TensorFlow is
not counted. The files are in the page cache for everyone.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from typing import Any

import numpy as np
from tensorwire.case import NOISE, Case, Plan
from tensorwire.stores import PREFIX, read_race
from tensorwire.timing import Contender, race
from tensorwire.ways import WrongResult

import tensorwire as tw

OURS, NAMES, MAPPED = "tensorwire", "tensorwire, names", "tensorwire, mmap"
READER, OP = "TensorFlow, load_checkpoint", "TensorFlow, RestoreV2"
VARIABLES = 5_000
"""As many as a large model with its optimizer has."""
LISTED, SHAPES, READ, MAPPED_READ = 5.0, 5.0, 1.0, 3.0
"""How many times faster than TensorFlow we are at least: to list names, names and shapes, to read
all by pread, and by a mapping.
"""


def shapes(size: int) -> list[tuple[int, ...]]:
    """Of `VARIABLES` variables of about `size` bytes in all: kernels, biases, and the scalars that
    optimizers keep.
    """
    width = max(4, int((size / 4 / (VARIABLES / 2)) ** 0.5))
    return [((width, width), (width,), (width, width), ())[i % 4] for i in range(VARIABLES)]


def written(folder: str, size: int) -> str:
    """A checkpoint of TensorFlow's own."""
    import tensorflow as tf

    rng = np.random.default_rng(40)
    prefix = os.path.join(folder, "model.ckpt-1000")
    names = [
        f"encoder/layer_{i // 20}/block_{i % 20}/kernel/.ATTRIBUTES/VARIABLE_VALUE"
        for i in range(VARIABLES)
    ]
    tensors = [
        rng.random(shape, np.float32) if shape else np.float32(i)
        for i, shape in enumerate(shapes(size))
    ]
    tf.raw_ops.SaveV2(
        prefix=prefix, tensor_names=names, shape_and_slices=[""] * len(names), tensors=tensors
    )
    return prefix


def list_theirs(prefix: str) -> dict[str, Any]:
    import tensorflow as tf

    found: dict[str, Any] = tf.train.load_checkpoint(prefix).get_variable_to_shape_map()
    return found


def list_ours(prefix: str) -> dict[str, Any]:
    with tw.open(prefix) as file:
        return file.shapes()


def names_ours(prefix: str) -> list[str]:
    with tw.open(prefix) as file:
        return list(file)


def pairs_theirs(prefix: str) -> list[Any]:
    import tensorflow as tf

    found: list[Any] = tf.train.list_variables(prefix)
    return found


def one_theirs(prefix: str, name: str) -> Any:
    import tensorflow as tf

    return tf.train.load_checkpoint(prefix).get_tensor(f"{name}/.ATTRIBUTES/VARIABLE_VALUE")


def one_ours(prefix: str, name: str) -> Any:
    with tw.open(prefix) as file:
        return file[name].read()


def rows_ours(prefix: str, name: str) -> Any:
    with tw.open(prefix) as file:
        return file[name][:2]


def all_theirs(prefix: str) -> dict[str, Any]:
    import tensorflow as tf

    reader = tf.train.load_checkpoint(prefix)
    return {name: reader.get_tensor(name) for name in reader.get_variable_to_shape_map()}


def all_by_op(prefix: str) -> list[Any]:
    import tensorflow as tf

    names = list(tf.train.load_checkpoint(prefix).get_variable_to_shape_map())
    found: list[Any] = tf.raw_ops.RestoreV2(
        prefix=prefix,
        tensor_names=names,
        shape_and_slices=[""] * len(names),
        dtypes=[tf.float32] * len(names),
    )
    return found


def all_ours(prefix: str, mmap: bool) -> Any:
    with tw.open(prefix, mmap=mmap) as file:
        return file.load()


def contenders(size: int) -> dict[str, list[Contender]]:
    folder = tempfile.TemporaryDirectory(prefix=PREFIX)
    prefix = written(folder.name, size)
    _prove(prefix)
    name = "encoder/layer_3/block_4/kernel"
    # `path` is what stores.read_race makes room before; the folder lives as long as someone has it.
    names: dict[str, Any] = {
        "prefix": prefix,
        "name": name,
        "folder": folder,
        "path": f"{prefix}.data-00000-of-00001",
    }
    listing = (list_theirs, list_ours, names_ours, pairs_theirs)
    reading = (one_theirs, one_ours, rows_ours, all_theirs, all_by_op, all_ours)
    names |= {function.__name__: function for function in (*listing, *reading)}
    return {
        "list": [
            Contender(OURS, "list_ours(prefix)", names, "ours", note="names and shapes"),
            Contender(NAMES, "names_ours(prefix)", names, "ours", note="names alone"),
            Contender(READER, "list_theirs(prefix)", names, note="names and shapes"),
            Contender(
                "TensorFlow, list_variables", "pairs_theirs(prefix)", names, note="sorted pairs"
            ),
        ],
        "one": [
            Contender(OURS, "one_ours(prefix, name)", names, "ours"),
            Contender(f"{OURS}, 2 rows", "rows_ours(prefix, name)", names, "ours"),
            Contender(READER, "one_theirs(prefix, name)", names),
        ],
        "all": [
            Contender(OURS, "all_ours(prefix, False)", names, "ours", size=size),
            Contender(MAPPED, "all_ours(prefix, True)", names, "ours", size=size),
            Contender(READER, "all_theirs(prefix)", names, size=size),
            Contender(OP, "all_by_op(prefix)", names, note="TensorFlow's own tensors", size=size),
        ],
    }


def _prove(prefix: str) -> None:
    """That everyone reads the same."""
    theirs = all_theirs(prefix)
    for mmap in (False, True):
        ours = all_ours(prefix, mmap)
        if {key.partition("/.")[0] for key in theirs} != set(ours):
            raise WrongResult("other variables than TensorFlow's")
        for key, array in theirs.items():
            if not tw.equal(np.asarray(array), ours[key.partition("/.")[0]]):
                raise WrongResult(f"{key} is not what TensorFlow reads")
    if {name: list(shape) for name, shape in list_ours(prefix).items()} != {
        key.partition("/.")[0]: shape for key, shape in list_theirs(prefix).items()
    }:
        raise WrongResult("other shapes than TensorFlow's")


def cases(plan: Plan) -> Iterator[Case]:
    proved = cache(lambda: contenders(plan.state))
    what = (
        f"a checkpoint of {VARIABLES:,} variables, {plan.state / 1e6:,.0f} MB, written by"
        " TensorFlow"
    )
    about = {
        "list": f"opening and listing {what}",
        "one": f"one tensor of {what}, opened anew",
        "all": f"all of {what}",
    }

    def build(which: str) -> Callable[[], list[Contender]]:
        return lambda: proved()[which]

    yield Case("checkpoint list", about["list"], build("list"), plan.rounds, plan.seconds)
    yield Case("checkpoint one", about["one"], build("one"), plan.rounds, plan.seconds)
    yield Case(
        "checkpoint all",
        about["all"],
        build("all"),
        plan.state_rounds,
        race=read_race if plan.state > 1 << 28 else race,
    )


def targets(found: Mapping[str, Any]) -> Iterator[tuple[str, float, float]]:
    """(what, measured, at least): TensorFlow's median over ours."""
    listed, read = found.get("checkpoint list"), found.get("checkpoint all")
    if listed is not None:
        for name, what, needed in ((NAMES, "names", LISTED), (OURS, "names and shapes", SHAPES)):
            ratio = listed.timing(READER).median / listed.timing(name).median
            yield (
                f"checkpoint: listing {what} of {VARIABLES:,} variables over {READER}",
                ratio,
                needed,
            )
    if read is not None:
        for name, needed in ((OURS, READ * NOISE), (MAPPED, MAPPED_READ)):
            ratio = read.timing(READER).median / read.timing(name).median
            yield f"checkpoint: reading all, {name} over {READER}", ratio, needed
