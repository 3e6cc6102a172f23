"""Tensors as JSON text, written and read.

Ours is raced in two forms: bare nested lists, which is all that the others have, and the one that
says dtype and shape too. What the others lose on the way is proved before they run, and stands in
their notes.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import numpy as np
import orjson
import simdjson
from tensorwire.timing import Contender
from tensorwire.ways import Way, WrongResult, dense_differences, prove

import tensorwire as tw

OURS, OURS_WHOLE = "tensorwire json, plain lists", "tensorwire json"
ORJSON, SIMDJSON, STANDARD = "orjson", "simdjson as_buffer", "json of the standard library"
SHAPES: dict[str, tuple[int, ...]] = {"[64, 1024]": (64, 1024), "of 2M": (2_000_000,)}
DTYPES = ("float32", "float64")


def _nan_lost() -> str:
    if orjson.dumps(np.array([np.nan]), option=orjson.OPT_SERIALIZE_NUMPY) != b"[null]":
        raise WrongResult("orjson no longer turns NaN into null: say something else of it")
    x = np.float32([1, np.nan, -np.inf])
    if not tw.equal(tw.loads(tw.dumps(x, "json")), x):
        raise WrongResult("ours lost NaN")
    return "NaN becomes null"


def _ragged_flattened() -> str:
    ragged = b"[[1.0, 2.0], [3.0]]"
    if np.frombuffer(simdjson.Parser().parse(ragged).as_buffer(of_type="d")).tolist() != [1, 2, 3]:
        raise WrongResult("simdjson no longer flattens ragged lists: say something else of it")
    try:
        tw.loads(ragged, "json", dtype="float64")
    except tw.DecodeError as error:
        if "ragged" not in str(error):
            raise
    else:
        raise WrongResult("ours took ragged lists for an array")
    return "float64 only, loses the shape, ragged lists are flattened without a word"


def _as_buffer(text: bytes) -> Any:
    return simdjson.Parser().parse(text).as_buffer(of_type="d")


def ways(dtype: str, shape: tuple[int, ...]) -> list[Way]:
    names = {
        "tw_dumps": tw.dumps,
        "tw_loads": tw.loads,
        "array": np.array,
        "dtype": np.dtype(dtype),
    }
    numpy = {
        **names,
        "orjson_dumps": orjson.dumps,
        "orjson_loads": orjson.loads,
        "NUMPY": orjson.OPT_SERIALIZE_NUMPY,
    }
    plain: dict[str, Any] = {"self_describing": False}
    ours: dict[str, Any] = {"role": "ours"}
    return [
        Way(OURS, 'tw_dumps(x, "json", plain=True)', 'tw_loads(blob, "json", dtype=dtype)', names, **ours, **plain),
        Way(OURS_WHOLE, 'tw_dumps(x, "json")', 'tw_loads(blob, "json")', names, **ours),
        Way(ORJSON, "orjson_dumps(x, option=NUMPY)", "array(orjson_loads(blob), dtype=dtype)", numpy, note=_nan_lost(), **plain),
        Way(
            SIMDJSON,
            "orjson_dumps(x, option=NUMPY)",  # it writes nothing itself
            "as_buffer(blob)",
            {**numpy, "as_buffer": _as_buffer},
            restore=lambda found: np.frombuffer(found).astype(dtype).reshape(shape),
            note=_ragged_flattened(),
            **plain,
        ),
        Way(STANDARD, "dumps(x.tolist())", "array(loads(blob), dtype=dtype)", {**names, "dumps": json.dumps, "loads": json.loads}, **plain),
    ]  # fmt: skip


def contenders(dtype: str, shape: tuple[int, ...]) -> dict[str, list[Contender]]:
    """Standard normal numbers, the same for everyone."""
    x = np.random.default_rng(6).standard_normal(shape).astype(dtype)
    found = prove(ways(dtype, shape), x, dense_differences)
    return {
        "dumps": [one for one in found["dumps"] if one.name != SIMDJSON],
        "loads": found["loads"],
    }


def cases(case: Callable[..., Any], rounds: int, seconds: float) -> Iterator[Any]:
    """`case` is `cases.Case`, by whose module this one is imported; `seconds` is how long one
    measurement should take at least.
    """
    for name, shape in SHAPES.items():
        for dtype in DTYPES:
            proved = cache(lambda dtype=dtype, shape=shape: contenders(dtype, shape))
            for verb in ("dumps", "loads"):
                about = f"{verb}: JSON text of {dtype} {list(shape)}, standard normal"
                yield case(
                    f"{verb} json {dtype} {name}",
                    about,
                    lambda proved=proved, verb=verb: proved()[verb],
                    rounds,
                    seconds,
                )


NEEDED = (("dumps", ORJSON, 1.3), ("loads", ORJSON, 3.0), ("loads", SIMDJSON, 1.0))
"""How many times as fast as whom. Read with the noise of `targets` where it is 1."""


def targets(found: dict[str, Any], target: Callable[..., Any], noise: float) -> Iterator[Any]:
    """`found` are the results by name, `target` is `targets.Target`."""
    for verb, rival, needed in NEEDED:
        for dtype in DTYPES:
            for name in SHAPES:
                result = found.get(f"{verb} json {dtype} {name}")
                if result is not None:
                    ratio = result.timing(rival).median / result.timing(OURS).median
                    yield target(
                        f"{result.name}: {OURS} over {rival}",
                        ratio,
                        needed if needed > 1 else noise,
                    )
