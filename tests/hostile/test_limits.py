"""One budget for one call: what data expands to is summed, whatever expands it, and memory stays
within promise 13.
"""

import gzip
import importlib
import io
import json
import os
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

import tensorwire as tw
from support.protos import block, field, shape_field, varint
from support.tiers import TESTS
from tensorwire import cli
from tensorwire.serving.rpc import messages
from tensorwire.wire import tfrecord

MiB = 1 << 20
ALLOWED = 128 * MiB
"""What a small input may expand to by default."""


def proto(enum, dims, *parts):
    return field(1, 0, varint(enum)) + shape_field(dims) + b"".join(parts)


def packed_safetensors(parts, size):
    """A hostile file: each part is a table of constant planes, a few bytes that become `size`."""
    blob = tw.dumps(
        {f"x{i}": np.zeros(size, np.uint8) for i in range(2)}, compression="zstd", per_tensor=True
    )
    length = int.from_bytes(blob[:8], "little")
    header = json.loads(blob[8 : 8 + length])
    ours = json.loads(header["__metadata__"]["tensorwire"])
    start, stop = header["x0"]["data_offsets"]
    part = blob[8 + length + start : 8 + length + stop]
    names = [f"x{i}" for i in range(parts)]
    entry = ours["spec"]["parts"][0]
    ours["spec"] = {"packed": {"dict": {name: {} for name in names}}, "parts": [entry] * parts}
    new = {"__metadata__": {"tensorwire": json.dumps(ours)}}
    for i, name in enumerate(names):
        new[name] = {
            "dtype": "U8",
            "shape": [len(part)],
            "data_offsets": [i * len(part), (i + 1) * len(part)],
        }
    text = json.dumps(new).encode()
    return len(text).to_bytes(8, "little") + text + part * parts


def splat(size):
    """A TensorProto of float32 with one value."""
    return proto(1, [size // 4], block(5, b"\0\0\x80?"))


def splats(count, size):
    """A value of ours whose parts are splats."""
    elements = [json.dumps({"list": count}).encode(), *[splat(size)] * count]
    dim = field(1, 0, varint(count + 1)) + block(2, b"tensorwire/1")
    return (
        field(1, 0, varint(7))
        + block(2, block(2, dim))
        + b"".join(block(8, element) for element in elements)
    )


def answer(count, size):
    """A gRPC answer whose outputs are splats."""
    return b"".join(block(1, block(1, b"y%d" % i) + block(2, splat(size))) for i in range(count))


def npz(count, size):
    stream = io.BytesIO()
    np.savez_compressed(stream, **{f"x{i}": np.zeros(size, np.uint8) for i in range(count)})
    return stream.getvalue()


def columns(format, count, size):
    """As pyarrow writes them, without our padding."""
    pa = importlib.import_module("pyarrow")
    table = pa.table({f"x{i}": np.zeros(size, np.uint8) for i in range(count)})
    stream = io.BytesIO()
    if format == "parquet":
        importlib.import_module("pyarrow.parquet").write_table(
            table, stream, compression="zstd", use_dictionary=False
        )
    else:
        with pa.ipc.new_file(
            stream, table.schema, options=pa.ipc.IpcWriteOptions(compression="zstd")
        ) as writer:
            writer.write_table(table)
    return stream.getvalue()


def runs(rows):
    """A column of one value in a dictionary, so that its pages are a few bytes."""
    pa = importlib.import_module("pyarrow")
    stream = io.BytesIO()
    table = pa.table({"x": pa.array(np.full(rows, 7, np.int64))})
    importlib.import_module("pyarrow.parquet").write_table(table, stream, compression="none")
    return stream.getvalue()


def hdf5(count, size):
    h5py = importlib.import_module("h5py")
    stream = io.BytesIO()
    with h5py.File(stream, "w") as file:
        for i in range(count):
            file.create_dataset(
                f"x{i}", data=np.zeros(size, np.uint8), chunks=(MiB,), compression="gzip"
            )
    return stream.getvalue()


def quantized(size):
    """Codes that are allowed, and floats that are not."""
    blob = tw.dumps(
        np.zeros(size, np.float64), quantize="int8", compression="zstd", per_tensor=True
    )
    return (
        blob
        if len(blob) < 100_000
        else gzip.compress(tw.dumps(np.zeros(size, np.float64), quantize="int8"))
    )


BOMBS = {
    "packed parts": lambda: packed_safetensors(60, 16 * MiB),
    "splats in a value": lambda: splats(20, 60 * MiB),
    "one splat": lambda: splat(2000 * MiB),
    "strings repeated": lambda: proto(7, [1 << 28], block(8, b"")),
    "npz": lambda: npz(10, 40 * MiB),
    "arrow": lambda: columns("arrow", 10, 40 * MiB),
    "parquet": lambda: columns("parquet", 10, 40 * MiB),
    "parquet runs": lambda: runs(60_000_000),
    "hdf5": lambda: hdf5(10, 40 * MiB),
    "gzip": lambda: gzip.compress(bytes(400 * MiB)),
    "gzip in members": lambda: gzip.compress(bytes(40 * MiB)) * 10,
    "a stream of splats": lambda: gzip.compress(splats(4, 60 * MiB)),
    "quantized": lambda: quantized(20_000_000),
    "json in gzip": lambda: gzip.compress(b"[" + b"0," * (40 * MiB) + b"0]"),
    "empty strings of npy": lambda: empty_strings(1 << 28),
}


def empty_strings(count):
    """A header alone: strings of no characters."""
    text = f"{{'descr': '<U0', 'fortran_order': False, 'shape': ({count},), }}".encode()
    text += b" " * (-(len(text) + 11) % 64) + b"\n"
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text


PEAK = """
import os, sys
import numpy as np
import tensorwire as tw
from tensorwire import cli
from tensorwire.serving.rpc import messages

def resident(word):
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) for line in file if line.startswith(word)) * 1024

def read(way, path):
    data = open(path, "rb").read()
    if way == "answer":
        return messages.parse_predict_answer(data)
    if way == "records":
        return [len(batch) for batch in tw.RecordReader(path)]
    if way == "load":
        return tw.load(path)
    return tw.loads(data)

tw.loads(tw.dumps(np.zeros(3), compression="gzip"))
for way, path in zip(sys.argv[1::2], sys.argv[2::2]):
    try:
        import gc
        gc.collect()
        before = resident("VmRSS")
        with open("/proc/self/clear_refs", "w") as file:
            file.write("5")
        value = read(way, path)
        outcome = "value"
    except tw.LimitError:
        outcome = "LimitError"
    value = None
    allowed = (64 << 20) + 1.1 * ((128 << 20) + 200 * os.path.getsize(path))
    print(os.path.basename(path), outcome, int(resident("VmHWM") - before <= allowed), resident("VmHWM") - before, sep="\\t")
"""


def peaks(cases, folder):
    """{name: (what came of it, whether memory stayed within promise 13, bytes)}"""
    arguments = []
    for name, (way, blob) in cases.items():
        (folder / name).write_bytes(blob)
        arguments += [way, str(folder / name)]
    command = [sys.executable, "-c", PEAK, *arguments]
    found = subprocess.run(command, capture_output=True, text=True, cwd=TESTS)
    assert found.returncode == 0, found.stderr[-2000:]
    rows = [line.split("\t") for line in found.stdout.splitlines()]
    return {name: (outcome, within == "1", int(size)) for name, outcome, within, size in rows}


@pytest.mark.large
@pytest.mark.skipif(
    not os.path.exists("/proc/self/clear_refs"), reason="peaks are measured on Linux"
)
def test_memory_is_within_the_budget_whatever_expands(tmp_path):
    cases = {name: ("loads", make()) for name, make in BOMBS.items()}
    cases["answer"] = ("answer", answer(40, 64 * MiB))
    assert len(cases["answer"][1]) < 2000 and len(cases["splats in a value"][1]) < 2000
    cases["records"] = ("records", gzip.compress(_record(bytes(300 * MiB))))
    found = peaks(cases, tmp_path)
    assert {name: row[:2] for name, row in found.items()} == dict.fromkeys(
        cases, ("LimitError", True)
    ), found


def test_parts_of_a_call_are_summed():
    """Each part alone is allowed; all of them are not."""
    few, many = packed_safetensors(3, 16 * MiB), packed_safetensors(9, 16 * MiB)
    assert [x.nbytes for x in tw.loads(few).values()] == [16 * MiB] * 3
    with pytest.raises(tw.LimitError) as caught:
        tw.loads(many)
    assert caught.value.format in ("safetensors", "zstd") and caught.value.offset is not None
    assert len(tw.loads(many, limits=tw.Limits(expansion=200 * MiB))) == 9


def test_each_read_of_an_open_file_is_a_call():
    blob = packed_safetensors(9, 16 * MiB)
    with tw.open(blob) as file:
        assert all(file[name].read().nbytes == 16 * MiB for name in file)
        assert file["x0"][:10].tolist() == [0] * 10
        with pytest.raises(tw.LimitError):
            file.load()
        assert file["x8"].read().nbytes == 16 * MiB


def test_threads_do_not_share_a_budget():
    blob, errors = packed_safetensors(8, 16 * MiB), []
    with tw.open(blob, limits=tw.Limits(expansion=17 * MiB, expansion_ratio=0)) as file:

        def work(name):
            try:
                for _ in range(5):
                    file[name].read()
            except tw.TensorwireError as error:
                errors.append(error)

        threads = [threading.Thread(target=work, args=(f"x{i}",)) for i in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert not errors


def test_a_stream_and_what_is_in_it_draw_on_one_budget():
    inner = tw.dumps(
        {f"x{i}": np.zeros(30 * MiB, np.uint8) for i in range(2)},
        compression="zstd",
        per_tensor=True,
    )
    blob = gzip.compress(inner)
    limits = tw.Limits(expansion=61 * MiB, expansion_ratio=0)
    assert len(tw.loads(blob, limits=limits)) == 2
    with pytest.raises(tw.LimitError):
        tw.loads(gzip.compress(splats(3, 21 * MiB)), "tensorproto", "gzip", limits=limits)
    assert len(tw.loads(splats(3, 20 * MiB), limits=limits)) == 3


def test_answers_are_bounded_decoded():
    few = answer(2, 16 * MiB)
    assert sum(y.nbytes for y in messages.parse_predict_answer(few)[1].values()) == 32 * MiB
    with pytest.raises(tw.LimitError):
        messages.parse_predict_answer(few, tw.Limits(answer=20 * MiB))
    with pytest.raises(tw.LimitError):
        messages.parse_predict_answer(answer(40, 64 * MiB))
    ones = block(1, block(1, b"y") + block(2, proto(9, [1000], block(10, b"\x01" * 1000))))
    assert messages.parse_predict_answer(ones, tw.Limits(answer=8000))[1]["y"].nbytes == 8000
    with pytest.raises(tw.LimitError):
        messages.parse_predict_answer(ones, tw.Limits(answer=7999))


class TestWritersStayInside:
    def test_zeros_of_numpy_and_ours(self, tmp_path):
        zeros = np.zeros(32 * MiB, np.uint8)
        tw.save(tmp_path / "z.npz", {"z": zeros}, compression="zlib")
        assert tw.equal(tw.load(tmp_path / "z.npz"), {"z": zeros})
        assert tw.equal(tw.loads(npz(1, 32 * MiB)), {"x0": zeros})

    def test_many_tensors_of_zeros(self):
        """Each is packed alone, and all of them are read at once."""
        value = {f"x{i}": np.zeros(20 * MiB, np.uint8) for i in range(10)}
        blob = tw.dumps(value, compression="zstd", per_tensor=True)
        assert len(blob) < 2 * MiB and tw.equal(tw.loads(blob), value)

    @pytest.mark.parametrize("options", [{}, {"per_tensor": True}])
    def test_quantized_zeros(self, options):
        zeros = np.zeros(40 * MiB, np.float32)
        blob = tw.dumps(zeros, quantize="int8", compression="zstd", **options)
        assert tw.equal(tw.loads(blob), zeros)


@pytest.fixture
def run(capsys):
    """(status, standard output, standard error) of a command"""

    def run(*words):
        status = cli.main(list(words))
        return status, *capsys.readouterr()

    return run


LOW = "expansion=1MB"
"""For files of a few kilobytes: then 4 MiB of zeros are too many."""


class TestCommand:
    @pytest.fixture
    def path(self, tmp_path):
        (tmp_path / "z.npz").write_bytes(npz(1, 4 * MiB))
        return str(tmp_path / "z.npz")

    def test_verify(self, path):
        low = tw.Limits(expansion=1_000_000)
        with pytest.raises(tw.LimitError):
            tw.load(path, limits=low)
        found = tw.verify(path, limits=low)
        assert (found.ok, found.beyond_limits, len(found.problems)) == (False, True, 1)
        assert tw.verify(path).ok
        Path(path).write_bytes(Path(path).read_bytes()[:-100])
        found = tw.verify(path, limits=low)
        assert (found.ok, found.beyond_limits) == (False, False)

    def test_limit(self, run, path, tmp_path):
        status, out, _ = run("verify", path, "--json", "--limit", LOW)
        assert (status, json.loads(out)["ok"], json.loads(out)["beyond_limits"]) == (1, False, True)
        status, out, _ = run(
            "verify", path, "--json", "--limit", "expansion=4GiB", "--limit", "names=10"
        )
        assert (status, json.loads(out)["ok"]) == (0, True)
        target = str(tmp_path / "z.safetensors")
        status, _, error = run("convert", path, target, "--limit", LOW)
        assert status == 1 and "--limit expansion=" in error
        assert run("convert", path, target)[0] == 0
        assert [
            run("diff", path, target, "--limit", limit)[0] for limit in (LOW, "expansion=1GB")
        ] == [1, 0]
        assert [run("show", path, "--limit", limit)[0] for limit in (LOW, "expansion=1GB")] == [
            1,
            0,
        ]
        assert run("profile", path, "--limit", LOW)[0] == 1
        assert run("inspect", path, "--limit", LOW)[0] == 0  # reads no data

    @pytest.mark.parametrize("text", ["expansion", "nothing=1", "names=many", "=3"])
    def test_wrong_limits_are_usage_errors(self, run, path, text):
        assert run("inspect", path, "--limit", text)[0] == 2

    def test_records(self, run, tmp_path):
        path = tmp_path / "a.tfrecord.gz"
        path.write_bytes(gzip.compress(b"".join(_record(bytes(100_000)) for _ in range(40))))
        found = tw.verify(path, limits=tw.Limits(expansion=1_000_000))
        assert (found.ok, found.beyond_limits) == (False, True)
        for words in (["count"], ["schema", "--full"], ["show", "-n", "0"], ["repair"]):
            assert run(*words, str(path), "--limit", LOW)[0] == 1
        status, out, _ = run("count", str(path), "--json")
        assert (status, json.loads(out)["records"]) == (0, 40)


def _record(data):
    return tfrecord.header(len(data)) + data + tfrecord.footer([data])


@pytest.mark.parametrize(
    ("suffix", "options"),
    [
        ("npz", {"compression": "zlib"}),
        ("safetensors", {"compression": "zlib", "per_tensor": True}),
    ],
)
def test_tensors_that_are_loaded_by_name_share_a_budget(tmp_path, suffix, options):
    path, zeros = tmp_path / f"x.{suffix}", np.zeros(60_000, np.uint8)
    tw.save(path, dict.fromkeys("abc", zeros), **options)
    limits = tw.Limits(expansion=100_000, expansion_ratio=0)
    with pytest.raises(tw.LimitError):
        tw.load(path, names=list("abc"), limits=limits)
    assert len(tw.load(path, names=["a"], limits=limits)) == 1
    with tw.open(path, limits=limits) as file:
        assert [file[name].read().nbytes for name in file] == [60_000] * 3
