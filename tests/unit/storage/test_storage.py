"""Where bytes live: files, a real S3 server, a web server, fsspec; and what happens when they break
in the middle.
"""

import importlib
import io
import os
import pickle
import random
import subprocess
import sys
import threading
import time

import pytest

import tensorwire as tw
from support.cloud_servers import BUCKET, S3, SETTINGS, Proxy, Web, s3_environment
from tensorwire import storage
from tensorwire.storage import object_reader, object_writer, remote

ROOT = f"s3://{BUCKET}"


@pytest.fixture(scope="module")
def server():
    importlib.import_module("moto")
    importlib.import_module("obstore")
    server = S3()
    yield server
    server.close()


@pytest.fixture
def s3(server):
    with s3_environment(server.url):
        yield server


@pytest.fixture
def proxy(server):
    proxy = Proxy(server)
    with s3_environment(proxy.url):
        yield proxy
    proxy.close()


@pytest.fixture
def web():
    importlib.import_module("obstore")
    web = Web()
    yield web
    web.close()


@pytest.fixture
def impatient(monkeypatch):
    monkeypatch.setattr(remote, "PATIENCE", 0.3)


@pytest.fixture(
    params=[
        "local",
        pytest.param("s3", marks=pytest.mark.cloud),
        pytest.param("memory", marks=pytest.mark.cloud),
    ]
)
def base(request, tmp_path):
    """A folder of its own in each kind of store that can be written to."""
    if request.param == "local":
        yield str(tmp_path)
    elif request.param == "s3":
        request.getfixturevalue("s3")
        yield f"{ROOT}/{tmp_path.name}"
    else:
        importlib.import_module("fsspec")
        yield f"memory://{tmp_path.name}"


def noise(count, seed=0):
    return random.Random(seed).randbytes(count)


# The same for every kind of place


def test_bytes_come_back(base):
    path = storage.join(base, "folder/a b+é%20.bin")
    if not storage.is_url(base):
        os.mkdir(storage.join(base, "folder"))
    assert storage.stat(path) is None
    storage.write_bytes(path, b"0123456789")
    entry = storage.stat(path)
    assert (entry.path, entry.size) == (path, 10) and entry.stamp
    assert storage.read_bytes(path, 10) == b"0123456789"
    with pytest.raises(tw.LimitError, match="10 bytes"):
        storage.read_bytes(path, 9)
    with storage.reader(path) as file:
        assert file.read(3) == b"012" and file.read() == b"3456789" and file.read() == b""
        file.seek(-2, io.SEEK_END)
        assert file.read() == b"89"
    storage.write_bytes(path, b"other")
    assert storage.stat(path).stamp != entry.stamp and storage.read_bytes(path, 99) == b"other"
    storage.delete(path)
    storage.delete(path)
    assert storage.stat(path) is None


def test_any_place_of_a_source(base):
    path, data = storage.join(base, "a"), noise(5 << 20)
    storage.write_bytes(path, data)
    with storage.source(path) as source:
        assert source.size == len(data) and source.stamp == storage.stat(path).stamp
        assert (
            source.read_at(100, 50) == data[100:150]
            and source.read_bytes(7, 2) == data[7:9]
            and source.read_at(5, 0) == b""
        )
        buffer = bytearray(10)
        source.read_into(len(data) - 10, buffer)
        assert buffer == data[-10:]
        assert (
            source.read_some(len(data) - 4, buffer) == 4
            and source.read_some(len(data), buffer) == 0
        )
        ranges = [(4 << 20, 100), (0, 10), (20, 5), (0, 10), (3, 30), (len(data) - 1, 1)]
        assert [bytes(part) for part in source.read_many(ranges)] == [
            data[a : a + n] for a, n in ranges
        ]
        assert source.read_many([]) == []
        with pytest.raises(tw.TruncatedError) as caught:
            source.read_at(len(data) - 5, 6)
        assert caught.value.path == path and caught.value.offset == len(data) - 5
    with pytest.raises(ValueError, match="closed"):
        source.read_at(0, 1)


def test_empty(base):
    path = storage.join(base, "empty")
    storage.write_bytes(path, b"")
    assert storage.stat(path).size == 0 and storage.read_bytes(path, 0) == b""
    with storage.reader(path) as file:
        assert file.read() == b""
    with storage.writer(path):
        pass
    assert storage.stat(path).size == 0


@pytest.mark.parametrize("size", [0, 10, (8 << 20) - 1, 8 << 20, (20 << 20) + 3])
def test_writer(base, size):
    path, data = storage.join(base, "w"), noise(size)
    with storage.writer(path) as file:
        assert file.tell() == 0 and file.writable()
        for start in range(0, size, 1_000_003):
            piece = data[start : start + 1_000_003]
            assert file.write(piece) == len(piece)
        assert file.tell() == size
        assert storage.stat(path) is None
    assert storage.read_bytes(path, size) == data


@pytest.mark.parametrize("size", [10, 20 << 20])
def test_a_writer_that_fails_leaves_what_was_there(base, size):
    path = storage.join(base, "w")
    for before in (None, b"old"):
        if before:
            storage.write_bytes(path, before)
        with pytest.raises(KeyError), storage.writer(path) as file:
            file.write(bytes(size))
            raise KeyError("mine")
        assert (
            (storage.stat(path) is None)
            if before is None
            else storage.read_bytes(path, 3) == before
        )
    assert [entry.path for entry in storage.listing(base)] == [path]


@pytest.mark.parametrize("size", [10, 70 << 20])
def test_if_absent(base, size):
    path = storage.join(base, "once")
    with storage.writer(path, if_absent=True) as file:
        file.write(bytes(size))
    stamp = storage.stat(path).stamp
    with pytest.raises(FileExistsError) as caught, storage.writer(path, if_absent=True) as file:
        file.write(b"other")
    assert caught.value.filename == path
    with pytest.raises(FileExistsError):
        storage.write_bytes(path, b"other", if_absent=True)
    assert storage.stat(path).stamp == stamp and len(storage.listing(base)) == 1


def test_if_absent_when_somebody_else_was_quicker(base):
    path = storage.join(base, "once")
    with pytest.raises(FileExistsError), storage.writer(path, if_absent=True) as file:
        file.write(b"mine")
        storage.write_bytes(path, b"theirs")
    assert storage.read_bytes(path, 99) == b"theirs" and len(storage.listing(base)) == 1


def test_if_absent_on_a_file_system_without_links(tmp_path, monkeypatch):
    def refuse(*_):
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "link", refuse)
    path = str(tmp_path / "a")
    storage.write_bytes(path, b"one", if_absent=True)
    with pytest.raises(FileExistsError), storage.writer(path + "b", if_absent=True) as file:
        file.write(b"mine")
        storage.write_bytes(path + "b", b"theirs")
    assert storage.read_bytes(path, 9) == b"one" and sorted(os.listdir(tmp_path)) == ["a", "ab"]


def test_only_one_of_many_writers_wins(base):
    if base.startswith("memory:"):
        pytest.skip("fsspec cannot promise it")
    path, won, lost = storage.join(base, "race"), [], []

    def run(i):
        try:
            storage.write_bytes(path, b"%d" % i, if_absent=True)
            won.append(i)
        except FileExistsError:
            lost.append(i)

    threads = [threading.Thread(target=run, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(won) == 1 and len(lost) == 7 and storage.read_bytes(path, 9) == b"%d" % won[0]


def test_find(base):
    names = [
        "a-1.tfrecord",
        "a-2.tfrecord",
        "b.tfrecord",
        "_SUCCESS",
        ".hidden",
        "x/a-3.tfrecord",
        "x/y/a-4.tfrecord",
        "z/a-5.tfrecord",
    ]
    for name in names:
        if not storage.is_url(base):
            os.makedirs(os.path.dirname(storage.join(base, name)), exist_ok=True)
        storage.write_bytes(storage.join(base, name), name.encode())

    def found(*patterns):
        entries = storage.find([storage.join(base, pattern) for pattern in patterns])
        assert all(
            entry.size == len(storage.read_bytes(entry.path, 99)) and entry.stamp
            for entry in entries
        )
        return [entry.path[len(base) + 1 :] for entry in entries]

    assert found("a-*.tfrecord") == ["a-1.tfrecord", "a-2.tfrecord"] and found(
        "a-[2-9].tfr?cord"
    ) == ["a-2.tfrecord"]
    assert found("b.tfrecord", "*.tfrecord") == ["a-1.tfrecord", "a-2.tfrecord", "b.tfrecord"]
    assert found("*/a-*.tfrecord") == ["x/a-3.tfrecord", "z/a-5.tfrecord"] and found(
        "x/*/a-?.tfrecord"
    ) == ["x/y/a-4.tfrecord"]
    assert found("**/a-*") == [*names[:2], *names[5:]] and found("x/**/a-*") == names[5:7]
    assert found("") == names[:3] and [entry.path for entry in storage.find(base)] == [
        storage.join(base, name) for name in names[:3]
    ]
    assert storage.find(storage.join(base, "b.tfrecord")) == [
        storage.stat(storage.join(base, "b.tfrecord"))
    ]
    assert [entry.path[len(base) + 1 :] for entry in storage.listing(base)] == sorted(names)
    for pattern in ("nothing-*", "nothing"):
        with pytest.raises(FileNotFoundError, match=pattern.replace("*", r"\*")):
            found("b.tfrecord", pattern)
    assert storage.listing(storage.join(base, "nothing")) == []


def test_missing(base):
    path = storage.join(base, "missing")
    for use in (storage.source, storage.reader, lambda path: storage.read_bytes(path, 9)):
        with pytest.raises(FileNotFoundError) as caught:
            use(path)
        assert caught.value.filename == path


def test_reading_in_order_keeps_little(base, monkeypatch):
    monkeypatch.setattr(object_reader, "CHUNK", 1 << 20)
    monkeypatch.setattr(object_reader, "_FIRST", 1 << 18)
    path, data = storage.join(base, "long"), noise(12 << 20)
    storage.write_bytes(path, data)
    with storage.opened(path, ahead=True) as source:
        at, buffer = 0, bytearray(300_001)
        while count := source.read_some(at, buffer):
            assert buffer[:count] == data[at : at + count]
            at += count
            if storage.is_url(path):
                assert len(source._parts) <= object_reader.AHEAD
                assert (
                    sum(stop - start for start, stop, _ in source._parts)
                    <= object_reader.AHEAD * object_reader.CHUNK
                )
        assert at == len(data)
        # elsewhere is slower, and right
        for at in (5_000_000, 100, 11_000_000, 10_900_000, 5_000_000):
            source.read_into(at, buffer)
            assert buffer == data[at : at + len(buffer)]


# Names


def test_names():
    assert (
        not storage.is_url("C:/a")
        and not storage.is_url("a/b://c")
        and storage.is_url("simplecache::s3://bucket/a")
    )
    assert storage.join("s3://bucket", "a/b") == "s3://bucket/a/b"
    assert (
        storage.shown("abfss://container@account.dfs.core.windows.net/a")
        == "abfss://container@account.dfs.core.windows.net/a"
    )
    assert (
        storage.shown("https://token@host/a?sig=1#x") == "https://host/a"
        and storage.shown("https://host?sig=1") == "https://host"
    )
    assert storage.shown("ftp://me:word@host/a") == "ftp://host/a"


def test_file_urls(tmp_path):
    url = f"file://{tmp_path}/a%20b"
    storage.write_bytes(url, b"abc")
    assert (
        (tmp_path / "a b").read_bytes() == b"abc"
        and storage.stat(url).size == 3
        and storage.find(url)[0].path == str(tmp_path / "a b")
    )


@pytest.mark.cloud
def test_unknown_schemes_and_missing_packages():
    with pytest.raises(tw.UsageError, match="unsupported URL scheme 'nosuch'"):
        storage.stat("nosuch://a/b")
    with pytest.raises(tw.MissingDependencyError, match="dropbox"):
        storage.stat("dropbox://a/b")


def test_nothing_is_imported_before_a_url_is_used(tmp_path):
    code = f"""
import sys, tensorwire as tw
from tensorwire import storage
path = {str(tmp_path / "a.safetensors")!r}
tw.save(path, {{"a": 1}}); tw.load(path); tw.inspect(path); storage.find(path)
with tw.RecordWriter(path + ".tfrecord") as w: w.write(b"x")
assert list(tw.RecordReader(path + ".tfrecord")) == [b"x"]
heavy = ("obstore", "fsspec", "boto3", "ray")
print(*[name for name in sys.modules if name.split(".")[0] in heavy or name.startswith("tensorwire.storage")])
"""
    loaded = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout.split()
    assert sorted(loaded) == [
        "tensorwire.storage",
        "tensorwire.storage.files",
        "tensorwire.storage.glob",
        "tensorwire.storage.local",
        "tensorwire.storage.urls",
    ]


@pytest.mark.timing
def test_importing_storage_is_cheap():
    code = (
        "import time, glob, numpy, tensorwire.storage.files\nt = time.perf_counter()\nimport"
        " tensorwire.storage\nprint(time.perf_counter() - t)"
    )
    took = min(
        float(
            subprocess.run(
                [sys.executable, "-c", code], capture_output=True, text=True, check=True
            ).stdout
        )
        for _ in range(5)
    )
    assert took < 0.01


# Web servers


@pytest.mark.cloud
def test_web(web):
    web.files["/d/a%20b.bin"] = data = noise(3 << 20)
    url = f"{web.url}/d/a%20b.bin"
    assert storage.stat(url).size == len(data) and storage.find(url)[0].path == url
    with storage.source(url) as source:
        assert source.read_at(1_000_000, 10) == data[1_000_000:1_000_010]
    assert ("GET", "/d/a%20b.bin", "bytes=1000000-1000009") in web.requests
    with storage.reader(url) as file:
        assert file.read() == data
    assert storage.stat(f"{web.url}/nothing") is None
    for use in (
        lambda: storage.write_bytes(url, b""),
        lambda: storage.delete(url),
        lambda: storage.listing(f"{web.url}/d"),
    ):
        with pytest.raises(tw.UsageError, match="web server"):
            use()
    with pytest.raises((tw.EncodeError, tw.UsageError), match="query") as caught:
        storage.stat(url + "?X-Amz-Signature=a-secret")
    assert "a-secret" not in str(caught.value)


@pytest.mark.cloud
def test_a_web_server_without_ranges(web):
    web.ranges = False
    web.files["/a"] = data = noise(3 << 20)
    with storage.source(f"{web.url}/a") as source:
        assert (
            source.read_at(1000, 10) == data[1000:1010]
            and source.read_at(2_000_000, 99) == data[2_000_000:2_000_099]
        )
        # one that asked for a part, one for all
        assert sum(request[0] == "GET" for request in web.requests) == 2
    with storage.reader(f"{web.url}/a") as file:
        assert file.read() == data


@pytest.mark.cloud
@pytest.mark.parametrize("etags", [True, False])  # without, obstore does not go on by itself
def test_answers_that_break_off_are_continued(web, etags):
    web.etags = etags
    web.files["/a"] = data = noise(6 << 20)
    web.fault = lambda method, path, headers: ("cut", 1_500_000) if method == "GET" else None
    with storage.source(f"{web.url}/a") as source:
        assert source.read_at(0, len(data)) == data
    with storage.reader(f"{web.url}/a") as file:
        assert file.read() == data
    assert len(web.requests) > 6


@pytest.mark.cloud
def test_answers_that_never_come(web, impatient):
    web.files["/a"] = noise(6 << 20)
    web.fault = lambda method, path, headers: ("cut", 0) if method == "GET" else None
    with storage.source(f"{web.url}/a") as source, pytest.raises(tw.TransportError) as caught:
        source.read_at(0, 100)
    assert caught.value.path == f"{web.url}/a"


@pytest.mark.cloud
def test_errors_of_a_server_are_tried_again(web, monkeypatch):
    web.files["/a"] = data = noise(1 << 20)
    left = [500, 503, 502]
    web.fault = lambda method, path, headers: left.pop() if left and method == "GET" else None
    with storage.source(f"{web.url}/a") as source:
        assert source.read_at(0, len(data)) == data and not left
    monkeypatch.setattr(remote, "PATIENCE", 0.3)
    web.fault = lambda method, path, headers: 500
    with pytest.raises(tw.TransportError, match="500") as caught:
        storage.stat(f"{web.url}/a")
    assert caught.value.path == f"{web.url}/a" and str(
        pickle.loads(pickle.dumps(caught.value))
    ) == str(caught.value)
    for status in (401, 403):
        web.fault = lambda method, path, headers, status=status: status
        with pytest.raises(PermissionError, match=str(status)) as denied:
            storage.stat(f"{web.url}/a")
        assert denied.value.filename == f"{web.url}/a"


@pytest.mark.cloud
@pytest.mark.parametrize("etags", [True, False])
def test_an_object_that_is_replaced_is_never_mixed(web, etags):
    web.etags, path = etags, f"{web.url}/a"
    web.files["/a"] = noise(4 << 20)
    source, file = storage.source(path), storage.reader(path)
    with source, file:
        assert len(source.read_at(0, 10)) == len(file.read(10)) == 10
        web.files["/a"] = noise(5 << 20, 1)
        for read in (lambda: source.read_at(1 << 20, 10), lambda: file.read()):
            with pytest.raises(tw.TransportError, match="replaced"):
                read()


# S3


@pytest.mark.cloud
def test_an_object_is_replaced_in_a_bucket(s3):
    path = f"{ROOT}/replaced"
    storage.write_bytes(path, bytes(100))
    with storage.source(path) as source:
        storage.write_bytes(path, bytes(99) + b"1")
        with pytest.raises(tw.TransportError, match="replaced") as caught:
            source.read_at(0, 10)
        assert caught.value.path == path


@pytest.mark.cloud
def test_near_ranges_are_one_request(proxy):
    path, data = f"{ROOT}/many", noise(8 << 20)
    storage.write_bytes(path, data)
    ranges = [(i * 10_000, 100) for i in range(100)] + [(7 << 20, 50)]
    with storage.source(path) as source:
        proxy.requests.clear()
        assert [bytes(part) for part in source.read_many(ranges)] == [
            data[a : a + n] for a, n in ranges
        ]
    assert len(proxy.requests) == 2


@pytest.mark.cloud
def test_a_large_object_goes_in_parts_and_nothing_is_left_of_one_that_fails(proxy, server):
    path = f"{ROOT}/parts"
    with storage.writer(path) as file:
        file.write(bytes(30 << 20))
    parts = [
        path for method, path, _ in proxy.requests if method == "PUT" and "partNumber=" in path
    ]
    assert len(parts) == 4 and storage.stat(path).size == 30 << 20
    storage.delete(path)
    with pytest.raises(KeyError), storage.writer(path) as file:
        file.write(bytes(30 << 20))
        raise KeyError
    assert server.uploads() == 0 and storage.stat(path) is None


@pytest.mark.cloud
def test_a_part_that_cannot_be_sent(proxy, server, monkeypatch):
    path, patience = f"{ROOT}/unsent", remote.PATIENCE
    monkeypatch.setattr(remote, "PATIENCE", 0.3)
    proxy.fault = lambda method, path, headers: 500 if "partNumber=2" in path else None
    with pytest.raises(tw.TransportError, match="500") as caught, storage.writer(path) as file:
        for _ in range(40):
            file.write(bytes(1 << 20))
    assert caught.value.path == path and server.uploads() == 0
    proxy.fault = lambda method, path, headers: None
    assert storage.stat(path) is None
    monkeypatch.setattr(remote, "PATIENCE", patience)
    left = [500, 500]
    proxy.fault = lambda method, path, headers: (
        left.pop() if "partNumber=2" in path and left else None
    )
    with storage.writer(path) as file:
        file.write(bytes(20 << 20))
    assert storage.stat(path).size == 20 << 20 and not left


@pytest.mark.cloud
def test_refused(proxy):
    proxy.fault = lambda method, path, headers: 403
    for use in (
        lambda: storage.stat(f"{ROOT}/a"),
        lambda: storage.write_bytes(f"{ROOT}/a", b""),
        lambda: storage.listing(f"{ROOT}/a"),
    ):
        with pytest.raises(PermissionError, match=r"403.*docs/cloud.md") as caught:
            use()
        assert (
            SETTINGS["AWS_SECRET_ACCESS_KEY"] not in f"{caught.value!r} {caught.value.__cause__!r}"
        )


@pytest.mark.cloud
def test_a_server_that_dies_while_it_is_read(impatient):
    importlib.import_module("moto")
    server = S3()
    try:
        with s3_environment(server.url):
            storage.write_bytes(f"{ROOT}/a", bytes(64 << 20))
            start = None
            with storage.reader(f"{ROOT}/a") as file, pytest.raises(tw.TransportError) as caught:
                file.read(1 << 20)
                server.process.kill()
                server.process.wait()
                start = time.monotonic()
                while file.read(1 << 20):
                    pass
            assert time.monotonic() - start < 20 and caught.value.path == f"{ROOT}/a"
            with pytest.raises(tw.TransportError, match="refused"):
                storage.stat(f"{ROOT}/a")
            with pytest.raises(tw.TransportError), storage.writer(f"{ROOT}/b") as file:
                for _ in range(64):
                    file.write(bytes(1 << 20))
    finally:
        server.close()


@pytest.mark.cloud
def test_credentials_come_from_profiles(proxy, tmp_path, monkeypatch):
    for name in (*SETTINGS, "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "credentials").write_text(
        "[default]\naws_access_key_id = one\naws_secret_access_key = s\n[two]\naws_access_key_id ="
        " two\naws_secret_access_key = s\n"
    )
    (tmp_path / "config").write_text(
        f"[profile two]\nregion = eu-west-3\nendpoint_url = {proxy.url}\n"
    )
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    storage.stat(f"{ROOT}/a")
    monkeypatch.setenv("AWS_PROFILE", "two")
    monkeypatch.delenv("AWS_ENDPOINT_URL")
    storage.stat(f"{ROOT}/a")
    said = [
        headers.get("authorization") or headers.get("Authorization")
        for _, _, headers in proxy.requests
    ]
    assert "Credential=one/" in said[0] and "/us-east-1/" in said[0]
    assert "Credential=two/" in said[1] and "/eu-west-3/" in said[1]


@pytest.mark.cloud
def test_plain_http_only_where_it_was_asked_for(s3, monkeypatch):
    from tensorwire.storage import aws_config

    assert aws_config.allows_http("S3Store", ROOT, {}) and aws_config.allows_http(
        "HTTPStore", "http://host", {}
    )
    monkeypatch.setenv("AWS_ENDPOINT_URL", "https://127.0.0.1:1")
    assert not aws_config.allows_http("S3Store", ROOT, {}) and not aws_config.allows_http(
        "HTTPStore", "https://host", {}
    )
    assert aws_config.allows_http("S3Store", ROOT, {"endpoint": "http://127.0.0.1:1"})
    assert not aws_config.allows_http("GCSStore", "gs://bucket", {}) and not aws_config.allows_http(
        "AzureStore", "az://container", {}
    )


class GenericError(Exception):
    """As obstore's own, with what it says."""


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        (
            (
                "Generic S3 error: Error performing PUT http://169.254.169.254/latest/api/token in"
                " 1s - failed"
            ),
            PermissionError,
        ),
        (
            "Generic GCS error: Error performing token request: Error performing GET",
            PermissionError,
        ),
        (
            "Generic MicrosoftAzure error: Account must be specified\n\nDebug source:\nGeneric",
            PermissionError,
        ),
        (
            (
                "Generic S3 error: Error performing GET http://h/b/credentials - Server returned"
                " non-2xx status code: 500"
            ),
            tw.TransportError,
        ),
        ("Generic S3 error: a-secret", tw.TransportError),
    ],
)
def test_what_a_store_says(text, kind):
    from tensorwire.storage import errors

    error = errors.translated(GenericError(text), f"{ROOT}/a")
    assert type(error) is kind and f"{ROOT}/a" in str(error) and "a-secret" not in str(error)


@pytest.mark.cloud
def test_an_account_that_is_not_named(monkeypatch):
    importlib.import_module("obstore")
    for name in [name for name in os.environ if name.startswith("AZURE_")]:
        monkeypatch.delenv(name)
    with pytest.raises(PermissionError, match=r"docs/cloud\.md"):
        storage.stat("az://container/a")


@pytest.mark.cloud
def test_a_forked_process_says_what_is_wrong(s3):
    storage.write_bytes(f"{ROOT}/forked", bytes(100))
    source = storage.source(f"{ROOT}/forked")
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        for use in (
            lambda: storage.stat(f"{ROOT}/a"),
            lambda: source.read_at(0, 10),
            lambda: storage.stat("s3://another/a"),
        ):
            try:
                use()
            except tw.TransportError as error:
                os.write(write, str(error).encode())
        os._exit(0)
    os.close(write)
    os.waitpid(child, 0)
    with open(read, "rb") as file:
        assert file.read().count(b"forkserver") == 3
    source.close()


@pytest.mark.cloud
def test_a_killed_process_leaves_no_object(s3, tmp_path):
    code = f"""
import os, sys
from tensorwire import storage
with storage.writer("{ROOT}/killed") as file:
    for _ in range(30):
        file.write(bytes(1 << 20))
    os.kill(os.getpid(), 9)
"""
    assert subprocess.run([sys.executable, "-c", code]).returncode == -9
    assert storage.stat(f"{ROOT}/killed") is None


def test_a_held_upload_is_bounded():
    assert object_writer.PART == 8 << 20 and object_writer.WHOLE == 64 << 20


@pytest.mark.parametrize(
    "ask", [lambda url: storage.find(f"{url}/*"), storage.listing], ids=["level", "walk"]
)
def test_a_list_that_breaks_off_is_asked_for_again(proxy, monkeypatch, ask):
    for i in range(5):
        storage.write_bytes(f"{ROOT}/lists/{i}", b"x")
    cuts = [("cut", 20), ("cut", 150), None]
    proxy.fault = lambda method, path, headers: (
        cuts.pop(0) if method == "GET" and "list-type" in path and cuts else None
    )
    assert [entry.path for entry in ask(f"{ROOT}/lists")] == [
        f"{ROOT}/lists/{i}" for i in range(5)
    ] and not cuts
    proxy.fault = lambda method, path, headers: (
        ("cut", 20) if method == "GET" and "list-type" in path else None
    )
    with pytest.raises(tw.TransportError, match="broke off"):
        ask(f"{ROOT}/lists")
