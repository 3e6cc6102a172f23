"""Which files a pattern means, on this machine and in buckets.

1. A pattern is walked folder by folder, so that only folders that can match are listed.
2. `*`, `?` and `[...]` stay in one folder; `**` stands for any number of folders, none too.
3. On this machine links are followed, but none that leads back up. A folder that may not be read is
   an error, where Python's `glob` would pass over it.
4. A name of a file that exists is that file, whatever characters it has. Web servers list nothing,
   and `?` means something else there: their URLs are never patterns.
"""

from __future__ import annotations

import contextlib
import fnmatch
import glob
import os
import re
from collections.abc import Callable, Iterator, Sequence
from operator import attrgetter
from stat import S_ISDIR

from . import local
from .urls import FileEntry, Store, is_url, local_path, shown

_HIDDEN = (".", "_")
_WEB = ("http", "https")


def is_pattern(path: str) -> bool:
    """Whether a path stands for files by `*`, `?` or `[...]`, and is not the name of one.

    >>> is_pattern("train-*.tfrecord"), is_pattern("https://example.com/a?b"), is_pattern("a")
    (True, False, False)
    """
    if not glob.has_magic(path):
        return False
    return (
        not path.lower().startswith(("http:", "https:"))
        if is_url(path)
        else not os.path.lexists(path)
    )


def find(patterns: str | os.PathLike[str] | Sequence[str | os.PathLike[str]]) -> list[FileEntry]:
    """All files that paths, patterns (`*`, `?`, `[...]`, and `**` for folders in folders) and
    folders name, each once, sorted by path.

    A folder means the files in it whose names do not begin with "." or "_". A pattern that matches
    nothing is an error.

    >>> import tempfile
    >>> from tensorwire import storage
    >>> folder = tempfile.mkdtemp()
    >>> storage.write_bytes(storage.join(folder, "a.tfrecord"), b"abc")
    >>> [entry] = find(storage.join(folder, "*.tfrecord"))
    >>> os.path.basename(entry.path), entry.size
    ('a.tfrecord', 3)
    """
    several = [patterns] if isinstance(patterns, (str, os.PathLike)) else patterns
    entries: list[FileEntry] = []
    for path in several:
        pattern = os.fspath(path)
        matches = _matches(pattern)
        if not matches:
            raise FileNotFoundError(f"no file matches {shown(pattern)!r}")
        entries += matches
    entries.sort(key=attrgetter("path"))
    return [
        entry
        for entry, before in zip(entries, [None, *entries], strict=False)
        if before is None or entry.path != before.path
    ]


def _matches(pattern: str) -> list[FileEntry]:
    if is_url(pattern):
        from . import remote

        return _remote_matches(remote.store(pattern), pattern)
    return _local_matches(local_path(pattern))


# On this machine


def _local_matches(pattern: str) -> list[FileEntry]:
    """What a pattern names, a folder's files, or one file. A folder that may not be read is an
    error, where `glob` would pass over it.
    """
    if os.path.isdir(pattern):
        return list(local.within(pattern, _is_plain))
    folder, steps = pattern, list[str]()
    while glob.has_magic(folder) and not os.path.lexists(folder):
        folder, name = os.path.split(folder)
        steps.insert(0, name)
    return (
        list(_local_below(folder, steps))
        if steps
        else local.entries(iter([pattern]), lambda mode: not S_ISDIR(mode))
    )


def _local_below(folder: str, steps: list[str]) -> Iterator[FileEntry]:
    """What matches the rest of a pattern in a folder."""
    step, *rest = steps
    if step == "**":
        for place in _folders(folder, frozenset()):
            yield from _local_below(place, rest or ["*"])
    elif not rest:
        yield from local.within(folder, _matching(step) if step else _is_plain)
    elif glob.has_magic(step):
        for place in _inside(folder, _matching(step)):
            yield from _local_below(place, rest)
    else:
        yield from _local_below(os.path.join(folder, step), rest)


def _matching(step: str) -> Callable[[str], object]:
    hidden = "" if step[0] == "." else r"(?!\.)"
    return re.compile(hidden + fnmatch.translate(step)).match


def _is_plain(name: str) -> bool:
    return name[0] not in "._"


def _folders(folder: str, above: frozenset[tuple[int, int]]) -> Iterator[str]:
    """A folder, and those below it that are not hidden; of links that lead back up, none: who
    follows them reads files again and again.
    """
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        about = os.stat(folder or ".")
        here = about.st_dev, about.st_ino
        if here not in above:
            yield folder
            for place in _inside(folder, _matching("*")):
                yield from _folders(place, above | {here})


def _inside(folder: str, wanted: Callable[[str], object]) -> list[str]:
    """The folders in one."""
    with (
        contextlib.suppress(FileNotFoundError, NotADirectoryError),
        os.scandir(folder or ".") as found,
    ):
        return sorted(
            os.path.join(folder, entry.name)
            for entry in found
            if wanted(entry.name) and _leads_to_folder(entry)
        )
    return []


def _leads_to_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError as error:
        if local.is_nowhere(error):
            return False
        raise


# In buckets


def _remote_matches(store: Store, pattern: str) -> list[FileEntry]:
    """What a URL with `*`, `?`, `[...]` or `**` in its path names; a folder's files, if it ends
    with a slash; else that one object.
    """
    scheme, _, rest = pattern.partition("://")
    host, _, path = rest.partition("/")
    root = f"{scheme}://{host}"
    if pattern.endswith("/") or not path:
        return [
            entry for entry in store.level(pattern)[1] if not _name(entry.path).startswith(_HIDDEN)
        ]
    if scheme.lower() in _WEB or not glob.has_magic(path):
        found = store.stat(pattern)
        if found is not None:
            return [found]
        return [] if scheme.lower() in _WEB else _remote_matches(store, pattern + "/")
    steps = path.split("/")
    first = next(i for i, step in enumerate(steps) if glob.has_magic(step))
    return _remote_below(store, "/".join([root, *steps[:first]]), steps[first:])


def _remote_below(store: Store, folder: str, steps: list[str]) -> list[FileEntry]:
    """What matches the rest of a pattern in a folder."""
    if "**" in steps:
        whole = re.compile(re.escape(folder + "/") + _regex(steps))
        return [entry for entry in store.walk(folder) if whole.fullmatch(entry.path)]
    if len(steps) > 1 and not glob.has_magic(steps[0]):
        return _remote_below(store, f"{folder}/{steps[0]}", steps[1:])
    folders, entries = store.level(folder)
    step = re.compile(fnmatch.translate(steps[0]))
    if len(steps) == 1:
        return [entry for entry in entries if step.match(_name(entry.path))]
    return [
        entry
        for below in folders
        if step.match(_name(below))
        for entry in _remote_below(store, below.rstrip("/"), steps[1:])
    ]


def _regex(steps: list[str]) -> str:
    """`**` stands for any number of folders, none too; `*` stays in one."""
    parts = []
    for i, step in enumerate(steps):
        last = i == len(steps) - 1
        if step == "**":
            parts.append(".*" if last else "(?:[^/]+/)*")
        else:
            inner = fnmatch.translate(step).removeprefix("(?s:").removesuffix(r")\Z")
            parts.append(inner.replace(".*", "[^/]*") + ("" if last else "/"))
    return "".join(parts)


def _name(path: str) -> str:
    return path.rstrip("/").rpartition("/")[2]
