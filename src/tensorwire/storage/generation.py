"""Generations: a set of files (members and an index that names them) that is replaced atomically.

1. Members are written to temporary files, and then get names that no file has (`if_absent`).
2. The index replaces the old index in one step. Until then readers follow the old index to the
   old members.
3. Stale members are removed: those of the old index, and those that a killed writer left.

A process that dies before step 2 leaves the old generation; after step 2 it leaves the new one.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from . import files, local


class Generation:
    """The new members and the new index of one writer.

    Leaving the `with` block by an error, without `publish`, removes the temporary files.
    """

    def __init__(self, index: str, durable: bool = True) -> None:
        self._index, self._durable = index, durable
        self._stack = contextlib.ExitStack()
        self._members: dict[str, os.stat_result] = {}

    def member(self, path: str) -> int:
        """Return a descriptor to write a new member to; it appears at `path` on `publish`."""
        fd = self._stack.enter_context(files.replacing(path, self._durable, if_absent=True))
        self._members[path] = os.fstat(fd)
        return fd

    def publish(self, index: Sequence[Any], stale: Callable[[], Iterable[str]]) -> None:
        """Give the members their names, replace the index with these bytes, and remove the files
        that `stale` returns afterwards.
        """
        with _exclusive(os.path.dirname(self._index)):
            try:
                self._stack.close()
                files.replace(self._index, index, self._durable)
            except BaseException:
                # If only the last fsync has failed, the new index is in place and needs its
                # members.
                if not self._is_published(index):
                    self._remove_members()
                raise
            for path in stale():
                local.delete(path)

    def _remove_members(self) -> None:
        """Remove the members that have their names already.

        A file that another process has created under such a name meanwhile is kept.
        """
        for path, status in self._members.items():
            with contextlib.suppress(OSError):
                if os.path.samestat(os.lstat(path), status):
                    os.unlink(path)

    def _is_published(self, index: Sequence[Any]) -> bool:
        """Return whether the index file has these bytes."""
        try:
            with open(self._index, "rb") as file:
                return file.read() == b"".join(index)
        except OSError:
            return False

    def __enter__(self) -> Generation:
        return self

    def __exit__(self, *error: Any) -> None:
        if error[0] is not None:
            self._stack.__exit__(*error)


@contextlib.contextmanager
def _exclusive(folder: str) -> Iterator[None]:
    """Hold a lock on a folder, so that only one process at a time publishes in it.

    Without it a writer could remove members that another is about to name in its index.
    """
    descriptor = os.open(folder or ".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        # Some network file systems have no locks; there concurrent writers are not protected.
        with contextlib.suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
