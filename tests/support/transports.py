"""Both HTTP transports, called alike."""

import asyncio

from tensorwire.serving.transports.http_async import AsyncHttpTransport
from tensorwire.serving.transports.http_client import HttpTransport


class AsThread:
    """AsyncHttpTransport, called as the other one is."""

    def __init__(self, url, **options):
        self.transport = AsyncHttpTransport(url, **options)
        self.loop = asyncio.new_event_loop()

    def send(self, call, deadline):
        return self.loop.run_until_complete(self.transport.send(call, deadline))

    def close(self):
        self.loop.run_until_complete(self.transport.close())


TRANSPORTS = {"threads": HttpTransport, "asyncio": AsThread}
