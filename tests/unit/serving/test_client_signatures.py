"""A signature that changes on the server is fetched again when a call no longer fits, once."""

import asyncio
import json

import numpy as np
import pytest

import tensorwire as tw
from tensorwire.serving import AsyncClient, Client, MockTransport, Signature
from tensorwire.serving.transports import Answer

OLD = Signature.given({"x": ("float32", [None])}, {"y": ("float32", [None])})
NEW = Signature.given(
    {"x": ("float32", [None]), "scale": ("float32", [])}, {"y": ("float32", [None])}
)
INTEGERS = Signature.given({"x": ("int64", [None])}, {"y": ("int64", [None])})
RENAMED = Signature.given(
    {"x": ("float32", [None])}, {"z": ("float32", [None]), "w": ("float32", [None])}
)


class Changing:
    """A server whose model can be replaced."""

    def __init__(self, model, signature):
        self.replace(model, signature)
        self.mock = MockTransport(lambda call: self.model.respond(call))

    def replace(self, model, signature):
        self.model = MockTransport.model(model, signature)

    @property
    def targets(self):
        return [call.target or call.method.rpartition("/")[2] for call in self.mock.calls]


@pytest.fixture(params=["http://anywhere", "grpc://anywhere:1"])
def url(request):
    return request.param


def double(x):
    return {"y": 2 * x}


def test_inputs_that_fit_only_the_new_one(url):
    server = Changing(double, OLD)
    with Client(url, model="m", transport=server.mock) as client:
        assert client.predict({"x": np.float32([1])})["y"].tolist() == [2]
        server.replace(lambda x, scale: {"y": scale * x}, NEW)
        assert client.predict({"x": np.float32([1]), "scale": np.float32(3)})["y"].tolist() == [3]
        assert client.signature() == client.metadata().signatures["serving_default"]
    assert len(server.targets) == 5  # metadata, predict; metadata, predict; metadata


def test_a_request_that_the_server_refuses():
    """Numbers of Python's own fit both; the old signature would send 1.0, which the new one does
    not take.
    """
    server = Changing(double, OLD)
    with Client("http://anywhere", model="m", transport=server.mock) as client:
        client.predict({"x": [1]})
        server.replace(double, INTEGERS)
        found = client.predict({"x": [1]})["y"]
        assert found.dtype == np.int64 and found.tolist() == [2]
        assert [target.rpartition("/")[2] for target in server.targets[2:]] == [
            "m:predict",
            "metadata",
            "m:predict",
        ]
        assert client.predict({"x": [4]})["y"].tolist() == [8]
    assert server.targets[-1].endswith(":predict") and len(server.targets) == 6


def test_an_answer_with_other_outputs_is_read_again_and_not_asked_for_again(url):
    server = Changing(double, OLD)
    with Client(url, model="m", transport=server.mock) as client:
        client.predict({"x": [1]})
        server.replace(lambda x: {"z": x, "w": -x}, RENAMED)
        assert tw.equal(client.predict({"x": [1]}), {"w": np.float32([-1]), "z": np.float32([1])})
    assert [target.lower().endswith("predict") for target in server.targets] == [
        False,
        True,
        True,
        False,
    ]


def test_by_asyncio():
    server = Changing(double, OLD)

    async def main():
        async with AsyncClient("http://anywhere", model="m", transport=server.mock) as client:
            await client.predict({"x": [1]})
            server.replace(lambda x, scale: {"y": scale * x}, NEW)
            return await client.predict({"x": [1], "scale": 5})

    assert asyncio.run(main())["y"].tolist() == [5]


def test_what_is_wrong_by_the_same_signature_stays_wrong(url):
    server = Changing(double, OLD)
    with Client(url, model="m", transport=server.mock) as client:
        with pytest.raises(tw.EncodeError):
            client.predict({"z": [1]})
        assert len(server.targets) == 1  # it was fetched in this very call
        with pytest.raises(tw.EncodeError):
            client.predict({"z": [1]})
        assert len(server.targets) == 2  # asked once more, and found to be the same


def test_a_server_that_is_gone_does_not_hide_the_mistake():
    known = json.dumps(
        {
            "model_spec": {"name": "m", "signature_name": "", "version": "1"},
            "metadata": {"signature_def": {"signature_def": {"serving_default": OLD.metadata()}}},
        }
    ).encode()
    mock = MockTransport.answers([Answer(200, {}, memoryview(known)), tw.TransportError("gone")])
    with Client("http://anywhere", model="m", transport=mock) as client:
        client.signature()
        with pytest.raises(tw.EncodeError):
            client.predict({"z": [1]})


def test_a_given_signature_is_never_asked_for():
    server = Changing(double, NEW)
    with (
        Client("http://anywhere", model="m", signature=OLD, transport=server.mock) as client,
        pytest.raises(tw.EncodeError),
    ):
        client.predict({"z": [1]})
    assert server.targets == []
