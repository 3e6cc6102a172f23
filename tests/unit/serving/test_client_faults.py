"""The bad servers once more, as a caller of the client meets them: the documented error by the
deadline, after at most three attempts.
"""

import asyncio
import time

import pytest

import tensorwire as tw
from support.bad_server import MODES, BadServer
from tensorwire.serving import AsyncClient, Client, Signature
from tensorwire.serving.transports import ConnectError

SIGNATURE = Signature.given({"x": ("float32", [None])}, {"y": ("float32", [None])})
SECONDS = 0.6
DOCUMENTED = (tw.TransportError, tw.ModelError, tw.DecodeError)


class AsThread:
    """AsyncClient, called as the other one is."""

    def __init__(self, *args, **options):
        self.client, self.loop = AsyncClient(*args, **options), asyncio.new_event_loop()

    def send(self, body):
        return self.loop.run_until_complete(self.client.send(body))

    def close(self):
        self.loop.run_until_complete(self.client.close())
        self.loop.close()


ALL = [pytest.param(Client, name, id=f"{name}-threads") for name in MODES]
# Both go by the same rules, and test_serving_faults.py has all modes for both transports.
ALL += [pytest.param(AsThread, name, id=f"{name}-asyncio") for name in [*MODES][::4]]


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "name"), ALL)
def test_done_by_the_deadline_with_the_documented_error(kind, name):
    mode = MODES[name]
    with BadServer(mode) as server:
        options = {"context": server.context} if server.context else {}
        client = kind(
            server.url,
            model="m",
            signature=SIGNATURE,
            deadline=SECONDS,
            limits=tw.Limits(answer=16 << 20),
            **options,
        )
        try:
            # which takes no time to make
            body = b'{"inputs":[' + b"1.0," * (mode.sent // 4) + b"1.0]}"
            for call in range(mode.calls):
                before, start = server.requests, time.monotonic()
                try:
                    found = client.send(body)
                except DOCUMENTED as error:
                    found = error
                assert time.monotonic() - start < SECONDS + 1
                if call < mode.calls - 1:
                    assert not isinstance(found, tw.TransportError), (
                        "the calls before the fault get their answers"
                    )
            assert server.requests - before <= 3 and server.connections <= 3 * mode.calls
            check(mode, found)
        finally:
            client.close()


def check(mode, found):
    """What the transport says is what the caller hears, unless it was worth another attempt;
    answers that are errors have their status.
    """
    if mode.error is ConnectError and isinstance(found, dict):
        return  # tried again, and then it went well
    if mode.error is not None:
        assert isinstance(found, (mode.error, tw.DeadlineError)), found
    elif 300 <= mode.status < 400:
        assert isinstance(found, tw.TransportError) and "not followed" in str(found)
    elif mode.status == 503 and isinstance(found, tw.DeadlineError):
        return  # asked again over the same connection, where this server says nothing more
    elif mode.status != 200:
        assert isinstance(found, tw.ModelError) and found.status == mode.status
    else:
        assert isinstance(found, (dict, tw.DecodeError)), found


def test_there_are_thirty_of_them():
    assert len(MODES) >= 30
