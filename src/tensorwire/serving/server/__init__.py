"""A local server for SavedModels: TensorFlow Serving's REST and gRPC protocols, and KServe v2 over
REST. Needs TensorFlow.

For laptops, notebooks and CI, where no container runs. Production should run the real TensorFlow
Serving, which batches, warms up, reports metrics and is written in C++; whatever talks to this
server talks to that one, too.

    folders.py, models.py                 which models and versions are served; loading, unloading
    runner.py, classification.py          calling a model, as Serving does it
    http1.py, request_reader.py, http.py  HTTP/1.1: the rules, reading within bounds, connections
    routes.py, kserve.py, rpc.py          requests and answers: Serving's REST, KServe's, Serving's
                                          gRPC
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Self

from ..._errors import UsageError
from ..signature import Signature
from .folders import Folders, Versions
from .http import HttpServer
from .models import AVAILABLE, Models
from .request_reader import Bounds
from .routes import RestRoutes
from .rpc import RpcServer

__all__ = ["Bounds", "Server"]

_BOUNDS = Bounds()


class Server:
    """Serves SavedModels from this process, as long as the `with` block lasts.

    models     {name: folder}, or folders, which say the names: a SavedModel, or a model's folder
               with numbered versions in it
    rest, grpc ports; 0 for one of the system's choice, None for none
    host       the address to listen on; by default only this machine can connect
    hosts      names that clients may call it by in the Host header, besides localhost, addresses of
               the
               loopback interface, `host` and the address that the client has connected to
    versions   "latest", "all", or numbers: which versions of each model to load
    labels     {model: {label: version}}; these versions are loaded, too
    poll       seconds between two looks for new versions; 0 for none
    bounds     what clients may ask: sizes, connections, times
    log        takes a line for each request
    tensor_content   whether gRPC answers have their values in tensor_content, which is quicker for
               integers and half floats; TensorFlow Serving answers in typed fields such as
               float_val

    >>> import os, tempfile, urllib.request
    >>> from tensorwire.serving import export
    >>> folder = os.path.join(tempfile.mkdtemp(), "double")
    >>> _ = export(lambda x: x * 2, folder, {"x": ("float32", [None])}, version=1)
    >>> with Server(folder, rest=0) as server:
    ...     with urllib.request.urlopen(f"{server.rest_url}/v1/models/double:predict", b'{"instances": [1, 2.5]}') as answer:
    ...         print(answer.read().decode())
    {"predictions":[2.0,5.0]}
    """

    def __init__(
        self,
        models: Folders,
        rest: int | None = None,
        grpc: int | None = None,
        host: str = "127.0.0.1",
        *,
        versions: Versions = "latest",
        labels: Mapping[str, Mapping[str, int]] | None = None,
        poll: float = 1.0,
        bounds: Bounds = _BOUNDS,
        grace: float = 10.0,
        log: Callable[[str], None] | None = None,
        tensor_content: bool = False,
        hosts: Collection[str] = (),
    ) -> None:
        if rest is None and grpc is None:
            raise UsageError(
                "a server listens on rest=PORT or grpc=PORT, or on both; 0 is a port of the"
                " system's choice"
            )
        self._models = Models(models, versions, labels)
        self._host, self._poll, self._grace, self._ready = host, poll, grace, False
        self._rest: HttpServer | None = None
        self._rpc: RpcServer | None = None
        try:  # before the models are loaded, so that a port that is taken is known at once
            if rest is not None:
                routes = RestRoutes(self._models, lambda: self._ready)
                self._rest = HttpServer(routes, host, rest, bounds, log, hosts)
            if grpc is not None:
                self._rpc = RpcServer(
                    self._models, host, grpc, bounds, log, tensor_content=tensor_content
                )
        except BaseException:
            self._stop_ports(0)
            raise

    def start(self) -> Self:
        """Loads the models, then answers requests."""
        try:
            self._models.load()
        except BaseException:
            self.stop(0)
            raise
        self._ready = True
        for port in (self._rest, self._rpc):
            if port is not None:
                port.start()
        if self._poll > 0:
            self._models.watch(self._poll)
        return self

    def stop(self, grace: float | None = None) -> bool:
        """Takes no more requests, lets the running ones finish, and unloads the models. Whether all
        had finished within the grace.
        """
        self._ready = False
        done = self._stop_ports(self._grace if grace is None else grace)
        self._models.close()
        return done

    def _stop_ports(self, grace: float) -> bool:
        from concurrent.futures import ThreadPoolExecutor

        ports = [port for port in (self._rest, self._rpc) if port is not None]
        with ThreadPoolExecutor(2) as pool:
            return all(list(pool.map(lambda port: port.stop(grace), ports)))

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _where(self, port: int) -> str:
        return f"[{self._host}]:{port}" if ":" in self._host else f"{self._host}:{port}"

    @property
    def rest_url(self) -> str:
        """http://127.0.0.1:8501"""
        if self._rest is None:
            raise UsageError("this server has no REST; Server(..., rest=0) gives it a port")
        return f"http://{self._where(self._rest.port)}"

    @property
    def grpc_url(self) -> str:
        """grpc://127.0.0.1:8500"""
        if self._rpc is None:
            raise UsageError("this server has no gRPC; Server(..., grpc=0) gives it a port")
        return f"grpc://{self._where(self._rpc.port)}"

    @property
    def signatures(self) -> dict[str, dict[int, dict[str, Signature]]]:
        """What is served: signatures by model, version and name."""
        return {
            name: {
                one.number: dict(one.runner.signatures)
                for one in self._models.versions(name)
                if one.state == AVAILABLE
            }
            for name in self._models.names
        }
