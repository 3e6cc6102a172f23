"""Whatever the input, an error is one of ours, and a DecodeError knows its format and its byte."""

import json
import random
import sys
import threading
import time

import numpy as np
import pytest

import tensorwire as tw

NESTED = {
    "a": np.arange(12.0).reshape(3, 4),
    "b": tw.Strings.of(["abc", "é", ""]),
    "r": tw.Ragged(np.arange(6), [np.array([0, 2, 6])]),
    "s": tw.Sparse([[0, 1], [2, 3]], np.float32([1, 2]), (3, 4)),
    "l": [np.int8([1, 2]), "x", 1.5, None, (True,)],
}
COLUMNS = {
    "a": np.arange(5.0),
    "s": tw.Strings.of(["a", "b", "cc", "d", "e"]),
    "r": tw.Ragged.of([[1], [2, 3], [], [4], [5]]),
}


class TestTensorProto:
    STRINGS_FIRST = bytes.fromhex("4201781204120208020807")
    """The strings stand before the shape and the dtype."""

    @pytest.mark.parametrize("tf_compat", [False, True])
    def test_another_dtype_is_a_schema_error(self, tf_compat):
        with pytest.raises(tw.SchemaError):
            tw.io.parse_tensor(self.STRINGS_FIRST, "float32", tf_compat=tf_compat)
        found = tw.io.parse_tensor(self.STRINGS_FIRST, "string", tf_compat=tf_compat)
        assert found.tolist() == [b"x", b"x"]

    @pytest.mark.tensorflow
    def test_tensorflow_agrees(self, tf):
        assert tf.io.parse_tensor(self.STRINGS_FIRST, tf.string).numpy().tolist() == [b"x", b"x"]
        with pytest.raises(tf.errors.InvalidArgumentError):
            tf.io.parse_tensor(self.STRINGS_FIRST, tf.float32)


def with_tensor_metadata(texts):
    """A safetensors file of a Bundle that says this about its tensors."""
    text = json.dumps({"version": 1, "spec": {"bundle": {"a": {}}, "tensor_metadata": texts}})
    header = {
        "__metadata__": {"tensorwire": text},
        "a": {"dtype": "U8", "shape": [2], "data_offsets": [0, 2]},
    }
    head = json.dumps(header).encode()
    return len(head).to_bytes(8, "little") + head + b"\0\1"


@pytest.mark.parametrize("texts", [{"a": 8}, {"a": None}, {"a": {"k": 8}}, {"a": []}, 8, [1], None])
def test_tensor_metadata_that_is_not_text(texts):
    blob = with_tensor_metadata(texts)
    for read in (tw.inspect, tw.loads, tw.open):
        with pytest.raises(tw.DecodeError) as caught:
            read(blob)
        assert caught.value.format == "safetensors" and caught.value.offset is not None
    assert not tw.verify(blob)
    assert tw.open(with_tensor_metadata({"a": {"k": "v"}})).tensor_metadata == {"a": {"k": "v"}}


@pytest.mark.parametrize("url", ["http://[::1", "grpc://[::1", "http://127.0.0.1:99999"])
def test_urls_that_are_none(url):
    with pytest.raises(tw.UsageError):
        tw.serving.Client(url, model="m")


@pytest.mark.parametrize("names", [{"model": "a\ud800"}, {"model": "m", "label": "\udfff"}])
@pytest.mark.parametrize("scheme", ["http", "grpc"])
def test_names_that_are_not_text(scheme, names):
    with pytest.raises(tw.UsageError):
        tw.serving.Client(f"{scheme}://127.0.0.1:1", **names)


@pytest.mark.parametrize("shape", [(1 << 40, 1 << 40), (1 << 30, 1 << 16)])
def test_a_vast_sparse_tensor_has_no_dense_form(shape):
    for values in (np.zeros(0), tw.Strings.of([], text=False)):
        sparse = tw.Sparse(np.zeros((0, 2), np.int64), values, shape)
        with pytest.raises(tw.EncodeError):
            sparse.to_dense()


@pytest.mark.parametrize(
    ("text", "offset"),
    [
        ("[1, 2, 1e999]", 7),
        ('{"a": [1, -1e400]}', 10),
        ('{"a": 1, "a": 2}', 9),
        ('{"é": {"b": 1}, "c": {"d": 1, "d": 2}}', 31),
        ("[1, NaN]", 4),
        ('["é", "\\ud800"]', 7),
        ("[1, 2", 5),
        ("[1, 2}", 5),
        ('[{"$tensor": "float32", "shape": [2], "data": [1, "x"]}]', 50),
    ],
)
def test_json_errors_say_their_byte(text, offset):
    with pytest.raises(tw.DecodeError) as caught:
        tw.loads(text.encode(), "json")
    assert (caught.value.format, caught.value.offset) == ("json", offset)


def mutated(blob, rng):
    mutant = bytearray(blob)
    for _ in range(rng.choice([1, 1, 2, 4])):
        place, kind = rng.randrange(len(mutant)), rng.randrange(4)
        if kind == 0:
            mutant[place] ^= 1 << rng.randrange(8)
        elif kind == 1:
            mutant[place] = rng.choice([0, 255, 127, 128, 1, 34, 44, 48, 91, 93, 123, 125])
        elif kind == 2:
            del mutant[place : place + rng.randrange(1, 9)]
        else:
            mutant[place:place] = mutant[place : place + rng.randrange(1, 40)]
        if not mutant:
            break
    return bytes(mutant)


def read_lazily(data, format):
    with tw.open(data, format) as file:
        for name in file:
            tensor = file[name]
            tensor.read()
            if tensor.shape and tensor.shape[0]:
                tensor[0]
        return file.metadata, file.tensor_metadata


@pytest.mark.parametrize(
    ("format", "value", "options"),
    [
        *(
            (format, NESTED, {})
            for format in (
                "safetensors",
                "tensorproto",
                "npy",
                "npz",
                "arrow",
                "protobuf",
                "json",
                "checkpoint",
            )
        ),
        ("parquet", COLUMNS, {"compression": "zstd"}),
        ("arrow", COLUMNS, {"compression": "lz4"}),
        (
            "safetensors",
            {"x": np.arange(3000.0)},
            {"compression": "zstd", "per_tensor": True, "shuffle": True},
        ),
        ("safetensors", {"x": np.arange(300.0)}, {"quantize": "int8"}),
    ],
)
def test_mutants(format, value, options):
    """A value, or our error with its facts, by every way of reading."""
    blob, rng = tw.dumps(value, format, **options), random.Random(5)
    for _ in range(40):
        mutant = mutated(blob, rng)
        for read in (tw.loads, read_lazily, tw.inspect):
            try:
                read(mutant, format)
            except tw.DecodeError as error:
                assert error.format is not None and error.offset is not None, (read, error)
        assert tw.verify(mutant, format).problems is not None


@pytest.mark.parametrize("format", ["arrow", "safetensors", "npz", "protobuf"])
def test_bytes_that_another_thread_changes(format):
    """What is checked may be something else when it is used: that is a value or our error."""
    good = tw.dumps(COLUMNS, format)
    blob, done = bytearray(good), threading.Event()

    def change():
        rng = random.Random(1)
        while not done.is_set():
            place = rng.randrange(len(blob))
            blob[place] = rng.randrange(256)
            if rng.random() < 0.3:
                blob[:] = good

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    thread = threading.Thread(target=change)
    thread.start()
    try:
        end = time.monotonic() + 1
        while time.monotonic() < end:
            for read in (tw.loads, read_lazily):
                try:
                    read(memoryview(blob), format)
                except tw.TensorwireError:
                    pass
    finally:
        done.set()
        thread.join()
        sys.setswitchinterval(interval)


def test_buffers_that_are_not_contiguous():
    blob = np.frombuffer(tw.dumps(np.arange(9)) * 2, np.uint8)
    for data in (blob[::2], memoryview(blob.tobytes())[::2], np.array(["2020-01-01"], "M8[D]")):
        for format in (None, "safetensors", "npy"):
            with pytest.raises(tw.TensorwireError):
                tw.loads(data, format)


def test_packed_parts_that_are_not_bytes():
    good = tw.dumps({"t": np.arange(20_000.0)}, compression="zlib", per_tensor=True)
    size = int.from_bytes(good[:8], "little")
    header = json.loads(good[8 : 8 + size])
    name = next(key for key in header if key != "__metadata__")
    data = good[8 + size :]
    count = header[name]["shape"][0] // 8
    for dtype, shape in (("I64", [count]), ("BOOL", [count * 8, 1]), ("BF16", [count * 4])):
        end = count * 8
        changed = {**header, name: {"dtype": dtype, "shape": shape, "data_offsets": [0, end]}}
        text = json.dumps(changed).encode()
        blob = len(text).to_bytes(8, "little") + text + data[:end]
        with pytest.raises(tw.DecodeError):
            tw.loads(blob, "safetensors")
        with pytest.raises(tw.DecodeError), tw.open(blob, "safetensors") as file:
            file["t"][0:1]
