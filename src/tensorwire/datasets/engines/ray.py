"""The Ray engine: a cluster at `address`, or an embedded one on this machine.

Data goes directly between the workers and the stores. An embedded cluster listens on 127.0.0.1, has
no dashboard, and sends no usage statistics.
"""

from __future__ import annotations

import os
import socket
import warnings
from collections.abc import Iterable, Iterator
from typing import Any

from ... import storage
from ..._errors import EncodeError, TensorwireError, TransportError, UsageError
from ..._optional import require
from ...codecs.conversion_spec import ConversionSpec
from ...storage import remote
from . import RETRIES, Outcome, answer, errors_as_json, outcome

_PATIENCE = 5.0
"""Seconds to wait for a connection to a cluster."""


def _check_address(address: str) -> None:
    """Raises if nothing listens at the address: Ray itself would wait for minutes."""
    host, _, port = address.rpartition("://")[2].rpartition(":")
    # Names such as "auto" and "local" are for Ray to resolve.
    if not port.isdigit():
        return
    try:
        socket.create_connection((host.strip("[]"), int(port)), _PATIENCE).close()
    except OSError as error:
        raise TransportError(
            f"cannot connect to the Ray cluster at {address}: {error.strerror or error}"
        ) from None


def _from_here(task: dict[str, Any]) -> dict[str, Any]:
    """The task with absolute paths: the current folder of a Ray worker is another one."""
    absolute_task = {
        name: storage.absolute(value) if name in ("path", "runs") else value
        for name, value in task.items()
    }
    for name in ("parts", "like"):
        if name in task:
            parts = task[name] if name == "parts" else [task[name]]
            absolute = [{**part, "path": storage.absolute(part["path"])} for part in parts]
            absolute_task[name] = absolute if name == "parts" else absolute[0]
    return absolute_task


def _answer(task: dict[str, Any], spec: ConversionSpec, settings: dict[str, str]) -> Any:
    """Runs `answer` in a worker, with the storage settings of the driver."""
    remote.take_over(settings)
    return answer(task, spec)


class RayEngine:
    """Runs tasks on a Ray cluster.

    `address` is that of the cluster; without it, one is started on this machine. `workers` is the
    number of tasks at once. `options` are those of ray.remote for one task: num_cpus, memory,
    resources ...
    """

    def __init__(
        self,
        address: str | None = None,
        *,
        workers: int | None = None,
        retries: int = RETRIES,
        options: dict[str, Any] | None = None,
    ) -> None:
        if workers is not None and workers < 1:
            raise UsageError(
                f"workers must be at least 1 with Ray, not {workers}",
                hint='pass engine="local" and workers=0 to work in this process',
            )
        self.retries, self._workers, self._options = (
            retries,
            workers,
            {"num_cpus": 1, **(options or {})},
        )
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
        # Without this, Ray replaces 127.0.0.1 by an address that other machines can reach. It reads
        # the variable when it is imported.
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
                address="local",
                num_cpus=workers,
                include_dashboard=False,
                log_to_driver=False,
                configure_logging=False,
                _node_ip_address="127.0.0.1",
            )

    def _check_room(self) -> None:
        """Raises or warns if no node could run a task: Ray itself would wait for ever."""
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
                    f"a task requires {amount:,} {name}, and no node of the cluster has more than"
                    f" {most:,.0f}"
                )
                # A real cluster may grow, an embedded one does not.
                if self._embedded:
                    raise EncodeError(why, hint="pass lower requirements in options=")
                warnings.warn(f"{why}: waiting for a larger node", stacklevel=2)

    def _room(self) -> int:
        """The number of tasks under way at once: two for each slot, so that no worker waits for the
        driver.
        """
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
        """Yields outcomes as they come. Closing the iterator early cancels the running tasks."""
        ray = self._ray
        self._check_room()
        submit = ray.remote(**{"max_retries": self.retries, **self._options})(_answer).remote
        # Objects in Ray's store are sent to each node only once.
        shared = ray.put(spec), ray.put(remote.settings())
        under_way: dict[Any, tuple[dict[str, Any], int]] = {}
        source, room = iter(tasks), self._room()
        try:
            while True:
                while len(under_way) < room and (task := next(source, None)) is not None:
                    under_way[submit(_from_here(task), *shared)] = task, 1
                if not under_way:
                    return
                # `wait` looks at every task, so of many tasks it waits for many at once.
                ready, _ = ray.wait(
                    list(under_way), num_returns=max(1, len(under_way) // 64), timeout=5
                )
                for ref in ready:
                    task, attempts = under_way.pop(ref)
                    result = self._got(ref, task)
                    if (
                        result.error is not None
                        and errors_as_json.passing(result.error)
                        and attempts <= self.retries
                    ):
                        under_way[submit(_from_here(task), *shared)] = task, attempts + 1
                    else:
                        yield result._replace(attempts=attempts)
                # The cluster may have grown.
                if not ready:
                    room = self._room()
        finally:
            for ref in under_way:
                ray.cancel(ref, force=True)

    def _got(self, ref: Any, task: dict[str, Any]) -> Outcome:
        """The outcome of a task that is ready."""
        try:
            answered = self._ray.get(ref)
        except self._ray.exceptions.RayError as error:
            path = next((part["path"] for part in task.get("parts", ())), task.get("path"))
            why = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
            return Outcome(
                task,
                None,
                TensorwireError(
                    f"the task failed in Ray after {self.retries + 1} attempts: {why:.300}",
                    path=path,
                ),
            )
        return outcome(task, answered)

    def close(self) -> None:
        """Disconnects from the cluster, and ends it if this engine has started it."""
        if self._mine and self._ray.is_initialized():
            self._ray.shutdown()
