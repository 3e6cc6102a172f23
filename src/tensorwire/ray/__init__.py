"""Record files as datasets of Ray Data, and back: columns in Arrow's memory, decoded by the
workers, without TensorFlow.

    import tensorwire.ray

    dataset = tensorwire.ray.read_examples("s3://bucket/train-*.tfrecord", columns=["image", "label"])
    tensorwire.ray.write_examples(dataset.filter(expr="label > 0"), "s3://bucket/kept.tfrecord", shards=64)

A worker that dies is replaced by Ray, and what it did is done again: a shard is there whole or not
at all, under the same name.
"""

from __future__ import annotations

from .reading import ExampleSource, read_examples
from .writing import ExampleTarget, write_examples

__all__ = ["ExampleSource", "ExampleTarget", "read_examples", "write_examples"]
