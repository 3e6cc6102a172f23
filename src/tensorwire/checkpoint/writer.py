"""Writing the files of a checkpoint: data first, the index last, which is what makes it one.

Each file takes its name only when it is whole. A checkpoint that is replaced keeps its data files until the new index is there. The new
ones are told apart by another number of data files in their names, so a crash leaves the old checkpoint or the new one, nothing between.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from typing import Any

from .. import files, frameworks
from .._errors import DecodeError, EncodeError, TensorwireError
from .._limits import DEFAULT
from ..quantized import Quantized
from ..tensors import Ragged, Sparse, Strings
from ..wire import table
from .data import data_path, index_path
from .entries import FORMAT, read_index
from .layout import Layout, header
from .names import key_of


class Writer:
    """A checkpoint, one tensor at a time: what was added need not be kept in memory. Nothing can be seen before it is closed.

    Names become ways through an object graph, as `tf.train.Checkpoint` has them; `graph=False` stores them as they are, as TensorFlow 1
    does. Arrays of any framework are taken, and strings; other kinds are for `tw.save`.

    >>> import tempfile, numpy as np
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with Writer(f"{folder}/model.ckpt-1") as writer:
    ...         writer.add("net/kernel", np.zeros((2, 3), np.float32))
    ...     sorted(os.listdir(folder))
    ['model.ckpt-1.data-00000-of-00001', 'model.ckpt-1.index']
    """

    def __init__(self, prefix: str | os.PathLike[str], *, graph: bool = True, durable: bool = True) -> None:
        self.prefix = os.fspath(prefix)
        self._graph, self._durable = graph, durable
        self._layout = Layout()
        self._old = _shards_of(self.prefix)
        self._shards = 2 if self._old == 1 else 1
        self._stack = contextlib.ExitStack()
        self._fd = self._stack.enter_context(files.replacing(data_path(self.prefix, 0, self._shards), durable))
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
            files.write_vector(self._fd, self._layout.add(key_of(name) if self._graph else name, array))
        except TensorwireError as error:
            raise error.add(path=self.prefix) from None

    def close(self) -> None:
        """Makes the checkpoint appear."""
        if not self._open:
            return
        self._open = False
        with self._stack:  # after an error the data file is gone
            files.write_vector(self._fd, self._layout.finish(self._graph, self.spec))
        for shard in range(1, self._shards):
            files.replace(data_path(self.prefix, shard, self._shards), [], self._durable)
        _publish(self.prefix, self._layout.index(self._shards), self._old, self._shards, self._durable)

    def __enter__(self) -> Writer:
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        if kind is None:
            self.close()
        elif self._open:
            self._open = False
            self._stack.__exit__(kind, error, trace)


def write_files(prefix: str, chunks: Sequence[Any], durable: bool = True) -> None:
    """The files of a checkpoint from its joined form: the data files, then the index as the last chunk."""
    index = bytes(chunks[-1])
    entries = read_index(index, DEFAULT)
    ends, old = entries.ends(), _shards_of(prefix)
    shards = entries.shards + (entries.shards == old)
    if shards != entries.shards:
        index = table.write([(key, header(shards) if not key else value) for key, value in table.items(index)])
    rest = list(chunks[:-1])
    for shard in range(shards):
        mine, size = [], 0
        while size < ends.get(shard, 0):
            mine.append(rest.pop(0))
            size += len(mine[-1])
        files.replace(data_path(prefix, shard, shards), mine, durable)
    _publish(prefix, index, old, shards, durable)


def _publish(prefix: str, index: bytes, old: int | None, shards: int, durable: bool) -> None:
    """The index takes its place, and the data files of the one before are removed."""
    files.replace(index_path(prefix), [index], durable)
    for shard in range(old if old is not None and old != shards else 0):
        with contextlib.suppress(FileNotFoundError):
            os.unlink(data_path(prefix, shard, old or 0))


def _shards_of(prefix: str) -> int | None:
    """How many data files the checkpoint has that is there now; None if there is none that could be read."""
    try:
        with open(index_path(prefix), "rb") as file:
            return read_index(file.read(), DEFAULT).shards
    except (FileNotFoundError, DecodeError):
        return None
