"""The store for all URL schemes that obstore does not have, by fsspec."""

from __future__ import annotations

import contextlib
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from typing import Any

from .._errors import UsageError
from .._optional import require
from ..core.memory import flat
from .errors import translating
from .urls import FileEntry, shown

_STAMPS = (
    "ETag",
    "etag",
    "e_tag",
    "mtime",
    "LastModified",
    "last_modified",
    "updated",
    "modified",
    "created",
)
_SPOOLED = 8 << 20


class FsspecStore:
    """The file systems of fsspec, for any scheme."""

    def _place(self, url: str) -> tuple[Any, str]:
        """Return (file system, path) for a URL."""
        core = require("fsspec.core", extra="cloud")
        scheme = url.partition("://")[0]
        registry = require("fsspec.registry", extra="cloud")
        if scheme.rpartition("::")[2] not in {*registry.known_implementations, *registry.registry}:
            raise UsageError(
                f"unsupported URL scheme {scheme!r} (supported: s3, gs, az, http, https, and the"
                " schemes of fsspec)",
                path=shown(url),
            )
        with translating(url):
            return core.url_to_fs(url)  # type: ignore[no-any-return]

    def _entry(self, info: Any, url: str) -> FileEntry:
        stamp = next((str(info[name]) for name in _STAMPS if info.get(name)), str(info["size"]))
        return FileEntry(url, int(info["size"] or 0), stamp)

    def stat(self, url: str) -> FileEntry | None:
        fs, path = self._place(url)
        try:
            with translating(url):
                info = fs.info(path)
        except FileNotFoundError:
            return None
        return None if info["type"] == "directory" else self._entry(info, url)

    def get_into(self, entry: FileEntry, start: int, buffer: memoryview) -> int:
        fs, path = self._place(entry.path)
        with translating(entry.path):
            data = fs.cat_file(path, start=start, end=start + len(buffer))
        count = min(len(data), len(buffer))
        buffer[:count] = flat(data)[:count]
        return count

    def put(self, url: str, data: memoryview, if_absent: bool) -> None:
        fs, path = self._place(url)
        with translating(url):
            if if_absent and fs.exists(path):
                raise FileExistsError(path)
            self._folders(fs, path)
            fs.pipe_file(path, bytes(data))

    def upload(self, url: str, parts: Iterable[Any]) -> None:
        fs, path = self._place(url)
        # fsspec may show a file before it is complete, so the parts are collected first.
        with tempfile.SpooledTemporaryFile(_SPOOLED, prefix="tensorwire-") as file:
            for part in parts:
                file.write(part)
            file.seek(0)
            with translating(url):
                self._folders(fs, path)
                try:
                    with fs.open(path, "wb") as target:
                        shutil.copyfileobj(file, target, _SPOOLED)
                except BaseException:
                    with contextlib.suppress(Exception):
                        fs.rm_file(path)
                    raise

    def _folders(self, fs: Any, path: str) -> None:
        """Create the folder of a path, where the file system has folders."""
        with contextlib.suppress(Exception):
            fs.makedirs(path.rpartition("/")[0], exist_ok=True)

    def delete(self, url: str) -> None:
        fs, path = self._place(url)
        with contextlib.suppress(FileNotFoundError), translating(url):
            fs.rm_file(path)

    def level(self, url: str) -> tuple[list[str], list[FileEntry]]:
        fs, path = self._place(url)
        try:
            with translating(url):
                infos = fs.ls(path, detail=True)
        except FileNotFoundError:
            return [], []
        folders = [_below(url, path, info["name"]) for info in infos if info["type"] == "directory"]
        return folders, [
            self._entry(info, _below(url, path, info["name"]))
            for info in infos
            if info["type"] != "directory"
        ]

    def walk(self, url: str) -> Iterator[FileEntry]:
        fs, path = self._place(url)
        with translating(url):
            infos = fs.find(path, detail=True)
        return (self._entry(info, _below(url, path, info["name"])) for info in infos.values())


def _below(url: str, path: str, name: str) -> str:
    """Return the URL of a name below a folder, with the folder's own spelling.

    >>> _below("memory://data", "/data", "/data/a")
    'memory://data/a'
    """
    return url.rstrip("/") + name.strip("/")[len(path.strip("/")) :]
