"""The manifest of a dataset: which shards are written. It is the folder `_tensorwire/` in that of
the dataset, and `_SUCCESS` once all shards are written.

    manifest.json   the spec and its hash, the number of sources and of shards
    sources.jsonl   each source: path, size, stamp
    shards*.jsonl   one line for each shard that was written: name, key, records, bytes, CRC32C,
                    stamp, damage
    lock, driver    the writer lease: see below
    _SUCCESS        the totals; written last

Lines are only appended, so a million shards cost a million lines, and not a million files or
rewrites. A bucket cannot append: there, lines are collected and written as new objects, and the
longer the run, the more lines each object has. A line that is torn or unreadable only means that
its shard is made again.

The writer lease, so that two runs do not write one dataset:

1. A local folder has a lock file with `flock`. It is held while the manifest is open. The second
   writer raises at once. The lock ends with its process, however that ends, so forks close their
   copy of its descriptor.
2. A bucket has no locks. A run writes a random token to the object `_tensorwire/driver`; the last
   writer owns the dataset.
3. Every task carries the path of that object and the token. A worker reads the object before its
   shard becomes visible, and raises if the token is another one. The driver does the same before
   it removes files and before it writes `_SUCCESS`.
4. A shard that is replaced between this check and its upload is found at the end: its stamp is not
   the one that its worker reported.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import secrets
import threading
import time
import weakref
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from .. import storage
from .._errors import DecodeError, EncodeError, TensorwireError
from ..records.paths import BOOKS
from ..storage import FileEntry
from ..wire import json as jsontext
from .shard_plan import Plan

SUCCESS = "_SUCCESS"
_MOST = 1 << 32
_LEAST, _SHARE = 0.2, 0.01
"""Lines for a bucket wait for at most so many seconds, or this share of the run's time so far: that
much work is lost if the driver is killed. A run of an hour writes about 600 objects."""
_TEMPORARY = ".tensorwire"
_DRIVER = "driver"
"""The object in a bucket that holds the token of the current writer."""
OTHER = "another run is writing this dataset"
SEEN = "check that all workers see this folder"


class ManifestLine(NamedTuple):
    """A shard that was written: one line of shards.jsonl."""

    name: str
    key: str
    records: int
    size: int
    crc32c: str
    stamp: str
    damage: list[Any] = []

    def text(self) -> bytes:
        plain = self if self.damage else self[:-1]
        return json.dumps(plain, separators=(",", ":")).encode() + b"\n"


def parsed(text: bytes) -> ManifestLine | None:
    """The shard that a line describes; None if the line is damaged.

    >>> parsed(ManifestLine("a", "k", 1, 2, "", "").text())
    ManifestLine(name='a', key='k', records=1, size=2, crc32c='', stamp='', damage=[])
    """
    with contextlib.suppress(ValueError, TypeError, RecursionError):
        line = ManifestLine(*json.loads(text))
        texts = line.name, line.key, line.crc32c, line.stamp
        if all(isinstance(part, str) for part in texts) and _is_count(line.records, line.size):
            return line if _is_damage(line.damage) else None
    return None


def _is_count(*numbers: Any) -> bool:
    return all(type(number) is int and 0 <= number < 1 << 63 for number in numbers)


def _is_damage(entries: Any) -> bool:
    """Whether this is a list of `rows.Damage`: path, reason, bytes."""
    if not isinstance(entries, list):
        return False
    for entry in entries:
        if not isinstance(entry, list) or [type(part) for part in entry] != [str, str, int]:
            return False
    return _is_count(*(entry[2] for entry in entries))


class Manifest:
    """The manifest of the dataset in `folder`, a path or URL.

    `read()` returns the line of each shard, `about()` the contents of manifest.json, `sources()`
    the paths of the sources, and `finished()` the totals once all shards are written. The manifest
    of a local dataset is locked while a run writes it: a second run raises `EncodeError`.

    >>> import tempfile, numpy as np, tensorwire as tw
    >>> folder = tempfile.mkdtemp()
    >>> _ = tw.write_examples(f"{folder}/a.tfrecord", {"x": np.arange(10)})
    >>> _ = tw.convert(f"{folder}/a.tfrecord", f"{folder}/out", to="jsonl", workers=0)
    >>> manifest = tw.datasets.Manifest(f"{folder}/out")
    >>> [(line.name, line.records) for line in manifest.read().values()]
    [('part-00000-of-00001.jsonl', 10)]
    >>> manifest.finished()["records"]
    10
    """

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self._url = storage.is_url(folder)
        self._books = storage.join(folder, BOOKS)
        self._file: Any = None
        self._lock = -1
        self._pending: list[bytes] = []
        self._flushing = threading.RLock()
        self._timer: threading.Timer | None = None
        self._began, self._flushed = time.monotonic(), 0.0
        self._segment = 0
        self._stamp = f"{time.time_ns():020d}"
        self._token = ""
        _ALL.add(self)

    def read(self) -> dict[str, ManifestLine]:
        """Returns the last line of each shard, by the name of the shard."""
        lines: dict[str, ManifestLine] = {}
        for text in self._texts():
            line = parsed(text)
            if line is not None:
                lines[line.name] = line
        return lines

    def _texts(self) -> Iterator[bytes]:
        entries = [
            entry
            for entry in storage.listing(self._books)
            if _base(entry.path).startswith("shards") and entry.path.endswith(".jsonl")
        ]
        for entry in entries:
            with storage.reader(entry.path) as file:
                rest = b""
                while piece := file.read(1 << 20):
                    *whole, rest = (rest + piece).split(b"\n")
                    yield from whole

    def about(self) -> dict[str, Any] | None:
        """Returns the contents of manifest.json, or None if there is no such file."""
        path = storage.join(self._books, "manifest.json")
        if storage.stat(path) is None:
            return None
        try:
            contents = jsontext.parse(storage.read_bytes(path, _MOST), "manifest")
            if not isinstance(contents, dict):
                raise DecodeError("the manifest is not a JSON object", format="manifest", offset=0)
            return contents
        except DecodeError as error:
            raise DecodeError(
                error.message,
                path=path,
                format="manifest",
                offset=error.offset,
                hint="pass overwrite=True to write the dataset again",
            ) from None

    def finished(self) -> dict[str, Any] | None:
        """Returns the totals in _SUCCESS, {} if it is damaged, or None if it does not exist."""
        path = storage.join(self.folder, SUCCESS)
        if storage.stat(path) is None:
            return None
        with contextlib.suppress(DecodeError):
            totals = jsontext.parse(storage.read_bytes(path, 1 << 20), "manifest")
            return totals if isinstance(totals, dict) else {}
        return {}

    def sources(self) -> set[str]:
        """Returns the paths of the sources, as far as sources.jsonl can be read."""
        path, paths = storage.join(self._books, "sources.jsonl"), set()
        if storage.stat(path) is not None:
            with storage.reader(path) as file:
                for line in file.read().splitlines():
                    with contextlib.suppress(ValueError, TypeError, LookupError, RecursionError):
                        paths.add(str(json.loads(line)[0]))
        return paths

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Holds the writer lease. In a bucket the last run to take it goes on, and the workers of
        the earlier ones raise.
        """
        if self._url:
            self._token = secrets.token_hex(16)
            storage.write_bytes(storage.join(self._books, _DRIVER), self._token.encode())
        else:
            os.makedirs(self._books, exist_ok=True)
            self._take_lock()
        try:
            yield
        finally:
            self.close()

    def open(self, plan: Plan, remove_old: Callable[[], int] = lambda: 0) -> int:
        """Begins a run: writes the spec and the sources before any shard is written.

        If they differ from those of the run before, `remove_old` is called first, and its result is
        returned. A run that is killed meanwhile leaves the old manifest.json, so the next run calls
        `remove_old` again.
        """
        storage.delete(storage.join(self.folder, SUCCESS))
        removed = 0
        contents = {
            "spec": plan.spec.json(),
            "hash": plan.spec.hash,
            "sources": len(plan.sources),
            "shards": len(plan),
            "bytes": plan.size,
        }
        if plan.splits:
            contents["splits"] = [list(split) for split in plan.splits]
        contents |= {"name": plan.name, "sources_hash": plan.sources_hash}
        if self._before() != contents:
            removed = remove_old()
            with storage.writer(storage.join(self._books, "sources.jsonl"), durable=False) as file:
                for entry in plan.sources:
                    file.write(json.dumps(entry).encode() + b"\n")
            storage.write_bytes(
                storage.join(self._books, "manifest.json"),
                json.dumps(contents, indent=1).encode() + b"\n",
            )
        if not self._url:
            path = os.path.join(self._books, "shards.jsonl")
            self._file = open(path, "ab", buffering=0)  # noqa: SIM115
            # A killed run may have left half a line: the next one must not continue it.
            if self._file.tell():
                self._file.write(b"\n")
        return removed

    def _before(self) -> dict[str, Any] | None:
        """The manifest.json of the run before; None if it is damaged, and so will be replaced."""
        with contextlib.suppress(DecodeError):
            return self.about()
        return None

    def _take_lock(self) -> None:
        self._lock = os.open(
            os.path.join(self._books, "lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666
        )
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(self._lock)
            self._lock = -1
            raise EncodeError(OTHER, path=self.folder) from None

    @property
    def lease(self) -> list[str] | None:
        """In a bucket: the path of the token object, and our token. None for a local folder, which
        is locked. See `check`.
        """
        return [storage.join(self._books, _DRIVER), self._token] if self._token else None

    def add(self, line: ManifestLine) -> None:
        """Appends the line of a shard that is complete."""
        if self._file is not None:
            self._file.write(line.text())
            return
        with self._flushing:
            self._pending.append(line.text())
            now = time.monotonic()
            wait = self._flushed + max(_LEAST, _SHARE * (now - self._began)) - now
            if wait <= 0:
                check(self.lease)
                self._flush()
            elif self._timer is None:
                # The next shard may take an hour, and this line must not wait for it.
                self._timer = threading.Timer(wait, self._flush_late)
                self._timer.daemon = True
                self._timer.start()

    def _flush_late(self) -> None:
        # Lines that cannot be written now stay pending, and the next flush raises the error.
        with contextlib.suppress(TensorwireError, OSError):
            self._flush()

    def _flush(self) -> None:
        with self._flushing:
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None
            if self._pending:
                name = f"shards-{self._stamp}-{self._segment:06d}.jsonl"
                storage.write_bytes(storage.join(self._books, name), b"".join(self._pending))
                self._segment += 1
            self._pending, self._flushed = [], time.monotonic()

    def close(self) -> None:
        """Writes the pending lines, and releases the lock."""
        self._flush()
        if self._file is not None:
            os.fsync(self._file.fileno())
            self._file.close()
            self._file = None
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    def succeed(self, sums: dict[str, Any]) -> None:
        """Writes _SUCCESS with these totals. It is the last file of a run."""
        self._flush()
        check(self.lease)
        storage.write_bytes(
            storage.join(self.folder, SUCCESS), json.dumps(sums, indent=1).encode() + b"\n"
        )


_ALL: weakref.WeakSet[Manifest] = weakref.WeakSet()


def _close_locks() -> None:
    """Closes the lock in a fork: it belongs to the parent, and must end with the parent."""
    for manifest in list(_ALL):
        if manifest._lock >= 0:
            os.close(manifest._lock)
            manifest._lock = -1


os.register_at_fork(after_in_child=_close_locks)


def check(lease: Sequence[str] | None) -> None:
    """Raises if another run has taken the writer lease of a dataset in a bucket."""
    if lease is None:
        return
    path, token = lease
    folder = storage.shown(path.rpartition(f"/{BOOKS}/")[0])
    try:
        owner = storage.read_bytes(path, 1 << 20)
    except FileNotFoundError:
        raise TensorwireError(
            "the manifest of this dataset does not exist", path=folder, hint=SEEN
        ) from None
    if owner != token.encode():
        raise EncodeError(OTHER, path=folder)


def _base(path: str) -> str:
    return path.rpartition("/")[2]


def is_temporary(name: str) -> bool:
    """Whether a file is the temporary file of a worker that was killed."""
    base = _base(name)
    return base.startswith(".") and base.endswith(_TEMPORARY)


def is_ours(name: str, plan: Plan, recorded: Container[str]) -> bool:
    """Whether a file in the dataset's folder is a shard of this plan or of an earlier one.

    `recorded` has the names in the manifest.
    """
    return name in recorded or ("/" not in name and plan.pattern.fullmatch(name) is not None)


def sweep(plan: Plan, recorded: Container[str], entries: Iterable[FileEntry]) -> int:
    """Removes temporary files and shards of earlier runs, and returns how many.

    `entries` are the files that are not shards of this plan. Files of other programs stay.
    """
    removed = 0
    prefix = plan.target.rstrip("/") + "/"
    for entry in entries:
        name = entry.path.removeprefix(prefix)
        if is_temporary(name) or is_ours(name, plan, recorded):
            storage.delete(entry.path)
            removed += 1
    return removed
