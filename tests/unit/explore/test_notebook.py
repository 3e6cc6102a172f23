"""What a notebook shows of our values: compact, escaped, of a bounded size, and without anything
from elsewhere.
"""

from html.parser import HTMLParser

import ml_dtypes
import numpy as np
import pytest

import tensorwire as tw
from tensorwire.api.profiling import profile

EVIL = "<script>alert(1)</script><img src=x onerror=alert(2)>\"'&\x1b[2J\u202e"


class Page(HTMLParser):
    """Tags, text and attributes of a page; every tag that is opened is closed, in order."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.attributes, self.text, self._open = [], [], "", []
        self.feed(text)
        self.close()
        assert not self._open, self._open

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += attrs
        if tag != "br":
            self._open.append(tag)

    def handle_endtag(self, tag):
        assert self._open.pop() == tag

    def handle_data(self, data):
        self.text += data


def page(value, most=60_000):
    text = value._repr_html_()
    found = Page(text)
    assert len(text) < most and set(found.tags) <= {
        "div",
        "b",
        "span",
        "table",
        "thead",
        "tbody",
        "tr",
        "th",
        "td",
        "pre",
        "p",
        "ul",
        "li",
        "details",
        "summary",
    }
    assert {name for name, _ in found.attributes} <= {"style"}
    styles = " ".join(value for _, value in found.attributes)
    assert "url(" not in styles and "http" not in text and "background:#fff" not in styles
    assert not set("\x1b\x07\u202e") & set(text)
    return found


@pytest.fixture(scope="module")
def records(tmp_path_factory):
    path = tmp_path_factory.mktemp("records") / "a.tfrecord"
    tw.write_examples(path, {EVIL[:25]: [1, 2, 3], "x": [[1.0], [2.0, 3.0], []]})
    return path


class TestKinds:
    def test_strings(self):
        found = page(tw.Strings.of(["wire", EVIL, "é" * 500]))
        assert (
            "<script>alert(1)</script>" in found.text
            and "'wire'" in found.text
            and "(500 characters)" in found.text
        )
        assert (
            "more" in page(tw.Strings.of(["x"] * 100)).text
            and "[0, 1]" in page(tw.Strings.of(["a", "b"], (1, 2))).text
        )

    def test_sparse(self):
        found = page(tw.Sparse([[0, 0], [1, 2]], np.float32([1, 4]), (2, 3)))
        assert (
            "nnz 2" in found.text
            and "33.3 %" in found.text
            and "[1, 2]" in found.text
            and "⠁" in found.text
        )
        assert EVIL[:8] in page(tw.Sparse([[0, 0]], tw.Strings.of([EVIL]), (2, 3))).text

    def test_ragged(self):
        found = page(tw.Ragged.of([[1, 2, 3], [], [4]]))
        assert (
            "0 to 3, mean 1.333" in found.text
            and "[1, 2, 3]" in found.text
            and "[3, ?]" in found.text
        )
        assert "[['a'], []]" in page(tw.Ragged.of([[["a"], []], [["b", "c"]]])).text

    def test_bundle(self):
        found = page(tw.Bundle({EVIL: np.zeros(3), "r": tw.Ragged.of([[1]])}, {"model": EVIL}))
        assert (
            "<script>" in found.text
            and "Ragged int64" in found.text
            and "model: <script>" in found.text
        )

    def test_quantized(self):
        found = page(tw.quantize(np.linspace(0, 1, 100, dtype=np.float32), "int8"))
        assert "original dtype float32" in found.text and "400 bytes" in found.text

    def test_schema_and_summaries(self, records, tmp_path):
        found = page(tw.infer_schema(records))
        assert (
            "Schema of 2 features" in found.text
            and "<script>" in found.text
            and "present 3" in found.text
        )
        assert "3 records" in page(tw.inspect(records)).text.replace("records 3", "3 records")
        tw.save(
            tmp_path / "x.safetensors",
            tw.Bundle({EVIL: np.zeros((2, 3))}, {"a": EVIL}),
            checksum=True,
        )
        found = page(tw.inspect(tmp_path / "x.safetensors"))
        assert "<script>" in found.text and "[2, 3]" in found.text and "checksums yes" in found.text

    def test_profile(self):
        found = page(profile(np.zeros(100), formats="npy", compressions=(), quantize=False))
        assert "npy" in found.text

    def test_differences_reports_and_signatures(self, tmp_path):
        tw.save(tmp_path / "a.safetensors", {"w": np.zeros(3), EVIL: np.ones(2)})
        tw.save(tmp_path / "b.npz", {"w": np.ones(3)})
        found = page(tw.diff(tmp_path / "a.safetensors", tmp_path / "b.npz"))
        assert "<script>" in found.text and "missing" in found.text and "3 of 3" in found.text
        found = page(tw.convert(tmp_path / "a.safetensors", tmp_path / "c.npz"))
        assert "<script>" in found.text and "npz" in found.text
        found = page(
            tw.serving.Signature.given(
                {EVIL[:25]: ("float32", [None, 3])}, {"y": ("float32", [None])}
            )
        )
        assert "<script>" in found.text and "float32" in found.text


@pytest.mark.parametrize(
    "value",
    [
        tw.Strings.of([]),
        tw.Strings.of(["x"], ()),
        tw.Strings.of([], (0, 3), text=True),
        tw.Sparse(np.zeros((0, 2)).astype(int), np.zeros(0), (3, 4)),
        tw.Sparse(np.zeros((0, 2)).astype(int), np.zeros(0), (0, 4)),
        tw.Sparse([[3]], [1], (9,)),
        tw.Sparse([[1, 2, 3]], np.ones((1, 5)), (9, 9, 9, 5)),
        tw.Ragged(np.zeros(0), [0]),
        tw.Ragged(np.zeros((2, 3)), [0, 2]),
        tw.Ragged(np.arange(3).astype(ml_dtypes.bfloat16), [0, 3]),
        tw.Ragged(np.complex64([1j, np.nan]), [0, 2]),
        tw.Bundle({}),
    ],
    ids=repr,
)
def test_odd_values(value):
    page(value)


def test_huge_values_are_quick_and_small():
    import time

    count = 3_000_000
    values = [
        tw.Strings(np.zeros(count, np.uint8), np.arange(count + 1)),
        tw.Sparse(
            np.column_stack([np.arange(count), np.arange(count)]), np.zeros(count), (count, count)
        ),
        tw.Ragged(np.zeros(count), np.arange(count + 1)),
        tw.Bundle({f"tensor {i}": np.zeros(1) for i in range(20_000)}),
    ]
    for value in values:
        start = time.perf_counter()
        page(value, 20_000)
        assert time.perf_counter() - start < 5


def test_tensors_stay_light():
    import subprocess
    import sys

    code = "import sys, tensorwire.core.tensors; print(*sys.modules)"
    loaded = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout.split()
    assert not [name for name in loaded if name.startswith(("tensorwire.explore", "html"))]
