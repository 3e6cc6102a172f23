"""Which Host headers a local server answers.

A web page can make its own name resolve to 127.0.0.1 and then read what a local server answers to
the visitor's browser (DNS rebinding). The browser still sends the page's name as the Host, so a
server that answers only to its own names is safe from it.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Collection

_HOST = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[^\[\]:/@\s]+)(?::(\d{1,5}))?")


def is_own_host(header: str, names: Collection[str] = (), port: int | None = None) -> bool:
    """Whether a Host header names this machine's loopback interface or is one of `names`; with
    `port`, whether it names that port, too.

    >>> is_own_host("localhost:8501"), is_own_host("[::1]:8501"), is_own_host("evil.example:8501")
    (True, True, False)
    >>> is_own_host("models.lan", ["models.lan"]), is_own_host("127.0.0.1:80", port=8501)
    (True, False)
    """
    found = _HOST.fullmatch(header)
    if found is None or (port is not None and found[2] != str(port)):
        return False
    name = plain_name(found[1])
    return name in ("localhost", *map(plain_name, names)) or _is_loopback(name)


def plain_name(host: str) -> str:
    """A host in the form in which names are compared: lower case, no brackets, no last dot.

    >>> plain_name("LocalHost."), plain_name("[::1]")
    ('localhost', '::1')
    """
    return host.lower().removesuffix(".").removeprefix("[").removesuffix("]")


def _is_loopback(name: str) -> bool:
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False
