"""The likeliest mistakes: the class of each error, and that it names the call or the conversion
that works.
"""

import datetime
import importlib
import io
import pathlib
import pickle
import subprocess
import sys

import numpy as np
import pytest

import tensorwire as tw
from support.mistakes import MISTAKES, CommandError, prepare, run

ROOT = pathlib.Path(__file__).parents[2]
X = np.arange(6, dtype=np.float32)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    tw.save("a.npz", {"x": X})
    for name in ("empty", "empty.npz"):
        (tmp_path / name).touch()
    return tmp_path


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda mistake: mistake.title)
def test_the_fix_works(mistake, tmp_path, monkeypatch):
    """The code fails with an error that is meant for users, and the fix runs."""
    monkeypatch.chdir(tmp_path)
    names = prepare(tmp_path)
    with pytest.raises(Exception) as caught:
        run(mistake.code, names)
    error = caught.value
    assert isinstance(error, (tw.TensorwireError, OSError, LookupError, CommandError)), repr(error)
    if isinstance(error, tw.TensorwireError):
        copy = pickle.loads(pickle.dumps(error))
        assert (type(copy), str(copy), copy.hint) == (type(error), str(error), error.hint)
    run(mistake.fix, names)


def test_the_page_of_errors_is_fresh():
    made = subprocess.run(
        [sys.executable, ROOT / "scripts" / "errors.py"], capture_output=True, text=True, check=True
    ).stdout
    assert made == (ROOT / "docs" / "errors.md").read_text(), "run scripts/errors.py --write"


# More of the same mistakes, which docs/errors.md leaves out.
VARIANTS = {
    "swapped array": (
        lambda: tw.save(X, pathlib.Path("a.npy")),
        tw.UsageError,
        "tw.save(path, value)",
    ),
    "swapped stream": (lambda: tw.write(X, io.BytesIO()), tw.UsageError, "stream"),
    "path and format to loads": (lambda: tw.loads("a.npz", "npz"), tw.UsageError, "tw.load(path)"),
    "None to loads": (lambda: tw.loads(None), tw.UsageError, "NoneType"),
    "int to loads": (lambda: tw.loads(5), tw.UsageError, "int"),
    "empty file": (lambda: tw.load("empty"), tw.UnknownFormatError, "0 bytes"),
    "empty npz": (lambda: tw.open("empty.npz"), tw.UnknownFormatError, "0 bytes"),
    "to pt": (lambda: tw.to(X, "pt"), tw.UsageError, "'torch'?"),
    "to tf": (lambda: tw.loads(tw.dumps(X), to="tf"), tw.UsageError, "'tensorflow'?"),
    "write to text": (lambda: tw.write(io.TextIOWrapper(io.BytesIO()), X), tw.UsageError, '"wb"'),
    "read of text": (lambda: tw.read(io.TextIOWrapper(io.BytesIO())), tw.UsageError, '"rb"'),
    "Path": (lambda: tw.dumps(pathlib.Path("x")), tw.EncodeError, "str(x)"),
    "date": (lambda: tw.dumps([datetime.date(2020, 1, 1)]), tw.EncodeError, "isoformat()"),
    "generator": (lambda: tw.dumps(i for i in range(3)), tw.EncodeError, "list(x)"),
    "negative row": (lambda: tw.open("a.npz")["x"][-7], IndexError, "-7"),
}


@pytest.mark.parametrize("name", VARIANTS)
def test_variants(folder, name):
    call, kind, words = VARIANTS[name]
    with pytest.raises(kind) as caught:
        call()
    assert words in str(caught.value)


def test_a_picture():
    image = importlib.import_module("PIL.Image").new("RGB", (2, 3))
    with pytest.raises(tw.EncodeError) as caught:
        tw.dumps(image)
    assert caught.value.hint == "pass np.asarray(x)" and tw.loads(
        tw.dumps(np.asarray(image))
    ).shape == (3, 2, 3)


def test_a_star_import_replaces_no_builtin():
    names = {}
    exec("import io\nfrom tensorwire import *", names)
    assert "open" not in names and names["io"] is io and names["loads"] is tw.loads
    assert tw.open and tw.io and {"open", "io"} <= set(dir(tw))


def test_a_usage_error_is_caught_by_its_meaning():
    for kind in (tw.TensorwireError, ValueError, TypeError):
        with pytest.raises(kind):
            tw.loads(None)


class TestPandas:
    def setup_method(self):
        import pandas

        self.pd = pandas

    def test_series(self):
        for values in ([1, 2, 3], [1.5, np.nan], [True, False], np.float32([1, 2])):
            assert tw.equal(tw.loads(tw.dumps(self.pd.Series(values))), np.asarray(values))
        assert tw.tensor(self.pd.Series(["a", "ä"])).tolist() == ["a", "ä"]
        assert tw.equal(tw.tensor(self.pd.Series([1, 2, 3])[lambda x: x > 1]), np.array([2, 3]))
        assert tw.equal(tw.tensor(self.pd.array([1, 2], dtype="Int64")), np.array([1, 2]))

    def test_frames(self, tmp_path):
        frame = self.pd.DataFrame({"a": [1, 2], "s": ["x", "y"], "f": np.float32([1, 2])})
        wanted = {"a": np.array([1, 2]), "s": tw.Strings.of(["x", "y"]), "f": np.float32([1, 2])}
        assert tw.equal(tw.loads(tw.dumps(frame)), wanted)
        tw.save(tmp_path / "a.parquet", frame)
        assert self.pd.read_parquet(tmp_path / "a.parquet").to_dict() == frame.to_dict()
        assert tw.write_examples(tmp_path / "a.tfrecord", frame) == 2
        (batch,) = tw.read_examples(tmp_path / "a.tfrecord")
        assert batch["a"].tolist() == [1, 2] and batch["s"].tolist() == ["x", "y"]

    def test_what_would_be_lost_is_refused(self):
        pd = self.pd
        for value in (
            pd.Series([1, 2], index=["a", "b"]),
            pd.DataFrame({"a": [1]}, index=pd.Index([7], name="id")),
            pd.DataFrame([[1, 2]], columns=["a", "a"]),
            pd.Series([1, None], dtype="Int64"),
            pd.Series(["a", None]),
        ):
            with pytest.raises(tw.EncodeError) as caught:
                tw.dumps(value)
            assert caught.value.hint
