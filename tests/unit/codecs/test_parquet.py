"""The parquet format: columns through it, real tables of pyarrow both ways, and what strangers may
put into pages.
"""

import json
import math
import subprocess
import sys

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tensorwire as tw
from support.parquet_files import written
from support.tiers import TESTS, TORTURE
from tensorwire.codecs.arrow.batches import ChunkSource
from tensorwire.codecs.parquet import Parquet
from tensorwire.testing import check_codec
from tensorwire.testing import strategies as tws
from tensorwire.testing.sampling import DTYPES, numbers

pytestmark = pytest.mark.arrow

COLUMNS = {
    "id": np.arange(5, dtype=np.uint16),
    "x": np.arange(30, dtype=np.float32).reshape(5, 2, 3),
    "ok": np.array([True, False, True, True, False]),
    "name": tw.Strings.of(["a", "", "é", "日本", "a"]),
    "raw": tw.Strings.of([b"\xff", b"", b"a", b"b", b"c"]),
    "grid": tw.Strings.of([str(i) for i in range(10)], (5, 2)),
    "tokens": tw.Ragged(np.int32([1, 2, 3, 4]), np.int32([0, 1, 1, 3, 3, 4])),
    "deep": tw.Ragged(tw.Strings.of(["p", "q", "r"]), [[0, 1, 1, 2, 3, 3], [0, 2, 2, 3]]),
    "boxes": tw.Ragged(np.arange(12.0).reshape(3, 2, 2), [0, 2, 2, 2, 3, 3]),
    "half": np.arange(5).astype(ml_dtypes.bfloat16),
    "z": np.arange(5) * (1 + 2j),
    "none": np.zeros((5, 0, 2), np.int8),
}


def read(blob):
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = pq.read_table(pa.BufferReader(blob))
    table.validate(full=True)
    return table


@st.composite
def columns(draw):
    """Tensors of every kind that a column can be, all of one length."""
    rows = draw(st.integers(0, 4))
    text = st.text(st.characters(exclude_categories=["Cs"]), max_size=5)

    def one():
        kind = draw(st.integers(0, 2))
        if kind == 0:
            return draw(tws.arrays(shape=(rows, *draw(tws.shapes(3, 3)))))
        if kind == 1:
            return draw(tws.strings(shape=(rows, *draw(tws.shapes(2, 2)))))
        dtype, lengths = (
            draw(st.sampled_from([np.int32, np.int64])),
            draw(st.lists(st.integers(0, 3), min_size=rows, max_size=rows)),
        )
        splits = [np.concatenate([[0], np.cumsum(lengths)]).astype(dtype)]
        if draw(st.booleans()):
            inner = draw(st.lists(st.integers(0, 2), min_size=sum(lengths), max_size=sum(lengths)))
            splits.append(np.concatenate([[0], np.cumsum(inner)]).astype(dtype))
        count = int(splits[-1][-1])
        return tw.Ragged(
            draw(
                st.one_of(
                    tws.arrays(shape=(count, *draw(tws.shapes(2, 2)))), tws.strings(shape=(count,))
                )
            ),
            splits,
        )

    found = {name: one() for name in draw(st.lists(text, min_size=1, max_size=4, unique=True))}
    return tw.Bundle(found, {"a": draw(text)}) if draw(st.booleans()) else found


class TestValues:
    def test_conforms(self):
        for (kind, dtype), found in check_codec("parquet", hostile=2).items():
            exact = kind in ("dense", "strings", "ragged", "ragged int32", "ragged deep")
            assert found == ("exact" if exact else "refused"), (kind, dtype)

    @given(columns(), st.sampled_from([None, "zstd", "snappy", "gzip", "lz4", "none"]))
    def test_any_columns(self, value, compression):
        blob = tw.dumps(value, "parquet", compression=compression)
        assert tw.equal(tw.loads(blob), value)
        read(blob)

    def test_what_is_refused(self):
        for value, message in (
            (
                {"a": np.zeros(3), "b": np.zeros(2)},
                r"one length.*'a' has 3, 'b' has 2.*safetensors and arrow hold any value",
            ),
            ({"a": np.zeros(3), "b": np.float32(1)}, "'b' has none"),
            ({"a": tw.Sparse([[0]], [1.0], (3,))}, "is sparse"),
            ({"a": {"b": np.zeros(3)}}, "is not a tensor"),
            ({"a": np.zeros(3), "n": 7}, "is not a tensor"),
            ([np.zeros(3)], "is not a tensor"),
            ({}, "at least one column"),
            (tw.Bundle({"a": np.zeros(1)}, {"ARROW:schema": "x"}), "reserved"),
            (tw.Bundle({"a": np.zeros(1)}, {"tensorwire": "x"}), "reserved"),
        ):
            with pytest.raises(tw.EncodeError, match=message):
                tw.dumps(value, "parquet")
        with pytest.raises(tw.EncodeError, match="surrogate"):
            tw.dumps({"a": np.zeros(1)}, "parquet", metadata={"b": "\ud800"})
        with pytest.raises(tw.EncodeError, match="is quantized"):
            tw.dumps({"a": np.ones((300, 3), np.float32)}, "parquet", quantize="int8")
        for options, message in (
            ({"compression": "brotli"}, "zstd, snappy, gzip, lz4"),
            ({"compression": "zstd", "level": 99}, "levels from"),
        ):
            with pytest.raises(tw.EncodeError, match=message):
                tw.dumps(COLUMNS, "parquet", **options)

    def test_bits(self):
        """Dictionaries take one NaN for another, and so floats have none."""
        for row in (row for row in DTYPES if row.name.startswith("float") and row.arrow):
            x = np.tile(numbers(row, (50,)), 40)
            back = tw.loads(
                tw.dumps(
                    {
                        "x": x,
                        "y": x.reshape(-1, 2)[:1000].repeat(2, 0),
                        "r": tw.Ragged(x, np.arange(2001)),
                    },
                    "parquet",
                )
            )
            assert tw.equal(back["x"], x) and tw.equal(back["r"].values, x)

    def test_names_with_dots(self):
        value = {
            "a.list.element": np.full(9, np.nan),
            "a": tw.Ragged(tw.Strings.of(["x"] * 9), np.arange(10)),
            "": np.arange(9),
        }
        assert tw.equal(tw.loads(tw.dumps(value, "parquet")), value)

    def test_large(self):
        """More rows than a group has, and numbers that become little."""
        value = {
            "x": np.arange(2_500_000, dtype=np.int32),
            "w": tw.Strings.of(["word", "other"] * 1_250_000),
        }
        blob = tw.dumps(value, "parquet")
        assert len(blob) < 12_000_000 and tw.equal(tw.loads(blob), value)

    def test_much_of_nothing(self):
        """Ours is padded, so that it is within the default limits; and long strings do not make
        long pages.
        """
        x = np.zeros(40_000_000, np.float32)
        blob = tw.dumps({"x": x}, "parquet")
        assert (
            len(blob) < 1_000_000 and tw.equal(tw.loads(blob)["x"], x) and len(read(blob)) == len(x)
        )
        long = tw.Strings.of([bytes([i]) * 1_000_000 for i in range(20)])
        assert tw.equal(tw.loads(tw.dumps({"w": long}, "parquet", compression="none")), {"w": long})

    def test_memory(self):
        for copy in (None, True):
            found = tw.loads(tw.dumps({"x": np.arange(1000.0)}, "parquet"), copy=copy)["x"]
            assert found.flags.writeable is (copy is True)
        with pytest.raises(tw.DecodeError, match="copy=False"):
            tw.loads(tw.dumps({"x": np.arange(1000.0)}, "parquet"), copy=False)

    def test_files(self, tmp_path):
        tw.save(tmp_path / "x.parquet", COLUMNS, metadata={"model": "nmt"})
        assert tw.equal(tw.load(tmp_path / "x.parquet"), COLUMNS)
        with tw.open(tmp_path / "x.parquet") as file:
            assert tw.equal(file["tokens"][1:3], COLUMNS["tokens"][1:3]) and tw.equal(
                file["x"][2], COLUMNS["x"][2]
            )


class TestPyarrowReads:
    def test_a_table(self, pa, pq):
        table = read(tw.dumps(COLUMNS, "parquet"))
        assert table.num_rows == 5 and table.column_names == list(COLUMNS)
        assert table.schema.field("x").type == pa.fixed_shape_tensor(pa.float32(), (2, 3))
        assert tw.equal(table["x"].combine_chunks().to_numpy_ndarray(), COLUMNS["x"])
        for name in ("name", "raw", "grid", "tokens", "deep", "boxes", "ok", "id"):
            assert table[name].to_pylist() == COLUMNS[name].tolist()
        assert json.loads(table.schema.field("half").metadata[b"tensorwire"]) == {
            "dtype": "bfloat16"
        }

    def test_compressions(self, pa, pq):
        for compression, wanted in (
            (None, "ZSTD"),
            ("snappy", "SNAPPY"),
            ("gzip", "GZIP"),
            ("lz4", "LZ4"),
            ("none", "UNCOMPRESSED"),
        ):
            blob = tw.dumps(COLUMNS, "parquet", compression=compression)
            assert (
                pq.ParquetFile(pa.BufferReader(blob)).metadata.row_group(0).column(0).compression
                == wanted
            )
        x = np.arange(100_000) // 7
        assert len(tw.dumps({"x": x}, "parquet", compression="zstd", level=15)) < len(
            tw.dumps({"x": x}, "parquet", compression="snappy")
        )

    def test_metadata(self):
        bundle = tw.Bundle(
            {"a": np.zeros(2)}, {"format": "pt", "é": "日本"}, {"a": {"device": "cuda:0"}}
        )
        blob = tw.dumps(bundle, "parquet")
        assert read(blob).schema.metadata["é".encode()].decode() == "日本" and tw.equal(
            tw.loads(blob), bundle
        )

    def test_the_pages_have_checksums(self):
        """A flip in the data of a page is seen, whatever it does not hit of the rest."""
        x = np.random.default_rng(0).random(1000)
        blob = tw.dumps({"x": x}, "parquet", compression="none")
        at = blob.index(x[500:501].tobytes())
        with pytest.raises(tw.DecodeError, match="CRC"):
            tw.loads(blob[:at] + bytes([blob[at] ^ 1]) + blob[at + 1 :])


class TestWeRead:
    @pytest.mark.parametrize(
        "options",
        [
            {},
            {"use_dictionary": False, "compression": "none"},
            {"row_group_size": 4, "compression": "gzip"},
            {"data_page_version": "2.0", "data_page_size": 16, "compression": "zstd"},
            {"store_schema": False, "compression": "lz4"},
            {
                "use_dictionary": False,
                "column_encoding": {"string": "DELTA_BYTE_ARRAY", "int64": "DELTA_BINARY_PACKED"},
            },
        ],
        ids=str,
    )
    def test_types(self, pa, options):
        from support.arrow_files import foreign

        found = {
            name: column
            for name, column in foreign(pa).items()
            if not name.startswith("pairs of") and "dictionary" not in name
        }
        table = pa.table(found)
        back = tw.loads(written(table, **options))
        for name in found:
            wanted = tw.tensor(table[name])
            # then Parquet knows neither fixed lists nor large ones
            if not options.get("store_schema", True):
                if "tensor" in name or name == "permuted":
                    continue
                if isinstance(wanted, tw.Ragged):
                    assert back[name].tolist() == wanted.tolist(), name
                    continue
            assert tw.equal(back[name], wanted), name

    def test_lists_that_nobody_said_were_fixed(self, pa):
        table = pa.table({"x": pa.array([[1, 2], [3, 4]], pa.list_(pa.int64(), 2))})
        assert tw.loads(written(table))["x"].tolist() == [[1, 2], [3, 4]]
        back = tw.loads(written(table, store_schema=False))["x"]
        assert isinstance(back, tw.Ragged) and back.tolist() == [[1, 2], [3, 4]]

    def test_dictionaries_of_several_groups(self, pa):
        words = [f"word {i % 7}" for i in range(100)]
        table = pa.table({"w": words, "l": [[word] * (i % 3) for i, word in enumerate(words)]})
        back = tw.loads(written(table, row_group_size=9))
        assert back["w"].tolist() == words and back["l"].tolist() == table["l"].to_pylist()

    def test_no_rows(self, pa):
        table = pa.table(
            {
                "a": pa.array([], pa.int8()),
                "s": pa.array([], pa.string()),
                "l": pa.array([], pa.list_(pa.float32())),
            }
        )
        back = tw.loads(written(table))
        assert back["a"].shape == (0,) and back["s"].shape == (0,) and back["l"].shape == (0, None)

    def test_structs(self, pa):
        back = tw.loads(written(pa.table({"s": [{"a": 1, "b": "x"}, {"a": 2, "b": "y"}]})))
        assert back["s"]["a"].tolist() == [1, 2] and back["s"]["b"].tolist() == ["x", "y"]
        back = tw.loads(written(pa.table({"s": [{"a": 1, "b": "x"}, None]})))["s"]
        assert back["a"].tolist() == [1, 0] and back["a/present"].tolist() == back[
            "b/present"
        ].tolist() == [True, False]

    @pytest.mark.parametrize(
        "options",
        [{}, {"row_group_size": 1}, {"use_dictionary": False}, {"store_schema": False}],
        ids=str,
    )
    def test_nulls_are_presence(self, pa, options):
        columns = {
            "number": ([1, None, 3], [1, 0, 3]),
            "text": (["a", None, "c"], ["a", "", "c"]),
            "list": ([[1], None, [2, 3]], [[1], [], [2, 3]]),
            "words": ([["x"], None, []], [["x"], [], []]),
            "lists": ([[[1], []], None, [[2, 3]]], [[[1], []], [], [[2, 3]]]),
            "pair": (
                pa.array([[1, 2], None, [3, 4]], pa.list_(pa.int64(), 2)),
                [[1, 2], [0, 0], [3, 4]],
            ),
        }
        found = tw.loads(
            written(pa.table({name: column for name, (column, _) in columns.items()}), **options)
        )
        assert len(found) == 2 * len(columns)
        for name, (_, wanted) in columns.items():
            if name == "pair" and not options.get("store_schema", True):
                wanted = [[1, 2], [], [3, 4]]  # then nobody knows that it is of one length
            assert found[name].tolist() == wanted and found[f"{name}/present"].tolist() == [
                True,
                False,
                True,
            ]

    def test_one_column_does_not_refuse_the_others(self, pa, tmp_path):
        import datetime
        import decimal

        path, day = tmp_path / "x.parquet", datetime.datetime(2020, 1, 1)
        bad = {
            "when": pa.array([day, day]),
            "day": pa.array([day.date(), None]),
            "price": pa.array([decimal.Decimal("1.5"), None]),
            "map": pa.array([[("a", 1)], []], pa.map_(pa.string(), pa.int64())),
            "structs": pa.array([[{"a": 1}], []]),
            "inside": pa.array([[1, None], [2]]),
            "fixed": pa.array([b"ab", b"cd"], pa.binary(2)),
            "null": pa.nulls(2),
        }
        path.write_bytes(written(pa.table({"good": [1, 2], **bad, "maybe": [1, None]})))
        assert tw.load(path, names=["good"])["good"].tolist() == [1, 2]
        found = tw.load(path, names=["maybe", "maybe/present"])
        assert found["maybe"].tolist() == [1, 0] and found["maybe/present"].tolist() == [
            True,
            False,
        ]
        assert [tensor.name for tensor in tw.inspect(path).tensors] == [
            "good",
            *bad,
            "maybe",
            "maybe/present",
        ]
        verified = tw.verify(path)
        assert verified and not verified.problems and len(verified.unsupported) == len(bad)
        with tw.open(path) as file:
            assert file["good"][:1].tolist() == [1] and not file.lazy
            for name in bad:
                assert file[name].shape[0] == 2
                with pytest.raises(tw.DecodeError) as caught:
                    file[name].read()
                assert (caught.value.tensor, caught.value.format, caught.value.path) == (
                    name,
                    "parquet",
                    str(path),
                )
        with pytest.raises(tw.DecodeError) as caught:
            tw.load(path)
        assert caught.value.tensor == "when" and caught.value.format == "parquet"

    def test_a_damaged_column_does_not_refuse_the_others(self, pa):
        blob = bytearray(
            written(
                pa.table({"a": np.arange(1000), "b": np.arange(1000) + 7}),
                write_page_checksum=True,
                compression="none",
                use_dictionary=False,
            )
        )
        place = bytes(blob).index(np.int64(500).tobytes() + np.int64(501).tobytes())
        blob[place] ^= 1
        with tw.open(bytes(blob), "parquet") as file:
            assert file["b"][:3].tolist() == [7, 8, 9] and file["a"].shape == (1000,)
            with pytest.raises(tw.DecodeError) as caught:
                file["a"].read()
            assert caught.value.tensor == "a"
        with pytest.raises(tw.DecodeError):
            tw.loads(bytes(blob), "parquet")

    def test_two_columns_of_one_name(self, pa):
        blob = written(
            pa.table([pa.array([1]), pa.array([2]), pa.array([3])], names=["a", "a", "b"])
        )
        with pytest.raises(tw.DecodeError) as caught:
            tw.loads(blob)
        assert (caught.value.format, caught.value.offset, caught.value.tensor) == (
            "parquet",
            0,
            "a",
        )
        with tw.open(blob) as file:
            assert file["b"][:].tolist() == [3]


class TestHostile:
    def test_something_else(self):
        blob = tw.dumps(COLUMNS, "parquet")
        for bad in (
            b"",
            b"PAR1",
            b"PAR1PAR1",
            b"PAR1" + b"\xff" * 20 + b"PAR1",
            b"PAR1" + bytes(8) + b"PAR1",
            blob[:-4],
            blob[4:],
            blob[:-1],
            blob + b"x",
        ):
            with pytest.raises(tw.DecodeError) as caught:
                tw.loads(bad, "parquet")
            assert caught.value.format == "parquet" and 0 <= caught.value.offset <= len(bad)
        with pytest.raises(tw.LimitError, match="names"):
            tw.loads(blob, limits=tw.Limits(names=5))

    @pytest.mark.slow
    @pytest.mark.parametrize(
        "options", ["compression='zstd'", "compression='snappy'", "compression='none'"]
    )
    @pytest.mark.torture
    def test_flips_and_cuts(self, options, record_property):
        """In a process of its own, since the pages are pyarrow's: it ends well, and in time."""
        code = FLIPS.format(options=options, step=1 if TORTURE else 4)
        found = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, timeout=900
        )
        assert found.returncode == 0, found.stderr[-2000:]
        tried, slowest, extra = map(float, found.stdout.split())
        record_property("cases", int(tried))
        assert tried > 1000 and slowest < 2 and extra < 100

    @pytest.mark.slow
    def test_bombs_cost_little_memory(self):
        found = subprocess.run(
            [sys.executable, "-c", BOMBS], capture_output=True, text=True, cwd=TESTS
        )
        assert found.returncode == 0, found.stderr[-2000:]
        refused, bombs, extra = map(int, found.stdout.split())
        assert refused == bombs and extra <= 64

    def test_larger_limits(self, pa):
        zeros = np.zeros(200_000_000, np.uint8)
        blob = written(pa.table({"x": zeros}), compression="zstd", use_dictionary=False)
        with pytest.raises(tw.LimitError, match="expansion"):
            tw.loads(blob)
        assert tw.equal(tw.loads(blob, limits=tw.Limits(expansion_ratio=1_000_000))["x"], zeros)


FLIPS = """
import resource, time
import numpy as np, tensorwire as tw
value = {{"i": np.arange(20), "f": np.ones((20, 2), np.float32), "s": tw.Strings.of(["a", "bb"] * 10), "r": tw.Ragged.of([[1], []] * 10)}}
blob = tw.dumps(value, "parquet", {options})
tw.loads(blob)
before, tried, slowest = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, 0, 0
for at in range(len(blob)):
    flips = [blob[:at] + bytes([blob[at] ^ 1 << bit]) + blob[at + 1 :] for bit in range(8)] if at % {step} == 0 else []
    for damaged in (blob[:at], *flips):
        tried, start = tried + 1, time.perf_counter()
        try:
            tw.loads(damaged, "parquet")
            assert len(damaged) == len(blob)
        except tw.DecodeError as error:
            assert error.format == "parquet" and 0 <= error.offset <= len(damaged), error
        slowest = max(slowest, time.perf_counter() - start)
print(tried, slowest, (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024)
"""

BOMBS = """
import resource, sys
import numpy as np, pyarrow as pa, pyarrow.parquet as pq, tensorwire as tw
from support.parquet_files import written, file, schema_of

def zeros(count, **options):
    return written(pa.table({"x": np.zeros(count, np.int64)}), **options)

nested = schema_of(5000)
long = pa.DictionaryArray.from_arrays(pa.array(np.zeros(100_000, np.int32)), ["y" * 1_000_000])
bombs = [
    zeros(20_000_000, compression="zstd", use_dictionary=False),                       # pages that become much
    zeros(20_000_000, compression="gzip", use_dictionary=False),
    written(pa.table({"x": long}), compression="none", store_schema=False),             # a hundred gigabytes of one string
    written(pa.table({"x": pa.ListArray.from_arrays([0, 50_000, 100_000], long)}), compression="none", store_schema=False),
    file(nested),
    b"PAR1" + b"\\x19\\xfc" + b"\\xff" * 4 + b"\\x0f" + bytes(6) + (14).to_bytes(4, "little") + b"PAR1",   # a list without end
]
small = written(pa.table({"x": ["a"]}))
tw.loads(small)
before, refused = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, 0
for i, bomb in enumerate(bombs):
    try:
        tw.loads(bomb, "parquet")
        print("read", i, file=sys.stderr)
    except tw.DecodeError as error:
        refused += 1
print(refused, len(bombs), (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024)
"""


def test_chunks_of_a_source():
    parts = [memoryview(b"abc"), memoryview(b""), memoryview(b"defg"), memoryview(b"h")]
    source = ChunkSource(parts)
    whole = b"abcdefgh"
    for start in range(9):
        for stop in range(start, 9):
            assert bytes(source.read_at(start, stop - start)) == whole[start:stop]
    with pytest.raises(tw.TruncatedError):
        source.read_at(3, 6)


def test_codec_alone():
    assert (
        math.prod(
            Parquet().decode(memoryview(b"".join(Parquet().encode(np.zeros((2, 3))))), None).shape
        )
        == 6
    )
