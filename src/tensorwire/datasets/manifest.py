"""What is done, beside the data: `_tensorwire/` in the dataset's folder, and `_SUCCESS` when all of
it is.

    manifest.json   the spec and its hash, how many sources and shards
    sources.jsonl   each source: path, size, stamp
    shards*.jsonl   a line for each shard that is there: name, key, records, bytes, CRC32C, stamp,
                    damage
    _SUCCESS        the sums; written last

Lines are only ever added, so that a million shards cost a million lines and not a million files or
rewrites. To a bucket, which cannot append, they go together, as objects of ever more lines. A line
that is torn or unreadable means that its shard is made again.
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
"""Seconds, and the share of a run's time so far, for which lines are held back from a bucket: what
a killed driver has done in vain. A run of an hour writes some 600 objects."""
_TEMPORARY = ".tensorwire"
_DRIVER = "driver"
"""In a bucket: who writes."""
OTHER = "another run is writing this dataset"
SEEN = "do all workers see this folder?"


class ManifestLine(NamedTuple):
    """A shard that was made."""

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
    """
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
    """Whether this is a list of `formats.Damage`."""
    if not isinstance(entries, list):
        return False
    for entry in entries:
        if not isinstance(entry, list) or [type(part) for part in entry] != [str, str, int]:
            return False
    return _is_count(*(entry[2] for entry in entries))


class Manifest:
    """The books of one dataset. A local one is locked while it is open for writing."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self._url = storage.is_url(folder)
        self._books = storage.join(folder, BOOKS)
        self._file: Any = None
        self._lock = -1
        self._held: list[bytes] = []
        self._order = threading.RLock()
        self._later: threading.Timer | None = None
        self._began, self._since = time.monotonic(), 0.0
        self._segment = 0
        self._stamp = f"{time.time_ns():020d}"
        self._token = ""
        _ALL.add(self)

    def read(self) -> dict[str, ManifestLine]:
        """The last line of each shard."""
        lines: dict[str, ManifestLine] = {}
        for text in self._texts():
            found = parsed(text)
            if found is not None:
                lines[found.name] = found
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
        """manifest.json, or None if there is none."""
        path = storage.join(self._books, "manifest.json")
        if storage.stat(path) is None:
            return None
        try:
            found = jsontext.parse(storage.read_bytes(path, _MOST), "manifest")
            if not isinstance(found, dict):
                raise DecodeError("this is no manifest", format="manifest", offset=0)
            return found
        except DecodeError as error:
            why = f"{error.message}; overwrite=True writes the dataset anew"
            raise DecodeError(why, path=path, format="manifest", offset=error.offset) from None

    def finished(self) -> dict[str, Any] | None:
        """What _SUCCESS says, or None."""
        path = storage.join(self.folder, SUCCESS)
        if storage.stat(path) is None:
            return None
        with contextlib.suppress(DecodeError):
            found = jsontext.parse(storage.read_bytes(path, 1 << 20), "manifest")
            return found if isinstance(found, dict) else {}
        return {}

    def sources(self) -> set[str]:
        """The paths of the sources, as far as they are written down."""
        path, found = storage.join(self._books, "sources.jsonl"), set()
        if storage.stat(path) is not None:
            with storage.reader(path) as file:
                for line in file.read().splitlines():
                    with contextlib.suppress(ValueError, TypeError, LookupError, RecursionError):
                        found.add(str(json.loads(line)[0]))
        return found

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Nobody else writes this dataset meanwhile. A bucket has no locks: there whoever came last
        goes on, and the others find out.
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
        """Begins a run: the spec and the sources are written down, before any shard.

        If they are not those of the run before, `remove_old` is called first: a run that is
        killed meanwhile leaves the old
        manifest, and the next run calls it again. Returns what it returned.
        """
        storage.delete(storage.join(self.folder, SUCCESS))
        removed = 0
        about = {
            "spec": plan.spec.json(),
            "hash": plan.spec.hash,
            "sources": len(plan.sources),
            "shards": len(plan),
            "bytes": plan.size,
        }
        if plan.splits:
            about["splits"] = [list(split) for split in plan.splits]
        about |= {"name": plan.name, "sources_hash": plan.sources_hash}
        if self._before() != about:
            removed = remove_old()
            with storage.writer(storage.join(self._books, "sources.jsonl"), durable=False) as file:
                for entry in plan.sources:
                    file.write(json.dumps(entry).encode() + b"\n")
            storage.write_bytes(
                storage.join(self._books, "manifest.json"),
                json.dumps(about, indent=1).encode() + b"\n",
            )
        if not self._url:
            path = os.path.join(self._books, "shards.jsonl")
            self._file = open(path, "ab", buffering=0)  # noqa: SIM115
            if self._file.tell():
                self._file.write(b"\n")  # behind a line that a killed run may have left half
        return removed

    def _before(self) -> dict[str, Any] | None:
        with contextlib.suppress(DecodeError):  # it is about to be written anew
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
    def guard(self) -> list[str] | None:
        """In a bucket: where it stands who writes, and that it is us. A worker looks there before
        it writes; see `check`.
        """
        return [storage.join(self._books, _DRIVER), self._token] if self._token else None

    def add(self, line: ManifestLine) -> None:
        """A shard is there."""
        if self._file is not None:
            self._file.write(line.text())
            return
        with self._order:
            self._held.append(line.text())
            now = time.monotonic()
            wait = self._since + max(_LEAST, _SHARE * (now - self._began)) - now
            if wait <= 0:
                check(self.guard)
                self._pass_on()
            elif self._later is None:  # the next shard may take an hour
                self._later = threading.Timer(wait, self._pass_on_late)
                self._later.daemon = True
                self._later.start()

    def _pass_on_late(self) -> None:
        # what could not be written is held, and whoever comes next hears of it
        with contextlib.suppress(TensorwireError, OSError):
            self._pass_on()

    def _pass_on(self) -> None:
        with self._order:
            if self._later is not None:
                self._later.cancel()
                self._later = None
            if self._held:
                name = f"shards-{self._stamp}-{self._segment:06d}.jsonl"
                storage.write_bytes(storage.join(self._books, name), b"".join(self._held))
                self._segment += 1
            self._held, self._since = [], time.monotonic()

    def close(self) -> None:
        """Writes what is held back, and lets go of the lock."""
        self._pass_on()
        if self._file is not None:
            os.fsync(self._file.fileno())
            self._file.close()
            self._file = None
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    def succeed(self, sums: dict[str, Any]) -> None:
        """Says that all is there; nothing is written after it."""
        self._pass_on()
        check(self.guard)
        storage.write_bytes(
            storage.join(self.folder, SUCCESS), json.dumps(sums, indent=1).encode() + b"\n"
        )


_ALL: weakref.WeakSet[Manifest] = weakref.WeakSet()


def _let_go() -> None:
    """In a fork: the lock is its parent's, and shall end with it."""
    for manifest in list(_ALL):
        if manifest._lock >= 0:
            os.close(manifest._lock)
            manifest._lock = -1


os.register_at_fork(after_in_child=_let_go)


def check(guard: Sequence[str] | None) -> None:
    """That a bucket's dataset is still written by whoever has this guard."""
    if guard is None:
        return
    path, token = guard
    folder = storage.shown(path.rpartition(f"/{BOOKS}/")[0])
    try:
        found = storage.read_bytes(path, 1 << 20)
    except FileNotFoundError:
        raise TensorwireError(
            f"the books of this dataset are not there: {SEEN}", path=folder
        ) from None
    if found != token.encode():
        raise EncodeError(OTHER, path=folder)


def _base(path: str) -> str:
    return path.rpartition("/")[2]


def is_temporary(name: str) -> bool:
    """Whether a file is what a worker that died was writing."""
    base = _base(name)
    return base.startswith(".") and base.endswith(_TEMPORARY)


def is_ours(name: str, plan: Plan, known: Container[str]) -> bool:
    """Whether a file in the dataset's folder is a shard of this plan, or of an earlier one. `known`
    are the names that the books have.
    """
    return name in known or ("/" not in name and plan.pattern.fullmatch(name) is not None)


def sweep(plan: Plan, known: Container[str], entries: Iterable[FileEntry]) -> int:
    """Removes what earlier runs have left of what is no shard of this plan: temporaries, and other
    shards; how many. Nothing else is touched."""
    gone = 0
    prefix = plan.target.rstrip("/") + "/"
    for entry in entries:
        name = entry.path.removeprefix(prefix)
        if is_temporary(name) or is_ours(name, plan, known):
            storage.delete(entry.path)
            gone += 1
    return gone
