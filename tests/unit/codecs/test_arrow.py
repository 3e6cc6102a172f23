"""The arrow format: every value through it, and real tables of pyarrow both ways."""

import io
import json
import subprocess
import sys
import time

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tensorwire as tw
from support.arrow_files import HAS, foreign, ipc
from support.tiers import TESTS, TORTURE
from tensorwire import _native as native
from tensorwire.codecs.arrow import Arrow
from tensorwire.storage import files
from tensorwire.testing import check_codec
from tensorwire.testing import strategies as tws
from tensorwire.testing.sampling import numbers
from tensorwire.wire.reference import arrow_ipc as pure_ipc
from tensorwire.wire.reference import arrow_ipc_write as pure_write
from tensorwire.wire.reference import arrow_table as pure_table

pytestmark = pytest.mark.arrow


def read(blob):
    """The table that pyarrow reads, validated."""
    import pyarrow as pa

    table = (
        pa.ipc.open_file(blob).read_all()
        if blob[:6] == b"ARROW1"
        else pa.ipc.open_stream(blob).read_all()
    )
    table.validate(full=True)
    return table


def pointer(array):
    return array.__array_interface__["data"][0]


class TestValues:
    @pytest.mark.parametrize(
        "options",
        [{}, {"stream": True}, {"compression": "zstd"}, {"compression": "lz4", "stream": True}],
        ids=lambda options: str(options),
    )
    def test_conforms(self, options):
        assert set(check_codec(Arrow(**options), hostile=6).values()) == {"exact"}

    @given(tws.values(), st.booleans(), st.sampled_from([None, "zstd", "lz4"]))
    def test_any_value(self, value, stream, compression):
        blob = tw.dumps(value, "arrow", stream=stream, compression=compression)
        assert tw.equal(tw.loads(blob), value) and tw.equal(
            tw.loads(blob, limits=tw.Limits()), value
        )
        read(blob)

    @given(tws.values())
    def test_as_a_container(self, value):
        with tw.open(tw.dumps(value, "arrow")) as file, tw.open(tw.dumps(value)) as same:
            assert tw.equal(file.load(), value) and list(file) == list(same)
            for name, tensor in file.items():
                assert (tensor.kind, tensor.dtype, tensor.shape) == (
                    same[name].kind,
                    same[name].dtype,
                    same[name].shape,
                )
                assert tw.equal(tensor.read(), same[name].read())
                if tensor.shape and tensor.shape[0]:
                    assert tw.equal(tensor[1:2], same[name][1:2])

    def test_tied_weights_and_quantized(self):
        import torch

        weight = torch.arange(6.0).reshape(2, 3)
        back = tw.loads(tw.dumps({"a": weight, "b": weight}, "arrow"))
        assert back["a"] is back["b"] and back["a"].tolist() == weight.tolist()
        values = np.linspace(-1, 1, 600, dtype=np.float32).reshape(20, 30)
        for blob in (
            tw.dumps({"x": values}, "arrow", quantize="int8"),
            tw.dumps({"x": values, "y": 1}, "arrow", quantize="float16"),
        ):
            found = tw.loads(blob)["x"]
            assert found.dtype == np.float32 and np.abs(found - values).max() < 0.01

    def test_metadata(self, pa):
        bundle = tw.Bundle(
            {"a": np.zeros(2)}, {"format": "pt", "é": "日本"}, {"a": {"device": "cuda:0"}}
        )
        blob = tw.dumps(bundle, "arrow")
        assert read(blob).schema.metadata["é".encode()].decode() == "日本" and tw.equal(
            tw.loads(blob), bundle
        )
        with tw.open(tw.dumps({"a": np.zeros(2)}, "arrow", metadata={"model": "nmt"})) as file:
            assert file.metadata == {"model": "nmt"} and isinstance(file.load(), dict)
        for texts, message in (({"tensorwire": "x"}, "reserved"), ({"a": "\ud800"}, "surrogate")):
            with pytest.raises(tw.EncodeError, match=message):
                tw.dumps({"x": np.zeros(2)}, "arrow", metadata=texts)

    def test_options(self):
        with pytest.raises(tw.EncodeError, match="zstd, lz4, not 'gzip'"):
            tw.dumps(np.zeros(3), "arrow", compression="gzip")
        with pytest.raises(tw.EncodeError, match="level"):
            tw.dumps(np.zeros(3), "arrow", compression="zstd", level=10_000)
        x = np.arange(100_000)
        sizes = [len(tw.dumps(x, "arrow", compression="zstd", level=level)) for level in (1, 19)]
        assert sizes[1] < sizes[0] < x.nbytes and tw.equal(
            tw.loads(tw.dumps(x, "arrow", compression="zstd")), x
        )


TABLE = {
    "id": np.arange(5, dtype=np.uint16),
    "x": np.arange(30, dtype=np.float32).reshape(5, 2, 3),
    "ok": np.array([True, False, True, True, False]),
    "mask": np.arange(10).reshape(5, 2) % 3 == 0,
    "name": tw.Strings.of(["a", "", "é", "日本", "x" * 40]),
    "raw": tw.Strings.of([b"\xff", b"", b"a", b"b", b"c"]),
    "grid": tw.Strings.of([str(i) for i in range(10)], (5, 2)),
    "tokens": tw.Ragged(np.int32([1, 2, 3, 4]), np.int32([0, 1, 1, 3, 3, 4])),
    "deep": tw.Ragged(tw.Strings.of(["p", "q", "r"]), [[0, 1, 1, 2, 3, 3], [0, 2, 2, 3]]),
    "boxes": tw.Ragged(np.arange(12.0).reshape(3, 2, 2), [0, 2, 2, 2, 3, 3]),
    "half": np.arange(5).astype(ml_dtypes.bfloat16),
    "z": np.arange(5) * (1 + 2j),
    "pairs": tw.Ragged(np.arange(10).astype(ml_dtypes.float8_e4m3fn), np.arange(6) * 2, 2),
}


class TestPyarrowReads:
    @pytest.mark.parametrize("stream", [False, True])
    @pytest.mark.parametrize("compression", [None, "zstd", "lz4"])
    def test_a_table(self, pa, stream, compression):
        blob = tw.dumps(TABLE, "arrow", stream=stream, compression=compression)
        table = read(blob)
        assert (
            table.num_rows == 5 and table.column_names == list(TABLE) and not table.schema.metadata
        )
        kinds = {name: table.schema.field(name).type for name in TABLE}
        assert (kinds["id"], kinds["name"], kinds["raw"], kinds["ok"]) == (
            pa.uint16(),
            pa.large_string(),
            pa.large_binary(),
            pa.bool_(),
        )
        assert kinds["x"] == pa.fixed_shape_tensor(pa.float32(), (2, 3)) and kinds[
            "mask"
        ] == pa.fixed_shape_tensor(pa.bool_(), (2,))
        assert kinds["tokens"] == pa.list_(pa.int32()) and kinds["deep"] == pa.large_list(
            pa.large_list(pa.large_string())
        )
        assert kinds["half"] == pa.uint16() and kinds["z"] == pa.fixed_shape_tensor(
            pa.float64(), (2,)
        )
        assert tw.equal(table["x"].combine_chunks().to_numpy_ndarray(), TABLE["x"])
        for name in ("name", "raw", "grid", "tokens", "deep", "boxes", "ok"):
            assert table[name].to_pylist() == TABLE[name].tolist()
        assert json.loads(table.schema.field("half").metadata[b"tensorwire"]) == {
            "dtype": "bfloat16"
        }
        assert tw.equal(tw.loads(blob), TABLE)

    @pytest.mark.parametrize("row", HAS, ids=lambda row: row.name)
    def test_every_number(self, pa, row):
        value = {
            "a": numbers(row, (7,)),
            "b": numbers(row, (7, 3), 1),
            "e": numbers(row, (7, 0, 2)),
        }
        table = read(tw.dumps(value, "arrow"))
        for name in value:
            assert tw.equal(tw.tensor(table[name]), value[name])

    def test_what_pyarrow_has_done_with_it_comes_back(self, pa):
        """Rows and columns can be taken out: what a column is stands in its field."""
        table = read(tw.dumps(TABLE, "arrow"))
        back = tw.loads(ipc(table.select(["half", "z", "pairs", "x", "tokens"]).slice(1, 3)))
        assert tw.equal(
            back, {name: TABLE[name][1:4] for name in ("half", "z", "pairs", "x", "tokens")}
        )

    def test_one_row_of_cells(self, pa):
        value = {
            "w": numbers(HAS[0], (3, 2)),
            "b": np.float16(1),
            "e": np.zeros((3, 0, 2), np.int8),
            "s": tw.Strings.of(["a", "b"]),
        }
        blob = tw.dumps(value, "arrow")
        table = read(blob)
        assert (
            table.num_rows == 1
            and not table.schema.metadata
            and table["s"].to_pylist() == [["a", "b"]]
        )
        assert table.schema.field("w").type == pa.large_list(pa.float64()) and tw.equal(
            table["w"][0].values.to_numpy(), value["w"].ravel()
        )
        assert json.loads(table.schema.field("e").metadata[b"tensorwire"]) == {"shape": [3, 0, 2]}
        assert tw.equal(tw.loads(blob), value)

    def test_the_parts_of_other_kinds(self):
        value = {
            "s": tw.Sparse([[0, 1]], np.float32([2]), (2, 2)),
            "r": tw.Ragged.of([[1], []]),
            "n": [np.zeros(2), None],
        }
        table = read(tw.dumps(value, "arrow"))
        assert table.column_names == [
            "s/indices",
            "s/values",
            "s/dense_shape",
            "r/values",
            "r/row_splits/0",
            "n/0",
        ]
        assert json.loads(table.schema.metadata[b"tensorwire"])["spec"]["dict"]["n"] == {
            "list": [{}, None]
        }

    def test_names_that_meet(self):
        value = {"x": {"a": tw.Ragged.of([[1], []])}, "x/a": np.zeros(2), "x/a~1": np.ones(2)}
        assert tw.equal(tw.loads(tw.dumps(value, "arrow")), value)

    def test_layout(self):
        """Everything is aligned to 64 bytes, and what is large is not copied."""
        x, y = np.zeros((1000, 30), np.float32), np.arange(1000)
        parts = tw.buffers({"x": x, "y": y, "w": tw.Strings.of(["ab"] * 1000)}, "arrow")
        assert {pointer(np.frombuffer(part, np.uint8)) for part in parts} >= {
            pointer(x),
            pointer(y),
        }
        at = {}
        for part in parts:
            at[pointer(np.frombuffer(part, np.uint8))] = sum(len(one) for one in parts[: len(at)])
        assert at[pointer(x)] % 64 == 0 and at[pointer(y)] % 64 == 0

    def test_large_numbers_of_elements(self):
        """Past 2**31 elements, without their memory: only pages that are touched exist."""
        x = np.zeros((1 << 31) + 5, np.uint8)
        chunks = tw.buffers(x, "arrow") + tw.buffers({"n": 1, "x": x}, "arrow")
        assert max(len(chunk) for chunk in chunks) == len(x)
        for value in (x, {"s": np.zeros(3), "x": x}):
            container = Arrow().open(Chunks(tw.buffers(value, "arrow")))
            name = container.keys()[-1]
            assert container.spec(name).shape == x.shape and container.read(
                name, (len(x) - 3, len(x))
            ).tolist() == [0, 0, 0]


class Chunks(files.BytesSource):
    """A source of the buffers that encode gives, not joined."""

    def __init__(self, chunks):
        self.chunks, self.path = [memoryview(chunk) for chunk in chunks], None
        self.size = sum(map(len, self.chunks))

    def read_at(self, offset, count):
        for chunk in self.chunks:
            if offset + count <= len(chunk):
                return chunk[offset : offset + count]
            if offset < len(chunk):  # a footer, and what stands before it
                return memoryview(
                    b"".join(
                        [
                            chunk[offset:],
                            Chunks(self.chunks[self.chunks.index(chunk) + 1 :]).read_at(
                                0, count + offset - len(chunk)
                            ),
                        ]
                    )
                )
            offset -= len(chunk)
        raise AssertionError("a read past the end")


@pytest.fixture(scope="module")
def columns(pa):
    return foreign(pa)


class TestWeRead:
    @pytest.mark.parametrize(
        "options", [{}, {"compression": "zstd"}, {"compression": "lz4"}], ids=str
    )
    @pytest.mark.parametrize("stream", [False, True])
    @pytest.mark.parametrize("cut", ["whole", "batches", "slice"])
    def test_types(self, pa, columns, options, stream, cut):
        """As the framework reads them, in one batch, in several, and from the middle."""
        table = pa.table(columns)
        if cut == "slice":
            table = table.slice(2, 7)
        if cut == "batches":
            table = pa.concat_tables(
                [table.slice(0, 3), table.slice(3, 0), table.slice(3, 1), table.slice(4)],
                promote_options="none",
            )
            table = table.unify_dictionaries()
        blob = ipc(table, stream, **options)
        found = tw.loads(blob)
        assert list(found) == list(columns)
        for name in columns:
            wanted = tw.tensor(table[name])
            assert tw.equal(found[name], wanted), name
        with tw.open(blob) as file:
            for name in columns:
                assert tw.equal(file[name][3:6], found[name][3:6]), name

    def test_rows_that_nobody_sees(self, pa):
        """Offsets that do not begin at 0, and an array inside that is longer than it need be."""
        inner = pa.array(range(10), pa.int64())
        for kind, dtype in ((pa.list_, np.int32), (pa.large_list, np.int64)):
            rows = pa.Array.from_buffers(
                kind(pa.int64()),
                2,
                [None, pa.py_buffer(np.array([3, 4, 7], dtype))],
                children=[inner],
            )
            batch = pa.RecordBatch.from_arrays([rows], names=["x"])
            blob = _as_it_is(pa, batch)
            assert tw.loads(blob)["x"].tolist() == [[3], [4, 5, 6]]
            with tw.open(blob) as file:
                assert file["x"][1:].tolist() == [[4, 5, 6]]

    def test_no_rows_and_no_batches(self, pa):
        table = pa.table({name: column.slice(0, 0) for name, column in foreign(pa).items()})
        for blob in (ipc(table), ipc(table, True), ipc(table, compression="lz4")):
            found = tw.loads(blob)
            for name in table.column_names:
                assert found[name].shape[0] == 0 and tw.equal(
                    found[name], tw.tensor(table[name])
                ), name
        sink = pa.BufferOutputStream()
        pa.ipc.new_stream(sink, table.schema).close()
        assert tw.loads(sink.getvalue().to_pybytes())["int64"].shape == (0,)
        assert tw.loads(ipc(pa.table({}))) == {}

    def test_structs(self, pa):
        rows = [{"a": 1, "b": {"c": "x", "d": [1]}}, {"a": 2, "b": {"c": "", "d": []}}]
        found = tw.loads(ipc(pa.table({"s": rows, "y": [1.5, 2.5]})))
        assert (
            found["s"]["a"].tolist() == [1, 2]
            and found["s"]["b"]["c"].tolist() == ["x", ""]
            and found["s"]["b"]["d"].tolist() == [[1], []]
        )
        assert found["y"].tolist() == [1.5, 2.5]

    def test_extension_types(self, pa):
        table = pa.table(
            {"b": pa.ExtensionArray.from_storage(pa.bool8(), pa.array([1, 0], pa.int8()))}
        )
        assert tw.loads(ipc(table))["b"].dtype == np.int8

    def test_dictionaries_that_grow_and_change(self, pa):
        first, second = (
            pa.array(["a", "b", "a"]).dictionary_encode(),
            pa.array(["c", "a", "b"]).dictionary_encode(),
        )
        grown = pa.DictionaryArray.from_arrays(pa.array([2, 0, 1], pa.int32()), ["a", "b", "c"])
        for chunks, deltas in (
            ([first, second], False),
            ([first, grown, first], True),
            ([first, grown, second], True),
        ):
            schema = pa.schema({"x": first.type})
            sink = pa.BufferOutputStream()
            with pa.ipc.new_stream(
                sink, schema, options=pa.ipc.IpcWriteOptions(emit_dictionary_deltas=deltas)
            ) as writer:
                for chunk in chunks:
                    writer.write_batch(pa.RecordBatch.from_arrays([chunk], schema=schema))
            words = [word for chunk in chunks for word in chunk.to_pylist()]
            with tw.open(sink.getvalue().to_pybytes()) as file:
                assert file.load()["x"].tolist() == words and file["x"][2:5].tolist() == words[2:5]

    def test_older_forms(self, pa):
        table = pa.table({"a": [1, 2], "s": ["x", "y"]})
        for stream in (False, True):
            for options in (
                {"use_legacy_format": True, "metadata_version": pa.ipc.MetadataVersion.V4},
                {"metadata_version": pa.ipc.MetadataVersion.V4},
            ):
                found = tw.loads(ipc(table, stream, **options), "arrow")
                assert found["a"].tolist() == [1, 2] and found["s"].tolist() == ["x", "y"]

    def test_a_footer_without_a_version(self, pa):
        """As Arrow 0.14 wrote it."""
        options = {"use_legacy_format": True, "metadata_version": pa.ipc.MetadataVersion.V4}
        blob = bytearray(ipc(pa.table({"a": [1, 2], "s": ["x", "y"], "n": [1.5, None]}), **options))
        start = len(blob) - 10 - int.from_bytes(blob[-10:-6], "little")
        _forget(blob, start, 0)
        found = tw.loads(bytes(blob), "arrow")
        assert (
            found["a"].tolist() == [1, 2]
            and found["s"].tolist() == ["x", "y"]
            and found["n"].tolist() == [1.5, 0]
        )
        with tw.open(bytes(blob)) as file:
            assert file["a"][1:].tolist() == [2]

    @pytest.mark.parametrize("stream", [False, True])
    @pytest.mark.parametrize("legacy", [False, True])
    @pytest.mark.parametrize("version", ["V4", "V5"])
    def test_unions_of_each_version(self, pa, version, legacy, stream):
        """They are refused, and the columns around them are read: in V4 they have one more buffer."""
        dense = pa.UnionArray.from_dense(
            pa.array([0, 1], pa.int8()),
            pa.array([0, 0], pa.int32()),
            [pa.array([1]), pa.array(["x"])],
        )
        sparse = pa.UnionArray.from_sparse(
            pa.array([0, 1], pa.int8()), [pa.array([1, 2]), pa.array(["x", "y"])]
        )
        table = pa.table({"a": [1, 2], "dense": dense, "sparse": sparse, "b": ["p", None]})
        options = {"metadata_version": pa.ipc.MetadataVersion[version], "use_legacy_format": legacy}
        with tw.open(ipc(table, stream, **options), "arrow") as file:
            assert file["a"][:].tolist() == [1, 2] and file["b"][:].tolist() == ["p", ""]
            for name in ("dense", "sparse"):
                with pytest.raises(tw.DecodeError) as caught:
                    file[name].read()
                assert caught.value.tensor == name

    def test_big_endian(self, pa):
        """Columns are listed, reading one is an error, and pyarrow makes a file of it that is read."""
        numbers = np.arange(1000, 1010, dtype=np.int32)
        blob = bytearray(ipc(pa.table({"x": numbers}), stream=True))
        place = bytes(blob).index(numbers.tobytes())
        blob[place : place + numbers.nbytes] = numbers.astype(">i4").tobytes()
        _say_big_endian(blob, 8)
        with tw.open(bytes(blob), "arrow") as file:
            assert list(file) == ["x"] and file["x"].shape == (10,)
            with pytest.raises(tw.DecodeError) as caught:
                file["x"].read()
            assert caught.value.tensor == "x"
        with pytest.raises(tw.DecodeError):
            tw.loads(bytes(blob), "arrow")
        assert tw.equal(tw.loads(ipc(pa.ipc.open_stream(bytes(blob)).read_all()))["x"], numbers)

    def test_feather(self, pa, tmp_path):
        import pyarrow.feather

        for compression in ("uncompressed", "lz4", "zstd"):
            pyarrow.feather.write_feather(
                pa.table({"a": np.arange(5000), "s": ["word"] * 5000}),
                tmp_path / "x.feather",
                compression,
            )
            found = tw.load(tmp_path / "x.feather")
            assert (
                tw.equal(found["a"], np.arange(5000))
                and found["s"][4999] == "word"
                and found["a"].flags.writeable
            )

    @pytest.mark.parametrize("cut", [None, 1, 2])
    @pytest.mark.parametrize("stream", [False, True])
    def test_nulls_are_presence(self, pa, stream, cut):
        """Zeros or nothing in the tensor, and which rows have a value beside it."""
        hidden = pa.ListArray.from_arrays(
            pa.array([0, 1, 3, 5]), pa.array([1, 2, 3, 4, 5]), mask=pa.array([False, True, False])
        )
        columns = {
            "number": (pa.array([1, None, 3]), [1, 0, 3]),
            "bool": (pa.array([True, None, True]), [True, False, True]),
            "text": (pa.array(["a", None, "c"]), ["a", "", "c"]),
            "view": (pa.array(["a", None, "c" * 20], pa.string_view()), ["a", "", "c" * 20]),
            "coded": (pa.array(["p", None, "q"]).dictionary_encode(), ["p", "", "q"]),
            "numbers by code": (pa.array([5, None, 7]).dictionary_encode(), [5, 0, 7]),
            "list": (pa.array([[1], None, [2, 3]]), [[1], [], [2, 3]]),
            "items of a null": (hidden, [[1], [], [4, 5]]),
            "lists": (pa.array([[[1], []], None, [[2, 3]]]), [[[1], []], [], [[2, 3]]]),
            "pair": (pa.array([[1, 2], None, [3, 4]], pa.list_(pa.int64(), 2)), [[1, 2], [0, 0], [3, 4]]),
            "words": (pa.array([["a", "b"], None, ["c", "d"]], pa.list_(pa.string(), 2)), [["a", "b"], ["", ""], ["c", "d"]]),
            "pairs": (pa.array([[[1, 2]], None, []], pa.list_(pa.list_(pa.int64(), 2))), [[[1, 2]], [], []]),
            "pair of lists": (
                pa.array([[[1], [2, 3]], None, [[], [4]]], pa.list_(pa.list_(pa.int64()), 2)),
                [[[1], [2, 3]], [[], []], [[], [4]]],
            ),
        }  # fmt: skip
        table = pa.table(
            {name: column for name, (column, _) in columns.items()} | {"none": [1, 2, 3]}
        )
        blob = ipc(table, stream, cut)
        whole = tw.loads(blob, "arrow")
        assert list(whole) == [
            name for column in columns for name in (column, f"{column}/present")
        ] + ["none"]
        with tw.open(blob, "arrow") as file:
            for name, (_, wanted) in columns.items():
                assert whole[name].tolist() == wanted and whole[f"{name}/present"].tolist() == [
                    True,
                    False,
                    True,
                ]
                assert file[name][1:].tolist() == wanted[1:] and file[f"{name}/present"][
                    1:
                ].tolist() == [False, True]
                assert file[name].shape[0] == 3 and file[f"{name}/present"].dtype == bool
        assert tw.loads(ipc(pa.table({"x": pa.array([None, 1, 2])}).slice(1))).keys() == {"x"}

    def test_nulls_of_structs(self, pa):
        found = tw.loads(ipc(pa.table({"s": [{"a": 1, "b": "x"}, None, {"a": None, "b": "z"}]})))[
            "s"
        ]
        assert found["a"].tolist() == [1, 0, 0] and found["a/present"].tolist() == [
            True,
            False,
            False,
        ]
        assert found["b"].tolist() == ["x", "", "z"] and found["b/present"].tolist() == [
            True,
            False,
            True,
        ]

    def test_nulls_of_dtypes_that_arrow_lacks(self, pa):
        import ml_dtypes

        table = read(
            tw.dumps(
                {"x": np.array([1, 2, -3.5], ml_dtypes.bfloat16), "z": np.array([1j, 2, 3])},
                "arrow",
            )
        )
        for value in (table, table.replace_schema_metadata({})):
            missing = pa.table(
                [
                    pa.concat_arrays([column.chunk(0).slice(1), pa.nulls(1, column.type)])
                    for column in value.columns
                ],
                value.schema,
            )
            found = tw.loads(ipc(missing))
            assert tw.equal(found["x"], np.array([2, -3.5, 0], ml_dtypes.bfloat16)) and found[
                "z"
            ].tolist() == [2, 3, 0]
            assert found["x/present"].tolist() == found["z/present"].tolist() == [True, True, False]

    def test_nulls_and_a_spec(self, pa):
        """A Bundle has a place for them; what is not columns has none, and is said how it is read."""
        table = read(tw.dumps(tw.Bundle({"a": np.arange(2), "b": np.ones(2)}, {"k": "v"}), "arrow"))
        missing = table.set_column(0, table.schema.field(0), pa.array([None, 7]))
        found = tw.loads(ipc(missing))
        assert isinstance(found, tw.Bundle) and found.metadata == {"k": "v"}
        assert {name: found[name].tolist() for name in found} == {
            "a": [0, 7],
            "b": [1, 1],
            "a/present": [False, True],
        }
        alone = read(tw.dumps(np.arange(2), "arrow"))
        alone = alone.set_column(0, alone.schema.field(0), pa.array([None, 7]))
        with pytest.raises(tw.DecodeError):
            tw.loads(ipc(alone))
        assert tw.loads(ipc(alone.replace_schema_metadata()))["tensor"].tolist() == [0, 7]

    def test_nulls_inside_of_rows(self, pa):
        """They refuse their column, and what the error says replaces them."""
        bad = {
            "list": pa.array([[1], [None]]),
            "large": pa.array([[1], [None]], pa.large_list(pa.int64())),
            "text": pa.array([["a"], [None]]),
            "pair": pa.array([[1, None], [1, 2]], pa.list_(pa.int64(), 2)),
            "null and inside": pa.array([[1, None], None], pa.list_(pa.int64(), 2)),
            "lists": pa.array([[[1]], [None]]),
            "coded": pa.DictionaryArray.from_arrays(pa.array([0, 1]), pa.array(["a", None])),
        }
        with tw.open(ipc(pa.table({"good": [1, 2], **bad}))) as file:
            assert file["good"][:].tolist() == [1, 2] and set(bad) <= set(file)
            for name in bad:
                assert file[name].shape[0] == 2
                with pytest.raises(tw.DecodeError) as caught:
                    file[name].read()
                assert caught.value.tensor == name and caught.value.format == "arrow"
        table = pa.table({
            "list": pa.ListArray.from_arrays(bad["list"].offsets, bad["list"].values.fill_null(0)),
            "large": pa.LargeListArray.from_arrays(bad["large"].offsets, bad["large"].values.fill_null(0)),
            "text": pa.ListArray.from_arrays(bad["text"].offsets, bad["text"].values.fill_null("")),
            "pair": pa.FixedSizeListArray.from_arrays(bad["pair"].values.fill_null(0), 2),
            "coded": bad["coded"].dictionary_decode(),
        })  # fmt: skip
        found = {name: value.tolist() for name, value in tw.loads(ipc(table)).items()}
        assert found.pop("coded/present") == [True, False]
        assert found == {
            "list": [[1], [0]],
            "large": [[1], [0]],
            "text": [["a"], [""]],
            "pair": [[1, 0], [1, 2]],
            "coded": ["a", ""],
        }

    def test_a_name_that_presence_would_take(self, pa):
        table = pa.table({"x": [1, None], "x/present": [5, 6], "good": [1, 2]})
        with tw.open(ipc(table)) as file:
            assert list(file) == ["x", "x/present", "good"] and file["x/present"][:].tolist() == [
                5,
                6,
            ]
            with pytest.raises(tw.DecodeError):
                file["x"].read()
        assert tw.loads(ipc(table.rename_columns(["y", "x/present", "good"])))[
            "y/present"
        ].tolist() == [True, False]

    def test_copies_of_nulls(self, pa):
        blob = ipc(pa.table({"x": [1, None], "l": [[1], None]}))
        for value in tw.loads(blob).values():
            for array in (getattr(value, "values", value), *getattr(value, "row_splits", ())):
                assert not array.flags.writeable
        found = tw.loads(blob, copy=True)
        found["x"][:], found["x/present"][:], found["l"].values[:] = 3, False, 4
        with pytest.raises(tw.DecodeError):
            tw.loads(blob, copy=False)

    def test_types_that_no_tensor_holds(self, pa, tmp_path):
        import datetime
        import decimal

        day = datetime.datetime(2020, 1, 1)
        columns = {
            "timestamp": pa.array([day, day]),
            "date": pa.array([day.date()] * 2),
            "time": pa.array([day.time()] * 2),
            "duration": pa.array([datetime.timedelta(1)] * 2),
            "decimal": pa.array([decimal.Decimal("1.5")] * 2),
            "fixed_size_binary": pa.array([b"ab", b"cd"], pa.binary(2)),
            "null": pa.nulls(2),
            "map": pa.array([[("a", 1)], []], pa.map_(pa.string(), pa.int64())),
            "union": pa.UnionArray.from_dense(
                pa.array([0, 1], pa.int8()),
                pa.array([0, 0], pa.int32()),
                [pa.array([1]), pa.array(["x"])],
            ),
            "run_end_encoded": pa.RunEndEncodedArray.from_arrays([2], [7]),
            "list_view": pa.array([[1], []], pa.list_view(pa.int64())),
            "list of struct": pa.array([[{"a": 1}], []]),
            "list of timestamp": pa.array([[day], []]),
            "month_day_nano": pa.array(
                [pa.scalar((1, 2, 3), pa.month_day_nano_interval()).as_py()] * 2
            ),
            "dictionary of dates": pa.array([day.date()] * 2).dictionary_encode(),
        }
        blob = ipc(pa.table({"first": [1, 2], **columns, "last": ["x", "y"]}))
        with tw.open(blob) as file:
            assert list(file) == ["first", *columns, "last"] and file["last"][:].tolist() == [
                "x",
                "y",
            ]
            for name in columns:
                assert file[name].shape == (2,)
                with pytest.raises(tw.DecodeError) as caught:
                    file[name].read()
                assert caught.value.tensor == name and caught.value.format == "arrow"
            assert (
                file["timestamp"].dtype == "timestamp"
                and file["list of struct"].dtype == "list of struct"
            )
        with pytest.raises(tw.DecodeError):
            tw.loads(blob)
        (tmp_path / "x.arrow").write_bytes(blob)
        assert tw.load(tmp_path / "x.arrow", names=["first"])["first"].tolist() == [1, 2]
        assert [tensor.name for tensor in tw.inspect(blob).tensors] == ["first", *columns, "last"]

    def test_casts_that_errors_advise(self, pa):
        import datetime
        import decimal

        day = datetime.datetime(2020, 1, 1)
        columns = {
            "timestamp": (pa.array([day, None]), "int64"),
            "zone": (pa.array([day, None], pa.timestamp("ns", "UTC")), "int64"),
            "duration": (pa.array([datetime.timedelta(1), None]), "int64"),
            "date32": (pa.array([day.date(), None]), "int32"),
            "date64": (pa.array([day.date(), None], pa.date64()), "int64"),
            "time32": (pa.array([1, None], pa.time32("s")), "int32"),
            "time64": (pa.array([1, None], pa.time64("us")), "int64"),
            "decimal": (pa.array([decimal.Decimal("1.5"), None]), "float64"),
            "binary": (pa.array([b"ab", None], pa.binary(2)), "binary"),
            "null": (pa.nulls(2), "int64"),
        }
        table = pa.table({name: column for name, (column, _) in columns.items()})
        for name, (_, kind) in columns.items():
            with pytest.raises(tw.DecodeError) as caught:
                tw.loads(ipc(table.select([name])))
            assert f"{kind!r}" in str(caught.value)
            table = table.set_column(
                table.schema.get_field_index(name), name, table.column(name).cast(kind)
            )
        found = tw.loads(ipc(table))
        assert found["decimal"].tolist() == [1.5, 0] and found["binary"].tolist() == [b"ab", b""]
        assert not found["null/present"].any() and found["timestamp/present"].tolist() == [
            True,
            False,
        ]

    def test_names(self, pa):
        twice = pa.table([pa.array([1]), pa.array([2]), pa.array([3])], names=["a", "a", "b"])
        with pytest.raises(tw.DecodeError) as caught:
            tw.loads(ipc(twice))
        assert caught.value.tensor == "a"
        with tw.open(ipc(twice)) as file:
            assert list(file) == ["a", "b"] and file["b"][:].tolist() == [3]
        with pytest.raises(tw.LimitError, match="names"):
            tw.loads(ipc(pa.table({str(i): [1] for i in range(20)})), limits=tw.Limits(names=10))

    def test_metadata(self, pa):
        table = pa.table({"a": [1]}).replace_schema_metadata({"pandas": "{}", "é": "日本"})
        with tw.open(ipc(table)) as file:
            assert file.metadata == {"pandas": "{}", "é": "日本"} and list(file.load()) == ["a"]
        with pytest.raises(tw.DecodeError, match="not UTF-8"):
            tw.loads(ipc(table.replace_schema_metadata({b"a": b"\xff"})))

    def test_columns_that_are_gone(self, pa):
        table = read(tw.dumps(tw.Bundle({"a": np.zeros(3), "b": np.ones(3)}), "arrow"))
        with pytest.raises(tw.DecodeError, match="replace_schema_metadata"):
            tw.loads(ipc(table.select(["a"])))
        assert list(tw.loads(ipc(table.select(["a"]).replace_schema_metadata()))) == ["a"]
        assert tw.equal(
            tw.loads(ipc(table.select(["b", "a"]))), tw.Bundle({"a": np.zeros(3), "b": np.ones(3)})
        )


def _vtable(blob, table):
    return table - int.from_bytes(blob[table : table + 4], "little", signed=True)


def _forget(blob, start, slot):
    """Makes the root table of a flatbuffer lack a field."""
    vtable = _vtable(blob, start + int.from_bytes(blob[start : start + 4], "little"))
    blob[vtable + 4 + 2 * slot : vtable + 6 + 2 * slot] = bytes(2)


def _say_big_endian(blob, start):
    """Makes the schema of a message say 1 for its byte order, which is left out where it is 0."""
    root = start + int.from_bytes(blob[start : start + 4], "little")
    vtable = _vtable(blob, root)
    field = root + int.from_bytes(blob[vtable + 8 : vtable + 10], "little")
    table = field + int.from_bytes(blob[field : field + 4], "little")
    vtable = _vtable(blob, table)
    if not (distance := int.from_bytes(blob[vtable + 4 : vtable + 6], "little")):
        distance = next(
            at
            for at in range(2, 1000, 2)
            if blob[table + at : table + at + 2] == b"\x01\x00" and (table + at) % 2 == 0
        )
        blob[vtable + 4 : vtable + 6] = distance.to_bytes(2, "little")
    blob[table + distance : table + distance + 2] = b"\x01\x00"


def _as_it_is(pa, batch):
    """A file whose arrays are not trimmed first, as other writers may leave them: pyarrow's stream,
    its offsets put back.
    """
    offsets = batch.column(0).offsets.to_numpy()
    inner = batch.column(0).values
    whole = type(batch.column(0)).from_arrays(
        pa.array(np.array([0, *range(1, len(offsets) - 1), len(inner)], offsets.dtype)), inner
    )
    blob = ipc(pa.Table.from_arrays([whole], batch.schema.names))
    written = whole.offsets.to_numpy().tobytes()
    assert blob.count(written) == 1
    return blob.replace(written, offsets.tobytes())


class Counting(files.BytesSource):
    """Counts what is read."""

    def __init__(self, data):
        super().__init__(data)
        self.read = self.calls = 0

    def read_at(self, offset, count):
        self.read, self.calls = self.read + count, self.calls + 1
        return super().read_at(offset, count)


LARGE = {
    "x": np.arange(400_000, dtype=np.float32).reshape(100_000, 4),
    "flag": np.arange(100_000) % 3 == 0,
    "words": tw.Strings.of([f"word {i}" for i in range(100_000)]),
    "tokens": tw.Ragged(np.arange(300_000), np.arange(100_001) * 3),
}


class TestLazy:
    def test_only_the_rows(self, pa):
        """Opening reads the footer and the head of a batch; rows cost their own bytes, whatever the
        size of the file.
        """
        whole = tw.dumps(LARGE, "arrow")
        for blob in (
            whole,
            ipc(pa.Table.from_batches(read(whole).to_batches(max_chunksize=20_000))),
        ):
            source = Counting(blob)
            container = Arrow().open(source)
            assert source.read < 40_000
            for name, tensor in LARGE.items():
                spec = container.spec(name)
                assert spec.shape == tensor.shape
                before = source.read
                assert tw.equal(container.read(name, (59_990, 60_010)), tensor[59_990:60_010])
                assert source.read - before < 2_000, name

    def test_open_costs_the_same_for_any_size(self):
        costs = []
        for rows in (1_000, 1_000_000):
            source = Counting(
                tw.dumps({"x": np.zeros((rows, 4)), "s": tw.Strings.of([b""] * rows)}, "arrow")
            )
            container = Arrow().open(source)
            container.spec("x"), container.spec("s")
            costs.append((source.calls, source.read - min(source.size, 16 << 10)))
        assert costs[0] == costs[1]

    @pytest.mark.parametrize("where", ["path", "mmap", "bytes", "file object"])
    @pytest.mark.parametrize("options", [{}, {"stream": True}, {"compression": "lz4"}], ids=str)
    def test_sources(self, tmp_path, where, options):
        path = tmp_path / "x.arrow"
        tw.save(path, LARGE, **options)
        opened = {
            "bytes": path.read_bytes,
            "file object": lambda: io.BytesIO(path.read_bytes()),
        }.get(where, lambda: path)()
        with tw.open(opened, mmap=where == "mmap") as file:
            assert tw.equal(file.load(), LARGE)
            for name, tensor in LARGE.items():
                assert tw.equal(file[name][7:9], tensor[7:9]) and tw.equal(
                    file[name].read(), tensor
                )
                assert file[name].nbytes > 0
        assert tw.equal(tw.load(path, names=["flag"]), {"flag": LARGE["flag"]})

    def test_compressed_buffers_are_kept(self, monkeypatch):
        """Reading rows one by one does not inflate the column each time."""
        from tensorwire.codecs.arrow import buffers as arrow_buffers

        calls, real = [], arrow_buffers._inflate
        monkeypatch.setattr(
            arrow_buffers, "_inflate", lambda *args: calls.append(args) or real(*args)
        )
        with tw.open(tw.dumps(LARGE, "arrow", compression="zstd")) as file:
            assert [file["x"][i, 0] for i in range(50)] == [4.0 * i for i in range(50)] and len(
                calls
            ) == 1

    def test_threads(self):
        import concurrent.futures

        with (
            tw.open(tw.dumps(LARGE, "arrow", compression="lz4")) as file,
            concurrent.futures.ThreadPoolExecutor(8) as pool,
        ):
            found = list(pool.map(lambda i: file["words"][i], range(0, 100_000, 997)))
        assert found == [f"word {i}" for i in range(0, 100_000, 997)]


class TestMemory:
    def test_nothing_waits_for_the_garbage_collector(self):
        """The bytes that were read are let go of at once."""
        import gc
        import weakref

        value = {
            "r": tw.Ragged.of([["a"], []]),
            "x": np.zeros((2, 3)),
            "s": tw.Strings.of(["a", "b"]),
        }
        data = np.frombuffer(tw.dumps(value, "arrow"), np.uint8).copy()
        alive = weakref.ref(data)
        gc.disable()
        try:
            tw.loads(data, "arrow", copy=True)
            del data
            assert alive() is None
        finally:
            gc.enable()

    def test_views(self):
        value = {
            "x": np.arange(1000.0),
            "w": tw.Strings.of([b"abcdef"] * 1000),
            "r": tw.Ragged(np.arange(3000), np.arange(1001) * 3),
        }
        blob = np.frombuffer(tw.dumps(value, "arrow") + bytes(64), np.uint8)
        start = -pointer(blob) % 64
        blob = np.concatenate([np.zeros(64 + start, np.uint8), blob])
        data = memoryview(np.ascontiguousarray(blob))[64 + start : len(blob) - 64]
        low, high = (
            pointer(np.frombuffer(data, np.uint8)),
            pointer(np.frombuffer(data, np.uint8)) + len(data),
        )
        for copy in (None, False):
            found = tw.loads(data, "arrow", copy=copy)
            arrays = [
                found["x"],
                found["w"].data,
                found["w"].offsets,
                found["r"].values,
                *found["r"].row_splits,
            ]
            assert all(
                low <= pointer(array) < high and not array.flags.writeable for array in arrays
            )
        found = tw.loads(data, "arrow", copy=True)
        arrays = [
            found["x"],
            found["w"].data,
            found["w"].offsets,
            found["r"].values,
            *found["r"].row_splits,
        ]
        assert not any(low <= pointer(array) < high for array in arrays) and all(
            array.flags.writeable for array in arrays
        )

    def test_copies_that_are_needed(self, pa):
        for column, why in (
            (pa.array([True]), "bits"),
            (pa.array(["a"]), "32 bits"),
            (pa.array(["a"], pa.string_view()), "many places"),
            (pa.array(["a"]).dictionary_encode(), "dictionary"),
        ):
            with pytest.raises(tw.DecodeError, match=f"copy=False is not possible: .*{why}"):
                tw.loads(ipc(pa.table({"x": column})), copy=False)
        two = pa.concat_tables([pa.table({"x": [1]}), pa.table({"x": [2]})])
        with pytest.raises(tw.DecodeError, match="2 batches"):
            tw.loads(ipc(two), copy=False)


def control():
    """Small files of every kind."""
    import pyarrow as pa

    columns = foreign(pa)
    some = (
        "int16",
        "bool",
        "float32 tensor",
        "string",
        "string_view",
        "list_ of text",
        "pairs of list_",
        "dictionary",
        "permuted",
    )
    table = pa.table({name: columns[name].slice(0, 3) for name in some}).append_column(
        "st", pa.array([{"x": 1}, {"x": 2}, {"x": 3}])
    )
    return {
        "table": tw.dumps(
            {
                "a": np.arange(3),
                "b": np.ones((3, 2), np.float16),
                "r": tw.Ragged.of([["x"], [], ["y"]]),
            },
            "arrow",
        ),
        "cells": tw.dumps(
            {
                "a": np.arange(3),
                "n": [np.float32(2), "x", None],
                "s": tw.Sparse([[0, 1]], [2], (2, 2)),
            },
            "arrow",
        ),
        "zstd": tw.dumps({"a": np.arange(30)}, "arrow", compression="zstd"),
        "lz4 stream": tw.dumps(
            {"a": np.arange(30), "s": tw.Strings.of(["abc"] * 30)},
            "arrow",
            compression="lz4",
            stream=True,
        ),
        "pyarrow's": ipc(table),
        "pyarrow's stream": ipc(table, True),
    }


class TestHostile:
    @pytest.mark.slow
    @pytest.mark.parametrize(
        "name", ["table", "cells", "zstd", "lz4 stream", "pyarrow's", "pyarrow's stream"]
    )
    @pytest.mark.torture
    def test_flips_and_cuts(self, name, record_property):
        """A value or a DecodeError with format and place; nothing else, and never slow. Every cut
        is an error, but between two messages.
        """
        blob, passed = control()[name], 0
        start = time.perf_counter()
        step = 1 if TORTURE else 5
        for at in range(len(blob)):
            flips = (
                [blob[:at] + bytes([blob[at] ^ 1 << bit]) + blob[at + 1 :] for bit in range(8)]
                if at % step == 0
                else []
            )
            for damaged in (blob[:at], *flips):
                try:
                    tw.loads(damaged, "arrow")
                except tw.DecodeError as error:
                    assert error.format == "arrow" and 0 <= error.offset <= len(damaged)
                else:
                    passed += len(damaged) == at
        record_property("cases", len(blob) + 8 * len(range(0, len(blob), step)))
        assert passed <= (blob[:4] == b"\xff\xff\xff\xff") * 5 and time.perf_counter() - start < (
            3600 if TORTURE else 120
        )

    @given(st.data())
    def test_lazy_reading_of_damage(self, data):
        """What opens says what it is, and reads, or says why not."""
        blob = bytearray(data.draw(st.sampled_from(_seeds())))
        for _ in range(data.draw(st.integers(1, 3))):
            blob[data.draw(st.integers(0, len(blob) - 1))] ^= 1 << data.draw(st.integers(0, 7))
        try:
            container = Arrow().open(files.BytesSource(bytes(blob)))
        except tw.DecodeError:
            return
        for name in container.keys():  # noqa: SIM118 - it is no mapping
            for work in (container.spec, container.read, lambda name: container.read(name, (0, 1))):
                try:
                    work(name)
                except tw.DecodeError as error:
                    assert error.offset is not None or error.message

    def test_bytes_of_something_else(self):
        for bad in (
            b"",
            b"ARROW",
            b"ARROW1\0\0",
            b"ARROW1\0\0" + bytes(20) + b"ARROW1",
            bytes(8),
            b"\xff" * 8,
            b"\xff" * 100,
            b"PAR1" * 10,
        ):
            with pytest.raises(tw.DecodeError) as caught:
                tw.loads(bad, "arrow")
            assert caught.value.format == "arrow" and 0 <= caught.value.offset <= len(bad)
        whole = tw.dumps({"a": np.arange(3)}, "arrow", stream=True)
        with pytest.raises(tw.DecodeError, match="after the end"):
            tw.loads(whole + b"x", "arrow")
        with pytest.raises(tw.DecodeError, match="have only one"):
            tw.loads(whole[:-8] + whole, "arrow")

    @pytest.mark.slow
    def test_bombs_cost_little_memory(self):
        """Claims of gigabytes in a few bytes are refused, with at most 64 MB of extra memory."""
        found = subprocess.run(
            [sys.executable, "-c", BOMBS],
            capture_output=True,
            text=True,
            check=True,
            cwd=TESTS,
        )
        refused, bombs, extra, seconds = map(float, found.stdout.split())
        assert refused == bombs and extra <= 64 and seconds < 2 * bombs

    def test_what_we_compress_we_read(self):
        """Much of nothing is padded, so that it is within the default limits."""
        x = np.zeros(200_000_000, np.uint8)
        for compression in ("zstd", "lz4"):
            blob = tw.dumps({"x": x, "y": 1}, "arrow", compression=compression)
            assert (
                len(blob) < 900_000
                and np.array_equal(tw.loads(blob)["x"], x)
                and read(blob)["x"].nbytes >= len(x)
            )
            with pytest.raises(tw.LimitError, match="expansion"):
                tw.loads(blob, limits=tw.Limits(expansion_ratio=20))


BOMBS = """
import resource, time
import numpy as np, pyarrow as pa, tensorwire as tw
from tensorwire import _native as native
from tensorwire.wire import arrow_ipc as ipc
from support.arrow_files import ipc as written, framed

def batch(rows, nodes, buffers, body, codec=-1):
    return native.ipc_batch(rows, nodes, buffers, codec, len(body)), body

INT64 = ("x", ipc.INT, 64, 1, 0, None, [])
HUGE = 1 << 40
packed = (HUGE).to_bytes(8, "little") + pa.compress(bytes(1000), "zstd", asbytes=True)
small = (16 << 20).to_bytes(8, "little") + pa.compress(bytes(16 << 20), "zstd", asbytes=True)
lz4 = (16 << 20).to_bytes(8, "little") + pa.compress(bytes(100), "lz4", asbytes=True)
cell = [("tensorwire", '{"shape":[%d]}' % HUGE)]
words = pa.array(["x" * 1_000_000])
views = pa.array(["y" * 1_000_000], pa.string_view())
repeated = written(pa.table({"x": views}))
place = repeated.index((1_000_000).to_bytes(4, "little") + b"yyyy")
deep = [("x" if not i else "item", ipc.LIST, 0, 0, 1, None, []) for i in range(63)] + [("item", ipc.INT, 8, 0, 0, None, [])]
bombs = [
    framed([INT64], *batch(HUGE, [(HUGE, 0)], [(0, 0), (0, 8)], bytes(8))),                               # rows that are not there
    framed([INT64], *batch(HUGE, [(HUGE, 0)], [(0, 0), (0, len(packed))], packed, 1)),                    # a compressed buffer that lies
    framed([INT64] * 1, *batch(1, [(1, 0)], [(0, 0), (0, len(packed))], packed, 1)),
    framed([("x%d" % i, *INT64[1:]) for i in range(300)],                                                 # many that are each allowed
           *batch(2 << 20, [(2 << 20, 0)] * 300, [p for i in range(300) for p in ((i * len(small), 0), (i * len(small), len(small)))],
                  small * 300, 1)),
    framed([INT64], *batch(2 << 20, [(2 << 20, 0)], [(0, 0), (0, len(lz4))], lz4, 0)),                     # less than it says
    framed([("x", ipc.LARGE_LIST, 0, 0, 1, None, cell), ("item", ipc.INT, 8, 0, 0, None, [])],            # a shape that is not there
           *batch(1, [(1, 0), (HUGE, 0)], [(0, 0), (0, 16), (64, 0), (64, 8)], np.array([0, HUGE]).tobytes() + bytes(56))),
    framed([("x", ipc.FIXED_LIST, 0, 0, 1, None, []), ("item", ipc.LIST, 0, 0, 1, None, []), ("item", ipc.INT, 8, 0, 0, None, [])],
           *batch(HUGE, [(HUGE, 0), (0, 0), (0, 0)], [(0, 0)] * 5, b"")),                                  # splits of nothing
    framed([("x", ipc.BOOL, 0, 0, 0, None, [])], *batch(HUGE, [(HUGE, 0)], [(0, 0), (0, 8)], bytes(8))),
    framed([("x", ipc.LARGE_TEXT, 0, 0, 0, None, [])], *batch(HUGE, [(HUGE, 0)], [(0, 0), (0, 16), (64, 0)], bytes(64))),
    written(pa.table({"x": pa.DictionaryArray.from_arrays(pa.array(np.zeros(1_000_000, np.int8)), words)})),   # a terabyte of one word
    written(pa.table({"x": pa.array(["y" * 1_000_000] + ["z"] * 99_999, pa.string_view())})).replace(             # the same by views
        b"\\x01\\0\\0\\0z".ljust(16, b"\\0"), repeated[place : place + 16]),
    framed(deep, *batch(1, [(1, 0)] * 64, [(0, 0)] * 128, b"")),
]
tw.loads(written(pa.table({"a": [1], "b": ["x"], "d": pa.array(["x"]).dictionary_encode()})), limits=tw.Limits())
before, start, refused = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.perf_counter(), 0
for i, bomb in enumerate(bombs):
    for limits in (None, tw.Limits()):
        try:
            tw.loads(bomb, "arrow", limits=limits)
        except tw.DecodeError as error:
            refused += 1
extra = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024
print(refused, 2 * len(bombs), extra, time.perf_counter() - start)
"""


class TestKernels:
    @given(tws.arrays(), st.text(max_size=4))
    def test_plain_arrays(self, array, name):
        for value in (array, {name: array}, {name: array, name + "'": array}):
            blob = native.encode_columns(value, 1 << 30)
            assert blob == pure_table.encode_columns(value, 1 << 30)
            if blob is not None:
                assert blob == b"".join(_general(value))
                for copy in (False, True):
                    found, twin = (
                        native.decode_columns(blob, copy),
                        pure_table.decode_columns(blob, copy),
                    )
                    assert tw.equal(found, value) and tw.equal(twin, value)

    @given(st.data())
    def test_damage(self, data):
        blob = bytearray(data.draw(st.sampled_from(_seeds())))
        for _ in range(data.draw(st.integers(1, 3))):
            blob[data.draw(st.integers(0, len(blob) - 1))] ^= 1 << data.draw(st.integers(0, 7))
        cut = bytes(
            blob[: data.draw(st.integers(0, len(blob)))]
            if data.draw(st.integers(0, 5)) == 0
            else blob
        )
        found, twin = native.decode_columns(cut, False), pure_table.decode_columns(cut, False)
        assert (found is None) == (twin is None) and tw.equal(found, twin)
        for message in _messages(cut):
            for one, other in (
                (native.ipc_message, pure_ipc.ipc_message),
                (native.ipc_footer, pure_ipc.ipc_footer),
            ):
                _same(one(message), other(message))

    def test_vtables_are_where_everyone_looks(self, monkeypatch):
        """Polars finds the vtable of a table only close before it, not one that is shared with
        another table further up.
        """
        found = []

        class Table(pure_ipc._Table):
            def __init__(self, buffer, at):
                super().__init__(buffer, at)
                found.append(buffer.read("<i", at))

        monkeypatch.setattr(pure_ipc, "_Table", Table)
        blob = tw.dumps(TABLE | {"t": TABLE["x"]}, "arrow", metadata={"a": "b"})
        assert all(
            pure_ipc.ipc_message(message)[0] == 0 or pure_ipc.ipc_footer(message)[0] == 0
            for message in _messages(blob)
        )
        assert len(found) > 100 and all(4 <= distance <= 32 for distance in found)

    def test_written_messages(self):
        for blob in _seeds():
            for message in _messages(blob):
                found = native.ipc_message(message)
                if found[0] == 0 and found[3] == 1:
                    fields, pairs = found[5][1], found[5][2]
                    if any(field[5] for field in fields):
                        continue
                    again = native.ipc_schema(fields, pairs)
                    assert (
                        again == pure_write.ipc_schema(fields, pairs)
                        and native.ipc_message(again)[5] == found[5]
                    )
                    end = native.ipc_end(fields, pairs, [(8, 16, 64)])
                    assert end == pure_write.ipc_end(
                        fields, pairs, [(8, 16, 64)]
                    ) and native.ipc_footer(end)[5].tolist() == [[8, 16, 64]]
                elif found[0] == 0 and found[3] == 3:
                    length, nodes, buffers, codec, counts = found[5]
                    if not counts:
                        arguments = length, nodes.tolist(), buffers.tolist(), codec, found[4]
                        assert native.ipc_batch(*arguments) == pure_write.ipc_batch(*arguments)
                        _same(native.ipc_message(native.ipc_batch(*arguments))[3:], found[3:])
        for module in (native, pure_write):
            for children in ([1], [0, 2], [1] * 70 + [0]):
                with pytest.raises(ValueError, match="add up"):
                    module.ipc_schema([("x", 12, 0, 0, count, None, []) for count in children], [])


def _general(value):
    """What the codec writes without the quick way."""
    from tensorwire.codecs.arrow import table as arrow_columns
    from tensorwire.codecs.arrow import write

    return write.chunks(arrow_columns.columns(value, None, "arrow"), False)


def _same(found, twin):
    assert type(found) is type(twin)
    if isinstance(found, (tuple, list)):
        assert len(found) == len(twin)
        for one, other in zip(found, twin, strict=True):
            _same(one, other)
    elif isinstance(found, np.ndarray):
        assert (
            found.dtype == twin.dtype
            and found.shape == twin.shape
            and found.tobytes() == twin.tobytes()
        )
    else:
        assert found == twin


def _seeds():
    import pyarrow as pa

    if not _SEEDS:
        columns = foreign(pa)
        some = (
            "int8",
            "int64 tensor",
            "string_view",
            "list_",
            "pairs of text",
            "dictionary",
            "permuted",
        )
        table = pa.table({name: columns[name] for name in some}).replace_schema_metadata({"a": "b"})
        plain = pa.table(
            {
                "x": np.arange(3),
                "y": tw.to(np.ones((3, 2), np.float32), "arrow"),
                "z": pa.array([[1, 2]] * 3, pa.list_(pa.int8(), 2)),
            }
        )
        _SEEDS.extend(
            [
                ipc(table),
                ipc(table, True, compression="lz4"),
                ipc(plain),
                tw.dumps({"x": np.arange(3), "y": np.ones((3, 2))}, "arrow"),
            ]
        )
        _SEEDS.append(tw.dumps(np.arange(3), "arrow"))
    return _SEEDS


_SEEDS = []


def _messages(blob):
    """The flatbuffers of a file or stream, as far as they can be found."""
    at = 0
    while (at := blob.find(b"\xff\xff\xff\xff", at)) >= 0:
        size = int.from_bytes(blob[at + 4 : at + 8], "little")
        if 0 < size < 1 << 20:
            yield blob[at + 8 : at + 8 + size]
        at += 4
    size = int.from_bytes(blob[-10:-6], "little")
    if 0 < size < len(blob):
        yield blob[-10 - size : -10]


def test_without_pyarrow():
    """Tables are written and read without it; what needs it says how to install it."""
    code = """
import sys
sys.modules["pyarrow"] = None
import numpy as np, tensorwire as tw
value = {"x": np.arange(6).reshape(3, 2), "s": tw.Strings.of(["a", "b", "c"]), "r": tw.Ragged.of([[1], [], [2]]), "b": np.array([True] * 3)}
assert tw.equal(tw.loads(tw.dumps(value, "arrow")), value)
try:
    tw.dumps(value, "arrow", compression="zstd")
except tw.MissingDependencyError as error:
    print(error)
"""
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "pip install 'tensorwire[arrow]'" in found.stdout
