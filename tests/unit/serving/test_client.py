"""The client's rules, without a network: what is sent, when it is sent again, and what becomes of
the answers.
"""

import asyncio
import gzip
import inspect
import json
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

import tensorwire as tw
from tensorwire.serving import AsyncClient, Client, MockTransport, Signature
from tensorwire.serving.client.address import Address
from tensorwire.serving.client.call import ModelCalls, Pause, _retry_after
from tensorwire.serving.rpc import messages
from tensorwire.serving.transports import Answer, ConnectError, Deadline

ADDER = Signature.given({"x": ("float32", [None, 2])}, {"y": ("float32", [None])})
SPARSE = Signature.given(
    {
        "ids": ("sparse", "float32", [None, 100]),
        "tokens": ("ragged", "int64", [None, None]),
        "word": ("string", [None]),
    },
    {
        "sum": ("float32", [None]),
        "back_indices": ("int64", [None, 2]),
        "back_values": ("float32", [None]),
        "back_dense_shape": ("int64", [2]),
    },
)
URLS = {
    "rest": "http://127.0.0.1:8501",
    "grpc": "grpc://127.0.0.1:8500",
    "kserve": "http://127.0.0.1:8000",
}
IDS = tw.Sparse([[0, 7], [1, 3]], np.float32([1.5, 2]), (2, 100))


def client(kind, mock, **options):
    return Client(
        URLS[kind],
        model="m",
        protocol="kserve" if kind == "kserve" else None,
        transport=mock,
        **options,
    )


def echo(ids, tokens, word):
    assert (
        isinstance(ids, tw.Sparse)
        and isinstance(tokens, tw.Ragged)
        and isinstance(word, tw.Strings)
    )
    parts = {
        "back_indices": ids.indices,
        "back_values": ids.values,
        "back_dense_shape": ids.dense_shape,
    }
    return {"sum": np.float32([tokens.values.sum(), len(word)]), **parts}


# Any tensor in, any tensor out


@pytest.mark.parametrize("kind", URLS)
def test_sparse_ragged_and_strings_go_there_and_back(kind):
    mock = MockTransport.model(echo, SPARSE)
    given = {"ids": IDS, "tokens": [[4, 8], [15]], "word": [b"a", b"\xff\x00"]}
    # KServe's metadata says no more than names, dtypes and shapes; that is enough to find the
    # parts.
    found = client(kind, mock).predict(given)
    assert set(found) == {"sum", "back"} and found["sum"].tolist() == [27, 2]
    assert tw.equal(found["back"], IDS)
    assert len(mock.calls) == 2, "the signature is asked for, then the tensors are sent"


@pytest.mark.parametrize("kind", URLS)
def test_the_signature_is_asked_for_once(kind):
    mock = MockTransport.model(lambda x: {"y": x.sum(1)}, ADDER)
    one = client(kind, mock)
    for _ in range(3):
        assert one.predict([[1, 2]])["y"].tolist() == [3]
    assert len(mock.calls) == 4
    assert one.metadata().signatures["serving_default"].inputs["x"].shape == (None, 2)
    assert one.signature().outputs["y"].dtype == "float32" and len(mock.calls) == 5


@pytest.mark.parametrize("kind", URLS)
def test_a_given_signature_needs_no_question(kind):
    mock = MockTransport.model(lambda x: {"y": x.sum(1)}, ADDER)
    assert client(kind, mock, signature=ADDER).predict({"x": [[1, 2]]})["y"].dtype == np.float32
    assert len(mock.calls) == 1


@pytest.mark.parametrize("kind", URLS)
def test_outputs_are_chosen_by_name_and_by_the_tensor_of_their_parts(kind):
    mock = MockTransport.model(echo, SPARSE)
    one = client(kind, mock)
    given = {"ids": IDS, "tokens": [[4, 8], [15]], "word": ["a", "b"]}
    assert list(one.predict(given, outputs=["sum"])) == ["sum"]
    assert list(one.predict(given, outputs=["back"])) == ["back"]
    with pytest.raises(tw.EncodeError, match=r"no output 'summ'.*did you mean 'sum'"):
        one.predict(given, outputs=["summ"])


def test_status_of_every_protocol():
    for kind in URLS:
        (status,) = client(kind, MockTransport.model(lambda x: x, ADDER)).status()
        assert status.state == "AVAILABLE" and status.code == 0, kind


@pytest.mark.torch
def test_answers_come_as_what_is_asked_for():
    import torch

    mock = MockTransport.model(lambda x: {"y": x.sum(1)}, ADDER)
    with client("rest", mock, to="torch") as one:
        assert isinstance(one.predict([[1, 2]])["y"], torch.Tensor)
        assert isinstance(one.predict(torch.ones(1, 2), to="numpy")["y"], np.ndarray)
    assert mock.is_closed


def test_parts_that_are_no_tensor_are_an_error():
    def bad(ids, tokens, word):
        return echo(ids, tokens, word) | {"back_indices": np.array([[0, 7], [9, 3]])}

    with pytest.raises(tw.DecodeError, match="not a valid sparse tensor"):
        client("grpc", MockTransport.model(bad, SPARSE)).predict(
            {"ids": IDS, "tokens": [[1]], "word": ["a"]}
        )


# What is sent


def sent(mock):
    return json.loads(b"".join(mock.calls[-1].body))


def test_rows_columns_and_the_forms():
    mock = MockTransport.model(
        lambda a, b: {"y": a + b},
        Signature.given({"a": ("int64", [None]), "b": ("int64", [None])}, {"y": ("int64", [None])}),
    )
    one = client("rest", mock)
    assert one.predict({"a": [1, 2], "b": [3, 4]}, layout="rows")["y"].tolist() == [4, 6]
    assert sent(mock) == {"instances": [{"a": 1, "b": 3}, {"a": 2, "b": 4}]}
    one.predict({"a": [1, 2], "b": [3, 4]})
    assert sent(mock) == {"inputs": {"a": [1, 2], "b": [3, 4]}}
    with pytest.raises(tw.UsageError, match=r"unknown layout 'row'.*did you mean 'rows'"):
        one.predict({"a": [1], "b": [2]}, layout="row")


def test_rows_are_refused_where_parts_have_other_first_dimensions():
    one = client("rest", MockTransport.model(echo, SPARSE))
    with pytest.raises(tw.EncodeError, match='use layout="columns"'):
        one.predict({"ids": IDS, "tokens": [[1], [2]], "word": ["a", "b"]}, layout="rows")


def test_what_json_cannot_hold_names_the_way_out():
    signature = Signature.given({"x": ("float16", [None])})
    with pytest.raises(tw.EncodeError, match=r"use gRPC: Client\('grpc://"):
        client("rest", MockTransport.model(lambda x: x, signature), signature=signature).predict(
            np.float16([1])
        )
    found = client("grpc", MockTransport.model(lambda x: {"y": x}, signature)).predict(
        np.float16([1, 2])
    )
    assert found["y"].dtype == np.float16
    found = client("kserve", MockTransport.model(lambda x: {"y": x}, signature)).predict(
        np.float16([1, 2])
    )
    assert found["y"].dtype == np.float16


@pytest.mark.parametrize("kind", ["rest", "kserve"])
def test_gzip_is_one_member_and_the_answer_may_be_packed(kind):
    mock = MockTransport.model(lambda x: {"y": x.sum(1)}, ADDER)
    one = client(kind, mock, compression="gzip")
    x = np.zeros((100_000, 2), np.float32)
    assert one.predict(x)["y"].shape == (100_000,)
    call = mock.calls[-1]
    body = b"".join(call.body)
    assert (
        call.headers["Content-Encoding"] == call.headers["Accept-Encoding"] == "gzip"
        and len(body) < 100_000
    )
    import zlib

    inflate = zlib.decompressobj(31)
    inflate.decompress(body)
    assert inflate.eof and not inflate.unused_data and gzip.decompress(body)


def test_names_are_percent_encoded_and_say_nothing_else():
    mock = MockTransport.model(lambda x: {"y": x.sum(1)}, ADDER)
    Client("http://h:1", model="a/../b c:ü", version=3, signature=ADDER, transport=mock).predict(
        [[1, 2]]
    )
    assert mock.calls[0].target == "/v1/models/a%2F..%2Fb%20c%3A%C3%BC/versions/3:predict"
    Client("http://h:1", model="m", label="st/able", signature=ADDER, transport=mock).predict(
        [[1, 2]]
    )
    assert mock.calls[1].target == "/v1/models/m/labels/st%2Fable:predict"
    Client("grpc://h:1", model="m", label="stable", signature=ADDER, transport=mock).predict(
        [[1, 2]]
    )
    assert messages.parse_predict(b"".join(mock.calls[2].body)).model == messages.ModelSpec(
        "m", None, "stable", ""
    )


def test_another_signature_is_named():
    other = Signature.given({"x": ("float32", [None, 2])}, {"y": ("float32", [None])}, name="other")
    mock = MockTransport.model(lambda x: {"y": x.sum(1)}, other)
    client("rest", mock, signature="other").predict([[1, 2]])
    assert sent(mock)["signature_name"] == "other"
    client("grpc", mock, signature="other").predict([[1, 2]])
    assert messages.parse_predict(b"".join(mock.calls[-1].body)).model.signature == "other"
    with pytest.raises(tw.SchemaError, match=r"no signature 'othr'.*did you mean 'other'"):
        client("rest", mock, signature="othr").predict([[1, 2]])


def test_classify_and_regress_send_examples():
    examples, context = (
        [{"age": 20, "name": "a"}, {"age": 30, "name": b"\xff", "w": [0.5, 1.5]}],
        {"day": 3},
    )
    bodies = []

    def respond(call):
        bodies.append(b"".join(call.body))
        if call.method == messages.CLASSIFY:
            spec = messages.parse_examples(bodies[-1]).model
            return answer(
                b"".join(
                    messages.build_classify_answer(
                        spec, tw.tensor([["a", "b"]]), np.float32([[0.25, 0.75]])
                    )
                )
            )
        if call.method == messages.REGRESS:
            return answer(
                b"".join(
                    messages.build_regress_answer(
                        messages.parse_examples(bodies[-1]).model, np.float32([1, 2])
                    )
                )
            )
        return answer(
            b'{"results": [[["a", 0.25], ["b", 0.75]]]}'
            if "classify" in call.target
            else b'{"results": [1.0, 2.0]}'
        )

    for kind in ("rest", "grpc"):
        one = client(kind, MockTransport(respond))
        found = one.classify(examples, context=context)
        assert found["classes"].tolist() == [[b"a", b"b"]] and found["scores"].tolist() == [
            [0.25, 0.75]
        ], kind
        assert one.regress(examples)["outputs"].tolist() == [1, 2], kind
    assert json.loads(bodies[0]) == {
        "context": {"day": 3},
        "examples": [examples[0], {"age": 30, "name": {"b64": "/w=="}, "w": [0.5, 1.5]}],
    }
    found = messages.parse_examples(bodies[2])
    assert tw.io.parse_example(found.examples, {"age": tw.io.FixedLenFeature([], "int64")})[
        "age"
    ].tolist() == [20, 30]
    assert (
        tw.io.parse_single_example(found.context, {"day": tw.io.FixedLenFeature([], "int64")})[
            "day"
        ]
        == 3
    )
    with pytest.raises(tw.EncodeError, match="KServe has no classify"):
        client("kserve", MockTransport(respond)).classify(examples)


def test_explain_says_how_and_why():
    one = client("rest", MockTransport.model(echo, SPARSE))
    text = one.explain({"ids": IDS, "tokens": [[4, 8], [15]], "word": ["a", "b"]})
    assert "ids: Sparse float32 [2, 100] is sent as parts" in text and "columns only" in text
    assert "POST http://127.0.0.1:8501/v1/models/m:predict, " in text and text.endswith(
        " bytes of application/json"
    )
    text = client("grpc", MockTransport.model(echo, SPARSE)).explain(
        {"ids": IDS, "tokens": [[4, 8], [15]], "word": ["a", "b"]}
    )
    assert (
        "gRPC /tensorflow.serving.PredictionService/Predict at grpc://127.0.0.1:8500" in text
        and "by REST" not in text
    )


def test_a_body_of_your_own():
    mock = MockTransport.model(lambda x: {"y": x.sum(1)}, ADDER)
    one = client("rest", mock)
    assert one.send(b'{"instances": [[1, 2]]}')["y"].tolist() == [3]
    with pytest.raises(tw.ModelError, match="400"):
        one.send(b'{"instances": [[1, "2"]]}')
    with pytest.raises(tw.UsageError, match="by REST"):
        client("grpc", mock).send(b"{}")


# Answers that are errors, and what is tried again


def answer(body=b"{}", status=200, **headers):
    return Answer(
        status, {name.replace("_", "-"): value for name, value in headers.items()}, memoryview(body)
    )


def talk(answers, attempts=3, seconds=10.0, chance=0.5):
    """What a conversation wishes, one after the other, and how it ends."""
    now = [0.0]
    deadline = Deadline(seconds, seconds, lambda: now[0])
    rules = ModelCalls(None, ADDER, attempts=attempts, chance=lambda: chance)
    wishes, going, answers = [], rules.ask("call", deadline), iter(answers)
    try:
        wish = next(going)
        while True:
            wishes.append(wish)
            if isinstance(wish, Pause):
                now[0] += wish.seconds
                wish = going.send(None)
                continue
            found = next(answers)
            wish = going.throw(found) if isinstance(found, Exception) else going.send(found)
    except StopIteration as end:
        return wishes, end.value
    except tw.TensorwireError as error:
        return wishes, error


BUSY = answer(b'{"error": "busy"}', 503)


@pytest.mark.parametrize("first", [BUSY, answer(status=429), ConnectError("refused")])
def test_again_where_that_may_help(first):
    wishes, found = talk([first, first, answer()])
    assert wishes == ["call", Pause(0.05), "call", Pause(0.1), "call"] and found == answer()
    wishes, found = talk([first] * 9)
    assert wishes.count("call") == 3 and found is first
    wishes, found = talk([first] * 9, attempts=1)
    assert wishes == ["call"] and found is first


@pytest.mark.parametrize("status", [200, 400, 404, 413, 500, 501, 502, 504])
def test_other_answers_are_final(status):
    wishes, found = talk([answer(status=status)])
    assert wishes == ["call"] and found.status == status


def test_a_connection_that_broke_is_not_tried_again():
    error = tw.TransportError("reset")
    wishes, found = talk([error])
    assert wishes == ["call"] and found is error


def test_retry_after_is_kept_within_the_deadline():
    wishes, _ = talk([answer(status=503, retry_after="3"), answer()])
    assert wishes == ["call", Pause(3.0), "call"]
    late = answer(status=503, retry_after="11")
    wishes, found = talk([late, answer()])
    assert wishes == ["call"] and found is late, (
        "there is no time for that, so the answer that we have is the answer"
    )
    wishes, found = talk([answer(status=429, retry_after="6")] * 3)
    assert wishes == ["call", Pause(6.0), "call"] and found.status == 429


def test_retry_after_in_all_forms():
    assert (
        _retry_after({}) is None
        and _retry_after({"retry-after": "soon"}) is None
        and _retry_after({"retry-after": "-1"}) is None
    )
    assert (
        _retry_after({"retry-after": " 7 "}) == 7
        and _retry_after({"retry-after": "9" * 400}) == 999999999
    )
    assert _retry_after({"retry-after": "Wed, 21 Oct 2015 07:28:00 GMT"}) == 0
    assert _retry_after({"retry-after": "Wed, 21 Oct 2099 07:28:00 GMT"}) > 1e9


def test_redirects_are_not_followed():
    _, error = talk([answer(status=301, location="http://evil/")])
    assert isinstance(error, tw.TransportError) and "http://evil/" in str(error)


def test_the_deadline_ends_it_between_attempts():
    now = [0.0]
    going = ModelCalls(None, ADDER, chance=lambda: 0.5).ask(
        "call", Deadline(1.0, 1.0, lambda: now[0])
    )
    assert next(going) == "call"
    now[0] = 0.97
    with pytest.raises(ConnectError):
        going.throw(ConnectError("refused"))  # 0.05 s would be too late
    now[0] = 2.0
    with pytest.raises(tw.DeadlineError, match="no answer within 1 s") as caught:
        next(ModelCalls(None, ADDER).ask("call", Deadline(1.0, 1.0, lambda: now[0])))
    assert isinstance(caught.value, TimeoutError)


@pytest.mark.parametrize("kind", URLS)
def test_errors_have_the_servers_words(kind):
    text = b"it is not there" if kind == "grpc" else b'{"error": "it is not there"}'
    one = client(kind, MockTransport.answers([answer(text, 404)]), signature=ADDER)
    with pytest.raises(tw.ModelError, match="404: it is not there") as caught:
        one.predict([[1, 2]])
    assert caught.value.status == 404


@pytest.mark.parametrize("kind", URLS)
@pytest.mark.parametrize("body", [b"", b"<html>", b"[1]", b"\xff\xff\xff", b'{"outputs": '])
def test_answers_that_are_none(kind, body):
    asks = [lambda one: one.predict([[1, 2]]), lambda one: one.metadata()]
    if body:  # by KServe and gRPC an empty answer is one that says nothing is wrong
        asks.append(lambda one: one.status())
    for ask in asks:
        with pytest.raises((tw.DecodeError, tw.SchemaError)):
            ask(client(kind, MockTransport.answers([answer(body)]), signature=ADDER))


def test_a_large_answer_about_a_model_is_refused_before_it_becomes_python():
    body = b'{"a": [' + b"1," * (9 << 20) + b"1]}"
    with pytest.raises(tw.LimitError, match="the metadata has"):
        client("rest", MockTransport.answers([answer(body)])).metadata()


# Arguments


@pytest.mark.parametrize(
    ("url", "options", "why"),
    [
        ("ftp://h", {"model": "m"}, "begins with http://"),
        ("127.0.0.1:8501", {"model": "m"}, "begins with http://"),
        (None, {"model": "m"}, "begins with http://"),
        ("http://h", {}, "pass model="),
        ("http://h", {"model": ""}, "expected the name of a model"),
        ("http://h", {"model": "m", "version": 1, "label": "a"}, "exclude each other"),
        ("http://h", {"model": "m", "version": "1"}, "version= expects a number"),
        ("http://h", {"model": "m", "version": -1}, "version= expects a number"),
        ("http://h", {"model": "m", "protocol": "triton"}, "unknown protocol 'triton'"),
        ("grpc://h", {"model": "m", "protocol": "kserve"}, "only supported over HTTP"),
        ("http://h", {"model": "m", "protocol": "kserve", "label": "a"}, "no labels"),
        ("http://h", {"model": "m", "deadline": 0}, "deadline= expects"),
        ("http://h", {"model": "m", "deadline": float("inf")}, "deadline= expects"),
        ("http://h", {"model": "m", "compression": "zstd"}, "unknown compression 'zstd'"),
        ("http://h", {"model": "m", "attempts": 0}, "attempts= expects"),
        ("http://h", {"model": "m", "certificates": b""}, "only supported for grpcs"),
        ("grpc://h", {"model": "m", "proxy": "http://p"}, "only supported for http"),
    ],
)
def test_wrong_arguments_say_what_is_wrong(url, options, why):
    for kind in (Client, AsyncClient):
        with pytest.raises(tw.UsageError, match=why):
            kind(url, transport=MockTransport.answers([]), **options)


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("http://h:1/v1/models/m", ("http://h:1", "m", None, None, "tensorflow")),
        (
            "https://h/prefix/v1/models/a%2Fb/versions/12:predict",
            ("https://h/prefix", "a/b", 12, None, "tensorflow"),
        ),
        (
            "http://h:1/v1/models/m/labels/stable/metadata",
            ("http://h:1", "m", None, "stable", "tensorflow"),
        ),
        ("http://h:1/v2/models/m/versions/3/infer", ("http://h:1", "m", 3, None, "kserve")),
        ("grpc://h:1/m", ("grpc://h:1", "m", None, None, "tensorflow")),
    ],
)
def test_a_models_own_url_says_it_all(url, expected):
    found = Address.of(url)
    assert (found.url, found.model, found.version, found.label, found.protocol) == expected


# Both clients are one


def test_the_async_client_does_the_same():
    async def main():
        mock = MockTransport.model(echo, SPARSE)
        given = {"ids": IDS, "tokens": [[4, 8], [15]], "word": ["a", "b"]}
        async with AsyncClient(URLS["rest"], model="m", transport=mock) as one:
            all_found = await asyncio.gather(*(one.predict(given) for _ in range(8)))
            assert all(tw.equal(found["back"], IDS) for found in all_found)
            assert (await one.status())[
                0
            ].state == "AVAILABLE" and "is sent as parts" in await one.explain(given)
            assert (await one.build(given)).target == "/v1/models/m:predict"
            assert (
                list((await one.metadata()).signatures) == ["serving_default"]
                and (await one.signature()).groups()
            )
        assert mock.is_closed
        busy = MockTransport.answers([BUSY, BUSY, BUSY])
        async with AsyncClient(URLS["rest"], model="m", signature=ADDER, transport=busy) as one:
            with pytest.raises(tw.ModelError, match="503: busy"):
                await one.predict([[1, 2]])
        assert len(busy.calls) == 3

    asyncio.run(main())


def test_large_tensors_leave_the_loop_free():
    """They are written and read in a thread."""
    threads = set()

    def add(x):
        return {"y": x.sum(1)}

    mock = MockTransport.model(add, ADDER)
    one = AsyncClient(URLS["rest"], model="m", signature=ADDER, transport=mock)
    build = one._calls.build

    def watched(*args):
        threads.add(threading.current_thread() is threading.main_thread())
        return build(*args)

    one._calls.build = watched
    found = asyncio.run(one.predict(np.ones((200_000, 2), np.float32)))
    assert found["y"].shape == (200_000,) and threads == {False}


def test_both_have_the_same_methods_and_arguments():
    for (
        name
    ) in "predict classify regress status metadata explain build send signature close".split():
        mine, other = (inspect.signature(getattr(kind, name)) for kind in (Client, AsyncClient))
        assert mine == other and inspect.iscoroutinefunction(getattr(AsyncClient, name)), name


def test_threads_can_share_a_client():
    mock = MockTransport.model(lambda x: {"y": x.sum(1)}, ADDER)
    one, found = client("rest", mock), []
    threads = [
        threading.Thread(target=lambda: found.append(one.predict([[1, 2]])["y"].tolist()))
        for _ in range(16)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [[3.0]] * 16


def test_neither_tensorflow_nor_protobuf_is_imported():
    script = """
import sys
import tensorwire as tw
signature = tw.serving.Signature.given({"x": ("float32", [None])}, {"y": ("float32", [None])})
for url in ("http://h", "grpc://h"):
    mock = tw.serving.MockTransport.model(lambda x: {"y": x}, signature)
    assert tw.serving.Client(url, model="m", transport=mock).predict([1, 2])["y"].tolist() == [1, 2]
print([name for name in sys.modules if name.split(".")[0] in ("tensorflow", "google", "grpc", "asyncio")])
"""
    assert (
        subprocess.run(
            [sys.executable, "-c", script], capture_output=True, text=True, check=True
        ).stdout.strip()
        == "[]"
    )


@pytest.mark.timing
@pytest.mark.parametrize(
    "body",
    [
        b'{"predictions": [' + b",".join([b'{"y": 1.0}'] * 500_000) + b"]}",
        b'{"outputs": [' + b",".join([b'"abc"'] * 5_000_000) + b"]}",
    ],
    ids=["rows", "strings"],
)
def test_reading_a_long_answer_ends_at_the_deadline(body):
    """Python's own loops look at the clock."""
    signature = Signature.given(
        {"x": ("float32", [None])}, {"y": ("string" if b"abc" in body[:40] else "float32", [None])}
    )
    one = client("rest", MockTransport.answers([answer(body)]), signature=signature)
    start = time.monotonic()
    with pytest.raises(tw.DeadlineError):
        one.predict([1], deadline=0.05)
    assert time.monotonic() - start < 1


def test_reading_a_long_answer_of_classes_ends_at_the_deadline():
    body = b'{"results": [' + b",".join([b'[["a", 0.5], ["b", 0.5]]'] * 300_000) + b"]}"
    with pytest.raises(tw.DeadlineError):
        client("rest", MockTransport.answers([answer(body)])).classify([{"a": 1}], deadline=0.05)
