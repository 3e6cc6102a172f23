"""TLS over a connection: certificates are verified, unless a context of the caller's own says
otherwise.
"""

from __future__ import annotations

import select
import ssl
from collections.abc import Sequence

from ..._errors import EncodeError, TransportError
from . import ConnectError
from .addresses import Origin
from .connections import Busy, Connection
from .drivers import Steps, Wait


def default_context() -> ssl.SSLContext:
    """The system's authorities, the host's name checked.

    >>> default_context().check_hostname
    True
    """
    context = ssl.create_default_context()
    context.set_alpn_protocols(["http/1.1"])
    return context


class TlsConnection(Connection):
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
    """The same connection, encrypted; the name on the certificate is the origin's."""
    try:
        # An end without TLS's own end may be an attacker's: it is an error, which matters where
        # nothing else says how long a body is.
        sock = context.wrap_socket(
            connection.sock,
            server_hostname=origin.host,
            do_handshake_on_connect=False,
            suppress_ragged_eofs=False,
        )
    except ValueError as cause:
        connection.close()
        raise EncodeError(f"no certificate can have the name {origin.host!r}: {cause}") from cause
    except OSError as cause:
        connection.close()
        raise ConnectError(f"no TLS connection to {origin.place}: {cause}") from cause
    try:
        while True:
            wanted = _handshake(sock, origin)
            if not wanted:
                return TlsConnection(sock)
            if not (yield Wait(sock, wanted, until)):
                raise ConnectError(
                    f"no TLS connection to {origin.place} in time; connect= allows more"
                )
    except BaseException:
        sock.close()
        raise


def _handshake(sock: ssl.SSLSocket, origin: Origin) -> int:
    """Goes on with it; what to wait for, or 0 at its end."""
    try:
        sock.do_handshake()
        return 0
    except ssl.SSLWantReadError:
        return select.POLLIN
    except ssl.SSLWantWriteError:
        return select.POLLOUT
    except ssl.SSLCertVerificationError as cause:
        help = "an authority of your own goes into context=ssl.create_default_context(cafile=...)"
        raise TransportError(
            f"the certificate of {origin.place} is not valid: {cause.verify_message}; {help}"
        ) from cause
    except (ssl.SSLEOFError, ssl.SSLZeroReturnError) as cause:
        raise ConnectError(f"{origin.place} closed the connection before TLS began") from cause
    except ssl.SSLError as cause:
        raise TransportError(
            f"{origin.place} and we found no common TLS ({cause.reason or cause}); does it speak"
            " http://?"
        ) from cause
    except OSError as cause:
        raise ConnectError(f"no TLS connection to {origin.place}: {cause}") from cause
