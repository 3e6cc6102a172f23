"""`tensorwire show`, and what it is made of: statistics, pictures, image headers, slices, the
language of --where, records.
"""

import json
import math
import struct
import subprocess
import sys
import zlib

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tensorwire as tw
from support.cli import run
from tensorwire.core import formatting
from tensorwire.explore import contents as shown
from tensorwire.explore import pictures, records, sampling, selection
from tensorwire.explore.images import image
from tensorwire.explore.pictures import Paint
from tensorwire.explore.statistics import histogram, statistics
from tensorwire.explore.values import Look
from tensorwire.records.filters import Where


def png(width, height):
    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    body = b"IHDR" + head
    return (
        b"\x89PNG\r\n\x1a\n"
        + struct.pack(">I", 13)
        + body
        + struct.pack(">I", zlib.crc32(body))
        + bytes(40)
    )


def jpeg(width, height):
    extra = b"\xff\xe0" + struct.pack(">H", 16) + b"JFIF\0" + bytes(9)
    return (
        b"\xff\xd8"
        + extra
        + b"\xff\xff\xc0"
        + struct.pack(">HBHHB", 17, 8, height, width, 3)
        + bytes(30)
    )


class TestStatistics:
    @settings(deadline=None, max_examples=60)
    @given(
        st.lists(st.floats(width=32), min_size=0, max_size=60),
        st.sampled_from(
            [
                "float16",
                "float32",
                "float64",
                "bfloat16",
                "int8",
                "uint64",
                "bool",
                "float8_e4m3fn",
                "int4",
                "complex64",
            ]
        ),
    )
    def test_they_are_numpys(self, numbers, name):
        dtype = np.dtype(getattr(ml_dtypes, name, name))
        with np.errstate(all="ignore"):
            array = np.array(numbers, np.float32)
            array = (
                (np.nan_to_num(array) % 7).astype(dtype)
                if dtype.kind in "iub" or name == "int4"
                else array.astype(dtype)
            )
        found = statistics(array)
        wide = np.abs(array).astype(np.float64) if name == "complex64" else array.astype(np.float64)
        finite = wide[np.isfinite(wide)]
        assert (
            found.elements == array.size
            and found.nans == np.isnan(wide).sum()
            and found.infinite == np.isinf(wide).sum()
        )
        assert found.zeros == (wide == 0).sum()
        if len(finite):
            assert found.least == finite.min() and found.largest == finite.max()
            assert (
                math.isclose(found.mean, finite.mean(), rel_tol=1e-6, abs_tol=1e-9)
                or abs(finite).max() > 1e37
            )
        else:
            assert found.least is None and found.largest is None and found.mean is None

    def test_large_integers_stay_exact(self):
        assert statistics(np.uint64([2**64 - 1, 0])).largest == 2**64 - 1

    @pytest.mark.parametrize(
        "array",
        [
            np.float64([-1.7e308, 1.7e308, 0]),
            np.float32([5, 5, 5]),
            np.float64([1e300] * 3),
            np.uint64([2**64 - 1, 2**64 - 3]),
            np.int64([-(2**63), 2**63 - 1]),
            np.random.default_rng(1).standard_normal(5000),
            np.bool_([True, False, True]),
            np.arange(10, dtype=np.int8),
        ],
        ids=range(8),
    )
    def test_a_histogram_counts_everything_once(self, array):
        found = histogram(array)
        assert sum(found.counts) == array.size and len(found.edges) == len(found.counts) + 1
        assert all(math.isfinite(edge) for edge in found.edges) and found.edges == sorted(
            found.edges
        )
        assert histogram(np.float32([np.nan, np.inf])) is None


class TestPictures:
    def test_a_heat_map_says_where_the_numbers_are(self):
        grid = np.zeros((64, 200))
        grid[:, 150:] = 1
        lines = pictures.heat(grid, Paint(80))
        assert len(lines) == 17 and all(
            line.startswith(" " * 60) and line.endswith("█" * 20) for line in lines[:-1]
        )

    def test_colours_are_24_bits_and_end(self):
        lines = pictures.heat(np.arange(12.0).reshape(3, 4), Paint(80, colour=True))
        assert len(lines) == 3 and all(line.endswith("\x1b[0m") for line in lines[:-1])
        assert "38;2;68;1;84" in lines[0] and "38;2;253;231;37" in lines[1]

    def test_without_unicode_all_is_ascii(self):
        paint = Paint(60, unicode=False)
        grid = np.arange(12.0).reshape(3, 4)
        lines = (
            pictures.heat(grid, paint)
            + pictures.bars(histogram(grid), paint)
            + pictures.pattern(np.array([[0, 1]]), (5, 9), paint)
        )
        assert "".join(lines).isascii()

    @pytest.mark.parametrize(
        "grid",
        [
            np.full((2, 2), np.nan),
            np.float64([[1.7e308, -1.7e308]]),
            np.zeros((0, 3)),
            np.zeros((1, 1)),
            np.eye(3, dtype=bool),
        ],
    )
    def test_odd_grids(self, grid):
        assert pictures.heat(grid, Paint()) and pictures.heat(grid, Paint(colour=True))

    def test_the_pattern_has_a_dot_where_a_value_is(self):
        assert pictures.pattern(np.zeros((0, 2), np.int64), (4, 4), Paint()) == ["⠀⠀"]
        found = pictures.pattern(
            np.array([[0, 0], [999_999, 999_999]]), (1_000_000, 1_000_000), Paint(20), 4
        )
        assert found[0][0] == "⠁" and found[-1][-1] == "⢀" and len(found) <= 4

    def test_bars_show_that_there_is_something(self):
        lines = pictures.bars(histogram(np.float64([0] * 10_000 + [1])), Paint(60))
        assert lines[0].endswith("10,000") and "▏" in lines[-1]


class TestImages:
    def test_headers(self):
        assert str(image(png(640, 480))) == "PNG 640 x 480, colour, 8 bits"
        assert str(image(jpeg(31, 77))) == "JPEG 31 x 77, colour"
        assert image(b"GIF89a" + struct.pack("<HH", 3, 4) + bytes(9))[:3] == ("GIF", 3, 4)
        lossless = (
            b"RIFF" + bytes(4) + b"WEBPVP8L" + bytes(4) + b"\x2f" + struct.pack("<I", 99 | 49 << 14)
        )
        assert image(lossless)[:3] == ("WebP", 100, 50)
        lossy = (
            b"RIFF"
            + bytes(4)
            + b"WEBPVP8 "
            + bytes(4)
            + bytes(3)
            + b"\x9d\x01\x2a"
            + struct.pack("<HH", 12, 34)
        )
        assert image(lossy)[:3] == ("WebP", 12, 34)
        extended = (
            b"RIFF" + bytes(4) + b"WEBPVP8X" + bytes(4) + b"\x10" + bytes(3) + b"\x09\0\0\x13\0\0"
        )
        assert str(image(extended)) == "WebP 10 x 20, with alpha"

    @pytest.mark.tensorflow
    def test_what_tensorflow_writes(self):
        import tensorflow as tf

        pixels = np.zeros((17, 23, 3), np.uint8)
        assert image(tf.io.encode_jpeg(pixels).numpy())[:3] == ("JPEG", 23, 17)
        assert image(tf.io.encode_png(pixels).numpy())[:3] == ("PNG", 23, 17)

    @settings(deadline=None, max_examples=300)
    @given(
        st.sampled_from([png(3, 4), jpeg(3, 4), b"GIF89a1234567", b"RIFF1234WEBPVP8 " + bytes(30)]),
        st.integers(0, 60),
        st.binary(max_size=12),
    )
    def test_any_bytes(self, start, cut, more):
        found = image(start[:cut] + more)
        assert found is None or isinstance(str(found), str)


class TestSlices:
    @pytest.mark.parametrize(
        "text", ["0", ":", "1:3", "::-1", "0,:,3", "..., 0", "-1,", "[0, 1]", "1:5:2,..."]
    )
    def test_they_are_numpys(self, text):
        array = np.arange(210).reshape(5, 6, 7)
        key = selection.fitted(selection.parse(text), "dense", array.shape)
        inside = text.strip("[]")
        assert np.array_equal(array[key], eval(f"array[{inside}]"))

    @pytest.mark.parametrize(
        "text", ["", "a", "1;2", "0,,1", "::0", "1:2:3:4", "...,...", "None", "0x1", "[[1]]", "1.5"]
    )
    def test_what_is_none(self, text):
        with pytest.raises(tw.SchemaError):
            selection.parse(text)

    def test_what_does_not_fit(self):
        for key, kind in [
            ((0, 0, 0), "dense"),
            ((5,), "dense"),
            ((0, 1), "ragged"),
            ((slice(None, None, 2),), "sparse"),
        ]:
            with pytest.raises(tw.SchemaError):
                selection.fitted(key, kind, (5, 6))


class TestWhere:
    ROW = {
        "label": np.int64(3),
        "ids": np.int64([4, 8, 15]),
        "lang": b"de",
        "tags": tw.Strings.of([b"a", b"bc"]),
        "x": np.float32(0.5),
        "image/encoded": b"\xff\xd8",
    }

    @pytest.mark.parametrize(
        ("text", "true"),
        [
            ("label == 3", True),
            ("label != 3", False),
            ("not label == 3", False),
            ("2 < label <= 3", True),
            ("label in [1, 3]", True),
            ("label not in (1, 3)", False),
            ("8 in ids", True),
            ("9 in ids", False),
            ("3 in label", True),
            ("ids == [4, 8, 15]", True),
            ("ids == 4", False),
            ("len(ids) == 3 and len(label) == 1 and len(lang) == 2", True),
            ("len(nothing) == 0", True),
            ("lang == 'de'", True),
            ("lang == b'de'", True),
            ("'e' in lang", True),
            ("'a' in tags", True),
            ("'b' in tags", False),
            ("tags == ['a', 'bc']", True),
            ("nothing == None", True),
            ("has(label) and not has(nothing)", True),
            ("has(col('image/encoded'))", True),
            ("nothing < 3 or nothing > 3", False),
            ("lang < 3", False),
            ("x == 0.5 and x > -1", True),
            ("col('image/encoded') != None", True),
            ("len(col('image/encoded')) == 2", True),
            ("'\\xff' in col('image/encoded')", False),
            ("label", True),
            ("nothing", False),
            ("True", True),
        ],
    )
    def test_what_is_true(self, text, true):
        assert Where(text)(self.ROW) is true

    @pytest.mark.parametrize(
        "text",
        [
            "__import__('os').system('true')",
            "open('x')",
            "label.real",
            "ids[0]",
            "lambda: 1",
            "[x for x in ids]",
            "label + 1",
            "label if x else y",
            "f'{label}'",
            "(y := 3)",
            "label is None",
            "len(ids, ids)",
            "len(x=ids)",
            "col(lang)",
            "~label",
            "label ** 999999999",
            "'a' * 99999999999",
            "label = 3",
            "",
            "(" * 300 + ")" * 300,
            "label == 3\nimport os",
            "\0",
            "1j == 3",
            "*ids",
            "await label",
            "x" * 3000,
            "len(ids)(3)",
        ],
    )
    def test_what_is_refused_says_what_is_allowed(self, text):
        with pytest.raises(tw.SchemaError) as error:
            Where(text)
        assert "allowed" in str(error.value) or "longer than 2,000" in str(error.value)

    @settings(deadline=None, max_examples=300)
    @given(
        st.text(
            st.sampled_from("label ids0123456789.()[]<>=!'\"andortin,:+-*lambda@{}\\"), max_size=40
        )
    )
    def test_any_text_is_read_or_refused(self, text):
        try:
            where = Where(text)
        except tw.SchemaError:
            return
        assert where(self.ROW) in (True, False)


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("shown")
    rng = np.random.default_rng(7)
    value = {
        "matrix": rng.standard_normal((8, 5)).astype(np.float32),
        "vector": np.arange(100),
        "cube": rng.random((3, 4, 5)),
        "half": np.arange(6).astype(ml_dtypes.bfloat16),
        "words": tw.Strings.of([f"word {i}" for i in range(20)]),
        "rows": tw.Ragged.of([[1, 2, 3], [], [4]]),
        "nested": tw.Ragged.of([[["a"], []], [["b", "c"]]]),
        "sparse": tw.Sparse([[0, 1], [5, 7]], np.float32([1.5, -2]), (6, 8)),
        "layers": [{"w": np.zeros(2)}, {"w": np.ones(2)}],
        "empty": np.zeros((0, 4)),
        "scalar": np.float32(2.5),
        "step": 7,
        "note": "a\x1b[31mb",
        "nothing": float("nan"),
    }
    for suffix in ("safetensors", "npz", "json", "arrow", "pb"):
        tw.save(folder / f"all.{suffix}", value, "tensorproto" if suffix == "pb" else None)
    tw.save(folder / "all.safetensors.gz", value, compression="gzip")
    tw.save(folder / "quantized.safetensors", {"x": rng.standard_normal((20, 30))}, quantize="int8")
    tw.save(folder / "one.npy", rng.random((4, 4)))
    rows = [
        {
            "label": i % 5,
            "ids": list(range(i % 4)),
            "lang": ["de", "en"][i % 2],
            "image": [jpeg(i + 1, 10), png(5, 5)][i % 2],
        }
        for i in range(50)
    ]
    tw.write_examples(folder / "train.tfrecord", rows, shards=2)
    tw.write_sequence_examples(
        folder / "steps.tfrecord",
        [({"id": 7}, {"token": [b"a", b"b"], "score": [[0.5, 1.0], [2.0, 3.0]]})],
    )
    with tw.RecordWriter(folder / "raw.tfrecord") as writer:
        for data in (b"hello\xff", png(3, 4), tw.dumps(np.zeros(3)), b""):
            writer.write(data)
    return folder, value


class TestFiles:
    @pytest.mark.parametrize(
        "suffix", ["safetensors", "npz", "json", "arrow", "pb", "safetensors.gz"]
    )
    def test_every_kind_in_every_format(self, files, suffix):
        folder, _ = files
        found = run("show", folder / f"all.{suffix}", "-n", "0")
        assert found.returncode == 0 and found.stderr == ""
        for words in (
            "├─ layers: list of 2\n│  ├─ 0: dict of 1\n│  │  └─ w: float64 [2]",
            "step: 7",
            r"note: 'a\x1b[31mb'",
            "matrix  float32 [8, 5]",
            "min 0   max 99   mean 49.5   NaN 0   zeros 1 (1 %)",
            "[0, :, :] =",
            "half  bfloat16 [6]",
            "20 strings",
            "'word 7'\n  ... 12 more",
            "3 rows, lengths 0 to 3, mean 1.333, 4 values",
            "[1] 0  []",
            "nnz 2 of 48 (4.17 %)",
            "[5, 7]: -2.0",
            "no values",
            "  2.5",
        ):
            assert words in found.stdout, words
        assert "\x1b" not in found.stdout

    def test_json_of_everything_is_the_value(self, files):
        folder, value = files
        about = json.loads(run("show", folder / "all.safetensors", "-n", "0", "--json").stdout)
        tensors = {one["name"]: one for one in about["tensors"]}
        assert tensors["vector"]["values"] == list(range(100)) and tensors["rows"]["values"] == [
            [1, 2, 3],
            [],
            [4],
        ]
        assert (
            tensors["nested"]["values"] == value["nested"].tolist()
            and tensors["words"]["values"] == value["words"].tolist()
        )
        assert tensors["sparse"]["indices"] == [[0, 1], [5, 7]] and tensors["sparse"]["values"] == [
            1.5,
            -2,
        ]
        assert tensors["matrix"]["statistics"]["elements"] == 40 and about["values"] == {
            "step": 7,
            "note": "a\x1b[31mb",
            "nothing": "NaN",
        }
        assert about["more"] == 0 and tensors["half"]["dtype"] == "bfloat16"

    def test_the_first_tensors_and_how_many_more(self, files):
        folder, _ = files
        assert (
            "... 4 more; name tensors, or use -n 0 to show all"
            in run("show", folder / "all.npz").stdout
        )

    def test_names_and_patterns(self, files):
        folder, _ = files
        found = run("show", folder / "all.npz", "layers/*", "--names", "half,step*", "--json")
        assert found.returncode == 1 and "no tensor 'step*'" in found.stderr
        found = run("show", folder / "all.npz", "--json", "layers/*", "--names", "half")
        assert [one["name"] for one in json.loads(found.stdout)["tensors"]] == [
            "layers/0/w",
            "layers/1/w",
            "half",
        ]

    def test_slices(self, files):
        folder, value = files
        cube = value["cube"]
        for text, part in (
            ("0", cube[0]),
            ("1:3", cube[1:3]),
            ("-1,0", cube[-1, 0]),
            ("0,:,3", cube[0, :, 3]),
            ("..., 1", cube[..., 1]),
        ):
            found = json.loads(
                run("show", folder / "all.safetensors", "cube", "--slice", text, "--json").stdout
            )
            assert np.array_equal(found["tensors"][0]["values"], part)
        found = run("show", folder / "all.safetensors", "rows", "--slice", "0:2")
        assert "2 rows, lengths 0 to 3" in found.stdout
        found = run("show", folder / "all.safetensors", "words", "--slice", "3")
        assert "'word 3'" in found.stdout

    def test_pictures_if_asked_for(self, files):
        folder, _ = files
        found = run("show", folder / "all.safetensors", "matrix", "--heat", "--histogram")
        assert (
            "heat map: from" in found.stdout
            and "█" in found.stdout
            and found.stdout.count("█") > 20
        )
        assert "heat" not in run("show", folder / "all.safetensors", "matrix").stdout
        assert (
            "row lengths:" in run("show", folder / "all.safetensors", "rows", "--histogram").stdout
        )

    def test_quantized_and_plain_arrays(self, files):
        folder, _ = files
        assert "x  float64 [20, 30]" in run("show", folder / "quantized.safetensors").stdout
        assert "float64 [4, 4]" in run("show", folder / "one.npy").stdout

    def test_a_sharded_model(self, tmp_path):
        tw.save(tmp_path / "model-1.safetensors", {"a": np.arange(3)})
        tw.save(tmp_path / "model-2.safetensors", {"b": np.arange(4)})
        index = {"weight_map": {"a": "model-1.safetensors", "b": "model-2.safetensors"}}
        (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
        found = json.loads(run("show", tmp_path / "model.safetensors.index.json", "--json").stdout)
        assert [one["values"] for one in found["tensors"]] == [[0, 1, 2], [0, 1, 2, 3]]

    @pytest.mark.tensorflow
    def test_a_checkpoint_of_tensorflow(self, tmp_path):
        import tensorflow as tf

        prefix = tf.train.Checkpoint(
            v=tf.Variable(np.arange(12.0).reshape(3, 4)), words=tf.Variable(["x", "yz"])
        ).write(str(tmp_path / "ckpt"))
        found = run("show", prefix)
        assert (
            found.returncode == 0
            and "float64 [3, 4]" in found.stdout
            and "min 0   max 11" in found.stdout
            and "yz" in found.stdout
        )


@pytest.fixture(scope="module")
def hole(tmp_path_factory):
    """A file with a hole in it takes no disk, and says that it has 10 GB."""
    path = tmp_path_factory.mktemp("large") / "hole.safetensors"
    header = json.dumps(
        {
            "x": {"dtype": "F32", "shape": [50_000, 50_000], "data_offsets": [0, 10**10]},
            "y": {
                "dtype": "F32",
                "shape": [1, 10, 10**7],
                "data_offsets": [10**10, 10**10 + 4 * 10**8],
            },
        }
    ).encode()
    header += b" " * (-len(header) % 8)
    with path.open("wb") as file:
        file.write(struct.pack("<Q", len(header)) + header)
        file.truncate(8 + len(header) + 10**10 + 4 * 10**8)
        file.seek(8 + len(header) + 4 * (50_000 * 7 + 3))
        file.write(struct.pack("<f", 42.0))
    return path


class TestLarge:
    def test_it_is_sampled_and_says_so(self, hole):
        found = run("show", hole, "--heat")
        assert (
            found.returncode == 0
            and "(of a sample of" in found.stdout
            and "heat map of evenly spaced rows" in found.stdout
        )

    @pytest.mark.parametrize("text", ["7,3", "7,:5", ":,3", "5:9,3", "::1000,3"])
    def test_a_slice_reads_little(self, hole, text):
        code = f"""
import sys
from tensorwire.cli import main
status = main(["show", {str(hole)!r}, "x", "--slice", {text!r}, "--json"])
most = next(line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM"))
print(status, most, file=sys.stderr)
"""
        found = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True
        )
        status, most = map(int, found.stderr.split())
        # kilobytes, of 10 GB; a page of the mapping for each of 50,000 rows counts too
        assert status == 0 and most < 500_000
        about = json.loads(found.stdout)["tensors"][0]
        assert about["sampled"] is False if "statistics" in about else about["values"] == 42.0

    def test_a_row_that_is_too_long_is_thinned(self, hole):
        found = json.loads(run("show", hole, "y", "--json").stdout)["tensors"][0]
        assert found["sampled"] and 1000 < found["statistics"]["elements"] < 1 << 20

    def test_a_sample_is_spread_and_bounded(self, tmp_path):
        array = np.arange(4_000_000, dtype=np.float64)
        tw.save(tmp_path / "x.safetensors", {"x": array, "m": array.reshape(-1, 4)})
        with sampling.SampledFile(str(tmp_path / "x.safetensors")) as opened:
            for name in ("x", "m"):
                some, whole = sampling.dense(opened, name)
                assert (
                    not whole
                    and some.nbytes <= sampling.BUDGET
                    and some.min() == 0
                    and some.max() == 3_999_999
                )
                assert sampling.all_statistics(opened, name) == statistics(array)
        found = shown.contents(str(tmp_path / "x.safetensors"), look=Look(whole=True))
        assert "mean 2e+06   NaN 0   zeros 1" in "\n".join(
            found.lines
        ) and "of a sample" not in "\n".join(found.lines)

    def test_long_strings_and_ragged_rows_are_not_read_whole(self, tmp_path):
        words = tw.Strings.of([b"x" * 1000] * 20_000)
        rows = tw.Ragged(np.zeros(4_000_000), np.arange(0, 4_000_001, 1000))
        tw.save(tmp_path / "x.safetensors", {"w": words, "r": rows})
        found = "\n".join(shown.contents(str(tmp_path / "x.safetensors")).lines)
        assert (
            "20,000 strings" in found
            and "(of the first" in found
            and "4,000 rows" in found
            and "rows)" in found
        )


class TestRecords:
    def test_features_and_pictures(self, files):
        folder, _ = files
        found = run("show", folder / "train-*.tfrecord", "-n", "0")
        assert found.returncode == 0 and found.stdout.count("train-00000-of-00002.tfrecord [") == 25
        assert (
            "JPEG 1 x 10, colour" in found.stdout
            and "PNG 5 x 5" in found.stdout
            and "'de'" in found.stdout
        )

    def test_where_columns_skip(self, files):
        folder, _ = files
        found = run(
            "show",
            folder / "train-*.tfrecord",
            "--where",
            "label == 3 and len(ids) > 2",
            "--columns",
            "label,ids",
            "--json",
            "-n",
            "0",
        )
        rows = [json.loads(line) for line in found.stdout.splitlines()]
        assert [row["features"] for row in rows] == [{"label": 3, "ids": [0, 1, 2]}] * len(
            rows
        ) and len(rows) == 3
        found = run(
            "show",
            folder / "train-00001-of-00002.tfrecord",
            "--skip",
            "20",
            "--json",
            "-n",
            "3",
            "label",
        )
        assert [json.loads(line)["record"] for line in found.stdout.splitlines()] == [20, 21, 22]
        assert run("show", folder / "train-00001-of-00002.tfrecord", "--skip", "99").stdout == ""

    def test_pictures_in_json_are_their_size(self, files):
        folder, _ = files
        row = json.loads(
            run("show", folder / "train-00000-of-00002.tfrecord", "-n", "1", "--json").stdout
        )
        assert row["features"]["image"] == {
            "image": "JPEG",
            "width": 1,
            "height": 10,
            "nbytes": len(jpeg(1, 10)),
        }

    def test_sequence_examples(self, files):
        folder, _ = files
        row = json.loads(run("show", folder / "steps.tfrecord", "--json").stdout)
        assert row["features"] == {"id": 7, "score": [[0.5, 1.0], [2.0, 3.0]], "token": ["a", "b"]}
        assert "2 steps" in run("show", folder / "steps.tfrecord").stdout

    def test_records_that_are_no_examples(self, files):
        folder, _ = files
        found = run("show", folder / "raw.tfrecord")
        assert "not an Example" in found.stdout and r"b'hello\xff'" in found.stdout
        assert (
            "PNG 3 x 4" in found.stdout
            and "detected format safetensors" in found.stdout
            and found.returncode == 0
        )

    @settings(deadline=None, max_examples=30)
    @given(
        st.lists(
            st.fixed_dictionaries(
                {},
                optional={
                    "label": st.integers(0, 3),
                    "ids": st.lists(st.integers(0, 3), min_size=1, max_size=3),
                    "lang": st.sampled_from([b"de", b"en", b"\xff"]),
                    "x": st.sampled_from([0.0, 0.5, float("nan")]),
                },
            ),
            min_size=1,
            max_size=20,
        ),
        st.sampled_from(
            [
                "label == 1",
                "2 in ids or x < 1",
                "not has(lang)",
                "len(ids) == 2",
                "lang == 'de'",
                "'e' in lang",
                "label == ids",
                "True",
                "other == 3",
            ]
        ),
    )
    def test_the_quick_way_to_find_records_finds_the_same(self, tmp_path_factory, rows, text):
        path = tmp_path_factory.mktemp("sift") / "a.tfrecord"
        with tw.RecordWriter(path) as writer:
            for row in rows:
                writer.write(
                    tw.dumps(
                        {
                            name: (
                                np.asarray(value)
                                if not isinstance(value, bytes)
                                else tw.Strings.of([value])
                            )
                            for name, value in row.items()
                        },
                        "example",
                    )
                )
        where = Where(text)
        (block,) = tw.RecordReader(path, index=False).blocks()
        every = [records.decoded(block, index, tw.Schema()) for index in range(len(rows))]
        found = records.sift(block, where, tw.Schema())
        assert found.matches == [record.number for record in every if where(record.values)]

    def test_nothing_is_written_beside_the_file(self, files, tmp_path):
        tw.write_examples(tmp_path / "a.tfrecord", {"x": [1, 2, 3]}, schema_file=False)
        before = sorted(tmp_path.iterdir())
        assert run("show", tmp_path / "a.tfrecord", "--where", "x == 3").returncode == 0
        assert sorted(tmp_path.iterdir()) == before

    def test_compressed_and_encoded(self, tmp_path):
        tw.write_examples(
            tmp_path / "a.tfrecord.gz",
            {"m": [np.eye(2, dtype=np.float32), np.zeros((1, 3), np.float32)]},
            compression="gzip",
        )
        rows = [
            json.loads(line)["features"]
            for line in run("show", tmp_path / "a.tfrecord.gz", "--json").stdout.splitlines()
        ]
        assert rows == [{"m": [[1, 0], [0, 1]]}, {"m": [[0, 0, 0]]}]

    def test_tensors_have_no_where(self, files):
        folder, _ = files
        assert run("show", folder / "one.npy", "--where", "x == 3").returncode == 2
        assert run("show", folder / "train-*.tfrecord", "--heat").returncode == 2

    @settings(deadline=None, max_examples=80)
    @given(st.binary(max_size=60))
    def test_any_record(self, data):
        import tempfile
        from pathlib import Path

        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "a.tfrecord"
            with tw.RecordWriter(path) as writer:
                writer.write(data)
            (record,) = records.read(str(path))
            assert (
                record.data == data
                and all(line.isprintable() for line in record.lines())
                and json.dumps(record.json())
            )


def test_text_that_shows():
    assert formatting.safe("é漢\t\x9b\u202e") == "é漢\\t\\x9b\\u202e"
    assert formatting.quoted("\x1b[0m") == "'\\x1b[0m'"
    assert formatting.short("x" * 50, 10) == "xxxxxxx..."
