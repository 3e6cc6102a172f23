"""The models that are served, and their versions: loaded when they appear, unloaded when they are
no longer wanted and nobody uses them.

A version goes START -> LOADING -> AVAILABLE -> UNLOADING -> END, or from LOADING to END with the
error that kept it from loading, as TensorFlow Serving's do. Old versions go only when a new one is
there, so that a model that was there once stays so.
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
        """Requests that use it now."""
        self._runner: Runner | None = None
        self._tried: Any = None

    @property
    def runner(self) -> Runner:
        if self._runner is None:
            raise Failure(NOT_FOUND, f"version {self.number} is not loaded")
        return self._runner

    def load(self) -> None:
        """Into TensorFlow. What goes wrong is kept: a client may ask for it."""
        self.state, self.error, self._tried = LOADING, None, self._stamp()
        try:
            self._runner = Runner(self.path)
            self.state = AVAILABLE
        except MissingDependencyError:
            raise
        except (
            Exception
        ) as error:  # TensorFlow's, ours, or the system's: the server goes on with what it has
            self.error = _reason(error)
            self.state = END

    def may_load(self) -> bool:
        """It is new, or its files are others than those that could not be loaded."""
        return self.state == START or (
            self.state == END and (self.error is None or self._tried != self._stamp())
        )

    def _stamp(self) -> Any:
        with contextlib.suppress(OSError):
            about = os.stat(os.path.join(self.path, FILE))
            return about.st_mtime_ns, about.st_size, about.st_ino
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
            name: dict(given) for name, given in (labels or {}).items()
        }
        unknown = [name for name in self._labels if name not in self._folders]
        if unknown:
            raise SchemaError(
                f"labels for {unknown[0]!r}, and the models are {', '.join(self._folders)}"
            )
        self._versions: dict[str, dict[int, Version]] = {name: {} for name in self._folders}
        self._lock = threading.Lock()
        self._stopped = threading.Event()
        self._watcher: threading.Thread | None = None
        for name, path in self._folders.items():
            there = folders.versions(path)
            if not folders.wanted(there, self._policy):
                raise SchemaError(
                    f"{name} has the versions {', '.join(map(str, there))}, and none of them is"
                    " asked for",
                    path=path,
                )
            for label, number in self._labels.get(name, {}).items():
                if number not in there:
                    raise SchemaError(
                        f"the label {label!r} means version {number}, and {name} has"
                        f" {', '.join(map(str, there))}",
                        path=path,
                    )

    @property
    def names(self) -> list[str]:
        return list(self._folders)

    def load(self) -> None:
        """All that is wanted; SchemaError if a model has no version that can be loaded."""
        self.refresh()
        for name in self._folders:
            versions = self.versions(name)
            if not any(one.state == AVAILABLE for one in versions):
                worst = versions[-1]
                why = worst.error.message if worst.error else "it is not there any more"
                raise SchemaError(
                    f"version {worst.number} of {name} cannot be loaded: {why}", path=worst.path
                )

    def watch(self, seconds: float) -> None:
        """Looks for other versions from now on."""

        def look() -> None:
            while not self._stopped.wait(seconds):
                try:
                    self.refresh()
                except Exception as error:  # a folder that cannot be read now may be readable again
                    _log.warning("looking for versions: %s", error)

        self._watcher = threading.Thread(target=look, name="tensorwire-versions", daemon=True)
        self._watcher.start()

    def close(self) -> None:
        """Unloads everything that nobody uses."""
        self._stopped.set()
        if self._watcher is not None:
            self._watcher.join(10)
        for name in self._folders:
            for one in self.versions(name):
                self._unload(one)

    def refresh(self) -> None:
        """Loads the versions that have come, and unloads those that are not wanted any more."""
        for name, path in self._folders.items():
            try:
                there = folders.versions(path)
            except (SchemaError, OSError):
                # it was there when the server started: whoever replaces it is not done yet
                continue
            wanted = folders.wanted(there, self._policy, self._labels.get(name, {}).values())
            for number in sorted(wanted):
                with self._lock:
                    one = self._versions[name].setdefault(number, Version(number, there[number]))
                if one.may_load() and not self._stopped.is_set():
                    one.load()
                    _log.info(
                        "%s version %d: %s",
                        name,
                        number,
                        one.error.message if one.error else "loaded",
                    )
            known = self.versions(name)
            if any(one.number in wanted and one.state == AVAILABLE for one in known):
                for one in known:
                    if one.number not in wanted and one.state == AVAILABLE:
                        self._unload(one)
                        _log.info("%s version %d: unloaded", name, one.number)

    def _unload(self, one: Version) -> None:
        with self._lock:
            if one.state != AVAILABLE:
                return
            one.state = UNLOADING
            unused = not one.users
        if unused:
            one.close()

    def versions(self, name: str) -> list[Version]:
        with self._lock:
            return [one for _, one in sorted(self._versions.get(name, {}).items())]

    def status(self, spec: ModelSpec) -> list[VersionStatus]:
        """Of one version, or of all that there were. Serving does not look at a label here, so
        neither do we.
        """
        found = self.versions(spec.name)
        if spec.version is not None:
            found = [one for one in found if one.number == spec.version]
            if not found:
                raise Failure(
                    NOT_FOUND, f"Could not find version {spec.version} of model {spec.name}"
                )
        if not found:
            raise Failure(NOT_FOUND, f"Could not find any versions of model {spec.name}")
        return [one.status() for one in found]

    @contextlib.contextmanager
    def using(self, spec: ModelSpec) -> Iterator[Version]:
        """The version that a request means, which stays loaded as long as it is used."""
        with self._lock:
            one = self._find(spec)
            one.users += 1
        try:
            yield one
        finally:
            with self._lock:
                one.users -= 1
                last = one.state == UNLOADING and not one.users
            if last:
                one.close()

    def _find(self, spec: ModelSpec) -> Version:
        if not spec.name:
            raise Failure(INVALID, "ModelSpec has no name specified.")
        number = spec.version
        if number is None and spec.label is not None:
            number = self._labels.get(spec.name, {}).get(spec.label)
            if number is None:
                raise Failure(INVALID, f"Unrecognized servable version label: {spec.label}")
        there = [
            one for one in self._versions.get(spec.name, {}).values() if one.state == AVAILABLE
        ]
        fitting = [one for one in there if number in (None, one.number)]
        if not fitting:
            asked = f"Latest({spec.name})" if number is None else f"Specific({spec.name}, {number})"
            raise Failure(NOT_FOUND, f"Servable not found for request: {asked}")
        return max(fitting, key=lambda one: one.number)
