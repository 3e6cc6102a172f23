"""The gRPC transport, by grpcio: bytes in and bytes out, without protobuf or TensorFlow.

grpcio reports its own failures like answers of a server: with a status code and a text. Only the
text tells them apart (`refused`): version 1.60 named the peer in its debug string, 1.85 does not.
If a server's error has the same text as one of grpcio's, it is reported as another error, but never
as a success.
"""

from __future__ import annotations

import base64
import re
import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import urlsplit

from ..._errors import (
    DeadlineError,
    LimitError,
    MissingDependencyError,
    TensorwireError,
    TransportError,
    UsageError,
    choices,
)
from ..._limits import DEFAULT, Limits
from ..._optional import require
from ..rpc import CODES
from . import Answer, Call, ConnectError, Deadline

if TYPE_CHECKING:
    import grpc

SCHEMES = ("grpc", "grpcs")
_MOST = (1 << 31) - 1
_IDENTITY, _GZIP = 1, 4
_BOUNDED = (1, 82)
"""Older versions of grpcio decompress a whole answer before they check its size."""
_EARLY = 0.05
"""Seconds by which grpcio's deadline may come before ours."""
_KEY = re.compile(r"(?!grpc-)[a-z0-9_.-]+")
_VALUE = re.compile(r"[ -~]*")
_UNREACHED = re.compile(
    r"failed to connect to all addresses|errors resolving|DNS resolution failed"
)
_HANDSHAKE = re.compile(r"(?i)(tls|ssl) handshake failed|certificate|verification")
_BROKEN = re.compile(
    r"Stream removed|Socket closed|recvmsg|sendmsg|Connection reset|Broken pipe|GOAWAY"
    r" received|Failed parsing HTTP/2|Received RST_STREAM"
    r"|Compression algorithm|Channel closed|Locally cancelled|Invalid metadata"
)
"""The beginnings of grpcio's texts for an exchange that broke off."""
_LARGER = re.compile(
    r"(?<!SERVER: )Received message larger than max \(\d+ vs\.? (\d+)\)|Decompressed message larger"
    r" than max"
)
_STATUS = re.compile(r"Received http2 (?::status )?header with (?::?status|non-200[^:]*): ?(\d{3})")


@dataclass(frozen=True)
class RpcTarget:
    """A gRPC server and the settings of its channel."""

    url: str
    target: str
    secure: bool
    certificates: bytes | None
    identity: tuple[bytes, bytes] | None
    connect: float
    compression: str | None
    headers: Mapping[str, str]
    limits: Limits

    @classmethod
    def to(
        cls,
        url: str,
        connect: float,
        compression: str | None,
        headers: Mapping[str, str] | None,
        certificates: bytes | None,
        identity: tuple[bytes, bytes] | None,
        limits: Limits,
    ) -> RpcTarget:
        try:
            parts = urlsplit(url)
            host, port = parts.hostname, parts.port
        except ValueError as error:
            raise UsageError(f"invalid gRPC address {url!r:.100}: {error}") from None
        if (
            parts.scheme not in SCHEMES
            or not host
            or parts.path not in ("", "/")
            or parts.query
            or parts.fragment
            or "@" in parts.netloc
        ):
            raise UsageError(
                f"invalid gRPC address {url!r:.100}: expected grpc://HOST:PORT or grpcs://HOST:PORT"
            )
        if port is None:
            raise UsageError(
                f"the gRPC address {url!r:.100} has no port",
                hint="the default port of TensorFlow Serving for gRPC is 8500",
            )
        if compression not in (None, "gzip"):
            raise UsageError(
                f"unknown compression {compression!r} for requests{choices(compression, ['gzip'])}"
            )
        secure = parts.scheme == "grpcs"
        if not secure and (certificates is not None or identity is not None):
            raise UsageError("certificates need a grpcs:// address; grpc:// is not encrypted")
        # Without "dns:///" grpcio would treat a host called "unix" as a socket file.
        target = f"dns:///[{host}]:{port}" if ":" in host else f"dns:///{host}:{port}"
        return cls(
            url,
            target,
            secure,
            certificates,
            identity,
            connect,
            compression,
            dict(headers or {}),
            limits,
        )

    def open(self, grpc: ModuleType, aio: bool = False) -> Any:
        """Return a new channel. It connects when it is used, and cannot be used after a fork."""
        make, options = grpc.aio if aio else grpc, self._options(grpc)
        if not self.secure:
            return make.insecure_channel(self.target, options=options)
        key, chain = self.identity or (None, None)
        return make.secure_channel(
            self.target,
            grpc.ssl_channel_credentials(self.certificates, key, chain),
            options=options,
        )

    def _options(self, grpc: ModuleType) -> list[tuple[str, int]]:
        """Return the options of a channel."""
        connect = max(100, min(int(self.connect * 1000), _MOST))
        bounded = (
            tuple(int(number) for number in re.findall(r"\d+", grpc.__version__)[:2]) >= _BOUNDED
        )
        if self.compression and not bounded:
            raise MissingDependencyError(
                "compression over gRPC needs grpcio 1.82 or newer, which limits the size of"
                " decompressed answers: pip install 'grpcio>=1.82'"
            )
        return [
            ("grpc.max_receive_message_length", min(self.limits.answer, _MOST)),
            ("grpc.max_send_message_length", -1),
            (
                "grpc.compression_enabled_algorithms_bitset",
                _IDENTITY | _GZIP if bounded else _IDENTITY,
            ),
            # The client retries, not grpcio.
            ("grpc.enable_retries", 0),
            # The environment and DNS must not redirect calls.
            ("grpc.enable_http_proxy", 0),
            ("grpc.service_config_disable_resolution", 1),
            # A new channel must not share the backoff of one that has failed.
            ("grpc.use_local_subchannel_pool", 1),
            # This is also grpcio's timeout for an attempt to connect.
            ("grpc.min_reconnect_backoff_ms", connect),
            ("grpc.dns_ares_query_timeout", connect),
            ("grpc.initial_reconnect_backoff_ms", 100),
            ("grpc.max_reconnect_backoff_ms", 1000),
        ]

    def arguments(self, grpc: ModuleType, call: Call) -> dict[str, Any]:
        """Return the keyword arguments of grpcio for a call: metadata and compression."""
        metadata = tuple(_metadata({**self.headers, **call.headers}))
        return {
            "metadata": metadata,
            "compression": grpc.Compression.Gzip if self.compression else None,
        }


def joined(body: Sequence[Any]) -> bytes:
    """Join a body to one bytes object: grpcio accepts nothing else."""
    return body[0] if len(body) == 1 and type(body[0]) is bytes else b"".join(body)


def answered(body: bytes, metadata: Iterable[tuple[str, Any]]) -> Answer:
    """Return the Answer for a call that succeeded."""
    return Answer(200, _headers(0, metadata), memoryview(body))


def refused(
    target: RpcTarget, code: int, text: str, metadata: Iterable[tuple[str, Any]], deadline: Deadline
) -> Answer:
    """Return the Answer for an error status of the server; raise if it is a failure of grpcio."""
    if code == 4 and deadline.at - deadline.clock() < _EARLY:
        raise deadline.passed()
    larger = _LARGER.search(text) if code == 8 else None
    if larger and larger[1] in (None, str(min(target.limits.answer, _MOST))):
        raise LimitError(
            f"the answer has more than {target.limits.answer} bytes",
            hint="a larger limits=tw.Limits(answer=...) allows more",
        )
    if code == 14 and _UNREACHED.match(text):
        if target.secure and _HANDSHAKE.search(text):
            raise TransportError(
                f"the TLS handshake failed: {text:.500}",
                hint="certificates= sets the authorities to trust",
            )
        raise ConnectError(
            f"cannot connect to the gRPC server: {text:.500}",
            hint="is a gRPC server running there?",
        )
    status = CODES.get(code, CODES[2])[1]
    # A proxy or load balancer that does not speak gRPC may answer with an HTTP status.
    if http_status := _STATUS.search(text):
        status = int(http_status[1])
    elif _BROKEN.match(text):
        raise TransportError(f"the connection broke off: {text:.500}")
    return Answer(status, _headers(code, metadata), memoryview(text.encode("utf-8", "replace")))


def _headers(code: int, metadata: Iterable[tuple[str, Any]]) -> dict[str, str]:
    """Return metadata as headers; binary values ("-bin") in base64.

    gRPC's retry pushback is also given as HTTP's Retry-After.
    """
    headers = {"grpc-status": str(code)}
    for name, value in metadata:
        headers[name.lower()] = (
            value if isinstance(value, str) else base64.b64encode(value).decode()
        )
    pushback = headers.get("grpc-retry-pushback-ms", "")
    if re.fullmatch(r"\d{1,9}", pushback, re.A):
        headers.setdefault("retry-after", str(-(-int(pushback) // 1000)))
    return headers


def _metadata(headers: Mapping[str, str]) -> Iterable[tuple[str, Any]]:
    """Return headers as gRPC metadata; raise EncodeError if one is not valid."""
    for name, value in headers.items():
        key = name.lower()
        if not _KEY.fullmatch(key):
            raise UsageError(f"invalid name of a gRPC header {name!r:.60}")
        if key.endswith("-bin"):
            yield key, value.encode()
        elif _VALUE.fullmatch(value):
            yield key, value
        else:
            raise UsageError(
                f"the value of the gRPC header {name!r:.60} is not printable ASCII",
                hint="gRPC accepts other bytes in headers whose names end in -bin",
            )


FAILURES = (TransportError, LimitError)
GIVE_UP = (ConnectError, DeadlineError)
"""Errors after which the channel is replaced. A channel that could not connect fails all calls
until its backoff has passed, and one that does not answer may be dead; a new one connects at once.
"""


class SharedChannel:
    """A channel and the number of its calls in progress."""

    def __init__(self, channel: grpc.Channel) -> None:
        self.grpc, self.calls, self.given_up = channel, 0, False


class RpcConnection:
    """A gRPC server, at `grpc://HOST:PORT` or with TLS at `grpcs://HOST:PORT`, and its channel.

    connect       seconds for an attempt to connect
    compression   "gzip" compresses requests
    headers       sent with every call
    certificates  the authorities to trust, as PEM, instead of the system's
    identity      the client's own (key, certificate chain)
    """

    def __init__(
        self,
        url: str,
        *,
        connect: float = 5.0,
        compression: str | None = None,
        headers: Mapping[str, str] | None = None,
        certificates: bytes | None = None,
        identity: tuple[bytes, bytes] | None = None,
        limits: Limits = DEFAULT,
    ) -> None:
        self._target = RpcTarget.to(
            url, connect, compression, headers, certificates, identity, limits
        )
        self._channel: SharedChannel | None = None

    def _refused(self, error: grpc.RpcError, deadline: Deadline) -> Answer:
        """Return the Answer for a status that grpcio has raised."""
        metadata = (*(error.initial_metadata() or ()), *(error.trailing_metadata() or ()))
        code, text = error.code().value[0], error.details() or ""
        return refused(self._target, code, text, metadata, deadline)

    def _failed(
        self, error: TensorwireError, call: Call, channel: SharedChannel | None
    ) -> TensorwireError:
        """Add the URL to an error, and retire the channel if it may be dead."""
        if channel is not None and isinstance(error, GIVE_UP):
            channel.given_up = True
        return error.add(path=f"{self._target.url}{call.method}")


class RpcTransport(RpcConnection):
    """gRPC for threads, with the arguments of RpcConnection. Threads can share it.

    >>> from tensorwire.serving.transports import Call, Deadline
    >>> call = Call("/tensorflow.serving.ModelService/GetModelStatus")
    >>> with RpcTransport("grpc://127.0.0.1:1") as transport:
    ...     transport.send(call, Deadline.after(1))
    Traceback (most recent call last):
    tensorwire.serving.transports.ConnectError: cannot connect to the gRPC server: ... refused...;
    is a gRPC server running there?
    """

    def __init__(self, url: str, **options: Any) -> None:
        super().__init__(url, **options)
        self._lock = threading.Lock()

    def send(self, call: Call, deadline: Deadline) -> Answer:
        """Send a call and return its answer."""
        channel: SharedChannel | None = None
        try:
            deadline.left()
            grpc = require("grpc", extra="serving")
            arguments = self._target.arguments(grpc, call)
            channel = self._take(grpc)
            try:
                method = channel.grpc.unary_unary(call.method)
                body, done = method.with_call(
                    joined(call.body), timeout=deadline.left(), **arguments
                )
                return answered(body, (*done.initial_metadata(), *done.trailing_metadata()))
            except grpc.RpcError as error:
                return self._refused(error, deadline)
        except FAILURES as error:
            raise self._failed(error, call, channel) from None
        finally:
            if channel is not None:
                self._give_back(channel)

    def _take(self, grpc: ModuleType) -> SharedChannel:
        with self._lock:
            if self._channel is None or self._channel.given_up:
                self._channel = SharedChannel(self._target.open(grpc))
            self._channel.calls += 1
            return self._channel

    def _give_back(self, channel: SharedChannel) -> None:
        with self._lock:
            channel.calls -= 1
            unused = channel.given_up and not channel.calls
        if unused:
            channel.grpc.close()

    def close(self) -> None:
        """Close the channel when the calls in progress are finished; a later call opens a new one."""
        with self._lock:
            channel, self._channel = self._channel, None
            if channel is None:
                return
            channel.given_up = True
            unused = not channel.calls
        if unused:
            channel.grpc.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()
