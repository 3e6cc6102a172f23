"""A Ray cluster: the one at `address`, or an embedded one on this machine. Data goes between the
stores and the workers alone.

An embedded cluster listens on 127.0.0.1, has no dashboard, and sends no statistics to anyone.
"""

from __future__ import annotations

import os
import socket
import warnings
from collections.abc import Iterable, Iterator
from typing import Any

from ... import storage
from ..._errors import EncodeError, TensorwireError, TransportError
from ..._optional import require
from ...codecs.conversion_spec import ConversionSpec
from ...storage import remote
from . import RETRIES, Outcome, answer, errors_as_json, outcome

_PATIENCE = 5.0
"""Seconds for a cluster's answer."""


def _check_address(address: str) -> None:
    """That somebody is there: Ray itself waits for minutes."""
    host, _, port = address.rpartition("://")[2].rpartition(":")
    if not port.isdigit():
        return  # "auto", "local" and what else Ray knows
    try:
        socket.create_connection((host.strip("[]"), int(port)), _PATIENCE).close()
    except OSError as error:
        raise TransportError(
            f"no Ray cluster answers at {address}: {error.strerror or error}"
        ) from None


def _from_here(task: dict[str, Any]) -> dict[str, Any]:
    """A task whose paths do not hang on the folder in which a worker is: that is the one where Ray
    was started.
    """
    found = {
        name: storage.absolute(value) if name in ("path", "runs") else value
        for name, value in task.items()
    }
    for name in ("parts", "like"):
        if name in task:
            parts = task[name] if name == "parts" else [task[name]]
            absolute = [{**part, "path": storage.absolute(part["path"])} for part in parts]
            found[name] = absolute if name == "parts" else absolute[0]
    return found


def _answer(task: dict[str, Any], spec: ConversionSpec, settings: dict[str, str]) -> Any:
    """`answer` in a worker, which has the storage settings of the driver."""
    remote.take_over(settings)
    return answer(task, spec)


class RayEngine:
    """Tasks on Ray. `options` are those of ray.remote: num_cpus, memory, resources ... of one task."""

    def __init__(
        self,
        address: str | None = None,
        *,
        workers: int | None = None,
        retries: int = RETRIES,
        options: dict[str, Any] | None = None,
    ) -> None:
        if workers is not None and workers < 1:
            raise EncodeError(
                f'workers={workers}: Ray has one at least; engine="local" with workers=0 works in'
                " this process"
            )
        self.retries, self._workers, self._options = (
            retries,
            workers,
            {"num_cpus": 1, **(options or {})},
        )
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
        # Else Ray makes an address of 127.0.0.1 that others can reach. It reads this when it is
        # imported.
        if address is None or "127.0.0.1" in address:
            os.environ.setdefault("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "0")
        self._ray = require("ray", extra="ray")
        self._mine = not self._ray.is_initialized()
        self._embedded = self._mine and address is None
        if self._mine and address is not None:
            _check_address(address)
            self._ray.init(address=address, log_to_driver=False, logging_level="WARNING")
        elif self._mine:
            self._ray.init(
                address="local", num_cpus=workers, include_dashboard=False, log_to_driver=False, configure_logging=False,
                _node_ip_address="127.0.0.1",
            )  # fmt: skip

    def _check_room(self) -> None:
        """That a node could run a task: Ray itself waits for one that can, for ever."""
        wanted = {
            "CPU": self._options.get("num_cpus"),
            "GPU": self._options.get("num_gpus"),
            "memory": self._options.get("memory"),
        }
        wanted |= self._options.get("resources") or {}
        nodes = [node["Resources"] for node in self._ray.nodes() if node["Alive"]]
        for name, amount in wanted.items():
            most = max((node.get(name, 0) for node in nodes), default=0)
            if amount and amount > most:
                why = (
                    f"a task wants {amount:,} of {name}, and no node of the cluster has more than"
                    f" {most:,.0f}"
                )
                if self._embedded:
                    raise EncodeError(f"{why}; options= says what a task needs")
                warnings.warn(f"{why}: it waits until one comes", stacklevel=2)

    def _room(self) -> int:
        """Tasks under way at once: two for each that can run, so that no worker waits for us."""
        if self._workers is not None:
            return self._workers
        return max(
            1,
            2
            * int(
                self._ray.cluster_resources().get("CPU", 1) / max(0.01, self._options["num_cpus"])
            ),
        )

    def run(self, spec: ConversionSpec, tasks: Iterable[dict[str, Any]]) -> Iterator[Outcome]:
        """Outcomes as they come. Leaving early cancels what is under way."""
        ray = self._ray
        self._check_room()
        asked = ray.remote(**{"max_retries": self.retries, **self._options})(_answer)
        shared = ray.put(spec), ray.put(remote.settings())  # sent to each node once
        under_way: dict[Any, tuple[dict[str, Any], int]] = {}
        source, room = iter(tasks), self._room()
        try:
            while True:
                while len(under_way) < room and (task := next(source, None)) is not None:
                    under_way[asked.remote(_from_here(task), *shared)] = task, 1
                if not under_way:
                    return
                # Of many tasks, many at once: each wait goes over all of them.
                ready, _ = ray.wait(
                    list(under_way), num_returns=max(1, len(under_way) // 64), timeout=5
                )
                for ref in ready:
                    task, attempts = under_way.pop(ref)
                    found = self._got(ref, task)
                    if (
                        found.error is not None
                        and errors_as_json.passing(found.error)
                        and attempts <= self.retries
                    ):
                        under_way[asked.remote(_from_here(task), *shared)] = task, attempts + 1
                    else:
                        yield found._replace(attempts=attempts)
                if not ready:
                    room = self._room()  # the cluster may have grown
        finally:
            for ref in under_way:
                ray.cancel(ref, force=True)

    def _got(self, ref: Any, task: dict[str, Any]) -> Outcome:
        try:
            found = self._ray.get(ref)
        except self._ray.exceptions.RayError as error:
            path = next((part["path"] for part in task.get("parts", ())), task.get("path"))
            why = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
            return Outcome(
                task,
                None,
                TensorwireError(
                    f"Ray gave the task up after {self.retries + 1} tries: {why:.300}", path=path
                ),
            )
        return outcome(task, found)

    def close(self) -> None:
        """Ends the cluster, if it is our own."""
        if self._mine and self._ray.is_initialized():
            self._ray.shutdown()
