"""Access control for the page: only the browser with the token is served; others get 403.

1. The token comes once in the URL, then in a cookie that scripts cannot read (HttpOnly) and that
   browsers do not send with requests from other sites (SameSite=Strict).
2. The Host header must be the server's own address. This stops DNS rebinding, where a foreign name
   resolves to 127.0.0.1.
3. Only GET, HEAD and POST with JSON are allowed, and the Origin of a POST must be the page itself.
4. The size of a request body is limited, both by its header and while it is received.
"""

from __future__ import annotations

import hmac
from collections.abc import Awaitable, Callable, MutableMapping
from http.cookies import CookieError, SimpleCookie
from typing import Any
from urllib.parse import parse_qs

from ..serving.hosts import is_own_host

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

BODY = 4 << 20
"""The most bytes of a request body."""
POLICY = (
    "default-src 'self'; object-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors"
    " 'none'"
)
HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}


class Guard:
    """An ASGI middleware that checks each request and adds security headers to each response."""

    def __init__(self, app: App, token: str, port: int) -> None:
        self._app, self._token = app, token
        # Cookies are shared by all ports of a host, and another view may be running.
        self._cookie = f"tensorwire_{port}"
        self._port = port

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        # Web sockets and lifespan events are not supported.
        if scope["type"] != "http":
            return
        headers = {
            name.decode("latin-1").lower(): value.decode("latin-1")
            for name, value in scope["headers"]
        }
        given = parse_qs(scope.get("query_string", b"").decode("latin-1")).get("token", [""])[0]
        why = self._refused(scope["method"], headers, given)
        greeting = [] if why or not self._is_token(given) else [(b"set-cookie", self._set_cookie())]

        async def sent(message: MutableMapping[str, Any]) -> None:
            if message["type"] == "http.response.start":
                own = [(name.encode(), value.encode()) for name, value in HEADERS.items()]
                message["headers"] = [*message.get("headers", []), *own, *greeting]
            await send(message)

        if why:
            await _answer(sent, *why)
        else:
            await self._app(scope, _Bounded(receive), sent)

    def _refused(self, method: str, headers: dict[str, str], given: str) -> tuple[int, str] | None:
        """Return the status and message for a request that is refused, else None."""
        if not is_own_host(headers.get("host", ""), port=self._port):
            return 403, "the Host header is not the address of this server"
        if not self._is_token(given) and not self._is_token(self._kept(headers.get("cookie", ""))):
            return (
                403,
                ("this request has no valid token: open the URL that tensorwire view printed"),
            )
        if method not in ("GET", "HEAD", "POST"):
            return 405, "only GET, HEAD and POST are allowed"
        if method == "POST":
            ours = is_own_host(headers.get("origin", "").removeprefix("http://"), port=self._port)
            if not ours or not headers.get("content-type", "").startswith("application/json"):
                return 403, "a POST must be JSON from the page itself"
            size = headers.get("content-length", "")
            if not size.isascii() or not size.isdigit() or int(size) > BODY:
                return 413, f"a request needs a Content-Length of at most {BODY:,} bytes"
        return None

    def _is_token(self, text: str) -> bool:
        # A comparison in constant time does not leak how much of the token was right.
        return hmac.compare_digest(text.encode("utf-8", "replace"), self._token.encode())

    def _kept(self, cookies: str) -> str:
        try:
            morsel = SimpleCookie(cookies).get(self._cookie)
        except CookieError:
            return ""
        return "" if morsel is None else morsel.value

    def _set_cookie(self) -> bytes:
        return f"{self._cookie}={self._token}; Path=/; HttpOnly; SameSite=Strict".encode()


class _Bounded:
    """A request body that disconnects at the limit, even if its Content-Length was smaller."""

    def __init__(self, receive: Receive) -> None:
        self._receive, self._left = receive, BODY

    async def __call__(self) -> MutableMapping[str, Any]:
        message = await self._receive()
        if message["type"] == "http.request":
            self._left -= len(message.get("body", b""))
            if self._left < 0:
                return {"type": "http.disconnect"}
        return message


async def _answer(send: Send, status: int, text: str) -> None:
    body = text.encode() + b"\n"
    head = [
        (b"content-type", b"text/plain; charset=utf-8"),
        (b"content-length", str(len(body)).encode()),
    ]
    await send({"type": "http.response.start", "status": status, "headers": head})
    await send({"type": "http.response.body", "body": body})
