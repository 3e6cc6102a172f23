"""tf.io without TensorFlow: the same names, arguments and meaning.

Results are arrays and bytes, so `.numpy()` is dropped: a string tensor is an object array of bytes,
a string scalar is bytes. dtypes are tf.DType, NumPy dtypes or names, and `name=` is ignored.
Symbolic tensors, as inside `tf.function` or `Dataset.map`, raise EncodeError: use `tf.io` there.
Decoding is strict; `tf_compat=True` accepts whatever TensorFlow accepts.

>>> import tensorwire as tw
>>> tw.io.parse_tensor(tw.io.serialize_tensor([1.0, 2.0]), "float32")
array([1., 2.], dtype=float32)
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .._optional import lazily

if TYPE_CHECKING:
    from .examples import parse_example, parse_single_example
    from .features import (
        FixedLenFeature,
        FixedLenSequenceFeature,
        RaggedFeature,
        SparseFeature,
        VarLenFeature,
    )
    from .records import TFRecordOptions, TFRecordWriter, tf_record_iterator
    from .sequences import parse_sequence_example, parse_single_sequence_example
    from .strings import decode_base64, decode_raw, encode_base64
    from .tensors import (
        deserialize_many_sparse,
        parse_sparse,
        parse_tensor,
        serialize_many_sparse,
        serialize_sparse,
        serialize_tensor,
    )

_HOME = {
    "examples": "parse_example parse_single_example",
    "features": "FixedLenFeature FixedLenSequenceFeature RaggedFeature SparseFeature VarLenFeature",
    "records": "TFRecordOptions TFRecordWriter tf_record_iterator",
    "sequences": "parse_sequence_example parse_single_sequence_example",
    "strings": "decode_base64 decode_raw encode_base64",
    "tensors": (
        "deserialize_many_sparse parse_sparse parse_tensor serialize_many_sparse serialize_sparse"
        " serialize_tensor"
    ),
}
_WHERE = {name: module for module, names in _HOME.items() for name in names.split()}

__all__ = [
    "FixedLenFeature",
    "FixedLenSequenceFeature",
    "RaggedFeature",
    "SparseFeature",
    "TFRecordOptions",
    "TFRecordWriter",
    "VarLenFeature",
    "decode_base64",
    "decode_raw",
    "deserialize_many_sparse",
    "encode_base64",
    "parse_example",
    "parse_sequence_example",
    "parse_single_example",
    "parse_single_sequence_example",
    "parse_sparse",
    "parse_tensor",
    "serialize_many_sparse",
    "serialize_sparse",
    "serialize_tensor",
    "tf_record_iterator",
]

__getattr__, __dir__ = lazily(__name__, _WHERE)
