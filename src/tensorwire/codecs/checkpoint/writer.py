"""Checkpoint writer: writes the data files first and the index last, which publishes them.

A crash at any moment leaves either the old checkpoint or the new one:

1. New data files get names that no file at the prefix has, by another total in their names
   (`-of-00002`).
2. The new index replaces the old one atomically.
3. Data files with any other total in their names are removed. That includes those of writers that
   were killed.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from typing import Any

from ... import frameworks, storage
from ..._errors import DecodeError, EncodeError, TensorwireError
from ..._limits import DEFAULT
from ...core.quantized import Quantized
from ...core.tensors import Ragged, Sparse, Strings
from ...storage import files
from ...storage.generation import Generation
from ...wire import leveldb
from .data import data_path, index_path
from .entries import FORMAT, read_index
from .layout import Layout, header
from .names import key_of


class Writer:
    """Writes a checkpoint one tensor at a time, so that only one needs to be in memory.

    The checkpoint appears when the writer is closed. As a context manager, it leaves no files if
    the block raises.

    `prefix` is the path without `.index`. With `graph=True` names become paths through an object
    graph, which `tf.train.Checkpoint` restores; `graph=False` stores plain names, as TensorFlow 1
    does. `durable` waits until the files are on disk. `shards` is the number of data files. By
    default it is the smallest one that no checkpoint at the prefix uses, so that old and new files
    never mix.

    >>> import tensorwire as tw
    >>> from tensorwire import checkpoint
    >>> import os, tempfile
    >>> folder = tempfile.mkdtemp()
    >>> with checkpoint.Writer(f"{folder}/model.ckpt-1") as writer:
    ...     writer.add("net/kernel", tw.tensor([[1.0, 2.0]]))
    >>> sorted(os.listdir(folder))
    ['model.ckpt-1.data-00000-of-00001', 'model.ckpt-1.index']
    """

    def __init__(
        self,
        prefix: str | os.PathLike[str],
        *,
        graph: bool = True,
        durable: bool = True,
        shards: int | None = None,
    ) -> None:
        self.prefix = os.fspath(prefix)
        self._graph, self._durable = graph, durable
        self._layout = Layout()
        self._shards = shards if shards is not None else free_shards(self.prefix)
        self._generation = Generation(index_path(self.prefix), durable)
        self._fd = self._generation.member(data_path(self.prefix, 0, self._shards))
        self._open = True
        self.spec: bytes | None = None
        """The spec of the value (`bundle.spec_of`), if names and tensors do not describe it."""

    def add(self, name: str, tensor: Any) -> None:
        """Writes a tensor to the data file.

        The tensor is an array of any framework, or strings. Raises EncodeError for kinds that take
        several arrays (sparse, ragged, quantized), for an invalid name, and for a name that was
        added before.
        """
        if not self._open:
            raise ValueError(f"the writer of {self.prefix} is closed")
        leaf = frameworks.leaf(tensor)
        if isinstance(leaf, (Sparse, Ragged, Quantized, list)):
            why = f"a {type(leaf).__name__} takes several arrays, but a writer adds one array"
            raise EncodeError(
                why, format=FORMAT, tensor=name, path=self.prefix, hint="use tw.save instead"
            )
        array = leaf if isinstance(leaf, Strings) else frameworks.layout(leaf)
        try:
            files.write_vector(
                self._fd, self._layout.add(key_of(name) if self._graph else name, array)
            )
        except TensorwireError as error:
            raise error.add(path=self.prefix) from None

    def close(self) -> None:
        """Writes the index, which publishes the checkpoint. Closing twice is allowed."""
        if not self._open:
            return
        self._open = False
        with self._generation as generation:
            files.write_vector(self._fd, self._layout.finish(self._graph, self.spec))
            for shard in range(1, self._shards):
                generation.member(data_path(self.prefix, shard, self._shards))
            _publish(generation, self.prefix, self._shards, self._layout.index(self._shards))

    @property
    def paths(self) -> list[str]:
        """The files of the checkpoint, the index first."""
        return [
            index_path(self.prefix),
            *(data_path(self.prefix, shard, self._shards) for shard in range(self._shards)),
        ]

    def __enter__(self) -> Writer:
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        if kind is None:
            self.close()
        elif self._open:
            self._open = False
            self._generation.__exit__(kind, error, trace)


def write_files(prefix: str, chunks: Sequence[Any], durable: bool = True) -> None:
    """Writes the files of a checkpoint from chunks: the data files, then the index."""
    index = bytes(chunks[-1])
    entries = read_index(index, DEFAULT)
    ends, shards = entries.ends(), free_shards(prefix, entries.shards)
    if shards != entries.shards:
        index = leveldb.write(
            [(key, header(shards) if not key else value) for key, value in leveldb.items(index)]
        )
    rest = list(chunks[:-1])
    with Generation(index_path(prefix), durable) as generation:
        for shard in range(shards):
            fd, size = generation.member(data_path(prefix, shard, shards)), 0
            while size < ends.get(shard, 0):
                size += len(rest[0])
                files.write_vector(fd, [rest.pop(0)])
        _publish(generation, prefix, shards, index)


def _publish(generation: Generation, prefix: str, shards: int, index: bytes) -> None:
    generation.publish(
        [index],
        lambda: [path for path in data_files(prefix) if _shards_in(path) != shards],
    )


def free_shards(prefix: str, least: int = 1) -> int:
    """Returns the smallest unused number of data files at a prefix or URL, from `least` on."""
    taken = {_shards_in(path) for path in data_files(prefix)} | {_shards_of(prefix)}
    return next(shards for shards in range(least, least + len(taken) + 1) if shards not in taken)


def data_files(prefix: str) -> list[str]:
    """Returns all data files at a prefix or URL, including those of older checkpoints."""
    folder, slash, stem = prefix.rpartition("/")
    name_of = re.compile(re.escape(stem) + r"\.data-\d{5,}-of-\d{5,}", re.ASCII)
    names = sorted(storage.names_within(folder + slash, ""))
    return [f"{folder}{slash}{name}" for name in names if name_of.fullmatch(name)]


def _shards_in(path: str) -> int:
    """Returns the total number of data files that is part of a data file's name."""
    return int(path.rpartition("-")[2])


def _shards_of(prefix: str) -> int | None:
    """Returns the number of data files by the index at a prefix; None without a readable index."""
    try:
        return read_index(storage.read_bytes(index_path(prefix), _LARGEST_INDEX), DEFAULT).shards
    except (FileNotFoundError, DecodeError):
        return None


_LARGEST_INDEX = 1 << 32
