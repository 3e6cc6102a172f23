"""A local server for SavedModels, with TensorFlow Serving's REST and gRPC APIs, and KServe v2 over
REST. It needs TensorFlow.

It is for laptops, notebooks and CI without containers. Production should run TensorFlow Serving,
which batches, warms up and reports metrics; clients of this server work with it unchanged.

    folders.py, models.py                 the models and versions on disk; loading and unloading
    runner.py, classification.py          calling a model in the way TensorFlow Serving does
    http1.py, request_reader.py           HTTP/1.1: parsing, reading with deadlines and limits
    http.py, server_connection.py,
    worker_threads.py                     the REST port: connections and threads
    routes.py, kserve.py, rpc.py          the APIs: Serving's REST, KServe's REST, Serving's gRPC
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Self

from ..._errors import UsageError
from ..signature import Signature
from .folders import Folders, Versions
from .http import HttpServer, host_port
from .models import AVAILABLE, Models
from .request_reader import Bounds
from .routes import RestRoutes
from .rpc import RpcServer

__all__ = ["Bounds", "Server"]

_BOUNDS = Bounds()


class Server:
    """A server for SavedModels in this process, which runs as long as the `with` block lasts.

    models     {name: folder}, or folders whose names are those of the models: a SavedModel, or a
               folder with numbered versions
    rest, grpc ports; 0 lets the system choose one, None disables the API
    host       the address to listen on; by default only this machine can connect
    hosts      allowed names in the Host header, in addition to localhost, addresses of the loopback
               interface, `host` and the address that the client has connected to
    versions   the versions of each model to load: "latest", "all", or numbers
    labels     {model: {label: version}}; these versions are loaded, too
    poll       seconds between two searches for new versions; 0 disables them
    bounds     limits for clients: sizes, connections, times
    grace      seconds that `stop` waits for requests in progress
    log        called with a line of text for each request
    tensor_content   whether gRPC answers use tensor_content, which is faster for integers and half
               floats; TensorFlow Serving uses typed fields such as float_val

    Raises SchemaError if a folder has no SavedModel or a version cannot be loaded, OSError if a
    port is in use, EncodeError if both ports are None, and MissingDependencyError without
    TensorFlow or (for `grpc=`) grpcio.

    >>> import os, tempfile
    >>> import tensorwire as tw
    >>> folder = os.path.join(tempfile.mkdtemp(), "double")
    >>> _ = tw.serving.export(lambda x: {"y": x * 2}, folder, {"x": ("float32", [None])}, version=1)
    >>> with tw.serving.Server(folder, rest=0) as server:
    ...     tw.serving.Client(server.rest_url, model="double").predict([1, 2.5])
    {'y': array([2., 5.], dtype=float32)}
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
                "rest= and grpc= are both None: the server has no port",
                hint="pass rest=PORT or grpc=PORT; 0 lets the system choose a port",
            )
        self._models = Models(models, versions, labels)
        self._host, self._poll, self._grace, self._ready = host, poll, grace, False
        self._rest: HttpServer | None = None
        self._rpc: RpcServer | None = None
        # The ports are opened before the models are loaded, so that a port in use is reported at
        # once.
        try:
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
        """Load the models, then accept requests; return the server."""
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
        """Refuse new requests, wait for those in progress, and unload the models.

        Returns whether all requests have finished within `grace` seconds.
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

    @property
    def rest_url(self) -> str:
        """The URL of the REST port, such as http://127.0.0.1:8501; UsageError without one."""
        if self._rest is None:
            raise UsageError("the server has no REST port", hint="pass rest=0 to Server")
        return f"http://{host_port(self._host, self._rest.port)}"

    @property
    def grpc_url(self) -> str:
        """The URL of the gRPC port, such as grpc://127.0.0.1:8500; UsageError without one."""
        if self._rpc is None:
            raise UsageError("the server has no gRPC port", hint="pass grpc=0 to Server")
        return f"grpc://{host_port(self._host, self._rpc.port)}"

    @property
    def signatures(self) -> dict[str, dict[int, dict[str, Signature]]]:
        """The signatures of all loaded versions, by model, version and name."""
        return {
            name: {
                version.number: dict(version.runner.signatures)
                for version in self._models.versions(name)
                if version.state == AVAILABLE
            }
            for name in self._models.names
        }
