"""Promises under bad bytes: sweeps over every flip and cut of control files, bounded memory,
bounded time.
"""

import subprocess
import sys
import time

import numpy as np
import pytest

import tensorwire as tw
from support.tiers import TESTS

CONTROL = {
    "dense": (np.arange(6, dtype=np.float32).reshape(2, 3), "tensorproto"),
    "strings": (tw.Strings.of([b"a", b"", b"ccc"]), "tensorproto"),
    "nested": ({"a": [np.arange(3), "x"], "r": tw.Ragged.of([[1], []])}, "tensorproto"),
    "sparse": (tw.Sparse([[0, 1]], np.float32([2]), (2, 2)), "safetensors"),
    "bundle": (tw.Bundle({"w": np.ones(2, np.float16)}, {"m": "1"}), "safetensors"),
}


@pytest.mark.parametrize("name", CONTROL)
def test_every_flip_and_every_cut(name):
    """A value or a DecodeError with format and place; nothing else, and never slow."""
    value, format = CONTROL[name]
    blob = tw.dumps(value, format)
    start = time.perf_counter()
    for at in range(len(blob)):
        cases = [
            blob[:at],
            *(blob[:at] + bytes([blob[at] ^ 1 << bit]) + blob[at + 1 :] for bit in range(8)),
        ]
        for damaged in cases:
            for given in (format, None):
                try:
                    tw.loads(damaged, given)
                except (tw.DecodeError, tw.UnknownFormatError) as error:
                    assert given is None or (
                        error.format == format and 0 <= error.offset <= len(damaged)
                    )
    assert time.perf_counter() - start < 60


@pytest.mark.parametrize("name", CONTROL)
def test_cuts_are_errors(name):
    """With one exception, which is TensorProto's: a string tensor cut after its first string says
    that all strings are that one.
    """
    value, format = CONTROL[name]
    blob, passed = tw.dumps(value, format), []
    for at in range(len(blob)):
        try:
            passed.append(tw.loads(blob[:at]))
        except (tw.DecodeError, tw.UnknownFormatError):
            pass
    assert [found.tolist() for found in passed] == (
        [[b"a", b"a", b"a"]] if name == "strings" else []
    )


BOMBS = """
import resource, sys
import numpy as np, tensorwire as tw
sys.path.insert(0, {tests!r})
from support.protos import block, field, shape_field, varint
def proto(enum, dims, *parts):
    return field(1, 0, varint(enum)) + shape_field(dims) + b"".join(parts)
tw.loads(tw.dumps([np.zeros(2)], "tensorproto")); tw.loads(tw.dumps(np.zeros(2)))
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
bombs = [
    proto(1, [1 << 29], block(5, bytes(4))),                        # a splat of 2 GB
    proto(7, [1 << 28], block(8, b"x")),                            # strings repeated
    proto(7, [1 << 60], block(4, b"\\x01")),                        # lengths that are not there
    proto(3, [1 << 40], block(7, b"\\x01")),
    proto(9, [1 << 33], block(4, b"")),
    proto(21, [1 << 40], block(4, b"\\x01x")),                      # a vector of variants
    field(1, 0, varint(7)) + shape_field([1 << 40], ["tensorwire/1"]) + block(8, b"{{}}"),
    (10**8).to_bytes(8, "little") + b"{{",                          # a header that is not there
    tw.dumps([np.zeros(1)]).replace(b'{{\\\\"list\\\\":1}}', b'{{\\\\"list\\\\":9' + b"9" * 10 + b"}}").replace(b" " * 10, b"", 1),
]
refused = 0
for bomb in bombs:
    for options in ({{}}, {{"format": "tensorproto", "tf_compat": True}}):
        try:
            tw.loads(bomb, **options)
        except tw.DecodeError:
            refused += 1
print(refused, (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024)
"""


def test_bombs_cost_little_memory():
    """Claims of gigabytes in a few bytes are refused, with at most 64 MB of extra memory."""
    code = BOMBS.format(tests=str(TESTS))
    refused, extra = map(
        int,
        subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True
        ).stdout.split(),
    )
    assert refused == 18 and extra <= 64
