"""gRPC, by grpcio: bytes in and bytes out, so that neither the protobuf runtime nor TensorFlow is
needed.

grpcio reports its own troubles as if a server had answered: with a code, and a text. Which of them
are answers is decided by the text (`refused`), because nothing else tells them apart (version 1.60
named the peer in its debug string, 1.85 does not). A server that uses grpcio's words can at worst
turn its error into another error.
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
    EncodeError,
    LimitError,
    MissingDependencyError,
    TensorwireError,
    TransportError,
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
"""Older versions of grpcio unpack all of an answer before they ask how large it may be."""
_EARLY = 0.05
"""Seconds by which grpcio's clock may be ahead of ours."""
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
"""How grpcio's texts begin for an exchange that broke off."""
_LARGER = re.compile(
    r"(?<!SERVER: )Received message larger than max \(\d+ vs\.? (\d+)\)|Decompressed message larger"
    r" than max"
)
_STATUS = re.compile(r"Received http2 (?::status )?header with (?::?status|non-200[^:]*): ?(\d{3})")


@dataclass(frozen=True)
class RpcTarget:
    """How to get to a server."""

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
            raise EncodeError(f"{url!r:.100} is no address: {error}") from None
        if (
            parts.scheme not in SCHEMES
            or not host
            or parts.path not in ("", "/")
            or parts.query
            or parts.fragment
            or "@" in parts.netloc
        ):
            raise EncodeError(
                f"{url!r:.100} is no address such as grpc://HOST:PORT or grpcs://HOST:PORT"
            )
        if port is None:
            raise EncodeError(
                f"{url!r:.100} has no port; TensorFlow Serving listens at 8500 for gRPC"
            )
        if compression not in (None, "gzip"):
            raise EncodeError(
                f"no compression {compression!r} of requests{choices(compression, ['gzip'])}"
            )
        secure = parts.scheme == "grpcs"
        if not secure and (certificates is not None or identity is not None):
            raise EncodeError("certificates are for grpcs://; grpc:// is not encrypted")
        # Without the scheme a host that is called "unix" would be a file.
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
        """A channel. It connects when it is first used, again whenever that is needed, and belongs
        to this process: not to one forked from it."""
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
        connect = max(100, min(int(self.connect * 1000), _MOST))
        bounded = (
            tuple(int(number) for number in re.findall(r"\d+", grpc.__version__)[:2]) >= _BOUNDED
        )
        if self.compression and not bounded:
            raise MissingDependencyError(
                "compression by gRPC needs a newer grpcio, which bounds answers: pip install"
                " 'grpcio>=1.82'"
            )
        return [
            ("grpc.max_receive_message_length", min(self.limits.answer, _MOST)),
            ("grpc.max_send_message_length", -1),
            (
                "grpc.compression_enabled_algorithms_bitset",
                _IDENTITY | _GZIP if bounded else _IDENTITY,
            ),
            ("grpc.enable_retries", 0),  # whoever calls us tries again
            ("grpc.enable_http_proxy", 0),  # and nobody but the caller says where to
            ("grpc.service_config_disable_resolution", 1),
            # so that a new channel does not wait where another one gave up
            ("grpc.use_local_subchannel_pool", 1),
            # which is how long one attempt to connect may take
            ("grpc.min_reconnect_backoff_ms", connect),
            ("grpc.dns_ares_query_timeout", connect),
            ("grpc.initial_reconnect_backoff_ms", 100),
            ("grpc.max_reconnect_backoff_ms", 1000),
        ]

    def arguments(self, grpc: ModuleType, call: Call) -> dict[str, Any]:
        """What goes with a call's body."""
        metadata = tuple(_metadata({**self.headers, **call.headers}))
        return {
            "metadata": metadata,
            "compression": grpc.Compression.Gzip if self.compression else None,
        }


def joined(body: Sequence[Any]) -> bytes:
    """grpcio takes one bytes object and nothing else."""
    return body[0] if len(body) == 1 and type(body[0]) is bytes else b"".join(body)


def answered(body: bytes, metadata: Iterable[tuple[str, Any]]) -> Answer:
    return Answer(200, _headers(0, metadata), memoryview(body))


def refused(
    target: RpcTarget, code: int, said: str, metadata: Iterable[tuple[str, Any]], deadline: Deadline
) -> Answer:
    """The answer that a status is, if it is the server's; else the error that it stands for."""
    if code == 4 and deadline.at - deadline.clock() < _EARLY:
        raise deadline.passed()
    larger = _LARGER.search(said) if code == 8 else None
    if larger and larger[1] in (None, str(min(target.limits.answer, _MOST))):
        raise LimitError(
            f"an answer of more than {target.limits.answer} bytes; tw.Limits(answer=...) allows more"
        )
    if code == 14 and _UNREACHED.match(said):
        if target.secure and _HANDSHAKE.search(said):
            raise TransportError(
                f"no TLS with the server ({said:.500}); certificates= says whom to trust"
            )
        raise ConnectError(
            f"the server was not reached ({said:.500}); does a gRPC server run there?"
        )
    status = CODES.get(code, CODES[2])[1]
    if by_http := _STATUS.search(said):  # something on the way there that does not speak gRPC
        status = int(by_http[1])
    elif _BROKEN.match(said):
        raise TransportError(f"the exchange broke off ({said:.500})")
    return Answer(status, _headers(code, metadata), memoryview(said.encode("utf-8", "replace")))


def _headers(code: int, metadata: Iterable[tuple[str, Any]]) -> dict[str, str]:
    """Those of a "-bin" name as they travel, in base64. What gRPC servers say of trying again is
    said in HTTP's words too.
    """
    found = {"grpc-status": str(code)}
    for name, value in metadata:
        found[name.lower()] = value if isinstance(value, str) else base64.b64encode(value).decode()
    pushback = found.get("grpc-retry-pushback-ms", "")
    if re.fullmatch(r"\d{1,9}", pushback, re.A):
        found.setdefault("retry-after", str(-(-int(pushback) // 1000)))
    return found


def _metadata(headers: Mapping[str, str]) -> Iterable[tuple[str, Any]]:
    for name, value in headers.items():
        key = name.lower()
        if not _KEY.fullmatch(key):
            raise EncodeError(f"{name!r:.60} is no name of a header that gRPC has")
        if key.endswith("-bin"):
            yield key, value.encode()
        elif _VALUE.fullmatch(value):
            yield key, value
        else:
            raise EncodeError(
                f"the header {name!r:.60} is not plain ASCII; gRPC takes other bytes by names that"
                " end in -bin"
            )


FAILURES = (TransportError, LimitError)
GIVE_UP = (ConnectError, DeadlineError)
"""A channel that could not connect waits before it tries again, and lets all calls fail meanwhile;
one that nothing comes from may be dead. A new one tries at once."""


class SharedChannel:
    """A channel, and how many calls are on it."""

    def __init__(self, channel: grpc.Channel) -> None:
        self.grpc, self.calls, self.given_up = channel, 0, False


class RpcConnection:
    """A server that speaks gRPC, at `grpc://HOST:PORT`, or by TLS at `grpcs://HOST:PORT`, and the
    channel to it.

    `connect` is how many seconds an attempt to connect may take. `compression="gzip"` packs
    requests. `headers` go with every call. `certificates` are those to trust, as PEM, instead of
    the usual ones; `identity` is the client's own (key, certificate chain).
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
        """The answer that grpcio has raised."""
        metadata = (*(error.initial_metadata() or ()), *(error.trailing_metadata() or ()))
        code, text = error.code().value[0], error.details() or ""
        return refused(self._target, code, text, metadata, deadline)

    def _failed(
        self, error: TensorwireError, call: Call, channel: SharedChannel | None
    ) -> TensorwireError:
        """An error with its URL. Calls that follow use another channel if this one may be dead."""
        if channel is not None and isinstance(error, GIVE_UP):
            channel.given_up = True
        return error.add(path=f"{self._target.url}{call.method}")


class RpcTransport(RpcConnection):
    """gRPC for threads. Arguments are those of RpcConnection.

    >>> from tensorwire.serving.rpc import messages
    >>> from tensorwire.serving.transports import Call, Deadline
    >>> with RpcTransport("grpc://127.0.0.1:1") as transport:
    ...     transport.send(Call(messages.STATUS, body=messages.build_status(messages.ModelSpec("ranker"))), Deadline.after(1))
    Traceback (most recent call last):
    tensorwire.serving.transports.ConnectError: the server was not reached (... refused...); does a
    gRPC server run there? ...
    """

    def __init__(self, url: str, **options: Any) -> None:
        super().__init__(url, **options)
        self._lock = threading.Lock()

    def send(self, call: Call, deadline: Deadline) -> Answer:
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
        """Ends the connection once the calls that are on their way are finished. A later call
        connects anew.
        """
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
