"""Glob patterns over local files and buckets.

1. A pattern is split at slashes and matched folder by folder, so that only folders that can match
   are listed. In buckets a pattern with `**` is the exception: one recursive listing below the
   fixed prefix, filtered by one regular expression, takes fewer requests.
2. `*`, `?` and `[...]` match within one folder; `**` matches any number of folders, including none.
3. Locally, symbolic links are followed, except links to a folder above: they would match the same
   files again and again. A folder that cannot be read is an error; Python's `glob` skips it.
4. The name of a file that exists means that file, even if it contains `*` or `[`. Web servers have
   no listings, and `?` begins a query there: their URLs are never patterns.
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
    """Return whether a path contains `*`, `?` or `[...]` and is not the name of an existing file.

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
    """Return the files that match paths, folders or glob patterns, each once, sorted by path.

    Patterns use `*`, `?`, `[...]`, and `**` for nested folders. A folder means the files in it
    whose names do not begin with "." or "_". A pattern without a match raises FileNotFoundError.

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
    """Return the files that match one path or pattern."""
    if is_url(pattern):
        from . import remote

        return _remote_matches(remote.store(pattern), pattern)
    return _local_matches(local_path(pattern))


# Local files


def _local_matches(pattern: str) -> list[FileEntry]:
    """Return the files that match a local path, folder or pattern."""
    if os.path.isdir(pattern):
        return list(local.within(pattern, _is_plain))
    # Split off the steps after the fixed prefix: the longest leading path that has no wildcard, or
    # that exists as it is written.
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
    """Yield the files below a folder that match the remaining steps of a pattern."""
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
    """Return a function that matches names; as in a shell, `*` does not match a leading dot."""
    hidden = "" if step[0] == "." else r"(?!\.)"
    return re.compile(hidden + fnmatch.translate(step)).match


def _is_plain(name: str) -> bool:
    return name[0] not in "._"


def _folders(folder: str, above: frozenset[tuple[int, int]]) -> Iterator[str]:
    """Yield a folder and, recursively, its subfolders that are not hidden.

    `above` are the (device, inode) pairs of the folders above: a link to one of them is skipped.
    """
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        status = os.stat(folder or ".")
        here = status.st_dev, status.st_ino
        if here not in above:
            yield folder
            for place in _inside(folder, _matching("*")):
                yield from _folders(place, above | {here})


def _inside(folder: str, wanted: Callable[[str], object]) -> list[str]:
    """Return the subfolders of a folder whose names pass `wanted`."""
    with (
        contextlib.suppress(FileNotFoundError, NotADirectoryError),
        os.scandir(folder or ".") as scan,
    ):
        return sorted(
            os.path.join(folder, entry.name)
            for entry in scan
            if wanted(entry.name) and _leads_to_folder(entry)
        )
    return []


def _leads_to_folder(entry: os.DirEntry[str]) -> bool:
    """Return whether an entry is a folder or a link to one; False for a dangling link."""
    try:
        return entry.is_dir()
    except OSError as error:
        if local.is_nowhere(error):
            return False
        raise


# Buckets


def _remote_matches(store: Store, pattern: str) -> list[FileEntry]:
    """Return the objects that match a URL: a pattern, a folder, or one object."""
    scheme, _, rest = pattern.partition("://")
    host, _, path = rest.partition("/")
    root = f"{scheme}://{host}"
    if pattern.endswith("/") or not path:
        return [
            entry for entry in store.level(pattern)[1] if not _name(entry.path).startswith(_HIDDEN)
        ]
    if scheme.lower() in _WEB or not glob.has_magic(path):
        entry = store.stat(pattern)
        if entry is not None:
            return [entry]
        # A bucket has no folders of its own, so a URL without an object may be a folder.
        return [] if scheme.lower() in _WEB else _remote_matches(store, pattern + "/")
    steps = path.split("/")
    first = next(i for i, step in enumerate(steps) if glob.has_magic(step))
    return _remote_below(store, "/".join([root, *steps[:first]]), steps[first:])


def _remote_below(store: Store, folder: str, steps: list[str]) -> list[FileEntry]:
    """Return the objects below a folder that match the remaining steps of a pattern."""
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
    """Return a regular expression for the steps of a pattern that contains `**`."""
    parts = []
    for i, step in enumerate(steps):
        last = i == len(steps) - 1
        if step == "**":
            parts.append(".*" if last else "(?:[^/]+/)*")
        else:
            # fnmatch's `.*` would match slashes; within a pattern `*` stays in one folder.
            inner = fnmatch.translate(step).removeprefix("(?s:").removesuffix(r")\Z")
            parts.append(inner.replace(".*", "[^/]*") + ("" if last else "/"))
    return "".join(parts)


def _name(path: str) -> str:
    return path.rstrip("/").rpartition("/")[2]
