"""Host header checks of the local servers, as a protection against DNS rebinding.

A web page can make its own name resolve to 127.0.0.1 and then read what a local server answers to
the visitor's browser. The browser still sends the page's name in the Host header, so a server that
rejects every name but its own is safe from this attack.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Collection

_HOST = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[^\[\]:/@\s]+)(?::(\d{1,5}))?")


def is_own_host(header: str, names: Collection[str] = (), port: int | None = None) -> bool:
    """Return whether a Host header names the loopback interface or one of `names`, and, if `port`
    is given, that port.

    >>> is_own_host("localhost:8501"), is_own_host("[::1]:8501"), is_own_host("evil.example:8501")
    (True, True, False)
    >>> is_own_host("models.lan", ["models.lan"]), is_own_host("127.0.0.1:80", port=8501)
    (True, False)
    """
    match = _HOST.fullmatch(header)
    if match is None or (port is not None and match[2] != str(port)):
        return False
    name = plain_name(match[1])
    return name in ("localhost", *map(plain_name, names)) or _is_loopback(name)


def plain_name(host: str) -> str:
    """Return a host normalized for comparison: lower case, no brackets, no final dot.

    >>> plain_name("LocalHost."), plain_name("[::1]")
    ('localhost', '::1')
    """
    return host.lower().removesuffix(".").removeprefix("[").removesuffix("]")


def _is_loopback(name: str) -> bool:
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False
