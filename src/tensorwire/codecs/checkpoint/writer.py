"""Writing the files of a checkpoint: data first, the index last, which is what makes it one.

A crash at any moment leaves the old checkpoint or the new one:

1. The new data files get names that no file at the prefix has: another number of data files
(`-of-00002`).
2. The new index replaces the old one in one step.
3. Data files with any other number in their names are removed, those of killed writers too.
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
    """A checkpoint, one tensor at a time: what was added need not be kept in memory. Nothing can be
    seen before it is closed.

    Names become ways through an object graph, as `tf.train.Checkpoint` has them; `graph=False`
    stores them as they are, as TensorFlow 1 does. Arrays of any framework are taken, and strings;
    other kinds are for `tw.save`.

    A checkpoint that replaces another one gets data files of a count that is free (`-of-00002`), so
    that the two never mix; `shards` asks for a count.

    >>> import tempfile, numpy as np
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with Writer(f"{folder}/model.ckpt-1") as writer:
    ...         writer.add("net/kernel", np.zeros((2, 3), np.float32))
    ...     sorted(os.listdir(folder))
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
        """What names and tensors alone do not say (`bundle.spec_of`), set before it is closed."""

    def add(self, name: str, tensor: Any) -> None:
        """Writes a tensor to the data file."""
        if not self._open:
            raise ValueError(f"the writer of {self.prefix} is closed")
        found = frameworks.leaf(tensor)
        if isinstance(found, (Sparse, Ragged, Quantized, list)):
            why = f"a {type(found).__name__} tensor is several arrays; tw.save writes any value"
            raise EncodeError(why, format=FORMAT, tensor=name, path=self.prefix)
        array = found if isinstance(found, Strings) else frameworks.layout(found)
        try:
            files.write_vector(
                self._fd, self._layout.add(key_of(name) if self._graph else name, array)
            )
        except TensorwireError as error:
            raise error.add(path=self.prefix) from None

    def close(self) -> None:
        """Makes the checkpoint appear."""
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
    """The files of a checkpoint from its joined form: the data files, then the index as the last
    chunk.
    """
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
    """The smallest number of data files, from `least` on, that no file of a checkpoint at this
    prefix or URL has.
    """
    taken = {_shards_in(path) for path in data_files(prefix)} | {_shards_of(prefix)}
    return next(shards for shards in range(least, least + len(taken) + 1) if shards not in taken)


def data_files(prefix: str) -> list[str]:
    """The data files at a prefix or URL, of any checkpoint that was ever written there."""
    folder, slash, stem = prefix.rpartition("/")
    name_of = re.compile(re.escape(stem) + r"\.data-\d{5,}-of-\d{5,}", re.ASCII)
    names = sorted(storage.names_within(folder + slash, ""))
    return [f"{folder}{slash}{name}" for name in names if name_of.fullmatch(name)]


def _shards_in(path: str) -> int:
    """The number of data files that the name of one says."""
    return int(path.rpartition("-")[2])


def _shards_of(prefix: str) -> int | None:
    """The number of data files that the index at a prefix says.

    None if there is none that can be read.
    """
    try:
        return read_index(storage.read_bytes(index_path(prefix), _LARGEST_INDEX), DEFAULT).shards
    except (FileNotFoundError, DecodeError):
        return None


_LARGEST_INDEX = 1 << 32
