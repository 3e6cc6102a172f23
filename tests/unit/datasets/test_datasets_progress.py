"""How far a conversion is, as its caller and whoever sits at the terminal see it."""

import sys
import threading
import time

import numpy as np
import pytest

import tensorwire as tw
from tensorwire import datasets
from tensorwire.datasets.engines import watched
from tensorwire.datasets.engines.local import LocalEngine
from tensorwire.datasets.progress import Beginning, Meter, Progress
from tensorwire.datasets.task import run

pytestmark = pytest.mark.arrow
ROWS = {"id": np.arange(40_000), "x": np.arange(160_000, dtype=np.float32).reshape(-1, 4)}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The same rows in every format, each in one file and in four."""
    folder = tmp_path_factory.mktemp("progress")
    tw.write_examples(folder / "one.tfrecord", ROWS, durable=False)
    for name, options in {
        "parquet": {},
        "arrow": {},
        "jsonl": {},
        "npz": {},
        "tfrecord.gz": {"compression": "gzip"},
    }.items():
        tw.convert(folder / "one.tfrecord", folder / f"one.{name}", workers=0, **options)
    tw.convert(folder / "one.tfrecord", folder / "four", to="tfrecord", shards=4, workers=0)
    return folder


class Told(list):
    """A callback that keeps what it is told."""

    def __call__(self, done, progress):
        assert isinstance(progress, Progress) and done == progress.share and str(progress)
        self.append(progress)


@pytest.fixture
def at_once(monkeypatch):
    """Everything is told, however little time has passed."""
    monkeypatch.setattr(Meter.__init__, "__kwdefaults__", {"every": 0.0})


@pytest.mark.parametrize("on_corrupt", ["raise", "skip"])
@pytest.mark.parametrize("name", ["tfrecord", "tfrecord.gz", "parquet", "arrow", "jsonl", "npz"])
def test_one_file_into_one(folder, tmp_path, at_once, name, on_corrupt):
    """The share grows from within the file, whatever its format and its compression."""
    told = Told()
    tw.convert(
        folder / f"one.{name}",
        tmp_path / "out.tfrecord",
        workers=0,
        on_corrupt=on_corrupt,
        progress=told,
    )
    shares, records = [one.share for one in told], [one.records for one in told]
    assert len(told) > 3 and shares == sorted(shares) and records == sorted(records)
    assert (shares[-1], records[-1], told[-1].shards, told[-1].of) == (1.0, 40_000, 1, 1)
    inside = [one for one in told if 0.05 < one.share < 0.95]
    assert inside and all(one.shards == 0 for one in inside)
    assert any(0 < one.records < 40_000 and one.bytes and one.left for one in inside)


def test_what_comes_before_the_first_shard(folder, tmp_path, monkeypatch):
    """Finding, looking, and counting file by file, which of a large dataset takes its time; the
    report's time has it in it.
    """
    monkeypatch.setattr(Beginning.__init__, "__kwdefaults__", {"every": 0.0})
    told = Told()
    report = tw.convert(
        folder / "four", tmp_path / "out", to="parquet", shards=3, workers=0, progress=told
    )
    early = [one for one in told if one.doing]
    assert [str(one) for one in early] == [
        "finding the sources", "reading the schema of the sources", *(f"counting records, {i} of 4 files" for i in (1, 2, 3, 4))
    ]  # fmt: skip
    assert (
        all((one.share, one.shards, one.of, one.left) == (0.0, 0, 3, None) for one in early)
        and told[: len(early)] == early
    )
    assert early[-1].seconds < report.seconds and not told[-1].doing
    told.clear()
    datasets.sample(folder / "four", tmp_path / "sampled", 0.5, by="id", workers=0, progress=told)
    assert "counting the records of each value, 4 of 4 files" in map(str, told)
    told.clear()
    tw.convert(
        folder / "four",
        tmp_path / "planned",
        to="parquet",
        shards=3,
        workers=0,
        progress=told,
        dry_run=True,
    )
    assert len(told) == 6 and all(one.doing for one in told)


def test_parts_of_a_file_and_a_filter_that_lets_nothing_through(folder, tmp_path, at_once):
    """Shards cut out of one file know their records; and who passes over all of them still says how
    far it is.
    """
    told = Told()
    tw.convert(
        folder / "one.tfrecord",
        tmp_path / "out",
        to="parquet",
        shards=2,
        workers=0,
        where="id < 0",
        progress=told,
    )
    assert (
        any(0 < one.share < 0.5 for one in told)
        and any(0.5 < one.share < 1 for one in told)
        and told[-1].records == 0
    )


def test_workers_say_how_far_they_are(folder, tmp_path, at_once):
    """From inside their shards, five times a second, and once at the beginning."""
    told = Told()
    tw.convert(folder / "one.tfrecord", tmp_path / "out.jsonl", workers=1, progress=told)
    inside = [one for one in told if one.shards == 0 and not one.doing]
    assert inside and 0 < inside[0].share < 1
    assert told[-1].share == 1.0 and told[-1].records == 40_000


def test_a_rerun_counts_its_own_work_alone(folder, tmp_path, at_once):
    """What was there does not make it look fast, and the time left is that of the rest."""
    tw.convert(folder / "four", tmp_path / "out", to="jsonl", workers=0)
    for path in sorted((tmp_path / "out").glob("*.jsonl"))[2:]:
        path.unlink()
    told = Told()
    report = tw.convert(folder / "four", tmp_path / "out", to="jsonl", workers=0, progress=told)
    assert (report.written, report.skipped) == (2, 2)
    working = [one for one in told if one.shards == 2 and one.records]
    assert (
        all(one.before == 0.5 and one.share >= 0.5 and one.records <= 20_000 for one in working)
        and working
    )
    one = working[-1]
    assert one.left == pytest.approx(one.seconds / (one.share - 0.5) * (1 - one.share))
    assert told[-1].records == 20_000 and told[-1].shards == 4


def test_both_halves_of_a_shuffle(folder, tmp_path, at_once):
    told = Told()
    tw.convert(
        folder / "four",
        tmp_path / "out",
        to="tfrecord",
        shards=3,
        shuffle=1,
        workers=0,
        progress=told,
    )
    shares = [one.share for one in told]
    assert shares == sorted(shares) and told[-1].share == 1.0
    sorting = [one for one in told if one.share < 0.5]
    assert len(sorting) >= 4 and all(one.shards == 0 and one.records == 0 for one in sorting)
    assert {one.shards for one in told if one.share > 0.5} == {0, 1, 2, 3}
    assert any(0.5 < one.share < 0.65 and one.records for one in told)  # inside of the first shard


def test_statistics_of_one_file(folder, at_once):
    told = Told()
    datasets.stats(folder / "one.tfrecord", workers=0, progress=told)
    assert any(0 < one.share < 1 for one in told) and told[-1].share == 1.0


def test_a_task_alone(folder, tmp_path):
    """Engines of one's own may listen, too."""
    plan = datasets.plan(folder / "one.tfrecord", tmp_path / "out.parquet")
    told = []
    report = run(plan.task(0), plan.spec.json(), lambda *so_far: told.append(so_far))
    assert report["records"] == 40_000 and [share for share, _, _ in told] == sorted(
        share for share, _, _ in told
    )
    assert told[-1][0] == 1.0 and told[-1][1] > 0


def test_an_engine_that_does_not_say():
    class Silent:
        def run(self, spec, tasks):
            return iter(())

        def close(self): ...

    engine = Silent()
    with watched(engine, lambda *so_far: None):
        assert not hasattr(engine, "watch")
    engine = LocalEngine(0)
    with pytest.raises(ZeroDivisionError), watched(engine, print):
        assert engine.watch is print
        raise ZeroDivisionError
    assert engine.watch is None


def test_now_and_then():
    """However fast the shards come, five times a second is enough; the last one is always told."""
    told = Told()
    meter = Meter(10_000, told)
    start = time.monotonic()
    for number in range(10_000):
        meter.made({"number": number}, 10, 100)
    assert len(told) <= 2 + 5 * (time.monotonic() - start) and told[-1].shards == 10_000
    assert told[-1].records == 100_000 and told[-1].left == 0


def at_once_by(count, work):
    """Has it done by so many threads; what they raised."""
    raised = []

    def caught(number):
        try:
            work(number)
        except BaseException as error:
            raised.append(error)

    threads = [threading.Thread(target=caught, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return raised


def test_many_threads_count():
    """Tasks are made in the threads of workers, which find what is there while the driver hears of
    the others.
    """
    told = Told()
    meter = Meter(4 * 500 + 1, told, every=0.0)
    was = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:

        def work(number):
            for i in range(number, 2000, 4):
                meter.watch({"number": i}, 0.5, 5, 50)
                meter.made({"number": i}, 10, 100)

        assert at_once_by(4, work) == []
    finally:
        sys.setswitchinterval(was)
    meter.resumed()
    assert (told[-1].shards, told[-1].records, told[-1].bytes, told[-1].share) == (
        2001,
        20_000,
        200_000,
        1.0,
    )
    assert [one.shards for one in told] == sorted(one.shards for one in told)


def test_told_by_one_at_a_time():
    inside, most = [], []

    def tell(done, progress):
        inside.append(done)
        most.append(len(inside))
        time.sleep(0.01)
        inside.pop()

    meter = Meter(100, tell, 100, every=0.0)
    calls = (
        lambda: meter.resumed(),
        lambda: meter.prepared({"number": 1}),
        lambda: meter.made({"number": 2}, 1, 1),
    )
    calls += (lambda: meter.watch({"number": 3}, 0.5, 1, 1),)
    assert at_once_by(8, lambda number: calls[number % 4]()) == [] and most == [1] * 8


def test_who_is_told_may_come_back():
    meter = Meter(3, lambda done, progress: progress.shards == 1 and meter.resumed(), every=0.0)
    meter.resumed()
    assert meter._shards == 2
