"""The likeliest mistakes: the class of each error, and that it names the call or the conversion
that works.
"""

import dataclasses
import datetime
import decimal
import enum
import importlib
import io
import pathlib
import pickle

import numpy as np
import pytest

import tensorwire as tw

X = np.arange(6, dtype=np.float32)


@dataclasses.dataclass
class Point:
    x: int = 1


class Color(enum.Enum):
    RED = 1


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    tw.save("a.npz", {"x": X})
    tw.write_examples("r.tfrecord", {"x": np.arange(3)})
    for name in ("empty", "empty.safetensors", "empty.npz"):
        (tmp_path / name).touch()
    return tmp_path


WRONG = {
    "swapped": (lambda: tw.save({"x": X}, "a.safetensors"), tw.UsageError, "tw.save(path, value)"),
    "swapped array": (
        lambda: tw.save(X, pathlib.Path("a.npy")),
        tw.UsageError,
        "tw.save(path, value)",
    ),
    "swapped stream": (lambda: tw.write(X, io.BytesIO()), tw.UsageError, "stream"),
    "path to loads": (lambda: tw.loads("a.npz"), tw.UsageError, "tw.load(path)"),
    "Path to loads": (lambda: tw.loads(pathlib.Path("a.npz")), tw.UsageError, "tw.load(path)"),
    "path and format to loads": (lambda: tw.loads("a.npz", "npz"), tw.UsageError, "tw.load(path)"),
    "text to loads": (lambda: tw.loads('{"a": 1}'), tw.UsageError, "encode()"),
    "file to loads": (lambda: tw.loads(io.BytesIO()), tw.UsageError, "tw.load(file)"),
    "None to loads": (lambda: tw.loads(None), tw.UsageError, "NoneType"),
    "int to loads": (lambda: tw.loads(5), tw.UsageError, "int"),
    "records to load": (lambda: tw.load("r.tfrecord"), tw.UnknownFormatError, "tw.read_examples"),
    "records to open": (lambda: tw.open("r.tfrecord"), tw.UnknownFormatError, "tw.read_examples"),
    "save as records": (
        lambda: tw.save("s.tfrecord", {"x": X}),
        tw.UnknownFormatError,
        "tw.write_examples",
    ),
    "path to write": (lambda: tw.write("a.bin", X), tw.UsageError, "tw.save(path, value)"),
    "path to read": (lambda: tw.read(pathlib.Path("a.npz")), tw.UsageError, "tw.load(path)"),
    "dict as a record": (
        lambda: tw.RecordWriter("w").write({"x": 1}),
        tw.UsageError,
        "tw.write_examples",
    ),
    "text as a record": (lambda: tw.RecordWriter("w").write("text"), tw.UsageError, "encode()"),
    "empty file": (lambda: tw.load("empty"), tw.UnknownFormatError, "0 bytes"),
    "empty named file": (lambda: tw.load("empty.safetensors"), tw.UnknownFormatError, "0 bytes"),
    "empty npz": (lambda: tw.open("empty.npz"), tw.UnknownFormatError, "0 bytes"),
    "to tf": (lambda: tw.loads(tw.dumps(X), to="tf"), tw.UsageError, "'tensorflow'?"),
    "to pt": (lambda: tw.to(X, "pt"), tw.UsageError, "'torch'?"),
    "save to text": (lambda: tw.save(io.TextIOWrapper(io.BytesIO()), X), tw.UsageError, '"wb"'),
    "load of text": (lambda: tw.load(io.TextIOWrapper(io.BytesIO())), tw.UsageError, '"rb"'),
    "write to text": (lambda: tw.write(io.TextIOWrapper(io.BytesIO()), X), tw.UsageError, '"wb"'),
    "read of text": (lambda: tw.read(io.TextIOWrapper(io.BytesIO())), tw.UsageError, '"rb"'),
    "dataclass": (lambda: tw.dumps({"p": Point()}), tw.EncodeError, "dataclasses.asdict"),
    "set": (lambda: tw.dumps({1, 2}), tw.EncodeError, "sorted(x)"),
    "range": (lambda: tw.dumps(range(3)), tw.EncodeError, "list(x)"),
    "Path": (lambda: tw.dumps(pathlib.Path("x")), tw.EncodeError, "str(x)"),
    "datetime": (lambda: tw.dumps(datetime.datetime(2020, 1, 1)), tw.EncodeError, "isoformat()"),
    "date": (lambda: tw.dumps([datetime.date(2020, 1, 1)]), tw.EncodeError, "isoformat()"),
    "timedelta": (lambda: tw.dumps(datetime.timedelta(1)), tw.EncodeError, "total_seconds()"),
    "decimal": (lambda: tw.dumps(decimal.Decimal(1)), tw.EncodeError, "str(x)"),
    "enum": (lambda: tw.dumps(Color.RED), tw.EncodeError, "x.value"),
    "generator": (lambda: tw.dumps(i for i in range(3)), tw.EncodeError, "list(x)"),
    "unknown target": (lambda: tw.convert("a.npz", "x.onnx"), tw.UnknownFormatError, "to="),
    "misspelt option": (lambda: tw.dumps(X, compresion="zstd"), tw.UsageError, "'compression'?"),
    "misspelt option of save": (
        lambda: tw.save("b.npy", X, checksm=True),
        tw.UsageError,
        "'checksum'?",
    ),
    "profile of a path": (lambda: tw.profile("a.npz"), tw.UsageError, "tw.load(path)"),
    "row out of range": (lambda: tw.open("a.npz")["x"][6], IndexError, "6"),
    "negative row": (lambda: tw.open("a.npz")["x"][-7], IndexError, "-7"),
}


@pytest.mark.parametrize("name", WRONG)
def test_the_error_names_what_works(folder, name):
    call, kind, words = WRONG[name]
    with pytest.raises(kind) as caught:
        call()
    assert words in str(caught.value)
    if isinstance(caught.value, tw.TensorwireError):
        again = pickle.loads(pickle.dumps(caught.value))
        assert (
            type(again) is type(caught.value)
            and str(again) == str(caught.value)
            and again.hint == caught.value.hint
        )


def test_following_the_hints_works(folder):
    today = datetime.datetime(2020, 1, 1)
    for value in (
        dataclasses.asdict(Point()),
        sorted({1, 2}),
        list(range(3)),
        today.isoformat(),
        today.timestamp(),
        Color.RED.value,
    ):
        assert tw.equal(tw.loads(tw.dumps(value)), value)
    assert tw.loads(b'{"a": 1}') == {"a": 1}
    tw.convert("a.npz", "x.onnx", to="safetensors")
    assert tw.equal(tw.load("x.onnx"), {"x": X})
    assert tw.open("a.npz")["x"][-6] == tw.open("a.npz")["x"][0] == 0
    assert tw.profile(tw.load("a.npz"), formats="npz", compressions=(), seconds=0.1)


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
