"""Files that belong together: members, and an index that names them. All of them are replaced, or
none is.

1. Members are written to temporaries, and then get names that no file has (`if_absent`).
2. The index replaces the old index in one step. Until then readers follow the old index to the
old members.
3. The stale members are removed: those of the old index, and those that a killed writer left.

A process that dies before step 2 leaves the old generation, and one that dies after it the new one.
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

    Leaving the `with` block without `publish` removes the temporaries.
    """

    def __init__(self, index: str, durable: bool = True) -> None:
        self._index, self._durable = index, durable
        self._stack = contextlib.ExitStack()
        self._members: dict[str, os.stat_result] = {}

    def member(self, path: str) -> int:
        """A descriptor to write a new member through, which appears at `path` when the generation
        is published.
        """
        fd = self._stack.enter_context(files.replacing(path, self._durable, if_absent=True))
        self._members[path] = os.fstat(fd)
        return fd

    def publish(self, index: Sequence[Any], stale: Callable[[], Iterable[str]]) -> None:
        """Gives the members their names, replaces the index with these bytes, and removes the
        files that `stale` names then.
        """
        with _exclusive(os.path.dirname(self._index)):
            try:
                self._stack.close()
                files.replace(self._index, index, self._durable)
            except BaseException:
                if not self._is_published(index):  # it is if only the last fsync failed
                    self._remove_members()
                raise
            for path in stale():
                local.delete(path)

    def _remove_members(self) -> None:
        """Remove the members that have their names already, and no file of anybody else that took
        such a name meanwhile.
        """
        for path, about in self._members.items():
            with contextlib.suppress(OSError):
                if os.path.samestat(os.lstat(path), about):
                    os.unlink(path)

    def _is_published(self, index: Sequence[Any]) -> bool:
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
    """Lets one process at a time publish in a folder, so that a writer never removes what another
    is about to name in its index.
    """
    descriptor = os.open(folder or ".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        with contextlib.suppress(OSError):  # some network file systems have no locks
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
