"""The ways for one dense tensor: ours, the rivals', and the floor under all of them.

Everyone reads back what its own `dumps` gave, in the form that it gave it (pyarrow its Buffer,
tenso its memoryview), and is called the cheapest way its documentation shows.
"""

from __future__ import annotations

import io
import os
import pickle
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import msgpack
import msgpack_numpy
import numpy as np
import pyarrow as pa
import safetensors.numpy
import tenso
import tensorflow as tf
from tensorflow.core.framework import tensor_pb2
from tensorwire.ways import Way

import tensorwire as tw
from tensorwire import handmade

Array = np.ndarray[Any, Any]

OURS = "tensorwire tensorproto"
OURS_SAFETENSORS = "tensorwire safetensors"
TENSORFLOW = "TensorFlow, bare op"
TOBYTES = "x.tobytes()"


def _npy_dumps(x: Array) -> bytes:
    out = io.BytesIO()
    np.save(out, x, allow_pickle=False)
    return out.getvalue()


def _npy_loads(blob: bytes) -> Array:
    found: Array = np.load(io.BytesIO(blob), allow_pickle=False)
    return found


def _arrow_dumps(x: Array) -> Any:
    out = pa.BufferOutputStream()
    pa.ipc.write_tensor(pa.Tensor.from_numpy(x), out)
    return out.getvalue()


def _protobuf_dumps(x: Array) -> bytes:
    """What tf.make_tensor_proto(x).SerializeToString() does, without its checks."""
    message = tensor_pb2.TensorProto(dtype=handmade.ENUMS[x.dtype], tensor_content=x.tobytes())
    for dim in x.shape:
        message.tensor_shape.dim.add(size=dim)
    found: bytes = message.SerializeToString()
    return found


def _protobuf_loads(blob: bytes) -> Array:
    message = tensor_pb2.TensorProto.FromString(blob)
    shape = [dim.size for dim in message.tensor_shape.dim]
    return np.frombuffer(message.tensor_content, handmade.DTYPES[message.dtype]).reshape(shape)


def ours() -> list[Way]:
    names = {"tw_dumps": tw.dumps, "tw_loads": tw.loads}
    return [
        Way(OURS, 'tw_dumps(x, "tensorproto")', "tw_loads(blob)", names, role="ours"),
        Way(OURS_SAFETENSORS, "tw_dumps(x)", "tw_loads(blob)", names, role="ours"),
    ]


def tensorflow() -> list[Way]:
    """TensorFlow, once as its op alone, eager tensor to eager tensor, and once as a caller with
    arrays and bytes meets it.
    """
    names = {
        "serialize_tensor": tf.io.serialize_tensor,
        "parse_tensor": tf.io.parse_tensor,
        "float32": tf.float32,
    }
    told = "must be told the dtype"
    return [
        Way(
            TENSORFLOW,
            "serialize_tensor(x)",
            "parse_tensor(blob, float32)",
            names,
            prepare=tf.constant,
            restore=lambda tensor: tensor.numpy(),
            self_describing=False,
            note=told,
        ),
        Way(
            "TensorFlow, NumPy and bytes",
            "serialize_tensor(x).numpy()",
            "parse_tensor(blob, float32).numpy()",
            names,
            self_describing=False,
            note=told,
        ),
    ]


def libraries() -> list[Way]:
    """The self-describing rivals."""
    return [
        Way(
            "npy",
            "npy_dumps(x)",
            "npy_loads(blob)",
            {"npy_dumps": _npy_dumps, "npy_loads": _npy_loads},
        ),
        Way(
            "pickle 5",
            "pickle_dumps(x, 5)",
            "pickle_loads(blob)",
            {"pickle_dumps": pickle.dumps, "pickle_loads": pickle.loads},
        ),
        Way(
            "pyarrow tensor",
            "arrow_dumps(x)",
            "read_tensor(blob).to_numpy()",
            {"arrow_dumps": _arrow_dumps, "read_tensor": pa.ipc.read_tensor},
        ),
        Way(
            "msgpack-numpy",
            "packb(x, default=encode)",
            "unpackb(blob, object_hook=decode)",
            {
                "packb": msgpack.packb,
                "unpackb": msgpack.unpackb,
                "encode": msgpack_numpy.encode,
                "decode": msgpack_numpy.decode,
            },
        ),
        Way(
            "tenso",
            "tenso_dumps(x)",
            "tenso_loads(blob)",
            {"tenso_dumps": tenso.dumps, "tenso_loads": tenso.loads},
        ),
        Way(
            "safetensors",
            'save({"x": x})',
            'load(blob)["x"]',
            {"save": safetensors.numpy.save, "load": safetensors.numpy.load},
        ),
        Way(
            "protobuf by hand",
            "by_hand(x)",
            "from_hand(blob)",
            {"by_hand": handmade.dumps, "from_hand": handmade.loads},
        ),
        Way(
            "protobuf runtime",
            "pb_dumps(x)",
            "pb_loads(blob)",
            {"pb_dumps": _protobuf_dumps, "pb_loads": _protobuf_loads},
        ),
    ]


def floor() -> list[Way]:
    """Bytes that say nothing of what they are: nobody can be faster and useful."""
    names = {"frombuffer": np.frombuffer, "float32": np.float32}
    return [
        Way(
            TOBYTES,
            "x.tobytes()",
            "frombuffer(blob, float32)",
            names,
            role="floor",
            self_describing=False,
        )
    ]
