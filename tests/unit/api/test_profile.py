"""tw.profile: what it measures is true and can be repeated, it keeps its time, its reasons are
right, and it shows itself safely.
"""

import gc
import io
import json
import subprocess
import sys
import time
import tracemalloc
from xml.etree import ElementTree

import numpy as np
import pytest

import tensorwire as tw
from tensorwire._errors import MissingDependencyError
from tensorwire.api import values as api
from tensorwire.api.profiling import Profile, candidates, choosing, measuring, plot, profile, values
from tensorwire.api.profiling.progress import ProfileProgress
from tensorwire.api.profiling.result import Measurement

RNG = np.random.default_rng(5)
SPLITS = np.array([0, 3, 3, 10, 12], np.int64)
VALUES = {
    "dense": np.cumsum(RNG.standard_normal((32, 25)).astype(np.float32), axis=1),
    "ids": RNG.integers(0, 30_000, 500),
    "big-endian": np.arange(40.0).astype(">f8").reshape(8, 5),
    "bfloat16": tw.tensor(RNG.standard_normal(64)).astype("bfloat16"),
    "text": tw.Strings.of(["tensor", "", "é中🙂", "wire"] * 20),
    "bytes": tw.Strings.of([b"\xff", b"nul\0"], (2, 1)),
    "sparse": tw.Sparse(
        np.column_stack([np.arange(50), np.arange(50) % 7]), RNG.standard_normal(50), (50, 7)
    ),
    "ragged": tw.Ragged(RNG.standard_normal(12).astype(np.float32), SPLITS),
    "ragged text": tw.Ragged(tw.Strings.of([f"w{i}" for i in range(12)]), SPLITS),
    "nested": {
        "w": RNG.standard_normal((30, 30)),
        "layers": [{"b": np.float16([1, 2.5])}, (1, None, "x")],
        "n": {"lr": 0.1},
    },
    "bundle": tw.Bundle({"x": np.float32([1, 2])}, {"model": "nmt"}),
    "scalar": np.float32(7),
    "empty": np.zeros((0, 3), np.float32),
    "python": {"lr": 0.1, "tags": ["a", b"b"]},
    # with a payload, -0.0, -inf
    "nan": np.array([0x7FF8000000000001, 1 << 63, 0xFFF0000000000000], np.uint64).view(np.float64),
    "quantized": {"w": tw.quantize(np.float32([1, 2, 3]), "int8"), "x": np.float32([1])},
}


def plain(value, **options):
    """The quickest profile there is."""
    return profile(
        value,
        **{"formats": ["safetensors", "raw"], "compressions": (), "quantize": False} | options,
    )


@pytest.mark.slow
@pytest.mark.parametrize("kind", VALUES)
def test_every_measurement_is_true_and_can_be_repeated(kind):
    value = VALUES[kind]
    found = profile(value, seconds=20)
    assert found.wrong == {}
    assert {one.format for one in found} | {way.split()[0] for way in found.skipped} == set(
        tw.formats()
    )
    assert not found.sampled and found.nbytes == values.nbytes(value)
    for one in found:
        blob = tw.dumps(value, **one.options)
        assert len(blob) == one.size, one.way
        back = tw.loads(blob, **one.reading)
        assert tw.equal(back, value) is one.exact
        assert one.exact or (
            one.lossy and values.difference(value, back) == (one.max_error, one.mean_error)
        )
        assert (
            0 < one.encode_seconds <= one.encode_median < 5
            and 0 < one.decode_seconds <= one.decode_median < 5
        )
        assert one.repetitions >= 1 and (not one.exact or (one.max_error, one.mean_error) == (0, 0))
    for what in choosing.WHAT:
        best = found.best(what)
        assert tw.equal(
            tw.loads(tw.dumps(value, **best.options), **best.reading), value
        ) and best.why.startswith(f"{best.way}: ")


def test_everything_that_fits_is_measured():
    profiled = profile(VALUES["dense"], seconds=30)
    found = {one.way for one in profiled}
    assert {"safetensors", "tensorproto", "npy", "npz", "arrow", "protobuf", "json", "raw"} <= found
    for name, row in tw.formats().items():
        for compression in row.compressions or ("gzip", "zlib", "zstd", "lz4", "snappy"):
            assert f"{name} + {compression}" in (found if name in found else profiled.skipped)
    for compression in ("gzip", "zlib", "zstd", "lz4", "snappy"):
        assert f"safetensors + shuffle + {compression}" in found
    for scheme in ("float16", "bfloat16", "float8_e4m3fn", "float8_e5m2", "int8", "uint8", "int4"):
        assert {f"safetensors + {scheme}", f"safetensors + {scheme} + zstd"} <= found


def test_what_is_asked_for_is_tried_and_nothing_else():
    found = profile(
        VALUES["dense"],
        formats="npz",
        compressions=["zlib", "zlib:9", "lz4"],
        quantize="int8",
        threads=1,
    )
    assert {one.way for one in found} == {
        "npz",
        "npz + zlib",
        "npz + zlib:9",
        "npz + int8",
        "npz + int8 + zlib",
    }
    assert found.skipped == {"npz + lz4": "npz compresses by itself, with zlib, gzip"}
    assert next(one for one in found if one.level == 9).options == {
        "format": "npz",
        "compression": "zlib",
        "level": 9,
        "threads": 1,
    }
    assert {
        one.quantize for one in profile(VALUES["dense"], formats="safetensors", compressions=())
    } > {None, "int8", "float16"}
    assert {
        one.quantize for one in profile(VALUES["ids"], formats="safetensors", compressions=())
    } == {None}
    assert [
        one.way for one in profile(VALUES["dense"], formats=["raw", "raw"], compressions="zlib")
    ] != []


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"formats": "safetensor"}, tw.UnknownFormatError),
        ({"compressions": "ztsd"}, tw.UnknownFormatError),
        ({"compressions": "gzip:x"}, ValueError),
        ({"quantize": "int9"}, tw.UnknownFormatError),
        ({"seconds": -1}, ValueError),
        ({"seconds": float("nan")}, ValueError),
        ({"formats": ()}, tw.EncodeError),
        ({"sample": 0}, ValueError),
        ({"threads": 0}, ValueError),
    ],
)
def test_wrong_arguments(options, error):
    with pytest.raises(error):
        profile(VALUES["dense"], **options)


def test_a_value_that_no_format_takes():
    with pytest.raises(tw.EncodeError, match="set"):
        profile({1, 2})
    with pytest.raises(tw.EncodeError, match="raw holds one dense tensor"):
        profile(VALUES["ragged"], formats="raw")


def test_what_is_the_same_is_measured_once():
    found = profile(np.arange(9), formats="safetensors", compressions="zlib")
    assert {one.way for one in found} == {"safetensors", "safetensors + zlib"}
    assert "the same as without" in found.skipped["safetensors + shuffle + zlib"]


def test_levels_that_there_are_not():
    found = profile(
        VALUES["ids"],
        formats=["safetensors", "npz"],
        compressions=["zlib:77", "snappy:3", "zlib:1"],
    )
    assert found.wrong == {} and {one.way for one in found} >= {
        "safetensors + zlib:1",
        "npz + zlib:1",
    }
    assert (
        "level 77" in found.skipped["safetensors + zlib:77"]
        and "level 77" in found.skipped["npz + zlib:77"]
    )
    assert "no levels" in found.skipped["safetensors + snappy:3"]


def test_refusals_say_why_and_are_not_tried_again():
    found = profile(VALUES["ragged"], formats=["raw", "safetensors"], compressions=["gzip"])
    assert (
        "raw holds one dense tensor" in found.skipped["raw"]
        and found.skipped["raw + gzip"] == found.skipped["raw"]
    )


def test_missing_packages_say_how_to_get_them(monkeypatch):
    real = api.dumps

    def dumps(value, format="safetensors", **options):
        if options.get("compression") == "zstd":
            raise MissingDependencyError("this needs zstd: pip install 'tensorwire[compress]'")
        return real(value, format, **options)

    monkeypatch.setattr(api, "dumps", dumps)
    found = profile(VALUES["ids"], formats="safetensors", compressions=["zstd", "zlib"])
    assert "pip install" in found.skipped["safetensors + zstd"] and "safetensors + zlib" in {
        one.way for one in found
    }


def test_a_defect_of_ours_is_not_hidden(monkeypatch):
    real = api.loads

    def loads(data, format=None, **options):
        if format == "tensorproto":
            raise tw.DecodeError("a field <i>runs</i> past the end", format=format, offset=3)
        back = real(data, format, **options)
        return back + 1 if format == "raw" else back

    monkeypatch.setattr(api, "loads", loads)
    found = profile(
        VALUES["ids"], formats=["raw", "safetensors", "tensorproto"], compressions=["zlib"]
    )
    assert (
        found.wrong["raw"] == "the decoded value is different"
        and "runs" in found.wrong["tensorproto"]
    )
    assert {one.format for one in found} == {"safetensors"} and "raw + zlib" in found.skipped
    assert "WRONG: raw: " in str(found) and "2 WRONG" in repr(found)
    assert found._repr_html_().count("WRONG") == 2 and "&lt;i&gt;" in found._repr_html_()
    assert set(found.json()["wrong"]) == {"raw", "tensorproto"}


# Time and memory.


def slow(monkeypatch, seconds):
    """Every call takes so long, and calls are counted; warming up is left out."""
    calls = []
    monkeypatch.setattr(measuring, "_warm", lambda options, way: None)
    for name in ("dumps", "loads"):
        real = getattr(api, name)

        def call(*arguments, real=real, **options):
            calls.append(real)
            time.sleep(seconds)
            return real(*arguments, **options)

        monkeypatch.setattr(api, name, call)
    return calls


@pytest.mark.timing
def test_the_time_is_kept(monkeypatch):
    calls = slow(monkeypatch, 0.1)
    start = time.perf_counter()
    found = profile(VALUES["ids"], seconds=0.75)
    took = time.perf_counter() - start
    assert took < 0.75 + 0.1 + 0.2  # one call, and what we do ourselves
    assert 0.5 < found.seconds <= took and len(calls) <= 9 and found.wrong == {}
    assert len(found) >= 2 and any("out of time" in why for why in found.skipped.values())
    assert all(one.encode_seconds >= 0.1 for one in found)


def test_at_least_one_way_is_measured_whatever_the_time():
    found = profile(VALUES["ids"], seconds=0)
    assert [(one.way, one.repetitions) for one in found] == [("safetensors", 1)]
    assert set(found.skipped.values()) == {"out of time"}


def test_what_would_not_end_in_time_is_not_begun(monkeypatch):
    slow(monkeypatch, 0.05)
    work = measuring.Measuring(VALUES["ids"], 100.0, None, ProfileProgress(False))
    for way in (
        candidates.Candidate("safetensors"),
        candidates.Candidate("raw"),
        candidates.Candidate("safetensors", "zlib"),
    ):
        work._first(way)
    rate = work._rates["zlib", None, False]
    work._rates["zlib", None, False] = rate + 1.0  # a second a byte
    work._first(candidates.Candidate("raw", "zlib"))
    assert work.skipped["raw + zlib"] == "out of time: it would not end in time"


def test_small_values_do_not_take_the_whole_time():
    start = time.perf_counter()
    found = plain(np.float32([1, 2]), seconds=30)
    assert time.perf_counter() - start < 5
    assert [one.repetitions for one in found] == [measuring.ROUNDS + 2] * 2
    assert all(1e-8 < one.encode_seconds < 1e-3 for one in found)


def test_views_are_told_apart_from_copies():
    found = profile(
        np.zeros(100_000, np.float32),
        formats=["safetensors", "tensorproto"],
        compressions=["gzip"],
        quantize=False,
    )
    views = {one.way: one.view_seconds for one in found}
    # whose data is at an odd place
    assert views["safetensors + gzip"] is None and views["tensorproto"] is None
    safetensors = next(one for one in found if one.way == "safetensors")
    assert 0 < safetensors.view_seconds < safetensors.decode_seconds


@pytest.mark.parametrize("on", [True, False])
def test_the_collector_is_left_as_it_was(on):
    was = gc.isenabled()
    try:
        (gc.enable if on else gc.disable)()
        plain(np.zeros(3))
        assert gc.isenabled() is on
        with pytest.raises(tw.EncodeError):
            plain({"a": 1}, formats="raw")
        assert gc.isenabled() is on
    finally:
        (gc.enable if was else gc.disable)()


@pytest.mark.large
def test_encodings_do_not_pile_up():
    value = RNG.integers(0, 256, 2_000_000).astype(np.uint8)
    which = {"formats": ["safetensors", "tensorproto", "raw"], "compressions": ["gzip", "zlib"]}
    profile(value[:10_000], **which)  # so that what is loaded once is not counted
    tracemalloc.start()
    try:
        found = profile(value, **which)
        assert len(found) >= 9 and tracemalloc.get_traced_memory()[1] < 8 * value.nbytes
    finally:
        tracemalloc.stop()


# Samples.


def test_large_values_are_measured_on_a_sample_and_say_so():
    value = {
        "x": np.arange(400_000, dtype=np.float32).reshape(-1, 4),
        "small": np.arange(10),
        "n": 7,
    }
    found = plain(value, formats="safetensors", sample=200_000)
    assert found.sampled and found.whole_nbytes == 1_600_080 and 190_000 < found.nbytes < 210_000
    assert "a sample of 1.60 MB" in str(found) and "a sample of" in found._repr_html_()
    assert found.best("size").why.endswith(" Measured on a sample.")
    assert not plain(value, formats="safetensors", sample=None).sampled


LARGE = {
    "rows": np.arange(1_000_000, dtype=np.int32).reshape(1000, 10, 100),
    "few rows": np.zeros((2, 500_000), np.float32),
    "cube": np.zeros((100, 100, 100), np.float32),
    "strings": tw.Strings.of([f"string {i}" for i in range(50_000)]),
    "strings of two axes": tw.Strings.of([f"string {i}" for i in range(50_000)], (25_000, 2)),
    "sparse": tw.Sparse(np.arange(100_000)[:, None], np.arange(100_000.0), (1 << 40,)),
    "sparse strings": tw.Sparse(
        np.arange(50_000)[:, None], tw.Strings.of([b"x%d" % i for i in range(50_000)]), (50_000,)
    ),
    "hybrid": tw.Sparse(np.arange(10_000)[:, None], np.ones((10_000, 16)), (10_000, 16)),
    "ragged": tw.Ragged(np.arange(300_000), np.arange(0, 300_001, 3)),
    "ragged int32": tw.Ragged(
        tw.Strings.of(["ab"] * 90_000), np.arange(0, 90_001, 3, dtype=np.int32)
    ),
    "ragged deep": tw.Ragged(
        np.arange(300_000.0), [np.arange(0, 100_001, 10), np.arange(0, 300_001, 3)]
    ),
}


@pytest.mark.parametrize("kind", LARGE)
def test_samples_are_of_the_same_kind(kind):
    value = LARGE[kind]
    size = values.nbytes(value)
    found = values.sample(value, size // 10)
    assert type(found) is type(value) and values.nbytes(found) == pytest.approx(size / 10, rel=0.1)
    assert getattr(found, "dtype", None) == getattr(value, "dtype", None) and len(
        found.shape
    ) == len(value.shape)
    assert tw.equal(tw.loads(tw.dumps(found)), found)  # it is valid in every way
    assert values.sample(value, size) is value


def test_samples_come_from_all_over_the_value():
    found = values.sample(np.arange(1_000_000), 80_000)
    assert (
        found[0] == 0
        and found[-1] > 850_000
        and (np.diff(found) > 0).all()
        and len(found) == 10_000
    )
    rows = values.sample(LARGE["ragged"], 240_000)
    assert (
        rows[0].tolist() == [0, 1, 2]
        and rows[len(rows) - 1][0] > 250_000
        and {len(row) for row in rows} == {3}
    )
    words = values.sample(LARGE["strings of two axes"], 100_000)
    assert words[0].tolist() == ["string 0", "string 1"] and set(words.reshape(-1).tolist()) < set(
        LARGE["strings"].tolist()
    )


def test_nested_samples_keep_names_and_order():
    value = {
        "big": np.zeros(10**6),
        "list": [np.ones(10**6, np.float32), "x"],
        "b": tw.Bundle({"y": np.zeros(10**6)}, {"m": "1"}),
        "s": 1,
    }
    found = values.sample(value, 10**6)
    assert (
        list(found) == list(value)
        and found["list"][1] == "x"
        and found["b"].metadata == {"m": "1"}
        and found["s"] == 1
    )
    assert values.nbytes(found) == pytest.approx(10**6, rel=0.01)


# Which is best, and why.


def made(
    way, size, encode, decode, *, nbytes=1000, view=None, error=0.0, quantize=None, reading=None
):
    format, *rest = way.split(" + ")
    compression = rest[-1] if rest and rest[-1] != quantize else None
    given = {"format": format} | (reading or {})
    return Measurement(
        way, format, compression, None, "shuffle" in rest, quantize, size, nbytes, encode, decode, encode, decode, view, 3, not quantize,
        error, error / 2, {"format": format}, given,
    )  # fmt: skip


def profile_of(*measurements, **fields):
    return Profile(
        **{
            "value": "x",
            "nbytes": 1000,
            "whole_nbytes": 1000,
            "skipped": {},
            "wrong": {},
            "seconds": 1.0,
            "measurements": measurements,
        }
        | fields
    )


FIELD = profile_of(
    made("safetensors", 1_060, 1.05e-3, 1.0e-3, view=2e-6),
    made("raw", 1_000, 1.0e-3, 2.0e-3, reading={"dtype": "float32", "shape": (250,)}),
    made("safetensors + shuffle + zstd", 400, 9e-3, 4e-3),
    made("npz + zlib", 399, 90e-3, 8e-3),
    made("json", 3_000, 20e-3, 30e-3),
    made("safetensors + int8", 260, 2e-3, 0.9e-3, error=0.5, quantize="int8"),
    made("safetensors + float16", 520, 1.5e-3, 0.5e-3, error=0.01, quantize="float16"),
)


def test_best_for_size():
    best = FIELD.best("size")
    assert best.way == "npz + zlib" and best.options == {"format": "npz"}
    assert "399 bytes, 2.5x smaller than in memory" in best.why and "decodes in 8.00 ms" in best.why
    assert "safetensors + shuffle + zstd takes 0.3 % more and is 7.5x as fast" in best.why


def test_best_for_time_and_ties():
    # raw is quicker by less than a tenth, and smaller by more than a hundredth
    best = FIELD.best("encode")
    assert (
        best.way == "raw"
        and "encodes in 1.00 ms, 1.00 MB/s, as safetensors within a tenth" in best.why
    )
    assert "tw.loads needs dtype= and shape=" in best.why and "takes 9.0x as long" in best.why
    best = FIELD.best("decode")
    assert (
        best.way == "safetensors"
        and "decodes in 1.00 ms" in best.why
        and "views of the bytes, in 2.00 µs" in best.why
    )
    assert "the next, raw, takes 2.0x as long" in best.why
    alike = profile_of(
        made("npy", 1000, 1e-3, 1e-3),
        made("safetensors", 1005, 1.05e-3, 1e-3),
        made("safetensors + lz4", 1005, 1e-3, 1e-3),
    )
    assert alike.best("encode").way == "safetensors"  # the first in the table, and plain
    assert "no compression makes it smaller by more than 1 %" in alike.best("encode").why


def test_best_for_both_depends_on_the_link():
    assert FIELD.best().way == "safetensors" and FIELD.best().what == "balanced"
    slow = FIELD.best("balanced", bandwidth=1e4)
    assert slow.way == "safetensors + shuffle + zstd" and "send at 10.0 kB/s" in slow.why
    assert "53.0 ms" in slow.why and "(9.00 ms + 40.0 ms + 4.00 ms)" in slow.why
    # npz + zlib is smaller by less than a hundredth
    assert FIELD.best("balanced", bandwidth=1).way == slow.way
    assert str(slow) == slow.why


def test_lossy_ways_win_only_if_told():
    assert not any(FIELD.best(what).measurement.lossy for what in choosing.WHAT)
    assert FIELD.best("size", lossy=True).way == "safetensors + int8"
    assert "lossy, with errors up to 0.5 and 0.25 in the mean" in FIELD.best("size", lossy=True).why
    assert FIELD.best("decode", lossy=True).way == "safetensors + float16"
    assert FIELD.best("size", max_error=0.1).way == "npz + zlib"
    assert FIELD.best("decode", max_error=0.1).way == "safetensors + float16"
    only = profile_of(*FIELD[5:])
    with pytest.raises(LookupError, match="lossy=True"):
        only.best("size")
    assert (
        only.best("size", lossy=True).way == "safetensors + int8"
        and "best for" not in str(only)
        and only.json()["best"] == {}
    )
    with pytest.raises(LookupError, match="no candidate was measured"):
        profile_of().best("size")


def test_wrong_aims():
    with pytest.raises(ValueError, match="did you mean 'size'"):
        FIELD.best("sizes")
    with pytest.raises(ValueError, match="bandwidth"):
        FIELD.best("balanced", bandwidth=0)


# How it shows itself.


def test_it_is_a_sequence():
    found = plain(VALUES["dense"], quantize=["int8", "float16"])
    assert (
        found[0] is found.measurements[0]
        and found[1:] == found.measurements[1:]
        and list(found) == list(found.measurements)
    )
    assert [one.lossy for one in found] == [False, False, True, True]
    for group in ([one for one in found if not one.lossy], [one for one in found if one.lossy]):
        assert group == sorted(group, key=Measurement.total)
    assert repr(found) == "<Profile of float32 [32, 25]: 4 ways, 0 skipped>"


def test_the_table():
    lines = str(FIELD).splitlines()
    assert lines[0].startswith(
        "x, 1.00 kB: 7 ways in 1.00 s; times are the best of 3; total: encode, send at 125 MB/s,"
        " decode"
    )
    assert lines[1].split() == ["way", "bytes", "smaller", "encode", "decode", "view", "total"]
    assert lines[3].split() == "safetensors 1,060 0.94x 1.05 ms 1.00 ms 2.00 µs 2.06 ms".split()
    assert lines[8].endswith("lossy: error 0.5 at most, 0.25 in the mean")
    assert [line.split(":")[0] for line in lines[10:]] == [
        f"best for {what}" for what in choosing.WHAT
    ]
    skipped = profile_of(skipped={"raw": "no", "raw + gzip": "no", "npy": "out of time"})
    assert str(skipped).splitlines()[1:] == [
        "skipped: raw, raw + gzip: no",
        "skipped: npy: out of time",
    ]


def test_it_is_plain_data():
    found = profile(
        VALUES["dense"], formats=["safetensors", "raw", "tensorproto"], compressions=["gzip"]
    )
    data = json.loads(json.dumps(found.json(), allow_nan=False))
    assert set(data["best"]) == set(choosing.WHAT) and len(data["measurements"]) == len(found)
    assert data["measurements"][0]["options"] == found[0].options
    assert data["best"]["size"]["measurement"]["size"] == min(
        one.size for one in found if not one.lossy
    )


HOSTILE = "<script>alert(1)</script>&\"'"


def elements(html):
    """The page's elements by tag; an error if it is not well-formed."""
    counts = {}
    for element in ElementTree.fromstring(html).iter():
        counts[element.tag] = counts.get(element.tag, 0) + 1
    return counts


def test_names_never_become_markup():
    value = {HOSTILE: np.array([1.0, np.nan]), "x": tw.Strings.of([HOSTILE])}
    found = profile(value, seconds=5)
    # NaN has no code in int8, and the name is told
    assert found.wrong == {} and any(HOSTILE in why for why in found.skipped.values())
    html = found._repr_html_()
    assert "<script" not in html and "&lt;script&gt;" in html and "script" not in elements(html)
    made_up = profile_of(
        made("safetensors", 5, 1.0, 1.0),
        value=HOSTILE,
        skipped={HOSTILE: HOSTILE},
        wrong={HOSTILE: HOSTILE},
    )
    assert "<script" not in made_up._repr_html_() and "script" not in elements(
        made_up._repr_html_()
    )


def test_html_has_a_row_and_a_bar_for_every_way():
    counts = elements(FIELD._repr_html_())
    assert counts["tr"] == 1 + len(FIELD) and counts["li"] == len(choosing.WHAT)
    assert FIELD._repr_html_().count("inline-block") == 3 * len(FIELD)
    for html in (
        profile_of()._repr_html_(),
        profile_of(made("raw", 0, 1e-6, 1e-6, nbytes=0))._repr_html_(),
    ):
        assert elements(html)["table"] == 1
    for one in FIELD:  # no bar is longer than its cell
        widths = [
            float(part.split("%")[0])
            for part in FIELD._repr_html_().split("width:")[1:]
            if "%" in part[:8]
        ]
        assert len(widths) == 3 * len(FIELD) and max(widths) <= 100, one.way


def test_plot_files(tmp_path):
    for suffix, start in (
        (".svg", b"<?xml"),
        (".png", b"\x89PNG\r\n\x1a\n"),
        (".pdf", b"%PDF-"),
        (".PNG", b"\x89PNG\r\n\x1a\n"),
    ):
        assert FIELD.plot(tmp_path / f"profile{suffix}") is None
        assert (tmp_path / f"profile{suffix}").read_bytes().startswith(start)
    root = ElementTree.fromstring((tmp_path / "profile.svg").read_text())
    assert root.tag == "{http://www.w3.org/2000/svg}svg"
    with pytest.raises(ValueError, match=r"\.svg, \.png, \.pdf"):
        FIELD.plot(tmp_path / "profile.txt")
    assert not (tmp_path / "profile.txt").exists()


def test_plot_as_a_figure():
    figure = FIELD.plot()
    encode, decode = figure.axes
    assert (encode.get_title(), decode.get_title()) == ("encode", "decode")
    for axes in (encode, decode):
        assert axes.get_xscale() == axes.get_yscale() == "log"
        points = {
            (float(line.get_xdata()[0]), float(line.get_ydata()[0]))
            for line in axes.lines
            if len(line.get_xdata()) == 1
        }
        assert len(points) == len(FIELD)
    fronts = [line for line in encode.lines if len(line.get_xdata()) > 1]
    # the quickest encoding is raw's
    assert [list(line.get_xdata()) for line in fronts] == [[399, 400, 1000]]
    assert "raw" in [text.get_text() for text in encode.texts]
    labels = [text.get_text() for text in figure.legends[0].get_texts()]
    assert {"safetensors", "npz", "plain", "zlib", "shuffle + zstd", "lossy (hollow)"} <= set(
        labels
    )
    hostile = profile_of(made("safetensors", 0, 1e-9, 0.0, nbytes=0), value="$\\frac{")
    assert (
        "$\\frac{" in hostile.plot()._suptitle.get_text()
        and hostile.plot().savefig(io.BytesIO()) is None
    )
    assert profile_of().plot().savefig(io.BytesIO()) is None


def test_plot_has_no_global_state(tmp_path):
    code = """
import sys, numpy as np
from tensorwire.api.profiling import profile
found = profile(np.zeros(9), formats="safetensors", compressions=())
assert "matplotlib" not in sys.modules
found.plot("x.svg")
assert "matplotlib.pyplot" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", code], check=True, cwd=tmp_path)


def test_plot_without_matplotlib(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(tw.MissingDependencyError, match=r"pip install 'tensorwire\[plot\]'"):
        FIELD.plot()
    assert FIELD._repr_html_()  # which needs none


def test_front():
    points = [(3, 3.0, "c"), (1, 1.0, "a"), (2, 0.5, "b"), (3, 2.0, "d"), (4, 3.0, "e")]
    assert [name for _, _, name in plot.front(points)] == ["a", "c"]


def test_progress():
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    streams = (
        (None, io.StringIO(), False),
        (None, Terminal(), True),
        (True, io.StringIO(), True),
        (False, Terminal(), False),
    )
    for shown, stream, wanted in streams:
        bar = ProfileProgress(shown, stream)
        bar.show(0.5, "safetensors + zstd")
        bar.show(0.6, "too soon")
        bar.close()
        assert (
            "50 % safetensors + zstd" in stream.getvalue()
        ) is wanted and "too soon" not in stream.getvalue()
        assert not wanted or stream.getvalue().endswith("\r\x1b[K")
    ProfileProgress(None, io.StringIO()).close()
    ascii_only = io.TextIOWrapper(io.BytesIO(), "ascii")
    # has no such character: nothing is drawn, and nothing breaks
    ProfileProgress(True, ascii_only).show(0.5, "x")


def test_nothing_is_printed_unless_asked(capsys):
    plain(np.zeros(3))
    assert capsys.readouterr() == ("", "")
    plain(np.zeros(3), progress=True)
    assert "safetensors" in capsys.readouterr().err


# Other frameworks.


@pytest.mark.torch
def test_tied_weights_of_torch_are_written_once():
    import torch

    weight = torch.arange(1000.0)
    found = profile({"a": weight, "b": weight}, formats="safetensors", compressions=["gzip"])
    assert found.wrong == {} and next(one for one in found if one.way == "safetensors").size < 6000


@pytest.mark.tensorflow
def test_tensors_of_tensorflow(tf):
    found = profile(
        tf.ragged.constant([[1.0], [], [2.0, 3.0]]),
        formats=["safetensors", "tensorproto"],
        compressions=(),
    )
    assert found.wrong == {} and {one.format for one in found} == {"safetensors", "tensorproto"}


# The command.


def run(*arguments, **options):
    return subprocess.run(
        [sys.executable, "-m", "tensorwire", "profile", *map(str, arguments)],
        capture_output=True,
        **options,
    )


QUICK = ("--formats", "safetensors,raw", "--compressions", "zlib", "--quantize", "none")


@pytest.fixture
def file(tmp_path):
    tw.save(
        tmp_path / "x.safetensors",
        {"x": np.zeros((40, 40), np.float32), "ids": np.arange(9), "words": tw.Strings.of(["a"])},
    )
    return tmp_path / "x.safetensors"


def test_command(file):
    found = run(file, *QUICK, text=True)
    assert found.returncode == 0 and found.stderr == ""
    assert (
        found.stdout.startswith("dict of 3 tensors (float32, int64, string)")
        and found.stdout.count("best for") == 4
    )
    assert "skipped: raw, raw + zlib: raw holds one dense tensor" in found.stdout
    data = json.loads(run(file, *QUICK, "--name", "x", "--json").stdout)
    assert data["value"] == "float32 [40, 40]" and {
        one["format"] for one in data["measurements"]
    } == {"safetensors", "raw"}


def test_command_says_what_is_best(file):
    found = run(file, *QUICK, "--name", "x", "--best", "size", text=True)
    assert found.stdout.splitlines()[-1].startswith("tw.dumps(x, format='raw', compression='zlib'")
    assert len(found.stdout.splitlines()) == 2 and found.stdout.startswith("raw + zlib: ")
    best = json.loads(run(file, *QUICK, "--name", "x", "--best", "decode", "--json").stdout)
    assert best["what"] == "decode" and best["measurement"]["compression"] is None
    lossy = run(
        file,
        "--formats",
        "safetensors",
        "--compressions",
        "none",
        "--best",
        "size",
        "--lossy",
        "--name",
        "x",
        text=True,
    )
    assert "lossy" in lossy.stdout and "quantize=" in lossy.stdout


def test_command_plots(file):
    found = run(file, *QUICK, "--plot", file.with_suffix(".svg"))
    assert found.returncode == 0
    ElementTree.fromstring(file.with_suffix(".svg").read_text())
    found = run(file, *QUICK, "--plot", "x.txt", text=True)
    assert found.returncode == 2 and ".svg, .png, .pdf" in found.stderr and found.stdout == ""


def test_command_reads_standard_input(file):
    found = run("-", *QUICK, "--json", input=file.read_bytes())
    assert (
        found.returncode == 0 and json.loads(found.stdout)["nbytes"] == 40 * 40 * 4 + 9 * 8 + 1 + 16
    )


def test_command_takes_the_first_records_as_columns(tmp_path):
    path = tmp_path / "a.tfrecord"
    tw.write_examples(path, {"label": np.arange(2000), "name": [f"n{i}" for i in range(2000)]})
    found = run(path, *QUICK, text=True)
    assert (
        found.returncode == 0
        and found.stdout.startswith("columns of the first records (at most 1,024):")
        and "dict of 2 tensors" in found.stdout
    )
    assert (
        json.loads(run(path, *QUICK, "--name", "label", "--json").stdout)["value"] == "int64 [1024]"
    )
    found = run(path, "--name", "labels", text=True)
    assert found.returncode == 1 and "did you mean 'label'" in found.stderr
    with tw.RecordWriter(tmp_path / "none.tfrecord"):
        pass
    found = run(tmp_path / "none.tfrecord", text=True)
    assert found.returncode == 1 and "no records" in found.stderr


@pytest.mark.slow
def test_command_errors(file, tmp_path):
    for arguments, status, words in (
        ((tmp_path / "nothing",), 1, "nothing"),
        ((file, "--formats", "safetensor"), 2, "did you mean 'safetensors'"),
        ((file, "--compressions", "zlib:x"), 2, "the level must be a number"),
        ((file, "--seconds", "-1"), 2, "seconds=-1"),
        ((file, "--best", "sizes"), 2, "did you mean 'size'"),
        ((file, "--name", "y"), 1, "no tensor 'y'"),
        ((file, "--formats", "raw"), 1, "raw holds one dense tensor"),
        ((), 2, "usage:"),
    ):
        found = run(*arguments, text=True)
        assert found.returncode == status and words in found.stderr and found.stdout == "", (
            arguments
        )
        assert "Traceback" not in found.stderr
