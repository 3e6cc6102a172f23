"""Model serving: clients, a local server, signatures and the export of SavedModels.

    Client, AsyncClient     calls to TensorFlow Serving (REST, gRPC) and to KServe v2 servers
    Signature, Input, Group the inputs and outputs of a model; the inputs that form one tensor
    export, rebuild         SavedModels with sparse and ragged inputs (needs TensorFlow)
    Server                  a local server for development and tests (needs TensorFlow)
    MockTransport           a transport for tests that need no server

`rest`, `kserve` and `rpc` build and parse the bodies of requests and answers, without I/O;
`transports` sends and receives them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .._optional import lazily

if TYPE_CHECKING:
    from .client.aio import AsyncClient
    from .client.sync import Client
    from .composite import Group
    from .model.export_model import export
    from .model.reassembly import rebuild
    from .server import Server
    from .signature import Signature
    from .spec import Input
    from .transports.mock import MockTransport

_WHERE = {
    "AsyncClient": "client.aio",
    "Client": "client.sync",
    "Group": "composite",
    "Input": "spec",
    "MockTransport": "transports.mock",
    "Server": "server",
    "Signature": "signature",
    "export": "model.export_model",
    "rebuild": "model.reassembly",
}

__all__ = [
    "AsyncClient",
    "Client",
    "Group",
    "Input",
    "MockTransport",
    "Server",
    "Signature",
    "export",
    "rebuild",
]

__getattr__, __dir__ = lazily(__name__, _WHERE)
