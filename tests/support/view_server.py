"""The server of `tensorwire view` in a thread."""

import contextlib
import http.client
import json
import threading
from urllib.parse import parse_qs, urlencode, urlsplit

import numpy as np

from tensorwire.view.running import View


class Page:
    """What a browser does, without one: it keeps the cookie, and says where it comes from."""

    def __init__(self, url):
        self.port, self.token = urlsplit(url).port, parse_qs(urlsplit(url).query)["token"][0]
        self.cookie = f"tensorwire_{self.port}={self.token}"

    def ask(self, target, method="GET", body=None, **headers):
        """(status, headers, body)"""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        try:
            given = {
                "Cookie": self.cookie,
                **{name.replace("_", "-"): value for name, value in headers.items()},
            }
            connection.request(
                method,
                target,
                body,
                {name: value for name, value in given.items() if value is not None},
            )
            answer = connection.getresponse()
            return answer.status, dict(answer.headers), answer.read()
        finally:
            connection.close()

    def raw(self, name, **words):
        return self.ask(f"/api/{name}?{urlencode(words)}")

    def get(self, name, **words):
        status, _, body = self.raw(name, **words)
        found = json.loads(body)
        assert status == 200 and "error" not in found, body
        return found

    def fault(self, name, **words):
        """The text of an error, which is never a traceback and never a fault of the server's own."""
        status, _, body = self.raw(name, **words)
        assert status == 200, (status, body)
        text = json.loads(body)["error"]
        assert "Traceback" not in text
        return text

    def window(self, **words):
        status, headers, body = self.raw("window", **words)
        assert status == 200, body
        assert headers["content-type"] == "application/octet-stream"
        head, _, data = body.partition(b"\n")
        about = json.loads(head)
        return about, np.frombuffer(data, "<f8").reshape(about["shape"])

    def post(self, name, said, **words):
        status, _, body = self.ask(
            f"/api/{name}?{urlencode(words)}",
            "POST",
            json.dumps(said),
            Content_Type="application/json",
            Origin=f"http://127.0.0.1:{self.port}",
        )
        assert status == 200
        return json.loads(body)

    def ids(self):
        """Every id by its way."""
        found = {}

        def learn(node, way):
            found[f"{way}{node['name']}"] = node["id"]
            for child in node["children"]:
                learn(child, f"{way}{node['name']}/")

        for root in self.get("tree")["roots"]:
            learn(root, "")
        return found

    def numbers(self, id):
        return {tensor["name"]: tensor["n"] for tensor in self.get("file", id=id)["tensors"]}


@contextlib.contextmanager
def running(*paths):
    with View(paths) as view:
        thread = threading.Thread(target=view.run)
        thread.start()
        try:
            yield Page(view.url)
        finally:
            view.stop()
            thread.join(10)
            assert not thread.is_alive()
