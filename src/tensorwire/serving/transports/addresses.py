"""Where a server is: its URL, and the addresses of its name."""

from __future__ import annotations

import base64
import re
import select
import socket
import threading
from typing import NamedTuple
from urllib.parse import unquote, urlsplit

from ..._errors import EncodeError
from . import ConnectError
from .drivers import Steps, Wait

_NAME = re.compile(r"[0-9A-Za-z._-]+")
_IPV6 = re.compile(r"[0-9A-Fa-f:.]+")
Address = tuple[socket.AddressFamily, tuple[str, int] | tuple[str, int, int, int]]


class Origin(NamedTuple):
    """A server, as a URL names it.

    >>> Origin.parse("https://models.example.com/team/").prefix
    '/team'
    >>> Origin.parse("http://[::1]:8501").authority
    '[::1]:8501'
    """

    secure: bool
    host: str
    port: int
    prefix: str
    """What stands before every path."""
    login: str = ""
    """Of a proxy: user and password, as `Proxy-Authorization` has them."""

    @classmethod
    def parse(cls, url: str, proxy: bool = False) -> Origin:
        """An EncodeError says what is wrong with a URL."""
        shown = re.sub(r"//[^/]*@", "//...@", url)
        if "...@" in shown and not proxy:
            raise EncodeError(
                'a URL with a user or password in it ends up in logs; say headers={"Authorization":'
                " ...} instead"
            )
        if not re.fullmatch(r"[!-~]+", url):
            raise EncodeError(
                f"{shown!r} is not a URL: it has spaces, or letters that are not ASCII"
            )
        try:
            parts = urlsplit(url)
            host, port = parts.hostname or "", parts.port
        except ValueError as cause:
            # which may have the password in it
            raise EncodeError(f"{shown!r} is not a URL: {cause}") from None
        if parts.scheme not in (("http",) if proxy else ("http", "https")) or not (
            _NAME.fullmatch(host) or _IPV6.fullmatch(host)
        ):
            what = (
                "a proxy's URL is http://host:port"
                if proxy
                else "a server's URL is http://host:port or https://host:port"
            )
            raise EncodeError(f"{shown!r}: {what}, with an IPv6 address in brackets")
        if parts.query or parts.fragment or port == 0:
            raise EncodeError(f"{shown!r}: a server's URL has no query, no fragment and no port 0")
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
        """As `Host` has it: without the port that is usual."""
        return self._name if self.port == (443 if self.secure else 80) else self.place

    @property
    def place(self) -> str:
        return f"{self._name}:{self.port}"

    @property
    def _name(self) -> str:
        return f"[{self.host}]" if ":" in self.host else self.host


def _login(user: str | None, password: str | None) -> str:
    if user is None:
        return ""
    return (
        "Basic " + base64.b64encode(f"{unquote(user)}:{unquote(password or '')}".encode()).decode()
    )


def resolve(origin: Origin, until: float) -> Steps[list[Address]]:
    """The addresses of a name, asked for in a thread: the system's resolver knows no deadline, so
    we do not wait for it beyond ours.
    """
    try:
        return _addresses(origin, socket.AI_NUMERICHOST)
    except (OSError, UnicodeError):
        pass  # a name, not a number
    found: list[list[Address] | Exception] = []
    ours, theirs = socket.socketpair()

    def ask() -> None:
        with theirs:  # its end is what wakes us
            try:
                found.append(_addresses(origin, 0))
            except (OSError, UnicodeError) as error:
                found.append(error)

    with ours:
        threading.Thread(target=ask, name="tensorwire-resolve", daemon=True).start()
        if not (yield Wait(ours, select.POLLIN, until)):
            raise ConnectError(
                f"no address for {origin.host!r} in time: the name server does not answer"
            )
    if isinstance(found[0], Exception):
        raise ConnectError(
            f"no address for {origin.host!r}: {found[0]}; is the name right?"
        ) from found[0]
    return found[0]


def _addresses(origin: Origin, flags: int) -> list[Address]:
    infos = socket.getaddrinfo(
        origin.host, origin.port, type=socket.SOCK_STREAM, proto=socket.IPPROTO_TCP, flags=flags
    )
    return [(family, address) for family, _, _, _, address in infos]  # type: ignore[misc]
