"""Bodies for TensorFlow Serving's REST: a predict request built, and its answer read, without any
network.

Everyone starts from the same array in memory and ends with bytes that Serving takes, or with a
float32 array. Ours goes by the model's signature, which checks dtype and shape on the way. Each
body is proved to say the very same numbers before anyone is timed.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import numpy as np
import orjson
from tensorwire.timing import Contender
from tensorwire.ways import WrongResult

from tensorwire.serving import rest
from tensorwire.serving.signature import Signature

Array = np.ndarray[Any, Any]

SHAPE = (4096, 1024)
"""16 MiB of float32, as one batch."""
OURS, OURS_COLUMNS = "tensorwire, by rows", "tensorwire, by columns"
STANDARD, ORJSON = "json of the standard library", "orjson"
VERBS = ("request", "answer")
NEEDED = (("request", OURS, STANDARD, 20.0), ("request", OURS_COLUMNS, STANDARD, 20.0))
"""How many times as fast as whom. Of reading answers nothing was promised."""


def contenders(shape: tuple[int, int] = SHAPE) -> dict[str, list[Contender]]:
    """`request` and `answer`, of numbers between 0 and 1."""
    x = np.random.default_rng(11).random(shape, np.float32)
    signature = Signature.given(
        {"x": ("float32", [None, shape[1]])}, {"y": ("float32", [None, shape[1]])}
    )
    ours = {"x": x, "signature": signature, "build": rest.build, "parse_answer": rest.parse_answer}
    names = {
        "x": x,
        "dumps": json.dumps,
        "loads": json.loads,
        "array": np.array,
        "float32": np.float32,
    }
    numpy = {
        "x": x,
        "orjson_dumps": orjson.dumps,
        "NUMPY": orjson.OPT_SERIALIZE_NUMPY,
        "orjson_loads": orjson.loads,
        "array": np.array,
    }
    answer = b"".join(rest.build_answer({"y": x}, "rows"))
    nan = "NaN becomes null, which Serving refuses" if orjson.dumps(float("nan")) == b"null" else ""
    found = {
        "request": [
            Contender(OURS, 'build({"x": x}, signature, layout="rows")', ours, "ours"),
            Contender(OURS_COLUMNS, 'build({"x": x}, signature, layout="columns")', ours, "ours"),
            Contender(ORJSON, 'orjson_dumps({"instances": x}, option=NUMPY)', numpy, note=nan),
            Contender(STANDARD, 'dumps({"instances": x.tolist()}).encode()', names),
        ],
        "answer": [
            Contender(OURS, "parse_answer(body, signature)", {**ours, "body": answer}, "ours"),
            Contender(
                ORJSON,
                'array(orjson_loads(body)["predictions"], dtype="float32")',
                {**numpy, "body": answer},
                note="refuses NaN",
            ),
            Contender(
                STANDARD,
                'array(loads(body)["predictions"], dtype=float32)',
                {**names, "body": answer},
            ),
        ],
    }
    for one in found["request"]:
        _check_request(one, x)
    for one in found["answer"]:
        back = eval(one.statement, dict(one.names))
        _check_same(one, back["y"] if isinstance(back, dict) else back, x)
    return found


def _check_request(one: Contender, x: Array) -> None:
    made = eval(one.statement, dict(one.names))
    body = json.loads(b"".join(made) if isinstance(made, list) else made)
    _check_same(
        one, np.array(body["inputs"]["x"] if "inputs" in body else body["instances"], np.float32), x
    )


def _check_same(one: Contender, back: Array, x: Array) -> None:
    if back.dtype != x.dtype or back.shape != x.shape or not np.array_equal(back, x):
        raise WrongResult(f"{one.name} says other numbers")


def cases(case: Callable[..., Any], rounds: int) -> Iterator[Any]:
    """`case` is `cases.Case`."""
    proved = cache(contenders)
    what = {
        "request": f"the body of a predict request with float32 {list(SHAPE)}",
        "answer": "the body of the answer to an array",
    }
    for verb in VERBS:
        yield case(
            f"serving {verb}", f"{verb}: {what[verb]}", lambda verb=verb: proved()[verb], rounds
        )  # type: ignore[misc]


def targets(found: dict[str, Any], target: Callable[..., Any]) -> Iterator[Any]:
    """`found` are the results by name, `target` is `targets.Target`."""
    for verb, ours, rival, needed in NEEDED:
        result = found.get(f"serving {verb}")
        if result is not None:
            yield target(
                f"{result.name}: {ours} over {rival}",
                result.timing(rival).median / result.timing(ours).median,
                needed,
            )
