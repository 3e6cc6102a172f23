"""The web server of the page, on 127.0.0.1 only."""

from __future__ import annotations

import secrets
import socket
from collections.abc import Iterable
from os import PathLike
from types import TracebackType
from typing import Any, Self

from .._optional import require
from .app import application
from .catalog import Catalog

HOST = "127.0.0.1"


class View:
    """A web page that shows files and folders. `url` contains the access token; `run` serves until
    `stop`, which any thread may call.

    with View(["models/"]) as view:
        print(view.url)
        view.run()
    """

    def __init__(self, paths: Iterable[str | PathLike[str]], port: int = 0) -> None:
        uvicorn = require("uvicorn", extra="view")
        catalog = Catalog(paths)
        self._socket = socket.create_server((HOST, port))
        try:
            self.port = self._socket.getsockname()[1]
            token = secrets.token_urlsafe(24)
            self.url = f"http://{HOST}:{self.port}/?token={token}"
            app = application(catalog, token, self.port)
            options: dict[str, Any] = {
                "log_level": "error",
                "access_log": False,
                "lifespan": "off",
                "server_header": False,
                "ws": "none",
            }
            self._server = uvicorn.Server(
                uvicorn.Config(app, **options, timeout_graceful_shutdown=1)
            )
        except BaseException:
            self._socket.close()
            raise

    def run(self) -> None:
        """Serve until `stop` is called or Ctrl-C is pressed."""
        self._server.run(sockets=[self._socket])

    def stop(self) -> None:
        """Make `run` return."""
        self._server.should_exit = True

    def close(self) -> None:
        self._socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
