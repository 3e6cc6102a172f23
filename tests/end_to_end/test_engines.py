"""Both engines do the same, and neither loses a record when a worker dies."""

import contextlib
import importlib
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest

import tensorwire as tw
from support import cli
from support.dataset_files import crew_of, done, records, until, write
from tensorwire import datasets
from tensorwire.codecs.conversion_spec import ConversionSpec
from tensorwire.datasets.engines import errors_as_json, local, processes, worker
from tensorwire.datasets.engines.local import LocalEngine
from tensorwire.testing import check_engine

pytestmark = pytest.mark.arrow
SPEC = ConversionSpec("", "")


@pytest.mark.parametrize("copies", [True, False])
@pytest.mark.parametrize("workers", [0, 1, 2])
def test_local(workers, copies):
    engine = LocalEngine(workers=workers)
    engine._processes.forks &= copies
    assert check_engine(engine) == {"shards": 12, "records": 300}
    assert engine._processes.forks is (copies and sys.platform == "linux")
    engine.close()


@pytest.mark.skipif(sys.platform != "linux", reason="a fork server is for Linux")
def test_a_fork_server_with_threads_makes_no_forks(tmp_path, monkeypatch):
    """Their threads would be lost, and whatever they hold would stay held: workers are then
    processes of their own.
    """
    (tmp_path / "sitecustomize.py").write_text(
        "import threading, time\nthreading.Thread(target=time.sleep, args=(60,),"
        " daemon=True).start()\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    engine = LocalEngine(workers=2)
    report = datasets.convert(
        write(str(tmp_path / "in"), 100, 4), tmp_path / "out", "parquet", engine=engine
    )
    assert (report.records, report.retried) == (100, 0) and not engine._processes.forks
    engine.close()


def test_workers_are_used_again(tmp_path):
    """The same processes count, convert and convert again; one that died meanwhile is replaced, and
    the end is the end of all.
    """
    source, engine = write(str(tmp_path / "in"), 100, 4), LocalEngine(workers=2)
    datasets.convert(source, tmp_path / "a", "parquet", shards=3, engine=engine)
    crew = {process.pid: process for process in engine._idle}
    assert len(crew) == 2 and all(process.is_alive() for process in crew.values())
    datasets.convert(source, tmp_path / "b", "jsonl", shards=5, engine=engine)
    assert {process.pid for process in engine._idle} == set(crew)
    first = next(iter(crew.values()))
    first.kill()
    until(lambda: not first.is_alive())
    report = datasets.convert(source, tmp_path / "c", "arrow", engine=engine)
    assert (
        report.retried == 0
        and report.records == 100
        and first.pid not in {process.pid for process in engine._idle}
    )
    with pytest.raises(tw.DecodeError):
        (tmp_path / "bad.tfrecord").write_bytes(b"\0" * 100)
        datasets.convert(tmp_path / "bad.tfrecord", tmp_path / "d", "tfrecord", engine=engine)
    engine.close()
    assert not engine._idle and crew_of(os.getpid()) == ([], [])
    engine = LocalEngine(workers=1)
    engine.prepare(8, ["parquet", "jsonl"])
    assert len(engine._idle) == 1 and crew_of(os.getpid()) != ([], [])
    del engine  # whoever forgets to close it
    assert crew_of(os.getpid()) == ([], [])


def checks(count):
    """Tasks that are soon done."""
    return [{"do": "check", "number": number, "path": __file__} for number in range(count)]


@pytest.fixture
def engine():
    """Two workers, ended whatever comes of it."""
    with contextlib.closing(LocalEngine(workers=2)) as engine:
        yield engine


@pytest.fixture
def impatient(monkeypatch):
    for module in (local, processes):
        monkeypatch.setattr(module, "PATIENCE", 0.2)


@contextlib.contextmanager
def within(seconds):
    start = time.monotonic()
    yield
    assert time.monotonic() - start < seconds


def runs(pid):
    """Whether it has not ended, be it that nobody has asked how."""
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False


class TestRunsOfOneEngine:
    def test_one_that_is_left_ends_its_own_workers(self, engine):
        first, second = engine.run(SPEC, checks(60)), engine.run(SPEC, checks(60))
        found = [next(first), next(second)][1:]
        first.close()
        found += second
        assert len(found) == 60 and all(one.attempts == 1 and one.error is None for one in found)

    def test_closed_meanwhile(self, engine):
        """What is not done must not look as if it were."""
        run = engine.run(SPEC, checks(60))
        next(run)
        engine.close()
        with pytest.raises(tw.TensorwireError, match="closed while it was running"):
            list(run)
        assert len(list(engine.run(SPEC, checks(5)))) == 5

    def test_closed_by_who_is_told(self, engine, tmp_path):
        plan = datasets.plan(
            write(str(tmp_path / "in"), 100, 50), tmp_path / "out", "jsonl", engine=engine
        )
        os.makedirs(plan.target)
        engine.watch = lambda *so_far: engine.close()
        with pytest.raises(tw.TensorwireError, match="closed while it was running"):
            list(engine.run(plan.spec, [plan.task(i) for i in range(50)]))

    def test_each_thread_is_told_of_its_own(self, engine):
        engine.watch = print
        other = []
        thread = threading.Thread(target=lambda: other.append(engine.watch))
        thread.start()
        thread.join()
        assert other == [None] and engine.watch is print


class TestFolder:
    """Paths of tasks may start from where the driver is, and that changes; workers stay."""

    def test_they_follow(self, engine, tmp_path, monkeypatch):
        for name in ("a", "b"):
            write(str(tmp_path / name / "in"), 20, 2)
            monkeypatch.chdir(tmp_path / name)
            datasets.convert("in/*.tfrecord", "out", "jsonl", engine=engine)
            crew = {process.pid for process in engine._idle}
        assert done(tmp_path / "a/out") == done(tmp_path / "b/out") == 2
        monkeypatch.chdir(tmp_path)
        assert all(
            one.error is None
            for one in engine.run(SPEC, [{"do": "check", "number": 0, "path": "b/out/_SUCCESS"}])
        )
        assert {process.pid for process in engine._idle} & crew

    def test_one_that_is_gone(self, engine, tmp_path, monkeypatch):
        """Whole paths need no folder."""
        (tmp_path / "gone").mkdir()
        monkeypatch.chdir(tmp_path / "gone")
        list(engine.run(SPEC, checks(2)))
        (tmp_path / "gone").rmdir()
        assert [one.error for one in engine.run(SPEC, checks(2))] == [None, None]

    def test_one_that_cannot_be_entered(self, tmp_path, monkeypatch):
        """Elsewhere, the same paths are other files."""
        assert worker._moved(None) is worker._moved(os.getcwd()) is None
        monkeypatch.chdir(tmp_path)
        assert worker._moved(str(tmp_path / "no"))["error"][
            "kind"
        ] == "FileNotFoundError" and os.getcwd() == str(tmp_path)


FORKS = """
import os, signal, sys, time
from tensorwire.datasets.engines.local import LocalEngine
from tensorwire.codecs.conversion_spec import ConversionSpec

def run(engine, count=5):
    return engine.run(ConversionSpec("", ""), [{"do": "check", "number": i, "path": sys.executable} for i in range(count)])

def forked(work):
    child = os.fork()
    if not child:
        work()
        sys.exit()  # with all that is done at an end
    return child

def works(engine):
    before = [process.pid for process in engine._idle]
    assert len(list(run(engine))) == 5 and not set(before) & {process.pid for process in engine._idle}

engine = LocalEngine(workers=1)
engine._processes.forks &= sys.argv[1] == "copies"
list(run(engine))
[process] = engine._idle
for work in (lambda: None, lambda: works(engine), lambda: engine.close(), lambda: engine.prepare(1, ["jsonl"])):
    assert os.waitpid(forked(work), 0)[1] == 0
    assert process.is_alive() and engine._idle == [process]

found = run(engine, 50)
first = next(found)
assert os.waitpid(forked(lambda: None), 0)[1] == 0
rest = list(found)
assert len(rest) == 49 and all(one.attempts == 1 and one.error is None for one in rest)

child = forked(lambda: time.sleep(30))
start = time.monotonic()
engine.close()
took = time.monotonic() - start
os.kill(child, signal.SIGKILL)
os.waitpid(child, 0)
assert took < 1, took
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there are no forks")
@pytest.mark.parametrize("how", ["copies", "new"])
def test_forks_of_the_driver(how):
    """They leave its workers alone, have their own, and do not keep them from ending."""
    ran = subprocess.run(
        [sys.executable, "-c", FORKS, how], capture_output=True, text=True, timeout=60
    )
    assert ran.returncode == 0 and not ran.stderr, ran.stderr


SLOW = """
import sys, time
if "fork_server" in " ".join(sys.orig_argv):
    time.sleep({seconds})
"""


@pytest.mark.skipif(sys.platform != "linux", reason="a fork server is for Linux")
class TestSlowForkServer:
    """Nobody who leaves waits for workers that have not begun, and none of them begins afterwards."""

    @pytest.fixture
    def slow(self, tmp_path, monkeypatch):
        def slow(seconds):
            (tmp_path / "sitecustomize.py").write_text(SLOW.format(seconds=seconds))
            monkeypatch.setenv("PYTHONPATH", str(tmp_path))

        return slow

    def breaking(self, task):
        """Tasks that break off while one waits for its worker."""
        yield task
        time.sleep(0.2)
        raise ZeroDivisionError

    def test_an_error(self, engine, slow, impatient):
        slow(30)
        with within(5), pytest.raises(ZeroDivisionError):
            list(engine.run(SPEC, self.breaking(checks(1)[0])))
        with within(5):
            engine.close()
        assert crew_of(os.getpid()) == ([], [])

    def test_closed(self, engine, slow, impatient):
        slow(30)
        timer = threading.Timer(0.2, engine.close)
        timer.start()
        with within(5), pytest.raises(tw.TensorwireError, match="closed while it was running"):
            list(engine.run(SPEC, checks(5)))
        timer.join()
        assert crew_of(os.getpid()) == ([], [])

    def test_prepared_and_closed(self, engine, slow, impatient):
        slow(30)
        engine.prepare(2, ["jsonl"])
        with within(5):
            engine.close()
        assert crew_of(os.getpid()) == ([], [])

    def test_a_task_is_not_begun(self, engine, slow, tmp_path):
        plan = datasets.plan(
            write(str(tmp_path / "in"), 10, 1), tmp_path / "out", "jsonl", shards=1, workers=0
        )
        os.makedirs(plan.target)
        slow(0.5)
        with pytest.raises(ZeroDivisionError):
            list(engine.run(plan.spec, self.breaking(plan.task(0))))
        assert not os.listdir(plan.target)

    def test_one_that_does_nothing_any_more(self, engine, impatient):
        list(engine.run(SPEC, checks(20)))
        crew = [process.pid for process in engine._idle]
        os.kill(engine._processes._server.pid, signal.SIGSTOP)
        with within(5):
            engine.close()
        until(lambda: not any(runs(pid) for pid in crew), 10)
        assert crew and crew_of(os.getpid()) == ([], [])


class TestDescriptors:
    def test_many(self, engine):
        """Beyond those that select knows."""
        resource = importlib.import_module("resource")
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        if hard != resource.RLIM_INFINITY and hard < 1200:
            pytest.skip("there are not so many")
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 1200), hard))
        try:
            with contextlib.ExitStack() as files:
                for _ in range(1030):
                    files.enter_context(open(os.devnull))
                engine.prepare(1, ["jsonl"])
                engine.close()
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        assert crew_of(os.getpid()) == ([], [])

    @pytest.mark.skipif(sys.platform != "linux", reason="a fork server is for Linux")
    @pytest.mark.parametrize("calls", [0, 1])
    def test_none_left_for_a_worker(self, engine, monkeypatch, calls):
        """What was opened for it is closed."""
        engine.prepare(0, [])  # the fork server has its own
        pipe, left = os.pipe, iter(range(calls))

        def failing():
            if next(left, None) is None:
                raise OSError(24, "Too many open files")
            return pipe()

        before = len(os.listdir("/proc/self/fd"))
        monkeypatch.setattr(os, "pipe", failing)
        with pytest.raises(OSError, match="Too many"):
            engine._processes.start()
        assert len(os.listdir("/proc/self/fd")) == before

    def test_the_fork_server_ends_whatever_happens(self, engine, monkeypatch):
        engine.prepare(2, ["jsonl"])
        end = processes.Process.end

        def broken(self):
            end(self)
            raise ZeroDivisionError

        with monkeypatch.context() as patch, pytest.raises(ZeroDivisionError):
            patch.setattr(processes.Process, "end", broken)
            engine.close()
        assert crew_of(os.getpid()) == ([], [])
        engine.close()


def test_errors_travel():
    for error in (
        tw.DecodeError("bad", path="a", record=3, offset=9),
        tw.LimitError("much"),
        FileNotFoundError("gone"),
        tw.TransportError("broke"),
    ):
        back = errors_as_json.unpacked(errors_as_json.packed(error))
        assert type(back) is type(error) and str(back) == str(error)
    assert isinstance(
        errors_as_json.unpacked({"kind": "ZeroDivisionError", "message": "x"}), tw.TensorwireError
    )
    assert (
        errors_as_json.passing(tw.TransportError("x"))
        and not errors_as_json.passing(tw.DecodeError("x"))
        and not errors_as_json.passing(FileNotFoundError("x"))
    )


def test_unknown_engine(tmp_path):
    with pytest.raises(tw.UnknownFormatError, match="local, ray"):
        datasets.convert(write(str(tmp_path), 2, 1), tmp_path / "out", "parquet", engine="rey")


@pytest.fixture(scope="module")
def cluster():
    ray_engine = importlib.import_module("tensorwire.datasets.engines.ray")
    engine = ray_engine.RayEngine(workers=2)
    yield engine
    engine.close()


def parent(pid):
    with open(f"/proc/{pid}/stat") as file:
        return int(file.read().rpartition(")")[2].split()[1])


def kill_a_ray_worker():
    """The process that was killed, of our own cluster and at a task (they say so in their names);
    none if none was.
    """
    for pid in [int(name) for name in os.listdir("/proc") if name.isdigit()]:
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            words = Path(f"/proc/{pid}/cmdline").read_bytes()
            if words.startswith(b"ray::_answer") and parent(parent(pid)) == os.getpid():
                os.kill(pid, signal.SIGKILL)
                return pid
    return None


_CLUSTER = """
import ray, sys
ray.init(address="local", num_cpus=1, include_dashboard=False, log_to_driver=False, configure_logging=False, _node_ip_address="127.0.0.1")
print(ray.get_runtime_context().gcs_address, flush=True)
sys.stdin.read()
"""


@pytest.mark.ray
class TestRay:
    def test_joins_a_cluster(self, tmp_path):
        """One that somebody else has started, and that goes on afterwards."""
        source = write(str(tmp_path / "in"), 100, 4)
        around = os.environ | {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": "of-this-test" * 4}
        theirs = subprocess.Popen(
            [sys.executable, "-c", _CLUSTER],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=around,
        )
        try:
            address = theirs.stdout.readline().strip()
            for out in ("a", "b"):
                words = [
                    "convert",
                    source,
                    tmp_path / out,
                    "--to",
                    "tfrecord",
                    "--engine",
                    "ray",
                    "--address",
                    address,
                ]
                done = cli.run(*words, env=around, timeout=120)
                assert done.returncode == 0, done.stderr
                assert records(f"{tmp_path}/{out}/*.tfrecord") == records(source)
        finally:
            theirs.communicate("", timeout=60)

    def test_conformance(self, cluster):
        assert check_engine(cluster) == {"shards": 12, "records": 300}

    def test_a_worker_is_killed(self, cluster, tmp_path):
        source = write(str(tmp_path / "in"), 4000, 200)
        out = str(tmp_path / "out")
        killed = []

        def kill():
            until(lambda: done(out) >= 10)
            until(lambda: killed.append(kill_a_ray_worker()) or killed[-1])

        thread = threading.Thread(target=kill)
        thread.start()
        report = datasets.convert(source, out, "parquet", engine=cluster)
        assert report.records == 4000 and done(out) == 200
        thread.join()
        assert killed[-1]
        datasets.convert(out, tmp_path / "back", "tfrecord", engine=cluster)
        assert records(f"{tmp_path}/back/*.tfrecord") == records(source)


def test_places_of_modules_that_are_no_text(monkeypatch, tmp_path):
    """Python passes over them, and so do workers."""
    monkeypatch.setattr(sys, "path", [*sys.path, tmp_path, b"bytes"])
    tw.write_examples(tmp_path / "a.tfrecord", {"x": np.arange(4)}, shards=2)
    assert (
        tw.convert(f"{tmp_path}/a-*.tfrecord", tmp_path / "out", to="jsonl", workers=2).records == 4
    )
