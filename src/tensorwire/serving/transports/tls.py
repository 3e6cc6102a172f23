"""TLS for connections. Certificates are verified, unless the caller's context disables it."""

from __future__ import annotations

import select
import ssl
from collections.abc import Sequence

from ..._errors import TransportError, UsageError
from . import ConnectError
from .addresses import Origin
from .connections import Busy, Connection
from .drivers import Steps, Wait


def default_context() -> ssl.SSLContext:
    """Return a context that trusts the system's authorities and checks host names.

    >>> default_context().check_hostname
    True
    """
    context = ssl.create_default_context()
    context.set_alpn_protocols(["http/1.1"])
    return context


class TlsConnection(Connection):
    """A non-blocking TLS socket."""

    def __init__(self, sock: ssl.SSLSocket) -> None:
        super().__init__(sock)
        self._tls = sock

    def send(self, buffers: Sequence[memoryview]) -> int:
        try:
            return self._tls.send(buffers[0])
        except ssl.SSLWantReadError:
            raise Busy(select.POLLIN) from None
        except ssl.SSLWantWriteError:
            raise Busy(select.POLLOUT) from None

    def receive(self, room: memoryview) -> int:
        try:
            return self._tls.recv_into(room)
        except ssl.SSLWantReadError:
            raise Busy(select.POLLIN) from None
        except ssl.SSLWantWriteError:
            raise Busy(select.POLLOUT) from None
        except ssl.SSLZeroReturnError:
            return 0

    @property
    def usable(self) -> bool:
        return not self._tls.pending() and super().usable


def secure(
    connection: Connection, origin: Origin, context: ssl.SSLContext, until: float
) -> Steps[Connection]:
    """Start TLS on a connection; the certificate has to match the origin's host name."""
    try:
        # An end of stream without a TLS close alert may come from an attacker. It has to be an
        # error, because it may be the only sign that a body was cut off.
        sock = context.wrap_socket(
            connection.sock,
            server_hostname=origin.host,
            do_handshake_on_connect=False,
            suppress_ragged_eofs=False,
        )
    except ValueError as cause:
        connection.close()
        raise UsageError(f"invalid host name for TLS {origin.host!r}: {cause}") from cause
    except OSError as cause:
        connection.close()
        raise ConnectError(f"the TLS handshake with {origin.place} failed: {cause}") from cause
    try:
        while True:
            events = _handshake(sock, origin)
            if not events:
                return TlsConnection(sock)
            if not (yield Wait(sock, events, until)):
                raise ConnectError(
                    f"the TLS handshake with {origin.place} timed out",
                    hint="a larger connect= allows more time",
                )
    except BaseException:
        sock.close()
        raise


def _handshake(sock: ssl.SSLSocket, origin: Origin) -> int:
    """Continue the handshake; return the poll events to wait for, or 0 when it is done."""
    try:
        sock.do_handshake()
        return 0
    except ssl.SSLWantReadError:
        return select.POLLIN
    except ssl.SSLWantWriteError:
        return select.POLLOUT
    except ssl.SSLCertVerificationError as cause:
        raise TransportError(
            f"the certificate of {origin.place} is not valid: {cause.verify_message}",
            hint="context=ssl.create_default_context(cafile=...) trusts an authority of your own",
        ) from cause
    except (ssl.SSLEOFError, ssl.SSLZeroReturnError) as cause:
        raise ConnectError(
            f"{origin.place} closed the connection during the TLS handshake"
        ) from cause
    except ssl.SSLError as cause:
        raise TransportError(
            f"the TLS handshake with {origin.place} failed: {cause.reason or cause}",
            hint="the server may not use TLS: try http://",
        ) from cause
    except OSError as cause:
        raise ConnectError(f"the TLS handshake with {origin.place} failed: {cause}") from cause
