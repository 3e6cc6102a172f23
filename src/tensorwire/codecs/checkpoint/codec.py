"""The checkpoint format: TensorFlow's TensorBundle, PREFIX.index and PREFIX.data-00000-of-00001.

`lowering` splits a value into parts; strings and all dtypes of TensorFlow are stored natively.
Names become keys, connected by an object graph, so that `tf.train.Checkpoint` restores them. What a
TensorBundle cannot express (nesting, other kinds, Python values) is one JSON string under the key
`__tensorwire__`:

    {"version": 1, "spec": ..., "graph": true, "metadata": {...}}

As bytes a checkpoint is its data files, concatenated, and then its index: `cat PREFIX.data-*
PREFIX.index`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ... import lowering
from ..._errors import DecodeError, EncodeError
from ..._limits import DEFAULT, Limits
from ...core.memory import Buffer
from ...core.tensors import Bundle
from ...storage.files import BytesSource, Source
from ..container import Container
from ..protocol import Metadata, all_metadata
from .bundle import open_joined, open_prefix, says_it_all, spec_of
from .entries import FORMAT
from .layout import Layout, holds
from .names import key_of


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """The checkpoint codec: named tensors as TensorFlow stores variables.

    >>> import numpy as np
    >>> codec = Checkpoint()
    >>> codec.decode(memoryview(b"".join(codec.encode({"a": np.int8([1, 2]), "n": 3}))))
    {'a': array([1, 2], dtype=int8), 'n': 3}
    """

    graph: bool = True
    """Write an object graph, so that tf.train.Checkpoint can restore. False stores plain names, as
    TensorFlow 1 does.
    """
    shards: int = 1
    """The number of data files to write."""
    readable: bool = True
    """List readable names. False lists all stored keys, hidden ones included."""
    limits: Limits = DEFAULT

    def encode(self, value: Any, metadata: Metadata | None = None) -> list[Buffer]:
        """Returns the data files, without copying tensors, and the index as the last buffer."""
        if type(self.shards) is not int or not 0 < self.shards < 100_000:
            raise EncodeError(
                f"invalid number of data files {self.shards!r:.20}: use shards=1 to 99999",
                format=FORMAT,
            )
        spec, parts = lowering.lower(value, holds=holds, strings=True)
        texts = all_metadata(value, metadata)
        if isinstance(value, Bundle):
            # The metadata are stored beside the spec.
            spec.pop("metadata", None)
        names = lowering.names(spec, len(parts))
        keys = [key_of(name) if self.graph else name for name in names]
        layout, out = Layout(), []
        total, done = sum(part.nbytes for part in parts), 0
        for key, part in zip(keys, parts, strict=True):
            # Data files get about equal shares of the bytes.
            if (
                layout.used
                and done * self.shards >= total * (layout.shard + 1)
                and layout.shard + 1 < self.shards
            ):
                layout.next_shard()
            out += layout.add(key, part)
            done += part.nbytes
        saved = None if not texts and says_it_all(spec, keys) else spec_of(spec, texts, self.graph)
        return [*out, *layout.finish(self.graph, saved), layout.index(self.shards)]

    def decode(self, data: memoryview, copy: bool | None = None) -> Any:
        try:
            return self.open(BytesSource(data), copy).value()
        except DecodeError as error:
            raise error.add(format=FORMAT, offset=0) from None

    def open(self, source: Source, copy: bool | None = None) -> Container:
        """Opens a checkpoint in one run of bytes."""
        try:
            return open_joined(source, self.readable, copy, self.limits)
        except DecodeError as error:
            error.format = FORMAT
            raise error.add(offset=0) from None

    def open_files(self, prefix: str, mmap: bool) -> tuple[Source, Container]:
        """Opens a checkpoint by its prefix."""
        return open_prefix(prefix, mmap, self.readable, self.limits)
