"""The ways for what is not one dense tensor: many small ones, strings, sparse tensors.

Each library starts from its own object and ends at it; what it costs to get there from ours is not
timed.
"""

from __future__ import annotations

import io
import pickle
from dataclasses import replace
from typing import Any

import msgpack
import msgpack_numpy
import numpy as np
import pyarrow as pa
import safetensors.numpy
import tenso
import tensorflow as tf
from tensorwire.rivals import OURS, OURS_SAFETENSORS, TENSORFLOW
from tensorwire.ways import Way, WrongResult, dense_differences

import tensorwire as tw

OURS_NAMES = {"tw_dumps": tw.dumps, "tw_loads": tw.loads, "Strings": tw.Strings}
PICKLE_NAMES = {"pickle_dumps": pickle.dumps, "pickle_loads": pickle.loads}
MSGPACK_NAMES = {
    "packb": msgpack.packb,
    "unpackb": msgpack.unpackb,
    "encode": msgpack_numpy.encode,
    "decode": msgpack_numpy.decode,
}


def one_by_one(way: Way) -> Way:
    """A way for one tensor, over a list of them."""
    return replace(
        way,
        dumps=f"[{way.dumps} for x in x]",
        loads=f"[{way.loads} for blob in blob]",
        prepare=lambda items: [way.prepare(item) for item in items],
        restore=lambda items: [way.restore(item) for item in items],
    )


def list_differences(given: list[Any], back: Any) -> str:
    if len(back) != len(given):
        raise WrongResult(f"{len(back)} tensors for {len(given)}")
    lost = {dense_differences(one, other) for one, other in zip(given, back, strict=True)}
    return ", ".join(sorted(lost - {""}))


def lists() -> list[Way]:
    """A list of tensors as one value."""
    return [
        Way(OURS, 'tw_dumps(x, "tensorproto")', "tw_loads(blob)", OURS_NAMES, role="ours"),
        Way(OURS_SAFETENSORS, "tw_dumps(x)", "tw_loads(blob)", OURS_NAMES, role="ours"),
        Way("pickle 5", "pickle_dumps(x, 5)", "pickle_loads(blob)", PICKLE_NAMES),
        Way(
            "msgpack-numpy",
            "packb(x, default=encode)",
            "unpackb(blob, object_hook=decode)",
            MSGPACK_NAMES,
        ),
        Way(
            "safetensors",
            "save({str(i): item for i, item in enumerate(x)})",
            "(lambda found: [found[str(i)] for i in range(len(found))])(load(blob))",
            {"save": safetensors.numpy.save, "load": safetensors.numpy.load},
            note="a dict of names, not a list",
        ),
    ]


def _arrow_dumps(batch: Any) -> Any:
    out = pa.BufferOutputStream()
    with pa.ipc.new_stream(out, batch.schema) as writer:
        writer.write_batch(batch)
    return out.getvalue()


def _arrow_loads(blob: Any) -> Any:
    return pa.ipc.open_stream(blob).read_next_batch()


def _arrow_checked(blob: Any) -> Any:
    batch = pa.ipc.open_stream(blob).read_next_batch()
    batch.validate(full=True)
    return batch


def strings() -> list[Way]:
    arrow: dict[str, Any] = {
        "arrow_dumps": _arrow_dumps,
        "arrow_loads": _arrow_loads,
        "arrow_checked": _arrow_checked,
    }
    make_batch: Any = lambda x: pa.record_batch([pa.array(x.tolist(), pa.binary())], ["x"])  # noqa: E731
    from_batch: Any = lambda batch: batch.column(0).to_pylist()  # noqa: E731
    no_shape = "loses the shape"
    return [
        Way(
            OURS,
            'tw_dumps(x, "tensorproto")',
            "tw_loads(blob)",
            OURS_NAMES,
            restore=tw.Strings.tolist,
            role="ours",
        ),
        Way(
            OURS_SAFETENSORS,
            "tw_dumps(x)",
            "tw_loads(blob)",
            OURS_NAMES,
            restore=tw.Strings.tolist,
            role="ours",
        ),
        Way(
            "tensorwire tensorproto, list of bytes",
            'tw_dumps(Strings.of(x), "tensorproto")',
            "tw_loads(blob).tolist()",
            OURS_NAMES,
            prepare=tw.Strings.tolist,
            role="ours",
        ),
        Way(
            TENSORFLOW,
            "serialize_tensor(x)",
            "parse_tensor(blob, string)",
            {
                "serialize_tensor": tf.io.serialize_tensor,
                "parse_tensor": tf.io.parse_tensor,
                "string": tf.string,
            },
            prepare=lambda x: tf.constant(x.tolist()),
            restore=lambda tensor: tensor.numpy().tolist(),
            self_describing=False,
            note="must be told the dtype",
        ),
        Way(
            "pyarrow binary",
            "arrow_dumps(x)",
            "arrow_loads(blob)",
            arrow,
            make_batch,
            from_batch,
            note="offsets not checked",
        ),
        Way(
            "pyarrow binary, checked",
            "arrow_dumps(x)",
            "arrow_checked(blob)",
            arrow,
            make_batch,
            from_batch,
        ),
        Way(
            "msgpack list",
            "packb(x)",
            "unpackb(blob)",
            MSGPACK_NAMES,
            prepare=tw.Strings.tolist,
            note=no_shape,
        ),
        Way(
            "pickle 5 list",
            "pickle_dumps(x, 5)",
            "pickle_loads(blob)",
            PICKLE_NAMES,
            prepare=tw.Strings.tolist,
            note=no_shape,
        ),
        Way(
            "tenso StringTensor",
            "x.dumps()",
            "tenso_loads(blob)",
            {"tenso_loads": tenso.StringTensor.loads},
            prepare=lambda x: tenso.StringTensor(x.tolist()),
            restore=lambda found: [item.encode() for item in found.to_list()],
            note="UTF-8 only, loses the shape",
        ),
    ]


def string_differences(given: tw.Strings, back: list[bytes]) -> str:
    if given.tolist() != back:
        raise WrongResult("other strings came back")
    return ""


def _npz_dumps(x: dict[str, Any]) -> bytes:
    out = io.BytesIO()
    np.savez(out, **x)
    return out.getvalue()


def _npz_loads(blob: bytes) -> dict[str, Any]:
    with np.load(io.BytesIO(blob)) as found:
        return {name: found[name] for name in found.files}


def _parts(x: tw.Sparse) -> dict[str, Any]:
    return {"indices": x.indices, "values": x.values, "dense_shape": x.dense_shape}


def _whole(parts: dict[str, Any]) -> tw.Sparse:
    return tw.Sparse(parts["indices"], parts["values"], parts["dense_shape"])


def sparse() -> list[Way]:
    mirror = {"serialize_sparse": tw.io.serialize_sparse, "parse_sparse": tw.io.parse_sparse}
    theirs = {
        "serialize_sparse": tf.io.serialize_sparse,
        "deserialize_many_sparse": tf.io.deserialize_many_sparse,
        "float32": tf.float32,
        "expand_dims": tf.expand_dims,
    }
    parts = "three arrays, not checked"
    return [
        Way("tensorwire io", "serialize_sparse(x)", "parse_sparse(blob)", mirror, role="ours"),
        Way(OURS, 'tw_dumps(x, "tensorproto")', "tw_loads(blob)", OURS_NAMES, role="ours"),
        Way(OURS_SAFETENSORS, "tw_dumps(x)", "tw_loads(blob)", OURS_NAMES, role="ours"),
        Way(
            TENSORFLOW,
            "serialize_sparse(x)",
            "deserialize_many_sparse(expand_dims(blob, 0), float32)",
            theirs,
            prepare=lambda x: tf.SparseTensor(x.indices, x.values, x.dense_shape),
            restore=lambda t: tw.Sparse(
                t.indices.numpy()[:, 1:], t.values.numpy(), t.dense_shape.numpy()[1:]
            ),
            self_describing=False,
            note="has no parse_sparse; deserialize_many_sparse of one adds a dimension",
        ),
        Way(
            "pickle 5",
            "pickle_dumps(x, 5)",
            "pickle_loads(blob)",
            PICKLE_NAMES,
            _parts,
            _whole,
            note=parts,
        ),
        Way(
            "npz",
            "npz_dumps(x)",
            "npz_loads(blob)",
            {"npz_dumps": _npz_dumps, "npz_loads": _npz_loads},
            _parts,
            _whole,
            note=parts,
        ),
        Way(
            "safetensors",
            "save(x)",
            "load(blob)",
            {"save": safetensors.numpy.save, "load": safetensors.numpy.load},
            _parts,
            _whole,
            note=parts,
        ),
    ]


def sparse_differences(given: tw.Sparse, back: tw.Sparse) -> str:
    if not tw.equal(given, back):
        raise WrongResult("another sparse tensor came back")
    return ""
