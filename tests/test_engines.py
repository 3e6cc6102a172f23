"""Both engines do the same, and neither loses a record when a worker dies."""

import importlib
import os
import signal
import threading

import pytest
from test_datasets import done, records, until, write

import tensorwire as tw
from tensorwire import datasets
from tensorwire.datasets.engines import faults
from tensorwire.datasets.engines.local import LocalEngine
from tensorwire.testing import check_engine

pytestmark = pytest.mark.arrow


@pytest.mark.parametrize("workers", [0, 1, 2])
def test_local(workers):
    engine = LocalEngine(workers=workers)
    assert check_engine(engine) == {"shards": 12, "records": 300}
    engine.close()


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


def ray_workers():
    """Ray's processes that are at a task: they say so in their names."""
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open(f"/proc/{name}/cmdline", "rb") as file:
                    if file.read().startswith(b"ray::answer"):
                        found.append(int(name))
            except (FileNotFoundError, ProcessLookupError):
                pass
    return found


@pytest.mark.ray
class TestRay:
    def test_conformance(self, cluster):
        assert check_engine(cluster) == {"shards": 12, "records": 300}

    def test_a_worker_is_killed(self, cluster, tmp_path):
        source = write(str(tmp_path / "in"), 4000, 200)
        out = str(tmp_path / "out")
        killed = []

        def kill():
            until(lambda: done(out) >= 10)
            until(ray_workers)
            for pid in ray_workers()[:1]:
                os.kill(pid, signal.SIGKILL)
                killed.append(pid)

        thread = threading.Thread(target=kill)
        thread.start()
        report = datasets.convert(source, out, "parquet", engine=cluster)
        thread.join()
        assert killed and report.records == 4000
        datasets.convert(out, tmp_path / "back", "tfrecord", engine=cluster)
        assert records(f"{tmp_path}/back/*.tfrecord") == records(source)
