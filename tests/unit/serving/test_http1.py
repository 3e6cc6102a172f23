"""HTTP/1.1 without I/O: the bytes of requests, and answers in pieces of any size, whole, cut, wrong
and hostile.
"""

import gzip
import os
import tracemalloc
import zlib

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tensorwire import LimitError, Limits, TransportError, UsageError
from tensorwire.serving.transports import Call
from tensorwire.serving.transports.http1 import FIELDS, HEAD, INTERIM, ResponseReader, request

TEXT = b'{"predictions": [1.0]}'
SMALL = Limits(answer=100_000)
OK = b"HTTP/1.1 200 OK\r\n"


def feed(data, sizes=(), method="POST", limits=SMALL, closes=True):
    """Reads an answer that comes in pieces of these sizes, and then all at once; what is behind it
    stays unread.
    """
    reader, view, sizes = ResponseReader(method, limits), memoryview(data), list(sizes)
    while not reader.done:
        room = reader.room()
        assert len(room)
        if not len(view):
            if closes:
                reader.filled(0)
            return reader
        count = min(len(room), len(view), sizes.pop(0) if sizes else len(view))
        room[:count] = view[:count]
        view = view[count:]
        reader.filled(count)
    return reader


def sized(body, *headers):
    return (
        OK
        + b"Content-Length: %d\r\n" % len(body)
        + b"".join(header + b"\r\n" for header in headers)
        + b"\r\n"
        + body
    )


def chunked(*parts, headers=b"", trailer=b""):
    chunks = b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in parts)
    return (
        OK
        + b"Transfer-Encoding: chunked\r\n"
        + headers
        + b"\r\n"
        + chunks
        + b"0\r\n"
        + trailer
        + b"\r\n"
    )


LARGE = os.urandom(90_000)
GOOD = {
    "length": (sized(TEXT), 200, TEXT, True),
    "length with zeros": (OK + b"Content-Length: 00022\r\n\r\n" + TEXT, 200, TEXT, True),
    "length twice, the same": (
        OK + b"Content-Length: 22\r\nContent-Length: 22\r\n\r\n" + TEXT,
        200,
        TEXT,
        True,
    ),
    "length twice in one": (OK + b"Content-Length: 22, 22\r\n\r\n" + TEXT, 200, TEXT, True),
    "length of nothing": (sized(b""), 200, b"", True),
    "large": (sized(LARGE), 200, LARGE, True),
    "says close": (sized(TEXT, b"Connection: Close"), 200, TEXT, False),
    "says close among others": (
        sized(TEXT, b"Connection: x, close", b"Connection: y"),
        200,
        TEXT,
        False,
    ),
    "old": (sized(TEXT).replace(b"HTTP/1.1", b"HTTP/1.0"), 200, TEXT, False),
    "old, keeps": (
        sized(TEXT, b"Connection: keep-alive").replace(b"HTTP/1.1", b"HTTP/1.0"),
        200,
        TEXT,
        True,
    ),
    "until the end": (OK + b"\r\n" + TEXT, 200, TEXT, False),
    "until the end, large": (OK + b"\r\n" + LARGE, 200, LARGE, False),
    "until the end, nothing": (OK + b"\r\n", 200, b"", False),
    "chunks": (chunked(b"ab", b"c" * 300, b"d"), 200, b"ab" + b"c" * 300 + b"d", True),
    "large chunks": (chunked(LARGE[:70_000], LARGE[70_000:]), 200, LARGE, True),
    "many chunks": (
        chunked(*(LARGE[i : i + 100] for i in range(0, 90_000, 100))),
        200,
        LARGE,
        True,
    ),
    "no chunks": (chunked(), 200, b"", True),
    "capital chunks": (
        OK + b"transfer-encoding: Chunked\r\n\r\nA ; x=y\r\n0123456789\r\n000\r\n\r\n",
        200,
        b"0123456789",
        True,
    ),
    "trailers": (chunked(b"ab", trailer=b"A: b\r\nC: d\r\n"), 200, b"ab", True),
    "gzip": (sized(gzip.compress(TEXT), b"Content-Encoding: gzip"), 200, TEXT, True),
    "x-gzip": (sized(gzip.compress(LARGE), b"Content-Encoding: X-GZIP"), 200, LARGE, True),
    "deflate": (sized(zlib.compress(TEXT), b"Content-Encoding: deflate"), 200, TEXT, True),
    "identity": (sized(TEXT, b"Content-Encoding: identity"), 200, TEXT, True),
    "gzip in chunks": (
        chunked(
            gzip.compress(TEXT)[:9], gzip.compress(TEXT)[9:], headers=b"Content-Encoding: gzip\r\n"
        ),
        200,
        TEXT,
        True,
    ),
    "gzip until the end": (
        OK + b"Content-Encoding: gzip\r\n\r\n" + gzip.compress(TEXT),
        200,
        TEXT,
        False,
    ),
    "gzip of nothing at all": (sized(b"", b"Content-Encoding: gzip"), 200, b"", True),
    "gzip of no chunks": (chunked(headers=b"Content-Encoding: gzip\r\n"), 200, b"", True),
    "204": (b"HTTP/1.1 204 No Content\r\n\r\n", 204, b"", True),
    "304 with a length": (b"HTTP/1.1 304 Same\r\nContent-Length: 9\r\n\r\n", 304, b"", True),
    "no reason": (b"HTTP/1.1 404\r\nContent-Length: 0\r\n\r\n", 404, b"", True),
    "empty reason": (b"HTTP/1.1 404 \r\nContent-Length: 0\r\n\r\n", 404, b"", True),
    "1xx": (
        b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 x\r\nLink: y\r\n\r\n" + sized(TEXT),
        200,
        TEXT,
        True,
    ),
    "most 1xx": (b"HTTP/1.1 102 x\r\n\r\n" * INTERIM + sized(TEXT), 200, TEXT, True),
    "most fields": (sized(TEXT, *(b"a%d: b" % i for i in range(FIELDS - 1))), 200, TEXT, True),
    "longest head": (
        sized(TEXT, b"a: " + b"x" * (HEAD - len(sized(TEXT)) + len(TEXT) - 5)),
        200,
        TEXT,
        True,
    ),
}
BAD = {
    "no HTTP": (b"<html>", "does not answer in HTTP"),
    "other HTTP": (b"HTTP/2 200\r\n\r\n", "does not answer in HTTP"),
    "TLS": (b"\x15\x03\x03\0\2\2\x46", "try https://"),
    "letters for a status": (b"HTTP/1.1 2xx OK\r\n\r\n", "invalid status line"),
    "status of 099": (b"HTTP/1.1 099 OK\r\n\r\n", "invalid status line"),
    "status of 600": (b"HTTP/1.1 600 OK\r\n\r\n", "invalid status line"),
    "two spaces": (b"HTTP/1.1  200 OK\r\n\r\n", "invalid status line"),
    "control in reason": (b"HTTP/1.1 200 O\x01K\r\n\r\n", "invalid status line"),
    "lone LF": (b"HTTP/1.1 200 OK\nContent-Length: 0\n\n", "LF instead of CRLF"),
    "lone CR": (OK + b"a: b\rContent-Length: 3\r\n\r\nabc", "invalid header field"),
    "no colon": (OK + b"nothing\r\n\r\n", "invalid header field"),
    "no name": (OK + b": x\r\n\r\n", "invalid header field"),
    "space before colon": (OK + b"Content-Length : 3\r\n\r\nabc", "invalid header field"),
    "folded": (OK + b"a: b\r\n c\r\n\r\n", "invalid header field"),
    "zero": (OK + b"a: b\0\r\n\r\n", "invalid header field"),
    "long head": (OK + b"a: " + b"x" * HEAD, "the head has more than"),
    "long line": (OK[:-2] + b"x" * HEAD, "the head has more than"),
    "fields": (OK + b"a: b\r\n" * 101, "more than 100 header fields"),
    "1xx": (b"HTTP/1.1 100 x\r\n\r\n" * 17, "more than 16 interim"),
    "101": (b"HTTP/1.1 101 x\r\n\r\n", "switches to another protocol"),
    "empty length": (OK + b"Content-Length:\r\n\r\n", "invalid Content-Length"),
    "negative length": (OK + b"Content-Length: -1\r\n\r\n", "invalid Content-Length"),
    "signed length": (OK + b"Content-Length: +1\r\n\r\n", "invalid Content-Length"),
    "hex length": (OK + b"Content-Length: 0x1\r\n\r\n", "invalid Content-Length"),
    "length with _": (OK + b"Content-Length: 1_0\r\n\r\n", "invalid Content-Length"),
    "length of other digits": (OK + b"Content-Length: \xb2\r\n\r\n", "invalid Content-Length"),
    "two lengths": (
        OK + b"Content-Length: 1\r\nContent-Length: 2\r\n\r\n",
        "invalid Content-Length",
    ),
    "length and chunks": (
        OK + b"Content-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
        "ambiguous",
    ),
    "coding": (OK + b"Transfer-Encoding: gzip\r\n\r\n", "ambiguous"),
    "chunked twice": (
        OK + b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n",
        "ambiguous",
    ),
    "old chunks": (chunked(b"a").replace(b"/1.1", b"/1.0"), "ambiguous"),
    "no chunk size": (chunked()[:-5] + b"\r\n", "invalid chunk size"),
    "negative chunk": (chunked()[:-5] + b"-1\r\n", "invalid chunk size"),
    "0x chunk": (chunked()[:-5] + b"0x1\r\n", "invalid chunk size"),
    "chunk with _": (chunked()[:-5] + b"1_0\r\n", "invalid chunk size"),
    "chunk after a space": (chunked()[:-5] + b" 1\r\n", "invalid chunk size"),
    "long chunk": (chunked()[:-5] + b"1\r\nab\r\n", "longer than the chunk size"),
    "chunk's end": (chunked()[:-5] + b"1\r\na\n\r\n", "longer than the chunk size"),
    "chunk's line": (chunked()[:-5] + b"1;" + b"x" * 4096, "more than 4,096"),
    "trailer": (chunked(trailer=b"nothing\r\n"), "invalid header field"),
    "trailers": (chunked(trailer=b"a: b\r\n" * 100), "more than 100 header fields"),
    "encoding": (sized(TEXT, b"Content-Encoding: br"), "supported: gzip"),
    "encodings": (
        sized(TEXT, b"Content-Encoding: gzip", b"Content-Encoding: gzip"),
        "supported: gzip",
    ),
    "not gzip": (sized(TEXT, b"Content-Encoding: gzip"), "not valid gzip"),
    "not deflate": (sized(TEXT, b"Content-Encoding: deflate"), "not valid deflate"),
    "cut gzip": (sized(gzip.compress(TEXT)[:-1], b"Content-Encoding: gzip"), "not valid gzip"),
    "behind gzip": (sized(gzip.compress(TEXT) + b"x", b"Content-Encoding: gzip"), "not valid gzip"),
}
LARGE_ONES = {
    "length": OK + b"Content-Length: 100001\r\n\r\n",
    "2**60": OK + b"Content-Length: 1152921504606846976\r\n\r\n",
    "many digits": OK + b"Content-Length: " + b"9" * 10_000 + b"\r\n\r\n",
    "gzip's length": OK + b"Content-Encoding: gzip\r\nContent-Length: 100001\r\n\r\n",
    "chunk": chunked()[:-5] + b"186a1\r\n",
    "chunk of many digits": chunked()[:-5] + b"f" * 4000 + b"\r\n",
    "second chunk": chunked(b"x")[:-5] + b"186a0\r\n",
    "until the end": OK + b"\r\n" + bytes(100_001),
    "unpacked": sized(gzip.compress(bytes(100_001)), b"Content-Encoding: gzip"),
    "unpacked until the end": (
        OK + b"Content-Encoding: gzip\r\n\r\n" + gzip.compress(bytes(100_001))
    ),
    "packed until the end": OK + b"Content-Encoding: gzip\r\n\r\n" + gzip.compress(b"") * 6000,
}


@pytest.mark.parametrize("name", GOOD)
def test_answers(name):
    data, status, body, keep = GOOD[name]
    for sizes in ((), [1] * len(data), [len(data) - 1]):
        reader = feed(data, sizes)
        assert (reader.done, reader.keep, reader.answer.status, bytes(reader.answer.body)) == (
            True,
            keep,
            status,
            body,
        )


def test_headers():
    data = sized(
        TEXT, b"X-One:  a b \t", b"x-two: 1", b"X-Two: 2", b"x-three:", b"x-four: \xe4:\xff"
    )
    headers = {
        "content-length": "22",
        "x-one": "a b",
        "x-two": "1, 2",
        "x-three": "",
        "x-four": "ä:ÿ",
    }
    assert feed(data).answer.headers == headers


@pytest.mark.parametrize("name", BAD)
def test_wrong_answers(name):
    data, words = BAD[name]
    for sizes in ((), [1] * len(data)):
        with pytest.raises(TransportError) as caught:
            feed(data, sizes)
        assert words in str(caught.value)
        assert type(caught.value) is TransportError


@pytest.mark.parametrize("name", LARGE_ONES)
def test_answers_that_are_too_large(name):
    data = LARGE_ONES[name]
    for sizes in ((), [1] * len(data)):
        with pytest.raises(LimitError, match="the limit is 100,000"):
            feed(data, sizes, closes=False)


def test_as_large_as_allowed():
    for data in (
        sized(bytes(100_000)),
        OK + b"\r\n" + bytes(100_000),
        chunked(bytes(60_000), bytes(40_000)),
    ):
        assert len(feed(data).answer.body) == 100_000


@pytest.mark.slow
def test_ratio():
    bomb = sized(gzip.compress(bytes(4 << 20)), b"Content-Encoding: gzip")
    with pytest.raises(LimitError, match="expansion"):
        feed(bomb, limits=Limits(expansion=1 << 20))
    assert len(feed(bomb, limits=Limits()).answer.body) == 4 << 20


def test_methods():
    data = OK + b"Content-Length: 5\r\n\r\n"
    assert feed(data, method="HEAD").keep
    assert (
        not feed(data, method="CONNECT").answer.body
        and feed(b"HTTP/1.1 403 No\r\nContent-Length: 1\r\n\r\nx", method="CONNECT").answer.body
    )
    with pytest.raises(TransportError, match="5 bytes before the end"):
        feed(data, method="GET")


@pytest.mark.parametrize("data", [sized(TEXT), chunked(TEXT), b"HTTP/1.1 204 x\r\n\r\n"])
def test_what_comes_behind_an_answer_ends_the_connection(data):
    reader = feed(data + b"HTTP/1.1 200 Another\r\n\r\n")
    assert reader.done and not reader.keep


def test_the_body_is_read_into_its_place():
    reader, head = ResponseReader("GET"), OK + b"Content-Length: 50000000\r\n\r\n"
    tracemalloc.start()
    try:
        reader.room()[: len(head) + 1] = head + b"a"
        reader.filled(len(head) + 1)
        room = reader.room()
        assert len(room) == 49_999_999
        place = np.frombuffer(room, np.uint8)
        place[-1] = 7
        while not reader.done:
            reader.filled(len(reader.room()))
        body = np.frombuffer(reader.answer.body, np.uint8)
        assert (
            body[0] == ord("a") and body[-1] == 7 and body.__array_interface__["data"][0] % 64 == 0
        )
        assert np.shares_memory(body, place)
        assert tracemalloc.get_traced_memory()[1] < 51_000_000
    finally:
        tracemalloc.stop()


def test_a_large_chunk_is_read_into_its_place():
    reader, head = ResponseReader("GET"), OK + b"Transfer-Encoding: chunked\r\n\r\n100000\r\n"
    reader.room()[: len(head)] = head
    reader.filled(len(head))
    assert len(reader.room()) == 1 << 20


def test_growing_takes_no_more_than_the_limit():
    """Also while the old buffer is copied into the new one."""
    limits = Limits(answer=50_000_000)
    reader, head = ResponseReader("GET", limits), OK + b"\r\n"
    reader.room()[: len(head)] = head
    reader.filled(len(head))
    left = limits.answer
    tracemalloc.start()
    try:
        while left:
            count = min(left, len(reader.room()), 100_000)
            reader.filled(count)
            left -= count
        reader.filled(0)
        # What is reserved is not all touched: while one buffer is copied into the next, twice as
        # large, half of that one is.
        assert (
            len(reader.answer.body) == limits.answer
            and tracemalloc.get_traced_memory()[1] < 1.6 * limits.answer
        )
    finally:
        tracemalloc.stop()


# ---- any pieces, any cut, anything


ANSWERS = st.sampled_from([data for data, *_ in GOOD.values() if len(data) < 3000])


def outcome(data, sizes=(), closes=True):
    """All that can be seen of an answer, or the error. Whether a connection is kept depends on what
    was read behind the answer.
    """
    try:
        reader = feed(data, sizes, closes=closes)
    except (TransportError, LimitError) as error:
        return type(error), str(error)
    return reader.done, reader.done and (
        reader.answer.status,
        dict(reader.answer.headers),
        bytes(reader.answer.body),
    )


@given(ANSWERS, st.lists(st.integers(1, 60)))
def test_pieces_do_not_matter(data, sizes):
    assert outcome(data, sizes) == outcome(data)


@given(
    st.sampled_from([*(data for data, _ in BAD.values()), *LARGE_ONES.values()]),
    st.lists(st.integers(1, 200)),
)
def test_pieces_do_not_matter_for_errors(data, sizes):
    """The same class; the byte and the words may be of what was there."""
    kinds = [outcome(data, pieces, closes=False)[0] for pieces in (sizes, ())]
    assert kinds[0] is kinds[1]


@pytest.mark.parametrize("name", [name for name, (data, *_) in GOOD.items() if len(data) < 3000])
def test_every_cut_is_an_error_or_wants_more(name):
    data, *_ = GOOD[name]
    ends_by_closing = data.find(b"\r\n\r\n") + 4 if "until the end" in name else None
    for cut in range(len(data)):
        assert not feed(data[:cut], closes=False).done
        if ends_by_closing is not None and cut >= ends_by_closing and "gzip" not in name:
            assert feed(data[:cut]).done
        else:
            with pytest.raises(TransportError):
                feed(data[:cut])


TOKENS = [
    b"HTTP/1.1 200 OK\r\n",
    b"Content-Length: ",
    b"Transfer-Encoding: chunked\r\n",
    b"Content-Encoding: gzip\r\n",
    b"\r\n",
    b"\r\n\r\n",
]
TOKENS += [
    b"0",
    b"1",
    b"5\r\n",
    b"0\r\n\r\n",
    b"a: b\r\n",
    b"HTTP/1.1 100 x\r\n\r\n",
    b"\n",
    b" ",
    b"-",
    b"\0",
    b"ffff\r\n",
    gzip.compress(b"x"),
]


@given(
    st.lists(st.sampled_from(TOKENS) | st.binary(max_size=5)).map(b"".join),
    st.lists(st.integers(1, 20)),
    st.sampled_from(["GET", "HEAD"]),
)
@example(b"", [], "GET")
def test_garbage(data, sizes, method):
    """An answer, or one of two errors."""
    try:
        reader = feed(data, sizes, method)
        assert reader.done and 200 <= reader.answer.status < 600
    except (TransportError, LimitError):
        pass


@given(
    st.lists(st.sampled_from(TOKENS) | st.binary(max_size=5)).map(b"".join),
    st.lists(st.integers(1, 20)),
)
def test_garbage_behind_a_good_beginning(data, sizes):
    for start in (
        OK,
        OK + b"Transfer-Encoding: chunked\r\n\r\n",
        OK + b"Content-Encoding: gzip\r\n\r\n",
    ):
        assert outcome(start + data, sizes)[0] == outcome(start + data)[0]


@given(st.data())
def test_flipped_bytes(data):
    answer = bytearray(data.draw(ANSWERS))
    answer[data.draw(st.integers(0, len(answer) - 1))] = data.draw(st.integers(0, 255))
    assert outcome(bytes(answer))[0] in (True, TransportError, LimitError)


# ---- requests


def test_request():
    call = Call(
        "POST", "/v1/models/m:predict", [b'{"inputs": ', b"1}"], {"accept": "x", "X-B": "ä"}
    )
    data = b"".join(
        request(call, "localhost:8501", "/team", {"Accept": "y", "Authorization": " Bearer z "})
    )
    head, _, body = data.partition(b"\r\n\r\n")
    lines = [
        b"POST /team/v1/models/m:predict HTTP/1.1",
        b"Host: localhost:8501",
        b"accept: x",
        b"Authorization: Bearer z",
        b"X-B: \xe4",
    ]
    assert head.split(b"\r\n") == [*lines, b"Content-Length: 13"] and body == b'{"inputs": 1}'


@pytest.mark.parametrize(
    ("method", "body", "length"),
    [("GET", [], None), ("POST", [], b"0"), ("GET", [b"x"], b"1"), ("DELETE", [], b"0")],
)
def test_content_length(method, body, length):
    data = b"".join(request(Call(method, "/", body), "h"))
    assert data.startswith(method.encode() + b" / HTTP/1.1\r\nHost: h\r\n")
    assert (b"Content-Length: %s\r\n" % length in data) if length else b"Content-Length" not in data


def test_large_bodies_are_not_copied():
    large = np.arange(1 << 20, dtype=np.float32).reshape(2, -1)
    buffers = request(Call("POST", "", [b"[", large, b"]", b"x" * 100, large[0]]), "h")
    assert [len(buffer) for buffer in buffers[1:]] == [large.nbytes, 101, large[0].nbytes]
    assert np.shares_memory(np.frombuffer(buffers[1], np.float32), large)
    assert bytes(buffers[0]) == b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: %d\r\n\r\n[" % (
        large.nbytes * 3 // 2 + 102
    )


@given(st.lists(st.binary(max_size=50) | st.integers(1, 30_000).map(bytes), max_size=20))
def test_buffers_are_joined_in_order(body):
    data = b"".join(request(Call("POST", "/", body), "h"))
    assert data.endswith(b"\r\n\r\n" + b"".join(body))


@given(st.text(), st.text())
def test_no_header_breaks_out(name, value):
    try:
        data = b"".join(request(Call("GET", "/", headers={name: value}), "h"))
    except UsageError:
        return
    assert data.count(b"\r\n") == (3 if name.lower() == "host" else 4) and data.count(
        b"\n"
    ) == data.count(b"\r\n")
