"""A predict call by REST, end to end on loopback: 16 MiB of float32 go to a model, and as many come
back, or one number for each row.

The server is `tensorwire serve` in a process of its own, the same for all: what it takes to read
the body, to run the model and to write the answer is in everyone's time. The others are what people
write: `requests` with the standard library's JSON, and with orjson. Everyone ends with a float32
array, and all of them are proved equal before anyone is timed.
"""

from __future__ import annotations

import atexit
import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import numpy as np
import orjson
import requests
from tensorwire.timing import Contender
from tensorwire.ways import WrongResult

from tensorwire.serving import Client

Array = np.ndarray[Any, Any]

SHAPE = (4096, 1024)
MODELS = {"double": "as many come back", "sum": "a sum of each row comes back"}
OURS, STANDARD, ORJSON = "tensorwire, REST", "requests, json.dumps(x.tolist())", "requests, orjson"
NEEDED = 5.0
_EXPORT = """
import sys
import tensorflow as tf
import tensorwire as tw
spec = {"x": ("float32", [None, 1024])}
tw.serving.export(lambda x: {"y": x * 2}, sys.argv[1] + "/double", spec, version=1)
tw.serving.export(lambda x: {"y": tf.reduce_sum(x, 1)}, sys.argv[1] + "/sum", spec, version=1)
"""


@cache
def _url() -> str:
    folder = tempfile.mkdtemp()
    subprocess.run([sys.executable, "-c", _EXPORT, folder], check=True, stderr=subprocess.DEVNULL)
    command = [
        sys.executable,
        "-m",
        "tensorwire",
        "serve",
        f"{folder}/double",
        f"{folder}/sum",
        "--rest",
        "0",
        "--grpc",
        "none",
        "--json",
    ]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    atexit.register(process.kill)
    assert process.stdout is not None
    return str(json.loads(process.stdout.readline())["rest"])


def contenders(model: str) -> list[Contender]:
    x = np.random.default_rng(11).random(SHAPE, np.float32)
    target, client, session = (
        f"{_url()}/v1/models/{model}:predict",
        Client(_url(), model=model),
        requests.Session(),
    )
    asked = {"headers": {"Content-Type": "application/json"}, "timeout": 60}
    theirs = {
        "x": x,
        "post": session.post,
        "url": target,
        "asked": asked,
        "array": np.array,
        "float32": np.float32,
    }
    written = {"dumps": orjson.dumps, "loads": orjson.loads, "NUMPY": orjson.OPT_SERIALIZE_NUMPY}
    standard = (
        'array(post(url, data=dumps({"instances": x.tolist()}), **asked).json()["predictions"],'
        " float32)"
    )
    quick = (
        'array(loads(post(url, data=dumps({"instances": x}, option=NUMPY),'
        ' **asked).content)["predictions"], float32)'
    )
    found = [
        Contender(OURS, 'client.predict({"x": x})["y"]', {"client": client, "x": x}, "ours"),
        Contender(STANDARD, standard, {**theirs, "dumps": json.dumps}),
        Contender(ORJSON, quick, {**theirs, **written}),
    ]
    answers = [eval(one.statement, dict(one.names)) for one in found]
    if not all(np.array_equal(answers[0], other) for other in answers[1:]):
        raise WrongResult("the answers differ")
    return found


def cases(case: Callable[..., Any], rounds: int) -> Iterator[Any]:
    """`case` is `cases.Case`."""
    for model, what in MODELS.items():
        about = (
            "a predict call by REST on loopback to a model in `tensorwire serve`, float32"
            f" {list(SHAPE)}; {what}"
        )
        yield case(
            f"serving call, REST, {model}", about, lambda model=model: contenders(model), rounds
        )  # type: ignore[misc]


def targets(found: dict[str, Any], target: Callable[..., Any]) -> Iterator[Any]:
    """`found` are the results by name, `target` is `targets.Target`."""
    for model in MODELS:
        result = found.get(f"serving call, REST, {model}")
        if result is not None:
            yield target(
                f"{result.name}: {OURS} over {STANDARD}",
                result.timing(STANDARD).median / result.timing(OURS).median,
                NEEDED,
            )
