"""Talking to model servers: any tensor in, any tensor out.

    Client, AsyncClient     calls to TensorFlow Serving (REST, gRPC) and to KServe v2 servers
    Signature, Input, Group what a model takes and gives; which inputs are the parts of one tensor
    export, rebuild         the model's own side, which needs TensorFlow
    Server                  a local server for laptops and tests, which needs TensorFlow
    MockTransport           no server at all, for your tests

`rest`, `kserve` and `rpc` make and read the bodies of requests and answers, without I/O;
`transports` carries them.
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
