"""Both engines do the same, and neither loses a record when a worker dies."""

import contextlib
import importlib
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import cli
import pytest
from test_datasets import crew_of, done, records, until, write

import tensorwire as tw
from tensorwire import datasets
from tensorwire.datasets.engines import faults
from tensorwire.datasets.engines.local import LocalEngine
from tensorwire.testing import check_engine

pytestmark = pytest.mark.arrow


@pytest.mark.parametrize("copies", [True, False])
@pytest.mark.parametrize("workers", [0, 1, 2])
def test_local(workers, copies):
    engine = LocalEngine(workers=workers)
    engine._processes.copies &= copies
    assert check_engine(engine) == {"shards": 12, "records": 300}
    assert engine._processes.copies is (copies and sys.platform == "linux")
    engine.close()


@pytest.mark.skipif(sys.platform != "linux", reason="a nursery is for Linux")
def test_a_nursery_with_threads_makes_no_copies(tmp_path, monkeypatch):
    """Their threads would be lost, and whatever they hold would stay held: workers are then processes of their own."""
    (tmp_path / "sitecustomize.py").write_text(
        "import threading, time\nthreading.Thread(target=time.sleep, args=(60,), daemon=True).start()\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    engine = LocalEngine(workers=2)
    report = datasets.convert(write(str(tmp_path / "in"), 100, 4), tmp_path / "out", "parquet", engine=engine)
    assert (report.records, report.retried) == (100, 0) and not engine._processes.copies
    engine.close()


def test_workers_are_used_again(tmp_path):
    """The same processes count, convert and convert again; one that died meanwhile is replaced, and the end is the end of all."""
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
    assert report.retried == 0 and report.records == 100 and first.pid not in {process.pid for process in engine._idle}
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


def test_errors_travel():
    for error in (
        tw.DecodeError("bad", path="a", record=3, offset=9),
        tw.LimitError("much"),
        FileNotFoundError("gone"),
        tw.TransportError("broke"),
    ):
        back = faults.unpacked(faults.packed(error))
        assert type(back) is type(error) and str(back) == str(error)
    assert isinstance(faults.unpacked({"kind": "ZeroDivisionError", "message": "x"}), tw.TensorwireError)
    assert faults.passing(tw.TransportError("x")) and not faults.passing(tw.DecodeError("x")) and not faults.passing(FileNotFoundError("x"))


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
    """The process that was killed, of our own cluster and at a task (they say so in their names); none if none was."""
    for pid in [int(name) for name in os.listdir("/proc") if name.isdigit()]:
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            words = Path(f"/proc/{pid}/cmdline").read_bytes()
            if words.startswith(b"ray::answer") and parent(parent(pid)) == os.getpid():
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
        theirs = subprocess.Popen([sys.executable, "-c", _CLUSTER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=around)
        try:
            address = theirs.stdout.readline().strip()
            for out in ("a", "b"):
                words = ["convert", source, tmp_path / out, "--to", "tfrecord", "--engine", "ray", "--address", address]
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
