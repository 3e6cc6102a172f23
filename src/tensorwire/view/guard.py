"""Who may ask: the browser that was given the token, on this machine, by this server's own name.
Everyone else gets 403.

The token comes once in the URL and then in a cookie that scripts cannot read and other sites cannot
make a browser send. The Host header must be ours, so that a name of somebody else's that points
here is of no use. Nothing but GET, HEAD and one kind of POST is answered, and a POST must come from
the page itself.
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
"""Bytes of a request's body."""
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
    """In front of an application: checks each request, and adds the headers that tell browsers to
    be careful, too.
    """

    def __init__(self, app: App, token: str, port: int) -> None:
        self._app, self._token = app, token
        # cookies do not know ports, and another one may be open
        self._cookie = f"tensorwire_{port}"
        self._port = port

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return  # no web sockets here
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
        """Why a request is not answered, with its status."""
        if not is_own_host(headers.get("host", ""), port=self._port):
            return 403, "this server answers under its own address only"
        if not self._is_token(given) and not self._is_token(self._kept(headers.get("cookie", ""))):
            return (
                403,
                (
                    "open the address that tensorwire view printed: it has a token, and this"
                    " request has none"
                ),
            )
        if method not in ("GET", "HEAD", "POST"):
            return 405, "only GET and POST"
        if method == "POST":
            ours = is_own_host(headers.get("origin", "").removeprefix("http://"), port=self._port)
            if not ours or not headers.get("content-type", "").startswith("application/json"):
                return 403, "this request does not come from the page"
            size = headers.get("content-length", "")
            if not size.isascii() or not size.isdigit() or int(size) > BODY:
                return 413, f"a request has at most {BODY:,} bytes, and says how many"
        return None

    def _is_token(self, said: str) -> bool:
        return hmac.compare_digest(said.encode("utf-8", "replace"), self._token.encode())

    def _kept(self, cookies: str) -> str:
        try:
            found = SimpleCookie(cookies).get(self._cookie)
        except CookieError:
            return ""
        return "" if found is None else found.value

    def _set_cookie(self) -> bytes:
        return f"{self._cookie}={self._token}; Path=/; HttpOnly; SameSite=Strict".encode()


class _Bounded:
    """A body that ends where it may be no larger, whatever its header said."""

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
