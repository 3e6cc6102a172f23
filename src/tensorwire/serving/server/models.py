"""The models of a server and their versions: loaded when they appear on disk, and unloaded when
they are no longer wanted and no request uses them.

1. A version goes START -> LOADING -> AVAILABLE -> UNLOADING -> END, as in TensorFlow Serving. If it
   cannot be loaded, it goes from LOADING to END and keeps the error.
2. Old versions are unloaded only after a wanted one is available, so that a model never disappears.
3. A request counts as a user of its version. A version in UNLOADING is closed by its last user.
"""

from __future__ import annotations

import contextlib
import logging
import os
import threading
from collections.abc import Iterator, Mapping
from typing import Any

from ..._errors import MissingDependencyError, SchemaError
from ...codecs.saved_model.signatures import FILE
from ..rpc.messages import ModelSpec, VersionStatus
from . import folders
from .failures import INVALID, NOT_FOUND, OK, Failure, failure
from .runner import Runner

START, LOADING, AVAILABLE, UNLOADING, END = "START", "LOADING", "AVAILABLE", "UNLOADING", "END"
_log = logging.getLogger("tensorwire.serving")


class Version:
    """One version of a model."""

    def __init__(self, number: int, path: str) -> None:
        self.number, self.path, self.state = number, path, START
        self.error: Failure | None = None
        self.users = 0
        """The number of requests in progress that use it."""
        self._runner: Runner | None = None
        self._tried: Any = None

    @property
    def runner(self) -> Runner:
        """The loaded model; Failure if it is not loaded."""
        if self._runner is None:
            raise Failure(NOT_FOUND, f"version {self.number} is not loaded")
        return self._runner

    def load(self) -> None:
        """Load the model. An error is kept, because clients can ask for it by the status."""
        self.state, self.error, self._tried = LOADING, None, self._stamp()
        try:
            self._runner = Runner(self.path)
            self.state = AVAILABLE
        except MissingDependencyError:
            raise
        except Exception as error:
            # The error may be TensorFlow's, ours, or the system's. The server continues with its
            # other versions.
            self.error = _reason(error)
            self.state = END

    def may_load(self) -> bool:
        """Return whether to load it: it is new, or its files have changed since loading failed."""
        return self.state == START or (
            self.state == END and (self.error is None or self._tried != self._stamp())
        )

    def _stamp(self) -> Any:
        """Return a value that changes with the SavedModel's file."""
        with contextlib.suppress(OSError):
            status = os.stat(os.path.join(self.path, FILE))
            return status.st_mtime_ns, status.st_size, status.st_ino
        return None

    def close(self) -> None:
        runner, self._runner, self.state = self._runner, None, END
        if runner is not None:
            runner.close()

    def status(self) -> VersionStatus:
        return VersionStatus(
            self.number,
            self.state,
            self.error.code if self.error else OK,
            self.error.message if self.error else "",
        )


def _reason(error: Exception) -> Failure:
    """Return the failure for an error of loading; TensorFlow's errors have a code of their own."""
    code = getattr(error, "error_code", None)
    return (
        Failure(code, str(getattr(error, "message", error)))
        if isinstance(code, int)
        else failure(error)
    )


class Models:
    """All models of a server."""

    def __init__(
        self,
        models: folders.Folders,
        versions: folders.Versions = folders.LATEST,
        labels: Mapping[str, Mapping[str, int]] | None = None,
    ) -> None:
        self._folders, self._policy = folders.named(models), folders.policy(versions)
        self._labels: dict[str, dict[str, int]] = {
            name: dict(by_label) for name, by_label in (labels or {}).items()
        }
        unknown = [name for name in self._labels if name not in self._folders]
        if unknown:
            raise SchemaError(
                f"labels: unknown model {unknown[0]!r} (the models are {', '.join(self._folders)})"
            )
        self._versions: dict[str, dict[int, Version]] = {name: {} for name in self._folders}
        self._lock = threading.Lock()
        self._stopped = threading.Event()
        self._watcher: threading.Thread | None = None
        for name, path in self._folders.items():
            available = folders.versions(path)
            if not folders.wanted(available, self._policy):
                raise SchemaError(
                    f"none of the requested versions of {name} exists (it has"
                    f" {', '.join(map(str, available))})",
                    path=path,
                )
            for label, number in self._labels.get(name, {}).items():
                if number not in available:
                    raise SchemaError(
                        f"the label {label!r} refers to version {number}, which {name} does not"
                        f" have (it has {', '.join(map(str, available))})",
                        path=path,
                    )

    @property
    def names(self) -> list[str]:
        return list(self._folders)

    def load(self) -> None:
        """Load all wanted versions; raise SchemaError for a model without a loaded version."""
        self.refresh()
        for name in self._folders:
            versions = self.versions(name)
            if not any(version.state == AVAILABLE for version in versions):
                worst = versions[-1]
                reason = worst.error.message if worst.error else "its folder was removed"
                raise SchemaError(
                    f"version {worst.number} of {name} cannot be loaded: {reason}", path=worst.path
                )

    def watch(self, seconds: float) -> None:
        """Start a thread that looks for new and removed versions."""

        def look() -> None:
            while not self._stopped.wait(seconds):
                try:
                    self.refresh()
                except Exception as error:
                    # A folder that cannot be read now may be readable the next time.
                    _log.warning("cannot look for new versions: %s", error)

        self._watcher = threading.Thread(target=look, name="tensorwire-versions", daemon=True)
        self._watcher.start()

    def close(self) -> None:
        """Stop the thread and unload all versions; those in use are closed by their last user."""
        self._stopped.set()
        if self._watcher is not None:
            self._watcher.join(10)
        for name in self._folders:
            for version in self.versions(name):
                self._unload(version)

    def refresh(self) -> None:
        """Load new versions, and unload those that are no longer wanted."""
        for name, path in self._folders.items():
            try:
                available = folders.versions(path)
            except (SchemaError, OSError):
                # The folder existed when the server started, so it is being replaced now.
                continue
            wanted = folders.wanted(available, self._policy, self._labels.get(name, {}).values())
            for number in sorted(wanted):
                with self._lock:
                    version = self._versions[name].setdefault(
                        number, Version(number, available[number])
                    )
                if version.may_load() and not self._stopped.is_set():
                    version.load()
                    _log.info(
                        "%s version %d: %s",
                        name,
                        number,
                        version.error.message if version.error else "loaded",
                    )
            versions = self.versions(name)
            if any(version.number in wanted and version.state == AVAILABLE for version in versions):
                for version in versions:
                    if version.number not in wanted and version.state == AVAILABLE:
                        self._unload(version)
                        _log.info("%s version %d: unloaded", name, version.number)

    def _unload(self, version: Version) -> None:
        """Close a version now, or let its last user close it."""
        with self._lock:
            if version.state != AVAILABLE:
                return
            version.state = UNLOADING
            unused = not version.users
        if unused:
            version.close()

    def versions(self, name: str) -> list[Version]:
        """Return the versions of a model, by number; empty if there is no such model."""
        with self._lock:
            return [version for _, version in sorted(self._versions.get(name, {}).items())]

    def status(self, spec: ModelSpec) -> list[VersionStatus]:
        """Return the status of one version, or of all versions, including those that have ended.

        A label is ignored, as in TensorFlow Serving.
        """
        versions = self.versions(spec.name)
        if spec.version is not None:
            versions = [version for version in versions if version.number == spec.version]
            if not versions:
                raise Failure(
                    NOT_FOUND, f"Could not find version {spec.version} of model {spec.name}"
                )
        if not versions:
            raise Failure(NOT_FOUND, f"Could not find any versions of model {spec.name}")
        return [version.status() for version in versions]

    @contextlib.contextmanager
    def using(self, spec: ModelSpec) -> Iterator[Version]:
        """Yield the version that a request selects; it stays loaded during the `with` block."""
        with self._lock:
            version = self._find(spec)
            version.users += 1
        try:
            yield version
        finally:
            with self._lock:
                version.users -= 1
                last = version.state == UNLOADING and not version.users
            if last:
                version.close()

    def _find(self, spec: ModelSpec) -> Version:
        """Return the selected version, or the latest one. The caller holds the lock."""
        if not spec.name:
            raise Failure(INVALID, "ModelSpec has no name specified.")
        number = spec.version
        if number is None and spec.label is not None:
            number = self._labels.get(spec.name, {}).get(spec.label)
            if number is None:
                raise Failure(INVALID, f"Unrecognized servable version label: {spec.label}")
        available = [
            version
            for version in self._versions.get(spec.name, {}).values()
            if version.state == AVAILABLE
        ]
        matches = [version for version in available if number in (None, version.number)]
        if not matches:
            query = f"Latest({spec.name})" if number is None else f"Specific({spec.name}, {number})"
            raise Failure(NOT_FOUND, f"Servable not found for request: {query}")
        return max(matches, key=lambda version: version.number)
