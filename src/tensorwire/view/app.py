"""The HTTP API of the page: static files, and below /api/ one handler per kind of request.

1. An error is JSON with one text, {"error": TEXT}; a traceback is never sent.
2. A damaged file is a normal result with status 200, because browsers log any other status as an
   error of the page. Status 500 means a bug in tensorwire.
3. Handlers run on threads, at most AT_ONCE at a time. Each gets the query string as a `Query`,
   which validates every number.
"""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from .. import __version__
from .._errors import SchemaError, TensorwireError
from .._optional import require
from ..api.summary import verify
from ..explore import images, sampling
from ..explore.runs import DenseValues
from ..explore.statistics import PARTS
from . import kinds
from .catalog import Catalog
from .comparing import comparison, difference
from .guard import App, Guard
from .models import ModelPages
from .opened import Library
from .records import Records
from .viewport import Slice, line, window

PAGE = Path(__file__).parent / "page"
TYPES = {
    ".html": "text/html",
    ".css": "text/css",
    ".js": "text/javascript",
    ".svg": "image/svg+xml",
}
AT_ONCE = 8
"""The most concurrent handlers: each may use some hundred megabytes."""
NAMES = 1000
"""The most tensors of a file in one response."""
LARGEST = 32 << 20
"""The largest image file that is passed on, in bytes."""
_LARGEST = 1 << 62


class Query:
    """The validated query string of a request."""

    def __init__(self, words: Any) -> None:
        self._words = words

    def text(self, name: str, default: str = "") -> str:
        return str(self._words.get(name, default))[:1000]

    def number(self, name: str, default: int | None = 0) -> Any:
        """Return an integer parameter."""
        text = self._words.get(name)
        if text is None or text == "":
            return default
        if (
            not text.removeprefix("-").isascii()
            or not text.removeprefix("-").isdigit()
            or len(text) > 19
            or abs(int(text)) > _LARGEST
        ):
            raise SchemaError(f"expected an integer for {name}, found {text!r:.40}")
        return int(text)

    def choice(self, name: str, options: tuple[str, ...]) -> str:
        """Return a parameter that must be one of the options; the first one is the default."""
        text = self.text(name, options[0])
        if text not in options:
            raise SchemaError(
                f"expected {name} to be one of {', '.join(options)}, found {text!r:.40}"
            )
        return text

    def place(self) -> tuple[int, ...] | None:
        """Return the index `at`, such as 0,3,7."""
        text = self.text("at")
        if not text:
            return None
        if len(text) > 900 or not all(
            part.isascii() and part.isdigit() and len(part) < 19 for part in text.split(",")
        ):
            raise SchemaError("expected integers separated by commas for at")
        return tuple(map(int, text.split(",")))

    def tensor(self, suffix: str = "") -> tuple[str, int]:
        """Return the file id and the number of a tensor."""
        return self.text(f"id{suffix}"), self.number(f"n{suffix}")

    @property
    def both(self) -> bool:
        return bool(self.text("id2"))


class Answers:
    """The handlers: one method per path below /api/, with the same name."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._library, self._records, self._models = (
            Library(catalog),
            Records(catalog),
            ModelPages(catalog),
        )

    def tree(self, query: Query) -> Any:
        roots = [node.json() for node in self._catalog.tree()]
        return {"version": __version__, "roots": roots, "left_out": self._catalog.left_out}

    def file(self, query: Query) -> Any:
        """Return the contents of a tensor file: the tensors whose names contain the text of
        `filter`, at most NAMES at a time.
        """
        opened = self._library.file(query.text("id"))
        wanted, start = query.text("filter").lower(), max(0, query.number("start"))
        chosen = [i for i, name in enumerate(opened.names) if wanted in name.lower()]
        texts, file = opened.file.tensor_metadata, opened.file
        data = {
            "format": file.format,
            "size": file.size,
            "compression": file.compression,
            "checksums": file.checksums,
            "lazy": file.lazy,
        }
        listed = [self._about(query.text("id"), i, texts) for i in chosen[start : start + NAMES]]
        metadata = {key[:200]: text[:2000] for key, text in list(file.metadata.items())[:200]}
        return data | {
            "metadata": metadata,
            "total": len(opened.names),
            "found": len(chosen),
            "start": start,
            "tensors": listed,
        }

    def _about(self, id: str, number: int, texts: dict[str, dict[str, str]]) -> dict[str, Any]:
        try:
            tensor = self._library.tensor(id, number)
            if tensor.kind == "unreadable":
                tensor.read()
        except TensorwireError as error:
            return {
                "n": number,
                "name": self._library.file(id).names[number],
                "kind": "broken",
                "error": str(error),
            }
        data = {
            "n": number,
            "name": tensor.name,
            "kind": tensor.kind,
            "dtype": str(tensor.dtype),
            "shape": list(tensor.shape),
        }
        metadata = {key[:200]: text[:2000] for key, text in texts.get(tensor.name, {}).items()}
        return data | {
            "nbytes": tensor.nbytes,
            "quantized": tensor.quantized,
            "compression": tensor.compression,
            "metadata": metadata,
        }

    def tensor(self, query: Query) -> Any:
        id, number = query.tensor()
        tensor = self._library.tensor(id, number)
        data = self._about(id, number, self._library.file(id).file.tensor_metadata)
        shape = tuple(dim or 0 for dim in tensor.shape)
        dense = tensor.kind == "dense"
        pictures = (
            [
                {"layout": name, "count": images.ImageLayout.of(shape, name).count}
                for name in images.layouts(shape)
            ]
            if dense
            else []
        )
        return data | {"pictures": pictures, "complex": dense and "complex" in str(tensor.dtype)}

    def _values(self, query: Query) -> DenseValues:
        if query.both:
            return difference(self._library, query.tensor(), query.tensor("2"))
        return self._library.values(*query.tensor())

    def window(self, query: Query) -> Any:
        values = self._values(query)
        cut = Slice.of(
            values.shape, query.number("rows", None), query.number("columns", None), query.place()
        )
        rows, columns = (
            (query.number(f"{side}0"), query.number(f"{side}1", None)) for side in "rc"
        )
        size = query.number("height", 256), query.number("width", 256)
        viewport = window(
            values,
            cut,
            rows,
            columns,
            size,
            query.text("how", "sample"),
            query.choice("part", PARTS),
        )
        return "application/octet-stream", viewport.packed()

    def line(self, query: Query) -> Any:
        line_view = line(
            self._values(query),
            query.number("start"),
            query.number("stop", None),
            query.number("points", 1024),
            query.choice("part", PARTS),
        )
        return line_view.json()

    def statistics(self, query: Query) -> Any:
        exact = bool(query.number("exact"))
        values, part = self._values(query), query.choice("part", PARTS)
        return kinds.statistics_page(sampling.summary(values, exact, part))

    def image(self, query: Query) -> Any:
        return "image/png", images.picture(
            self._values(query),
            query.text("layout", "hwc"),
            query.number("number"),
            query.choice("part", PARTS),
        )

    def strings(self, query: Query) -> Any:
        return kinds.strings(
            self._library, *query.tensor(), query.number("start"), query.number("count", 100)
        )

    def search(self, query: Query) -> Any:
        return kinds.search(
            self._library, *query.tensor(), query.text("text"), query.number("start")
        )

    def string_image(self, query: Query) -> Any:
        return _picture(kinds.string(self._library, *query.tensor(), query.number("at")))

    def ragged(self, query: Query) -> Any:
        return kinds.ragged(
            self._library, *query.tensor(), query.number("start"), query.number("count", 50)
        )

    def lengths(self, query: Query) -> Any:
        return kinds.lengths(self._library, *query.tensor())

    def sparse(self, query: Query) -> Any:
        rows, columns = query.number("rows", None), query.number("columns", None)
        return kinds.pattern(
            self._library,
            *query.tensor(),
            rows,
            columns,
            query.number("start"),
            query.number("count", 50),
        )

    def compare(self, query: Query) -> Any:
        return comparison(
            self._library, query.tensor(), query.tensor("2"), bool(query.number("exact"))
        )

    def records(self, query: Query) -> Any:
        return self._records.page(
            query.text("id"), query.number("start"), query.number("count", 10)
        )

    def record_image(self, query: Query) -> Any:
        return _picture(
            self._records.picture(
                query.text("id"),
                query.number("record"),
                query.number("feature"),
                query.number("at"),
            )
        )

    def schema(self, query: Query) -> Any:
        return self._records.schema(query.text("id"))

    def verify(self, query: Query) -> Any:
        """Read the whole file and return the damage in it."""
        node = self._catalog[query.text("id")]
        if node.kind == "records":
            return self._records.verify(node.id)
        # Opening the file first checks the limits for files that must be read whole.
        self._library.file(node.id)
        report = verify(node.path, "checkpoint" if node.kind == "checkpoint" else None)
        data = report.json()
        return {
            key: data[key] for key in ("ok", "tensors", "nbytes", "checksums") if key in data
        } | {"problems": report.problems[:100]}

    def model(self, query: Query) -> Any:
        return self._models.signatures(query.text("id"))

    def request(self, query: Query, body: Any) -> Any:
        return self._models.request(query.text("id"), body)


READS = (
    "tree file tensor window line statistics image strings search string_image ragged lengths"
    " sparse compare records record_image schema verify model"
).split()


def _picture(data: bytes) -> tuple[str, bytes]:
    """Return (media type, data) of a string that is an image.

    Any other string is refused: a browser must not interpret bytes of a file, for example as HTML.
    """
    kind = kinds.media_type(data)
    if kind is None or len(data) > LARGEST:
        raise SchemaError(
            "this string is neither PNG nor JPEG"
            if kind is None
            else f"the image has {len(data):,} bytes, more than {LARGEST:,}"
        )
    return kind, data


def _safely(work: Callable[[], Any]) -> tuple[int, str, bytes]:
    """Return (status, media type, body) of a response, or of an error."""
    try:
        answer = work()
        if isinstance(answer, tuple):
            return 200, answer[0], answer[1]
        return (
            200,
            "application/json",
            json.dumps(answer, allow_nan=False).encode("utf-8", "replace"),
        )
    except (TensorwireError, OSError) as error:
        status, text = 200, str(error)
    except MemoryError:
        status, text = 200, "not enough memory"
    except Exception as error:
        # A bug in tensorwire: it is reported on the page and on standard error, and the server
        # goes on.
        print(f"tensorwire view: {type(error).__name__}: {error}", file=sys.stderr)
        status, text = 500, f"internal error in tensorwire view: {type(error).__name__}: {error}"
    return status, "application/json", json.dumps({"error": text[:4000]}).encode("utf-8", "replace")


def application(catalog: Catalog, token: str, port: int) -> App:
    """Return the ASGI application of the page, behind its `Guard`. Needs the extra `view`."""
    starlette = require("starlette.applications", extra="view")
    responses, routing = (
        require("starlette.responses", extra="view"),
        require("starlette.routing", extra="view"),
    )
    concurrency = require("starlette.concurrency", extra="view")
    answers, room = Answers(catalog), threading.BoundedSemaphore(AT_ONCE)

    def safely(work: Callable[[], Any]) -> tuple[int, str, bytes]:
        with room:
            return _safely(work)

    def read(name: str) -> Any:
        def handler(request: Any) -> Any:
            method = getattr(answers, name)
            status, kind, body = safely(lambda: method(Query(request.query_params)))
            return responses.Response(body, status, media_type=kind)

        return routing.Route(f"/api/{name}", handler, methods=["GET"])

    async def request_(request: Any) -> Any:
        body = await request.body()
        work = lambda: answers.request(Query(request.query_params), _json(body))  # noqa: E731
        status, kind, data = await concurrency.run_in_threadpool(safely, work)
        return responses.Response(data, status, media_type=kind)

    def page(request: Any) -> Any:
        name = request.path_params.get("name", "index.html")
        files = {path.name: path for path in PAGE.iterdir()}
        if name not in files or Path(name).suffix not in TYPES:
            return responses.Response("no such page\n", 404, media_type="text/plain")
        return responses.Response(files[name].read_bytes(), media_type=TYPES[Path(name).suffix])

    routes = [read(name) for name in READS]
    routes += [routing.Route("/api/request", request_, methods=["POST"])]
    routes += [
        routing.Route("/", page, methods=["GET"]),
        routing.Route("/page/{name:str}", page, methods=["GET"]),
    ]
    return Guard(starlette.Starlette(routes=routes), token, port)


def _json(body: bytes) -> Any:
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        raise SchemaError("the request body is not valid JSON") from None
