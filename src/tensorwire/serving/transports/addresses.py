"""Server URLs, and the resolution of host names."""

from __future__ import annotations

import base64
import re
import select
import socket
import threading
from typing import NamedTuple
from urllib.parse import unquote, urlsplit

from ..._errors import UsageError
from . import ConnectError
from .drivers import Steps, Wait

_NAME = re.compile(r"[0-9A-Za-z._-]+")
_IPV6 = re.compile(r"[0-9A-Fa-f:.]+")
Address = tuple[socket.AddressFamily, tuple[str, int] | tuple[str, int, int, int]]


class Origin(NamedTuple):
    """A server as named by a URL: scheme, host, port and path prefix.

    >>> Origin.parse("https://models.example.com/team/").prefix
    '/team'
    >>> Origin.parse("http://[::1]:8501").authority
    '[::1]:8501'
    """

    secure: bool
    host: str
    port: int
    prefix: str
    """The path that comes before every target, without a final slash."""
    login: str = ""
    """For a proxy: the value of `Proxy-Authorization`."""

    @classmethod
    def parse(cls, url: str, proxy: bool = False) -> Origin:
        """Return the origin for a URL; raise UsageError if it is not valid."""
        shown = re.sub(r"//[^/]*@", "//...@", url)
        if "...@" in shown and not proxy:
            raise UsageError(
                "a server URL cannot contain a user name or password, because URLs appear in logs",
                hint='pass headers={"Authorization": ...}',
            )
        if not re.fullmatch(r"[!-~]+", url):
            raise UsageError(
                f"{shown!r} is not a URL: it contains spaces, control characters, or characters"
                " that are not ASCII"
            )
        try:
            parts = urlsplit(url)
            host, port = parts.hostname or "", parts.port
        except ValueError as cause:
            # `from None`, because the message of the cause may contain the password.
            raise UsageError(f"{shown!r} is not a URL: {cause}") from None
        if parts.scheme not in (("http",) if proxy else ("http", "https")) or not (
            _NAME.fullmatch(host) or _IPV6.fullmatch(host)
        ):
            expected = (
                "a proxy URL is http://host:port"
                if proxy
                else "a server URL is http://host:port or https://host:port"
            )
            raise UsageError(f"invalid URL {shown!r}: {expected}, with IPv6 addresses in brackets")
        if parts.query or parts.fragment or port == 0:
            raise UsageError(
                f"invalid server URL {shown!r}: no query, no fragment and no port 0 are allowed"
            )
        secure = parts.scheme == "https"
        return cls(
            secure,
            host,
            port or (443 if secure else 80),
            parts.path.rstrip("/"),
            _login(parts.username, parts.password),
        )

    @property
    def authority(self) -> str:
        """The value of the `Host` header: without the default port."""
        return self._name if self.port == (443 if self.secure else 80) else self.place

    @property
    def place(self) -> str:
        """host:port, for messages and for CONNECT."""
        return f"{self._name}:{self.port}"

    @property
    def _name(self) -> str:
        return f"[{self.host}]" if ":" in self.host else self.host


def _login(user: str | None, password: str | None) -> str:
    """Return the value of `Proxy-Authorization` (Basic); empty without a user name."""
    if user is None:
        return ""
    return (
        "Basic " + base64.b64encode(f"{unquote(user)}:{unquote(password or '')}".encode()).decode()
    )


def resolve(origin: Origin, until: float) -> Steps[list[Address]]:
    """Resolve a host name.

    The system's resolver has no timeout. So a thread calls it, and signals its end by closing its
    half of a socket pair; after `until` the thread is left alone.
    """
    try:
        return _addresses(origin, socket.AI_NUMERICHOST)
    except (OSError, UnicodeError):
        # The host is a name, not a numeric address.
        pass
    results: list[list[Address] | Exception] = []
    ours, theirs = socket.socketpair()

    def ask() -> None:
        with theirs:
            try:
                results.append(_addresses(origin, 0))
            except (OSError, UnicodeError) as error:
                results.append(error)

    with ours:
        threading.Thread(target=ask, name="tensorwire-resolve", daemon=True).start()
        if not (yield Wait(ours, select.POLLIN, until)):
            raise ConnectError(
                f"cannot resolve host name {origin.host!r}: the name server does not answer"
            )
    if isinstance(results[0], Exception):
        raise ConnectError(f"cannot resolve host name {origin.host!r}: {results[0]}") from results[
            0
        ]
    return results[0]


def _addresses(origin: Origin, flags: int) -> list[Address]:
    """Return the addresses of a host, from the system's resolver."""
    infos = socket.getaddrinfo(
        origin.host, origin.port, type=socket.SOCK_STREAM, proto=socket.IPPROTO_TCP, flags=flags
    )
    return [(family, address) for family, _, _, _, address in infos]  # type: ignore[misc]
