"""Ray Data datasets from record files and back, decoded by the workers without TensorFlow.

    import tensorwire.ray

    dataset = tensorwire.ray.read_examples("s3://bucket/train-*.tfrecord", columns=["label"])
    kept = dataset.filter(expr="label > 0")
    tensorwire.ray.write_examples(kept, "s3://bucket/kept.tfrecord", shards=64)

Columns are Arrow arrays. If a worker dies, Ray runs its task again. A shard is either complete or
absent, and a repeated task writes it under the same name.
"""

from __future__ import annotations

from .reading import ExampleSource, read_examples
from .writing import ExampleTarget, write_examples

__all__ = ["ExampleSource", "ExampleTarget", "read_examples", "write_examples"]
