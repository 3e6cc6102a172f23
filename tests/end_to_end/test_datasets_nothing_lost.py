"""Ways in which a conversion could lose, repeat or change something, and say that all went well."""

import errno
import importlib
import itertools
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import tensorwire as tw
from support import cli
from support.dataset_files import records
from tensorwire import datasets
from tensorwire.datasets import driver
from tensorwire.datasets.engines.local import LocalEngine
from tensorwire.records.paths import schema_beside

pytestmark = pytest.mark.arrow


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def parquet(path, columns, names=None):
    pa, pq = importlib.import_module("pyarrow"), importlib.import_module("pyarrow.parquet")
    pq.write_table(
        (
            pa.table(columns)
            if names is None
            else pa.Table.from_arrays([pa.array(one) for one in columns], names=names)
        ),
        path,
    )


def numbers(count=9, shards=None, name="a"):
    tw.write_examples(f"{name}.tfrecord", {"x": np.arange(count)}, shards=shards)
    return f"{name}.tfrecord" if shards is None else f"{name}-*.tfrecord"


def lines(folder):
    return [
        json.loads(line)
        for path in sorted(Path(folder).glob("*.jsonl"))
        for line in path.read_text().splitlines()
    ]


class TestPlaces:
    @pytest.mark.parametrize(
        "target", ["out//", "./out/", "x/../out", "file://{}/out", "file://{}/out/"]
    )
    def test_one_form_for_each_target(self, tmp_path, target):
        numbers()
        report = tw.convert("a.tfrecord", target.format(tmp_path), to="jsonl", workers=0)
        assert (
            report.records == 9
            and report.swept == 0
            and lines("out") == [{"x": i} for i in range(9)]
        )
        assert not Path("file:").exists()
        again = tw.convert("a.tfrecord", "out", to="jsonl", workers=0)
        assert again.written == 0
        with pytest.raises(tw.UsageError, match="over its own sources"):
            tw.convert(
                "out",
                f"file://{tmp_path}/out",
                to="jsonl",
                where="x > 3",
                overwrite=True,
                workers=0,
            )

    def test_one_file_by_url(self, tmp_path):
        report = tw.convert(
            numbers(shards=3), f"file://{tmp_path}/all.tfrecord", shuffle=3, workers=0
        )
        assert report.records == 9 and Path("all.tfrecord").exists() and not Path("file:").exists()

    def test_a_folder_by_its_slash(self):
        tw.convert(numbers(), "a.parquet/", to="parquet", workers=0)
        assert Path("a.parquet/_SUCCESS").exists()

    def test_sources_count_once_and_all(self, tmp_path):
        numbers()
        names = [
            "a.tfrecord",
            "./a.tfrecord",
            str(tmp_path / "a.tfrecord"),
            f"file://{tmp_path}/a.tfrecord",
        ]
        assert tw.convert(names[:2], "o1", to="jsonl", workers=0).records == 9
        os.rename("a.tfrecord", "_a.tfrecord")
        tw.write_examples("b.tfrecord", {"x": np.arange(2)})
        assert (
            tw.convert(
                ["_a.tfrecord", "b.tfrecord"],
                "o2",
                to="jsonl",
                schema={"x": tw.Feature("int64", ())},
                workers=0,
            ).records
            == 11
        )
        assert tw.convert("?.tfrecord", "o3", to="jsonl", workers=0).records == 2
        # As with hidden files, a pattern has to ask for names that begin with "_".
        assert (
            tw.convert(
                "_*.tfrecord", "o4", to="jsonl", schema={"x": tw.Feature("int64", ())}, workers=0
            ).records
            == 9
        )

    def test_patterns_and_links(self):
        Path("d/a/b").mkdir(parents=True)
        for i in range(6):
            tw.write_examples(f"d/f{i}.tfrecord", {"x": np.arange(2)}, schema_file=False)
            os.symlink(f"f{i}.tfrecord/nope", f"d/bad{i}.tfrecord")
            os.symlink("nothing", f"d/gone{i}.tfrecord")
        tw.write_examples("d/a/b/z.tfrecord", {"x": np.arange(2)}, schema_file=False)
        for source, count in (
            ("d", 12),
            ("d/*.tfrecord", 12),
            ("d/**/**/*.tfrecord", 14),
            (["d/f?.tfrecord", "d/*"], 12),
        ):
            assert datasets.stats(source, workers=0).records == count, source

    @pytest.mark.parametrize("name", ["../evil", "_x", "", "a/b", ".x"])
    def test_names_of_shards(self, name):
        with pytest.raises(tw.UsageError, match="invalid shard name"):
            datasets.convert(numbers(), "out", "jsonl", name=name, workers=0)
        assert not Path("out").exists()

    def test_a_name_that_is_no_text(self):
        numbers()
        os.rename(b"a.tfrecord", b"a\xff.tfrecord")
        assert tw.convert("*.tfrecord", "out", to="jsonl", workers=0).records == 9
        assert tw.convert("*.tfrecord", "out", to="jsonl", workers=0).written == 0

    def test_a_kept_engine_goes_where_we_go(self, tmp_path, monkeypatch):
        source, engine = str(tmp_path / numbers(shards=3)), LocalEngine(1)
        for name in ("one", "two"):
            (tmp_path / name).mkdir()
            monkeypatch.chdir(tmp_path / name)
            assert (
                datasets.convert(source, "out", "jsonl", engine=engine).records == 9
                and len(lines("out")) == 9
            )
        engine.close()


class TestChoice:
    def test_a_split_is_not_shuffled(self):
        with pytest.raises(tw.UsageError, match="cannot be shuffled"):
            datasets.split(numbers(100), "out", {"a": 0.5, "b": 0.5}, shuffle=1, workers=0)

    @pytest.mark.parametrize("shards", [1, 2, 7, None])
    def test_a_shuffled_sample(self, shards):
        source = numbers(100, 4)
        report = datasets.sample(source, "out", 1.0, shuffle=1, shards=shards, workers=0)
        assert report.records == 100 and records("out/*.tfrecord") == records(source)

    def test_a_small_sample_has_few_shards(self):
        report = datasets.sample(numbers(100, 20), "out", records=3, workers=0)
        assert report.records == 3 and report.shards == 3

    @pytest.mark.parametrize("shards", [0, -3, 2.5, "2"])
    def test_numbers_of_shards(self, shards):
        for do in (
            datasets.convert,
            lambda *args, **options: datasets.sample(*args[:2], 0.5, **options),
        ):
            with pytest.raises(tw.UsageError, match="at least 1"):
                do(numbers(10, 4), "out", "jsonl", shards=shards, workers=0)

    def test_shares(self):
        with pytest.raises(tw.UsageError):
            datasets.split(numbers(), "out", {"a": float("nan")}, workers=0)

    @pytest.mark.parametrize("shares", [{"a": 0.8, "b": 0.1}, {"a": 0.5}, {"a": 0.7, "b": 0.2999}])
    def test_shares_below_one_need_drop_rest(self, shares):
        source = numbers(1000)
        with pytest.raises(tw.UsageError):
            datasets.split(source, "out", shares, workers=0)
        assert not Path("out").exists()
        report = datasets.split(source, "out", shares, drop_rest=True, workers=0)
        assert set(report.splits) == set(shares) and 0 < report.records < 1001

    @pytest.mark.parametrize("count", [3, 6, 7, 10, 49])
    def test_shares_that_sum_to_one_but_for_rounding(self, count):
        shares = (
            {"a": 0.7, "b": 0.2, "c": 0.1}
            if count == 3
            else {f"s{i}": 1 / count for i in range(count)}
        )
        assert datasets.split(numbers(1000), "out", shares, workers=0).records == 1000

    def test_a_sample_of_what_a_condition_lets_through(self):
        assert (
            datasets.sample(numbers(100, 4), "out", 0.5, where="x < 10", by="x", workers=0).records
            == 5
        )

    def test_a_column_that_is_named_twice(self):
        tw.write_examples("a.tfrecord", {"x": np.arange(4), "y": np.arange(4)})
        tw.convert("a.tfrecord", "out", to="jsonl", columns=["x", "x"], where="y > 1", workers=0)
        assert lines("out") == [{"x": 2}, {"x": 3}]

    def test_misspelt(self):
        parquet("a.parquet", {"x": [1, 2]})
        for options in ({"cast": {"X": "float32"}}, {"columns": ["X"]}, {"where": "X > 1"}):
            with pytest.raises(
                (tw.SchemaError, tw.UsageError), match=r"unknown column|no column 'X'"
            ):
                tw.convert("a.parquet", "out", to="arrow", workers=0, **options)
        with pytest.raises(tw.SchemaError, match="nope"):
            datasets.split("a.parquet", "out", {"a": 1.0}, by="nope", workers=0)
        assert not Path("out").exists()

    def test_columns_leave_out_what_no_example_holds(self):
        pa = importlib.import_module("pyarrow")
        parquet("a.parquet", {"x": [1, 2], "when": pa.array([1, 2], pa.timestamp("s"))})
        assert tw.convert("a.parquet", "out", to="tfrecord", columns=["x"], workers=0).records == 2


class TestTypes:
    @pytest.mark.parametrize("target", ["parquet", "arrow", "npz", "safetensors"])
    @pytest.mark.parametrize("shuffle", [None, 1])
    @pytest.mark.parametrize(
        ("first", "second"),
        [
            ([True], [7]),
            (np.float32([0.5]), np.float64([1e300])),
            ([1], ["one"]),
            ([[1, 2]], [[1.5]]),
            (np.int64([-1]), np.uint64([2**64 - 1])),
        ],
    )
    def test_columns_that_differ_are_not_made_alike(self, target, shuffle, first, second):
        parquet("a.parquet", {"b": first})
        parquet("b.parquet", {"b": second})
        with pytest.raises(
            (tw.SchemaError, tw.EncodeError), match="different types in different files"
        ):
            datasets.convert("?.parquet", "out", target, shards=1, shuffle=shuffle, workers=0)
        assert not Path("out/_SUCCESS").exists()

    @pytest.mark.parametrize("inner", ["int64", "string"])
    @pytest.mark.parametrize("target", ["parquet", "arrow", "npz"])
    def test_the_width_of_offsets_makes_no_difference(self, target, inner):
        pa = importlib.import_module("pyarrow")
        rows = [[1], [2, 3]] if inner == "int64" else [["a"], ["b", "c"]]
        kind = getattr(pa, inner)()
        parquet("a.parquet", {"b": pa.array(rows, pa.list_(kind))})
        parquet("b.parquet", {"b": pa.array(rows, pa.large_list(kind))})
        parquet(
            "c.parquet",
            {"b": pa.array(rows, pa.large_list(pa.large_string() if inner == "string" else kind))},
        )
        datasets.convert("?.parquet", "out", target, shards=1, workers=0)
        datasets.convert("out", "back", "jsonl", workers=0)
        assert [line["b"] for line in lines("back")] == rows * 3

    def test_two_columns_of_one_name(self):
        parquet("a.parquet", [[1, 2], [3, 4]], ["a", "a"])
        for target in ("tfrecord", "arrow", "jsonl"):
            with pytest.raises(tw.SchemaError, match="two columns are named 'a'"):
                tw.convert("a.parquet", f"out-{target}", to=target, workers=0)

    @pytest.mark.parametrize(
        ("values", "dtype", "kept"),
        [
            ([1, 300], "uint8", None), ([1, 255], "uint8", [1, 255]), ([-1.0], "uint8", None), ([float("nan")], "int64", None),
            ([1e30], "int64", None), ([2.0**63], "int64", None), ([2.0**62], "int64", [2**62]), ([2.5, 3.5, -0.4], "int32", [2, 4, 0]),
            ([1e300], "float32", None), ([float("inf"), 0.5], "float32", [float("inf"), 0.5]), ([70000.0], "float16", None),
            ([0, 1], "bool", [False, True]), ([2], "bool", None), ([2**53 + 1], "float64", [2.0**53]),
        ],
    )  # fmt: skip
    def test_casts_round_and_do_not_wrap(self, values, dtype, kept):
        parquet("a.parquet", {"x": values})
        if kept is None:
            with pytest.raises(tw.EncodeError, match="out of range") as caught:
                tw.convert("a.parquet", "out", to="parquet", cast={"x": dtype}, workers=0)
            assert caught.value.tensor == "x"
            return
        tw.convert("a.parquet", "out", to="parquet", cast={"x": dtype}, workers=0)
        tw.convert("out", "lines", to="jsonl", workers=0)
        wanted = ["Infinity" if value == float("inf") else value for value in kept]
        assert [line["x"] for line in lines("lines")] == wanted

    def test_names_that_say_present(self):
        parquet("a.parquet", {"x": [1, None], "y/present": [4, 5]})
        with pytest.raises(tw.EncodeError, match="/present"):
            tw.convert("a.parquet", "out", to="npz", workers=0)
        tw.save("in.npz", {"x": np.arange(2), "y/present": np.arange(2)})
        tw.convert("in.npz", "out", to="jsonl", shards=1, workers=0)
        assert lines("out") == [{"x": 0, "y/present": 0}, {"x": 1, "y/present": 1}]

    @pytest.mark.parametrize("target", ["parquet", "arrow", "npz", "safetensors"])
    @pytest.mark.parametrize(
        "options", [{"where": "x > 5"}, {"shards": 5}, {"shards": 5, "shuffle": 1}]
    )
    def test_shards_without_records(self, target, options):
        parquet("a.parquet", {"x": [1, 2]})
        parquet("b.parquet", {"x": [9]})
        report = datasets.convert("?.parquet", "out", target, workers=0, **options)
        back = datasets.convert("out", "back", "jsonl", workers=0)
        assert report.records == back.records == (
            1 if "where" in options else 3
        ) and report.shards == options.get("shards", 2)

    def test_a_scalar_is_no_column(self):
        tw.save("a.npz", {"x": np.float32(1)})
        with pytest.raises(tw.SchemaError, match="columns of a shard must have one length"):
            datasets.convert("a.npz", "out", "tfrecord", workers=0)


class TestCompression:
    @pytest.mark.parametrize("compression", ["GZIP", "none", "gzip", None])
    @pytest.mark.parametrize("target", ["tfrecord", "jsonl"])
    def test_names_of_compressions(self, compression, target):
        tw.convert(numbers(), "out", to=target, compression=compression, workers=0)
        assert (
            tw.convert("out", "back", to="jsonl", workers=0).records == 9
            and len(lines("back")) == 9
        )

    @pytest.mark.parametrize("compression", ["zlib", "snappy"])
    def test_what_cannot_be_read_again_is_not_written(self, compression):
        with pytest.raises(tw.EncodeError, match="gzip, zstd"):
            datasets.convert(numbers(), "out", "safetensors", compression=compression, workers=0)

    @pytest.mark.parametrize(("compression", "level"), [("gzip", 99), ("snappy", 3)])
    def test_levels(self, compression, level):
        with pytest.raises(tw.EncodeError, match="compression level"):
            datasets.convert(
                numbers(), "out", "parquet", compression=compression, level=level, workers=0
            )


class TestDamage:
    @pytest.mark.parametrize("options", [{}, {"shards": 3}, {"shards": 3, "shuffle": 1}])
    @pytest.mark.parametrize("schema", [True, False])
    def test_a_file_that_is_all_damage(self, options, schema):
        tw.write_examples("a.tfrecord", {"x": np.arange(30)}, schema_file=schema)
        Path("b.tfrecord").write_bytes(b"\xee" * 500)
        data = bytearray(Path("a.tfrecord").read_bytes())
        data[len(data) // 30 * 15 + 13] ^= 1  # inside of a record
        Path("c.tfrecord").write_bytes(data)
        for target in ("tfrecord", "jsonl"):
            for again in range(2):
                report = datasets.convert(
                    "?.tfrecord", target, target, on_corrupt="skip", workers=0, **options
                )
                assert (
                    report.records == 59
                    and report.damaged == ["b.tfrecord", "c.tfrecord"]
                    and len(report.damage) == 2
                ), again
                assert report.written == (0 if again else report.shards)

    def test_the_reader_skips_without_a_schema_too(self):
        tw.write_examples("a.tfrecord", {"x": np.arange(30)}, schema_file=False)
        data = bytearray(Path("a.tfrecord").read_bytes())
        data[len(data) // 30 * 15 + 13] ^= 1  # inside of a record
        Path("a.tfrecord").write_bytes(data)
        with pytest.raises(tw.ChecksumError):
            tw.read_examples("a.tfrecord")
        assert (
            sum(len(batch["x"]) for batch in tw.read_examples("a.tfrecord", on_corrupt="skip"))
            == 29
        )


class TestWhatIsThere:
    def test_an_old_schema_goes_with_its_data(self):
        tw.write_examples("a.tfrecord", {"x": np.arange(3)})
        tw.write_examples("b.tfrecord", {"x": np.arange(3), "z": np.arange(3)}, schema_file=False)
        for target in ("out", "out.tfrecord"):
            tw.convert("a.tfrecord", target, to="tfrecord", columns=["x"], workers=0)
            tw.convert("b.tfrecord", target, to="tfrecord", overwrite=True, workers=0)
            where = "out/*.tfrecord" if target == "out" else target
            assert set(next(iter(tw.read_examples(where)))) == {"x", "z"}
        assert not os.path.exists(schema_beside("out.tfrecord"))
        parquet("a.parquet", {"x": [1]})
        Path("b.parquet.schema.json").write_text("somebody's")
        tw.convert("a.parquet", "b.parquet", workers=0)
        assert Path("b.parquet.schema.json").read_text() == "somebody's"

    def test_other_sources_need_overwrite(self):
        numbers(name="a")
        numbers(5, name="b")
        tw.convert("?.tfrecord", "out", to="jsonl", workers=0)
        for source in ("b.tfrecord", ["a.tfrecord"]):
            with pytest.raises(FileExistsError, match="from other sources"):
                tw.convert(source, "out", to="jsonl", workers=0)
        # the same, by another name
        assert (
            tw.convert(os.path.abspath("?.tfrecord"), "./out", to="jsonl", workers=0).records == 14
        )
        numbers(3, name="c")
        # nothing that was there is given up
        assert tw.convert("?.tfrecord", "out", to="jsonl", workers=0).records == 17
        assert tw.convert("b.tfrecord", "out", to="jsonl", overwrite=True, workers=0).records == 5

    def test_other_splits_need_overwrite(self):
        source = numbers(100)
        datasets.split(source, "out", {"a": 0.5, "b": 0.5}, workers=0)
        assert datasets.split(source, "out", {"a": 0.5, "b": 0.5}, workers=0).written == 0
        with pytest.raises(FileExistsError, match="with other options"):
            datasets.split(source, "out", {"a": 0.7, "b": 0.3}, workers=0)

    def test_a_source_that_changes_while_it_is_read(self, monkeypatch):
        numbers()
        seen = itertools.count()

        task = importlib.import_module("tensorwire.datasets.task")
        finished = task.finished

        def touching(batch, spec):
            os.utime("a.tfrecord", ns=(next(seen), 1))
            return finished(batch, spec)

        monkeypatch.setattr(task, "finished", touching)
        with pytest.raises(tw.DecodeError, match="has changed since the plan"):
            tw.convert("a.tfrecord", "out", to="jsonl", workers=0)
        assert not Path("out/_SUCCESS").exists() and not list(Path("out").glob("part*"))

    @pytest.mark.cloud
    def test_an_object_is_not_converted_to_itself(self):
        tw.write_examples("memory://lost/a.tfrecord", {"x": np.arange(9)})
        with pytest.raises(tw.UsageError, match="to itself"):
            tw.convert(
                "memory://lost/a.tfrecord",
                "memory://lost/a.tfrecord",
                where="x > 3",
                overwrite=True,
                workers=0,
            )

    @pytest.mark.cloud
    def test_workers_that_write_elsewhere(self):
        """To each process its own memory."""
        with pytest.raises(tw.TensorwireError, match="check that all workers see this folder"):
            tw.convert(numbers(shards=2), "memory://elsewhere/out", to="jsonl", workers=2)

    @pytest.mark.cloud
    def test_two_drivers_and_no_locks(self, monkeypatch):
        source, out = numbers(shards=2), "memory://drivers/out"
        check = driver._check_all

        def meanwhile(*args):
            monkeypatch.setattr(driver, "_check_all", check)
            tw.convert(source, out, to="jsonl", workers=0)
            check(*args)

        monkeypatch.setattr(driver, "_check_all", meanwhile)
        with pytest.raises(tw.TensorwireError, match="another run"):
            tw.convert(source, out, to="jsonl", workers=0)

    def test_an_engine_that_answers_one_task_for_another(self):
        class Confused(LocalEngine):
            def run(self, spec, tasks):
                first = None
                for outcome in super().run(spec, tasks):
                    first = first or outcome
                    yield first if outcome.task["number"] == 1 else outcome

        for options in ({}, {"shards": 2}, {"shuffle": 1}):
            with pytest.raises(tw.TensorwireError, match="twice"):
                tw.convert(
                    numbers(shards=4),
                    "out",
                    to="jsonl",
                    engine=Confused(0),
                    overwrite=True,
                    **options,
                )
            assert not Path("out/_SUCCESS").exists()

    def test_a_fork_does_not_keep_the_lock(self):
        """Of a driver that was killed, and whose child lives on."""
        source = numbers(shards=2)
        code = """
import os, sys, time
from tensorwire.datasets.manifest import Manifest
with Manifest("out").locked():
    begun, begins = os.pipe()
    if os.fork() == 0:
        os.write(begins, b"x")
        time.sleep(60)
    os.read(begun, 1)
    print("ready", flush=True)
    time.sleep(60)
"""
        driver = subprocess.Popen(
            [sys.executable, "-c", code], stdout=subprocess.PIPE, start_new_session=True
        )
        try:
            assert driver.stdout.readline() == b"ready\n"
            with pytest.raises(tw.EncodeError, match="another run"):
                tw.convert(source, "out", to="jsonl", workers=0)
            driver.kill()
            driver.wait()
            assert tw.convert(source, "out", to="jsonl", workers=0).shards == 2
        finally:
            os.killpg(driver.pid, signal.SIGKILL)
            driver.stdout.close()

    def test_an_engine_that_loses_tasks(self):
        class Losing(LocalEngine):
            def run(self, spec, tasks):
                for outcome in super().run(spec, tasks):
                    if outcome.task["number"] != 1:
                        yield outcome

        for options in ({}, {"shards": 2}, {"shuffle": 1}):
            with pytest.raises(tw.TensorwireError, match="without an outcome"):
                tw.convert(
                    numbers(shards=4),
                    "out",
                    to="jsonl",
                    engine=Losing(0),
                    overwrite=True,
                    **options,
                )
            assert not Path("out/_SUCCESS").exists()

    @pytest.mark.ray
    def test_ray_that_cannot_work(self):
        with pytest.raises(tw.UsageError, match="at least 1 with Ray"):
            tw.convert(numbers(), "out", to="jsonl", engine="ray", workers=0)
        for address in ("127.0.0.1:1", "ray://127.0.0.1:1"):
            with pytest.raises(
                tw.TransportError, match=f"cannot connect to the Ray cluster at {address}"
            ):
                tw.convert(
                    numbers(), "out", to="jsonl", engine="ray", engine_options={"address": address}
                )


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("--to parquet --shards 0", "--shards must be at least 1"), ("--to parquet --where label==", "syntax error at character"),
        ("", "cannot tell the format from the name"), ("--to parquet --cast x", "expected NAME=D"), ("--to parquet --cast x=foo", "foo"),
    ],
)  # fmt: skip
def test_words_that_cannot_be_meant(line, complaint):
    numbers()
    found = cli.run("convert", "a.tfrecord", "out", *line.split())
    assert found.returncode == 2 and complaint in found.stderr and not Path("out").exists()


FULL_DISK = """
import resource, sys
import tensorwire as tw
resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, 200_000))
try:
    tw.convert(sys.argv[1], sys.argv[2], to=sys.argv[3], shards=2, workers=2, **eval(sys.argv[4]))
except OSError as error:
    print("failed", error.errno)
"""


@pytest.mark.parametrize(
    ("to", "options"),
    [("tfrecord", {}), ("jsonl", {}), ("parquet", {}), ("tfrecord", {"shuffle": 1})],
)
def test_a_full_disk_leaves_no_temporary_files(tmp_path, to, options):
    """The worker that meets the error removes its own; those of the others, which are ended then,
    the driver removes.
    """
    tw.write_examples(
        tmp_path / "a.tfrecord",
        {"x": np.random.default_rng(0).random(200_000, np.float32)},
        shards=4,
    )
    words = [f"{tmp_path}/a-*.tfrecord", tmp_path / "out", to, repr(options)]
    found = subprocess.run(
        [sys.executable, "-c", FULL_DISK, *words], capture_output=True, text=True
    )
    assert found.stdout.strip() == f"failed {errno.EFBIG}", found
    left = [name for _, _, names in os.walk(tmp_path / "out") for name in names]
    assert left and not [name for name in left if name.endswith(".tensorwire")]
