"""The server's side of `tensorwire view`, over real HTTP: who is let in, and whether what is
answered is what is in the files.
"""

import json
import math
import os
import resource
import signal
import socket
import subprocess
import sys
import threading
import time
import zlib
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

import tensorwire as tw
from support import view_files
from support.view_server import Page, running
from tensorwire.explore import images, runs, sampling
from tensorwire.view import comparing, kinds, opened, viewport
from tensorwire.view.catalog import Catalog


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("view") / "files"


@pytest.fixture(scope="module")
def value(folder):
    folder.mkdir()
    return view_files.everything(folder, 200)


@pytest.fixture(scope="module")
def page(folder, value):
    with running(folder) as found:
        yield found


@pytest.fixture(scope="module")
def main(page):
    """(id, numbers by name) of the file with every kind."""
    id = page.ids()["files/predictions.safetensors"]
    return id, page.numbers(id)


# Who is let in


def test_only_who_has_the_token(page):
    for cookie in (
        None,
        f"tensorwire_{page.port}=wrong",
        f"tensorwire_{page.port}=",
        f"other={page.token}",
        '"',
    ):
        for target in ("/", "/api/tree", "/page/main.js", "/api/nothing"):
            status, _, body = page.ask(target, Cookie=cookie)
            assert status == 403 and b"token" in body
    assert page.ask("/?token=wrong", Cookie=None)[0] == 403
    assert page.ask("/api/tree")[0] == 200


def test_the_token_becomes_a_cookie(page):
    status, headers, body = page.ask(f"/?token={page.token}", Cookie=None)
    assert status == 200 and b"<!doctype html>" in body
    cookie = headers["set-cookie"]
    assert (
        f"tensorwire_{page.port}={page.token}" in cookie
        and "HttpOnly" in cookie
        and "SameSite=Strict" in cookie
    )
    assert "set-cookie" not in page.ask("/")[1]


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "evil.example:{port}",
        "127.0.0.1",
        "127.0.0.1:1",
        "",
        "127.0.0.1:{port}.evil.example",
    ],
)
def test_only_under_its_own_name(page, host):
    assert page.ask("/api/tree", Host=host.format(port=page.port))[0] == 403
    assert page.ask("/api/tree", Host=f"localhost:{page.port}")[0] == 200


def test_headers_tell_the_browser_to_be_careful(page):
    for target, cookie in (
        ("/", page.cookie),
        ("/page/main.js", page.cookie),
        ("/api/tree", page.cookie),
        ("/", None),
    ):
        headers = page.ask(target, Cookie=cookie)[1]
        assert (
            "default-src 'self'" in headers["content-security-policy"]
            and "unsafe" not in headers["content-security-policy"]
        )
        assert (
            headers["x-content-type-options"] == "nosniff"
            and headers["referrer-policy"] == "no-referrer"
        )
        assert headers["cache-control"] == "no-store" and headers["x-frame-options"] == "DENY"
        assert "access-control-allow-origin" not in headers


def test_only_get_and_one_post(page):
    for method in ("PUT", "DELETE", "PATCH", "OPTIONS", "TRACE"):
        assert page.ask("/api/tree", method)[0] == 405
    assert (
        page.ask(
            "/api/tree",
            "POST",
            "{}",
            Content_Type="application/json",
            Origin=f"http://127.0.0.1:{page.port}",
        )[0]
        == 405
    )
    assert page.ask("/api/request")[0] == 405


def test_a_post_must_come_from_the_page(page):
    own = f"http://127.0.0.1:{page.port}"
    for origin, kind in (
        ("http://evil.example", "application/json"),
        (None, "application/json"),
        (own, "text/plain"),
        ("null", "application/json"),
    ):
        assert (
            page.ask("/api/request?id=n0", "POST", "{}", Origin=origin, Content_Type=kind)[0] == 403
        )
    assert (
        page.ask("/api/request?id=n0", "POST", "{}", Origin=own, Content_Type="application/json")[0]
        == 200
    )


def test_bodies_are_bounded(page):
    own = {"Origin": f"http://127.0.0.1:{page.port}", "Content_Type": "application/json"}
    assert page.ask("/api/request?id=n0", "POST", b" " * (5 << 20), **own)[0] == 413
    assert (
        page.ask(
            "/api/request?id=n0", "POST", iter([b" " * 1000]), **own, Transfer_Encoding="chunked"
        )[0]
        == 413
    )
    status, _, body = page.ask("/api/request?id=n0", "POST", b"[" * 100_000, **own)
    assert status == 200 and b"not valid JSON" in body


def test_listens_on_this_machine_alone(page):
    others = {
        info[4][0] for info in socket.getaddrinfo(socket.gethostname(), None, socket.AF_INET)
    } - {"127.0.0.1"}
    for address in others:
        with socket.socket() as probe:
            probe.settimeout(2)
            assert probe.connect_ex((address, page.port)) != 0


@pytest.mark.parametrize(
    "target",
    [
        "/page/../app.py",
        "/page/..%2fapp.py",
        "/page/%2e%2e/app.py",
        "/page//etc/passwd",
        "/page/app.py",
        "/etc/passwd",
        "/api/",
    ],
)
def test_nothing_else_is_served(page, target):
    assert page.ask(target)[0] == 404


def test_every_file_of_the_page_is_served_and_has_no_html_in_its_scripts(page):
    for path in sorted((Path(kinds.__file__).parent / "page").iterdir()):
        status, headers, body = page.ask(f"/page/{path.name}")
        assert status == 200 and body == path.read_bytes()
        assert headers["content-type"].split(";")[0] in (
            "text/html",
            "text/css",
            "text/javascript",
            "image/svg+xml",
        )
        text = path.read_text()
        if path.suffix == ".js":
            for way in (
                "innerHTML",
                "outerHTML",
                "insertAdjacentHTML",
                "document.write",
                "eval(",
                "new Function",
                "http://",
                "https://",
            ):
                assert way not in text, f"{path.name}: {way}"
        if path.suffix == ".html":
            assert (
                " style=" not in text
                and "<script>" not in text
                and " onclick" not in text
                and "//" not in text.replace("</", "")
            )


# What was given, and nothing else


def test_only_ids_are_taken(page, folder):
    for id in (
        "",
        "n9999",
        str(folder / "predictions.safetensors"),
        "../predictions.safetensors",
        "/etc/passwd",
        "<script>",
    ):
        for name in ("file", "tensor", "window", "records", "schema", "model", "verify"):
            assert "no such file" in page.fault(name, id=id)
    assert str(folder) not in json.dumps(page.get("tree"))


def test_links_that_lead_out_are_left_out(tmp_path):
    inside, outside = tmp_path / "inside", tmp_path / "outside"
    inside.mkdir(), outside.mkdir()
    tw.save(outside / "secret.npy", np.arange(3))
    tw.save(inside / "own.npy", np.arange(3))
    (inside / "link.npy").symlink_to(outside / "secret.npy")
    (inside / "folder").symlink_to(outside)
    (inside / "loop").symlink_to(inside)
    (inside / "again.npy").symlink_to(inside / "own.npy")
    os.mkfifo(inside / "pipe.npy")
    catalog = Catalog([inside])
    assert [node.name for node in catalog.roots[0].children] == ["again.npy", "own.npy"]
    own = catalog.roots[0].children[1]
    (inside / "own.npy").unlink()
    (inside / "own.npy").symlink_to(outside / "secret.npy")
    with pytest.raises(tw.SchemaError, match="leads out"):
        catalog[own.id]
    assert Catalog([inside / "link.npy"]).roots[0].kind == "tensors"  # whoever names it himself may


def test_the_tree(page, folder, value):
    found = page.ids()
    assert {
        "files/predictions.safetensors",
        "files/predictions-2.npz",
        "files/train.tfrecord",
        "files/damaged.tfrecord",
    } <= set(found)
    tw.save(folder / "later.npy", np.arange(4))
    again = page.ids()
    assert again.pop("files/later.npy") and again == found  # ids stay
    (folder / "later.npy").unlink()


def test_names_as_people_count(tmp_path):
    for name in ("w10.npy", "w9.npy", "W1.npy", "readme.txt", "notes.json", "x.bin"):
        (tmp_path / name).write_bytes(tw.dumps(np.arange(2), "npy"))
    assert [node.name for node in Catalog([tmp_path]).roots[0].children] == [
        "readme.txt",
        "W1.npy",
        "w9.npy",
        "w10.npy",
    ]


def test_a_tree_is_bounded(tmp_path, monkeypatch):
    monkeypatch.setattr("tensorwire.view.catalog.MOST", 3)
    for i in range(5):
        (tmp_path / f"{i}.npy").write_bytes(b"")
    catalog = Catalog([tmp_path])
    assert len(catalog.roots[0].children) == 3 and catalog.left_out == 2


def test_a_missing_path_is_said(tmp_path):
    with pytest.raises(FileNotFoundError):
        Catalog([tmp_path / "nothing"])


# Tensor files


def test_files(page, main, value):
    id, numbers = main
    found = page.get("file", id=id)
    assert (
        found["format"] == "safetensors"
        and found["total"] == len(value)
        and list(numbers) == list(value)
    )
    assert found["metadata"]["note"] == view_files.HOSTILE
    assert [one["name"] for one in page.get("file", id=id, filter="KERNEL")["tensors"]] == [
        "layers/0/kernel"
    ]
    assert page.get("file", id=id, start=3)["tensors"][0]["n"] == 3


@pytest.mark.parametrize(
    "name",
    ["attention", "layers/0/kernel", "holes", "mask", "ids", "scalar", "pictures", "layers/0/bias"],
)
def test_windows_are_what_numpy_slices(page, main, value, name):
    id, numbers = main
    array, n = value[name], numbers[name]
    about, found = page.window(id=id, n=n)
    rank = array.ndim
    plain = array[(0,) * max(0, rank - 2)] if rank > 1 else array.reshape(1, -1)
    steps = [about["row_step"], about["column_step"]]
    assert about["extent"] == list(plain.shape) and np.array_equal(
        found, plain[:: steps[0], :: steps[1]].astype(np.float64), equal_nan=True
    )
    if rank >= 2:
        about, found = page.window(
            id=id, n=n, rows=rank - 1, columns=rank - 2, r0=1, r1=4, c0=2, c1=7
        )
        assert np.array_equal(found, plain.T[1:4, 2:7].astype(np.float64), equal_nan=True)
        assert about["texts"] is not None and len(about["texts"]) == found.size
        assert [
            float(text) if text not in ("True", "False") else float(text == "True")
            for text in about["texts"]
        ] == pytest.approx(found.reshape(-1).tolist(), rel=1e-6, nan_ok=True)


def test_slices_of_other_dimensions(page, main, value):
    id, numbers = main
    array = value["pictures"]
    _, found = page.window(id=id, n=numbers["pictures"], rows=0, columns=2, at="0,7,0,1")
    assert np.array_equal(found, array[:, 7, :, 1])
    _, found = page.window(id=id, n=numbers["pictures"], rows=3, columns=0, at="0,5,6,0")
    assert np.array_equal(found, array[:, 5, 6, :].T)


def test_integers_are_exact(page, main, value):
    id, numbers = main
    about, _ = page.window(id=id, n=numbers["ids"])
    assert about["texts"] == [str(item) for item in value["ids"].reshape(-1).tolist()]
    found = page.get("statistics", id=id, n=numbers["ids"])
    assert found["min"] == str(value["ids"].min()) and found["max"] == str(value["ids"].max())


@pytest.mark.parametrize("how", ["sample", "mean", "min", "max"])
def test_blocks_become_one_number(how):
    array = np.random.default_rng(0).normal(size=(50, 71))
    array[13, 20] = np.nan
    found = viewport.window(
        runs.InMemory(array),
        viewport.Slice.of(array.shape, None, None, None),
        size=(8, 10),
        how=how,
    )
    assert (found.row_step, found.column_step) == (7, 8)
    for i in range(found.values.shape[0]):
        for j in range(found.values.shape[1]):
            block = array[i * 7 : i * 7 + 7, j * 8 : j * 8 + 8]
            wanted = block[0, 0] if how == "sample" else getattr(np, how)(block)
            assert found.values[i, j] == pytest.approx(wanted, nan_ok=True)


@pytest.mark.parametrize(
    "words",
    [
        {"rows": 5},
        {"rows": 1, "columns": 1},
        {"at": "9,999"},
        {"at": "0"},
        {"at": "a,b"},
        {"rows": "x"},
        {"how": "sum"},
        {"part": "z"},
        {"r0": "1e9"},
        {"n": 99},
        {"n": -1},
        {"height": "9" * 30},
    ],
)
def test_wrong_windows_are_said(page, main, words):
    page.fault("window", **{"id": main[0], "n": main[1]["attention"], **words})


def test_windows_outside_are_empty_or_clipped(page, main):
    id, n = main[0], main[1]["attention"]
    assert page.window(id=id, n=n, r0=190, r1=10**9, c0=-5, c1=3)[1].shape == (2, 3)
    assert page.window(id=id, n=n, r0=1000)[1].shape[0] == 0
    assert page.window(id=id, n=main[1]["nothing"])[1].size == 0
    assert page.window(id=id, n=n, height=10**6, width=10**6)[1].shape == (192, 192)


@pytest.mark.parametrize(
    "name", ["attention", "layers/0/kernel", "holes", "mask", "pictures", "scalar", "layers/0/bias"]
)
def test_statistics_are_numpys(page, main, value, name):
    found = page.get("statistics", id=main[0], n=main[1][name])
    array = value[name].astype(np.float64)
    finite = array[np.isfinite(array)]
    assert found["exact"] and found["counted"] == array.size
    assert (found["nan"], found["inf"], found["zeros"]) == (
        np.isnan(array).sum(),
        np.isinf(array).sum(),
        (array == 0).sum(),
    )
    for key, wanted in (
        ("min", finite.min()),
        ("max", finite.max()),
        ("mean", finite.mean()),
        ("std", finite.std()),
    ):
        assert found[key] == pytest.approx(wanted, rel=1e-9, abs=1e-12)
    assert sum(found["counts"]) == finite.size and len(found["edges"]) == len(found["counts"]) + 1
    assert found["edges"][0] <= finite.min() and found["edges"][-1] >= finite.max()
    counted = np.histogram(finite, np.array(found["edges"]))[0]
    # an element on an edge may fall to either side
    assert np.abs(counted - found["counts"]).sum() <= 2 * len(counted)


@pytest.mark.parametrize(
    "dtype",
    [*"?bBhHiIlLefd", "F", "D", ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, ml_dtypes.int4],
)
def test_every_dtype(tmp_path, dtype):
    array = (np.arange(24).reshape(4, 6) % 7).astype(dtype)
    tw.save(tmp_path / "x.safetensors", {"x": array})
    with running(tmp_path / "x.safetensors") as page:
        id = page.ids()["x.safetensors"]
        assert np.array_equal(page.window(id=id, n=0)[1], np.abs(array.astype(np.complex128)))
        found = page.get("statistics", id=id, n=0)
        assert (
            found["max"] == float(np.abs(array.astype(np.complex128)).max())
            and found["counted"] == 24
        )
        assert page.raw("image", id=id, n=0, layout="hw")[1]["content-type"] == "image/png"


def test_statistics_of_extremes():
    for array in (
        [-1.7e308, 1.7e308],
        [5e-324, 0],
        [3.0, 3.0],
        [np.nan, np.inf],
        [],
        [2**63 - 1, -(2**63)],
        [1e308] * 5,
    ):
        found = kinds.statistics_page(sampling.summary(runs.InMemory(np.array(array))))
        finite = len(array) - found["nan"] - found["inf"]
        assert found["counted"] == len(array) and sum(found["counts"]) == finite
        json.dumps(found, allow_nan=False)


def test_a_sample_says_so_and_can_be_made_exact(tmp_path, monkeypatch):
    monkeypatch.setattr(sampling, "EXACT", 1000)
    monkeypatch.setattr(sampling, "PIECE", 500)
    array = np.random.default_rng(1).normal(size=(700, 900))
    found = sampling.summary(runs.InMemory(array))
    assert found.statistics.elements == 500 * sampling.PIECES and found.size == array.size
    assert not kinds.statistics_page(found)["exact"]
    assert found.statistics.mean == pytest.approx(0, abs=0.05)
    whole = sampling.summary(runs.InMemory(array), True).statistics
    assert whole.mean == pytest.approx(array.mean())
    assert whole.deviation == pytest.approx(array.std())


def test_lines(page, main, value):
    array = value["layers/0/bias"]
    found = page.get("line", id=main[0], n=main[1]["layers/0/bias"], points=100)
    assert found["step"] == 40 and found["complete"]
    assert found["low"] == [float(array[i : i + 40].min()) for i in range(0, 4000, 40)]
    assert found["high"] == [float(array[i : i + 40].max()) for i in range(0, 4000, 40)]
    near = page.get("line", id=main[0], n=main[1]["layers/0/bias"], start=10, stop=20)
    assert near["low"] == near["high"] == array[10:20].astype(float).tolist()


def _unpacked(data):
    """The pixels of a PNG that has no filters."""
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    width, height = (int.from_bytes(data[at : at + 4], "big") for at in (16, 20))
    channels = {0: 1, 2: 3, 6: 4}[data[25]]
    start = data.index(b"IDAT") + 4
    rows = np.frombuffer(zlib.decompress(data[start:-16]), np.uint8).reshape(height, -1)
    assert not rows[:, 0].any()
    return rows[:, 1:].reshape(height, width, channels)


def test_images(page, main, value):
    id, numbers = main
    about = page.get("tensor", id=id, n=numbers["pictures"])
    assert about["pictures"] == [{"layout": "hwc", "count": 24}, {"layout": "hw", "count": 24 * 40}]
    for number in (0, 23):
        status, headers, body = page.raw(
            "image", id=id, n=numbers["pictures"], layout="hwc", number=number
        )
        assert status == 200 and headers["content-type"] == "image/png"
        assert np.array_equal(_unpacked(body), value["pictures"][number])
    chw = _unpacked(page.raw("image", id=id, n=numbers["pictures_chw"], layout="chw", number=2)[2])
    assert np.array_equal(chw, np.round(value["pictures_chw"][2].transpose(1, 2, 0) * 255))
    assert "image 24 is out of range: the tensor has 24" in page.fault(
        "image", id=id, n=numbers["pictures"], layout="hwc", number=24
    )
    assert "layout" in page.fault("image", id=id, n=numbers["attention"], layout="chw")


def test_large_images_are_thinned():
    array = np.arange(2000 * 30, dtype=np.uint32).reshape(2000, 30)
    assert _unpacked(images.picture(runs.InMemory(array), "hw", 0)).shape == (500, 8, 1)


def test_strings(page, main, value):
    id, n = main[0], main[1]["words"]
    found = page.get("strings", id=id, n=n, start=1990, count=100)
    assert (
        found["total"] == 2000
        and [item["text"] for item in found["items"]] == value["words"].tolist()[1990:]
    )
    assert page.get("strings", id=id, n=n, start=10**12)["items"] == []
    hits = page.get("search", id=id, n=n, text="GRÖSSE-1")["items"]
    assert hits == []
    hits = page.get("search", id=id, n=n, text="größe-12")
    assert [item["text"] for item in hits["items"]] == [
        word for word in value["words"].tolist() if "größe-12" in word.lower()
    ]
    assert hits["next"] is None
    first = page.get("search", id=id, n=n, text="wire")
    assert len(first["items"]) == 100 and first["next"] == first["items"][-1]["at"] + 1
    assert (
        page.get("search", id=id, n=n, text="wire", start=first["next"])["items"][0]["at"]
        == first["next"] + 4
    )


def test_hostile_names_and_strings_are_data(page, main):
    id, n = main[0], main[1][view_files.HOSTILE]
    assert page.get("tensor", id=id, n=n)["name"] == view_files.HOSTILE
    assert page.get("strings", id=id, n=n)["items"][0]["text"] == view_files.HOSTILE
    assert page.raw("strings", id=id, n=n)[1]["content-type"].startswith("application/json")


def test_pictures_in_strings(page, main, value):
    id, n = main[0], main[1]["photos"]
    assert [item["image"] for item in page.get("strings", id=id, n=n)["items"]] == ["image/png"] * 4
    status, headers, body = page.raw("string_image", id=id, n=n, at=2)
    assert (status, headers["content-type"], body) == (200, "image/png", value["photos"][2])
    assert "neither" in page.fault("string_image", id=id, n=main[1][view_files.HOSTILE], at=0)
    assert "no string" in page.fault("string_image", id=id, n=n, at=4)


@pytest.mark.parametrize(
    "item",
    [
        b"",
        b"plain",
        "Grö".encode(),
        b"\x00\x01",
        b"\xff" * 500,
        b"a" * 10_000,
        "é".encode() * 5000,
        "x" * 10_000,
    ],
)
def test_any_string_can_be_shown(item):
    found = kinds.shown_string(item)
    assert len(found["text"]) <= kinds.SHOWN and found["size"] == len(
        item.encode() if isinstance(item, str) else item
    )
    assert (
        found["cut"] == (len(found["text"]) < len(item if isinstance(item, str) else item.decode()))
        if not found["binary"]
        else True
    )


def test_ragged(page, main, value):
    id, n = main[0], main[1]["tokens"]
    found = page.get("ragged", id=id, n=n, start=100, count=5)
    assert [row["values"] for row in found["rows"]] == [
        [str(item) for item in row] for row in value["tokens"][100:105].tolist()
    ]
    lengths = [len(row) for row in value["tokens"].tolist()]
    about = page.get("lengths", id=id, n=n)
    assert (
        about["rows"] == 500
        and about["lengths"]["max"] == max(lengths)
        and about["lengths"]["mean"] == pytest.approx(np.mean(lengths))
    )
    assert sum(about["lengths"]["counts"]) == 500 and about["values"]["max"] == max(lengths) - 1


def test_sparse(page, main, value):
    id, n = main[0], main[1]["clicks"]
    found = page.get("sparse", id=id, n=n, start=7, count=3)
    dense = value["clicks"].to_dense() != 0
    counts = np.array(found["counts"]["values"]).reshape(found["counts"]["shape"])
    steps = found["steps"]
    wanted = [
        [dense[i : i + steps[0], j : j + steps[1]].sum() for j in range(0, 400, steps[1])]
        for i in range(0, 300, steps[0])
    ]
    assert (
        np.array_equal(counts, wanted)
        and found["nnz"] == counts.sum()
        and found["sorted"]
        and not found["duplicates"]
    )
    assert [entry["at"] for entry in found["entries"]] == value["clicks"].indices[7:10].tolist()
    assert page.get("sparse", id=id, n=n, rows=1, columns=0)["extent"] == [400, 300]


@pytest.mark.parametrize(
    "name, right",
    [
        ("strings", "words"),
        ("ragged", "tokens"),
        ("lengths", "tokens"),
        ("sparse", "clicks"),
        ("window", "ids"),
        ("statistics", "ids"),
        ("line", "ids"),
        ("search", "words"),
    ],
)
def test_kinds_are_not_mixed_up(page, main, name, right):
    id, numbers = main
    assert b'"error"' not in page.raw(name, id=id, n=numbers[right])[2]
    for other in {"words", "tokens", "clicks", "ids"} - {right}:
        page.fault(name, id=id, n=numbers[other])


@pytest.mark.parametrize(
    "suffix", ["npy", "npz", "pb", "tensor", "arrow", "safetensors.gz", "ckpt-7"]
)
def test_every_format(tmp_path, suffix):
    array = np.random.default_rng(2).normal(size=(30, 20)).astype(np.float32)
    path = tmp_path / f"x.{suffix}"
    tw.save(path, array if suffix in ("npy", "pb") else {"x": array})
    with running(tmp_path) as page:
        way = next(way for way in page.ids() if way.endswith(path.name))
        id = page.ids()[way]
        assert page.get("file", id=id)["total"] == 1
        assert np.array_equal(page.window(id=id, n=0)[1], array)
        assert page.get("verify", id=id)["ok"]


@pytest.mark.parametrize(
    "options", [{}, {"compression": "gzip", "per_tensor": True}, {"quantize": "int8"}]
)
def test_large_tensors_are_read_in_runs(tmp_path, monkeypatch, options):
    monkeypatch.setattr(runs, "WHOLE", 1000)
    array = np.random.default_rng(3).normal(size=(5, 40, 30)).astype(np.float32)
    tw.save(tmp_path / "x.safetensors", {"x": array}, **options)
    with tw.open(tmp_path / "x.safetensors") as file:
        values = runs.values_of(file["x"])
        assert isinstance(values, runs.ByRows if options else runs.StoredNumbers)
        whole = file["x"].read()
        for rows, columns in ((1, 2), (2, 1), (0, 1), (2, 0)):
            cut = viewport.Slice.of(array.shape, rows, columns, (3, 4, 5))
            key = [3, 4, 5]
            key[rows] = key[columns] = slice(None)
            wanted = whole[tuple(key)] if rows < columns else whole[tuple(key)].T
            assert np.array_equal(viewport.window(values, cut).values, wanted)
        assert sampling.summary(values).statistics.largest == whole.max()
        monkeypatch.setattr(runs, "BUDGET", 3000), monkeypatch.setattr(viewport, "BUDGET", 3000)
        small = viewport.window(values, viewport.Slice.of(array.shape, 0, 1, (0, 0, 7)))
        assert np.array_equal(small.values, whole[:: small.row_step, :: small.column_step, 7])


def test_a_file_that_changes_is_opened_anew(tmp_path):
    path = tmp_path / "x.npy"
    tw.save(path, np.arange(5.0))
    with running(path) as page:
        id = page.ids()["x.npy"]
        assert page.window(id=id, n=0)[1].tolist() == [[0, 1, 2, 3, 4]]
        tw.save(path, np.arange(7.0) * 2)
        assert page.window(id=id, n=0)[1].tolist() == [[0, 2, 4, 6, 8, 10, 12]]
        path.unlink()
        assert "No such file" in page.fault("window", id=id, n=0)


# Two tensors


def test_comparison(page, main, value, folder):
    id, numbers = main
    second = page.ids()["files/predictions-2.npz"]
    others = page.numbers(second)
    changed = tw.load(folder / "predictions-2.npz")["layers/0/kernel"].astype(np.float64)
    gap = value["layers/0/kernel"].astype(np.float64) - changed
    two = {
        "id": id,
        "n": numbers["layers/0/kernel"],
        "id2": second,
        "n2": others["layers/0/kernel"],
    }
    found = page.get("compare", **two)
    assert found["statistics"]["unequal"] == np.count_nonzero(gap) == found["summary"]["unequal"]
    assert (
        found["statistics"]["max_abs"]
        == pytest.approx(np.abs(gap).max())
        == pytest.approx(found["summary"]["max_abs"])
    )
    assert found["statistics"]["rms"] == pytest.approx(np.sqrt(np.mean(gap**2)))
    assert gap[tuple(found["largest"])] in (gap.max(), gap.min())
    assert np.array_equal(page.window(**two, at="2,0,0")[1], gap[2])
    assert page.get("statistics", **two)["mean"] == pytest.approx(gap.mean())
    same = page.get("compare", id=id, n=numbers["attention"], id2=second, n2=others["attention"])
    assert (
        same["summary"]["exact"] and same["statistics"]["unequal"] == 0 and same["largest"] is None
    )
    odd = page.get("compare", id=id, n=numbers["words"], id2=second, n2=others["attention"])
    assert odd["statistics"] is None and "kind" in odd["summary"]["problems"]
    assert "shapes" in page.fault("window", **{**two, "n2": others["attention"]})


def test_differences_of_what_floats_cannot_hold():
    def gap(a, b, dtype=None):
        return (
            comparing.Difference(
                runs.InMemory(np.array(a, dtype)), runs.InMemory(np.array(b, dtype))
            )
            .run(0, len(a))
            .tolist()
        )

    assert gap([2**60 + 1, 5], [2**60, 7], np.int64) == [1, -2]
    assert gap([-(2**63), 0], [2**63 - 1, 0], np.int64) == [-(2.0**64), 0]
    assert gap([np.inf, np.nan, 1.0], [np.inf, np.nan, 2.0]) == [0, 0, -1]
    assert math.isnan(gap([np.nan], [1.0])[0])
    assert gap([1 + 1j], [1 + 0j]) == [1]
    assert gap([True, False], [False, False]) == [1, 0]


# Records


def test_records(page, folder):
    id = page.ids()["files/train.tfrecord"]
    reader = tw.RecordReader(folder / "train.tfrecord", index=False)
    found = page.get("records", id=id, start=123, count=3)
    assert found["total"] == 200 and [record["at"] for record in found["records"]] == [
        123,
        124,
        125,
    ]
    for record in found["records"]:
        wanted = tw.loads(reader[record["at"]], "example")
        features = {feature["name"]: feature for feature in record["features"]}
        assert set(features) == set(wanted) and record["kind"] == "Example"
        assert features["label"]["values"] == [str(wanted["label"][0])]
        assert [float(text) for text in features["score"]["values"]] == pytest.approx(
            wanted["score"].tolist(), rel=1e-6
        )
        assert features["title"]["strings"][0]["text"] == f"record {record['at']}"
        at = list(wanted).index("photo")
        status, headers, body = page.raw(
            "record_image", id=id, record=record["at"], feature=at, at=0
        )
        assert (status, headers["content-type"], body) == (200, "image/png", wanted["photo"][0])
        assert "neither" in page.fault(
            "record_image", id=id, record=record["at"], feature=list(wanted).index("title"), at=0
        )
    assert page.get("records", id=id, start=10**15)["records"][0]["at"] == 199
    reader.close()
    assert not list(folder.glob("*.idx"))  # nothing is written beside the files


def test_schema(page, folder):
    found = page.get("schema", id=page.ids()["files/train.tfrecord"])
    wanted = tw.infer_schema(folder / "train.tfrecord")
    assert found["records"] == 200 and {feature["name"] for feature in found["features"]} == set(
        wanted
    )
    label = next(feature for feature in found["features"] if feature["name"] == "label")
    assert label["seen"]["range"] == [0, 9] and label["seen"]["present"] == 200
    assert (
        next(feature for feature in found["features"] if feature["name"] == "tags")["seen"][
            "present"
        ]
        == 100
    )


def test_damage(page, folder):
    id = page.ids()["files/damaged.tfrecord"]
    report = tw.repair(folder / "damaged.tfrecord")
    found = page.get("verify", id=id)
    assert (
        not found["ok"]
        and found["records"] == report.records
        and found["gap_count"] == len(report.gaps)
    )
    assert [(gap["offset"], gap["length"]) for gap in found["gaps"]] == [
        (gap.offset, gap.length) for gap in report.gaps
    ]
    some = page.get("records", id=id, start=100, count=2)
    good = list(tw.RecordReader(folder / "damaged.tfrecord", on_corrupt="skip"))
    assert (
        some["damage"]
        and some["total"] is None
        and [record["size"] for record in some["records"]] == [len(one) for one in good[100:102]]
    )
    assert page.get("records", id=id, start=len(good) - 3, count=10)["total"] == len(good)
    assert page.get("verify", id=page.ids()["files/train.tfrecord"])["ok"]


def test_other_records(tmp_path):
    with tw.RecordWriter(tmp_path / "bytes.tfrecord") as writer:
        for record in (
            b"\xff\xfe garbage",
            tw.dumps(np.arange(3), "tensorproto"),
            b"",
            tw.dumps({"a": tw.Ragged.of([[1], [2, 3]])}, "example"),
        ):
            writer.write(record)
    tw.write_sequence_examples(
        tmp_path / "steps.tfrecord",
        [({"id": 7}, {"token": [b"a", b"b"], "score": [[0.5, 1.0], [2.0, 3.0]]})],
    )
    with running(tmp_path) as page:
        ids = page.ids()
        records = page.get("records", id=next(id for way, id in ids.items() if "bytes" in way))[
            "records"
        ]
        assert [record["kind"] for record in records] == ["bytes", "value", "Example", "Example"]
        assert records[0]["raw"]["binary"] and records[1]["features"][0]["values"] == [
            "0",
            "1",
            "2",
        ]
        assert records[3]["features"][0]["kind"] == "ragged"
        steps = page.get("records", id=next(id for way, id in ids.items() if "steps" in way))[
            "records"
        ][0]
        assert steps["kind"] == "SequenceExample" and {
            feature["name"] for feature in steps["features"]
        } == {"id", "token", "score"}


def test_a_large_record_file_opens_before_it_is_counted(tmp_path, monkeypatch):
    from tensorwire.view import records

    held = threading.Event()
    count = records.RecordFile._count
    monkeypatch.setattr(records, "AT_ONCE", 10)
    monkeypatch.setattr(records.RecordFile, "_count", lambda self: (held.wait(20), count(self)))
    path = tmp_path / "x.tfrecord"
    tw.write_examples(path, [{"i": i} for i in range(50)], schema_file=False)
    with running(path) as page:
        id = page.ids()["x.tfrecord"]
        found = page.get("records", id=id, start=20, count=5)
        assert (
            found["total"] is None
            and found["counting"]
            and found["records"][0]["features"][0]["values"] == ["20"]
        )
        assert "counted" in page.fault("records", id=id, start=10**6)
        held.set()
        end = time.monotonic() + 10
        while page.get("records", id=id)["counting"] and time.monotonic() < end:
            time.sleep(0.02)
        assert page.get("records", id=id)["total"] == 50


# Models


@pytest.mark.tensorflow
def test_models(tf, tmp_path):
    weights = tf.Variable(tf.ones([3, 1]))
    tw.serving.export(
        lambda x: {"y": x @ weights}, tmp_path / "adder", {"x": ("float32", [None, 3])}, version=1
    )
    with running(tmp_path) as page:
        ids = page.ids()
        id = next(id for way, id in ids.items() if way.endswith("adder/1"))
        found = page.get("model", id=id)
        assert found["model"] == "adder" and found["signatures"][0]["inputs"]["x"] == {
            "dtype": "float32",
            "shape": [None, 3],
        }
        said = {"signature": "serving_default", "inputs": {"x": "[[1, 2, 3]]"}}
        answer = page.post("request", said, id=id)
        assert json.loads(answer["body"])["inputs"] in ([[1, 2, 3]], {"x": [[1, 2, 3]]})
        assert (
            answer["fault"] is None
            and answer["curl"].startswith("curl ")
            and "/v1/models/adder:predict" in answer["curl"]
        )
        for wrong in (
            {"x": "[[1, 2]]"},
            {"x": "nonsense"},
            {"y": "1"},
            {"x": "[" * 10_000},
            {},
            {"x": 5},
        ):
            assert page.post("request", {**said, "inputs": wrong}, id=id)["error"], wrong
        for wrong in (
            {"url": "grpc://x:1"},
            {"url": "ftp://x"},
            {"signature": "none"},
            {"layout": "odd"},
        ):
            assert page.post("request", {**said, **wrong}, id=id)["error"]
        assert page.post("request", [1], id=id)["error"]
        variables = next(id for way, id in ids.items() if way.endswith("adder/1/variables"))
        assert page.get("file", id=variables)["format"] == "checkpoint"


def test_a_broken_model_is_said(tmp_path):
    (tmp_path / "bad").mkdir()
    (tmp_path / "bad" / "saved_model.pb").write_bytes(os.urandom(200))
    with running(tmp_path) as page:
        id = next(id for way, id in page.ids().items() if way.endswith("bad"))
        assert page.fault("model", id=id)


# Bad files


def test_hostile_files_are_said_and_the_server_lives(page, folder):
    ids = page.ids()
    names = [way for way in ids if "/strange/" in way]
    assert len(names) == 6
    for way in names:
        id = ids[way]
        for name in (
            "file",
            "tensor",
            "window",
            "statistics",
            "line",
            "image",
            "strings",
            "search",
            "ragged",
            "sparse",
            "records",
            "schema",
            "verify",
            "model",
        ):
            status, _, body = page.raw(name, id=id, n=0)
            assert status == 200, (way, name, body)
            assert b"Traceback" not in body
    assert page.get("tree")


def test_a_bomb_is_refused(folder, value, monkeypatch):
    monkeypatch.setattr(opened, "UNPACKED", 1 << 20)
    with running(folder / "strange" / "bomb.json.gz") as page:
        assert page.fault("file", id="n0")


def test_what_can_only_be_read_whole_is_bounded(tmp_path, monkeypatch):
    monkeypatch.setattr(opened, "UNPACKED", 100)
    tw.save(tmp_path / "x.pb", np.arange(100))
    with running(tmp_path / "x.pb") as page:
        assert "whole" in page.fault("file", id="n0")


def test_a_fault_of_our_own_is_one_line(page, main, monkeypatch, capsys):
    monkeypatch.setattr(kinds, "strings", lambda *_: 1 / 0)
    status, _, body = page.raw("strings", id=main[0], n=main[1]["words"])
    assert (
        status == 500
        and "ZeroDivisionError" in json.loads(body)["error"]
        and b"Traceback" not in body
    )
    assert page.get("tree")


# 10 GB


@pytest.mark.timing
@pytest.mark.skipif(not os.path.exists("/proc/self/io"), reason="what a process reads is in /proc")
def test_ten_gigabytes_open_at_once(tmp_path):
    """50,000 x 50,000 float32: little is read, little memory is taken, and each answer is there
    within a second.
    """
    path = view_files.big(tmp_path)
    if os.stat(path).st_blocks * 512 > 1 << 30:
        pytest.skip("this file system has no holes in files")
    code = (
        f"import sys; from tensorwire.cli import main; sys.exit(main(['view', {path!r},"
        " '--no-browser']))"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            page = Page(process.stdout.readline().strip())
            page.get("tree")

            def cost():
                words = dict(
                    line.split(": ")
                    for line in Path(f"/proc/{process.pid}/io").read_text().splitlines()
                )
                return int(words["rchar"])

            before, start = cost(), time.monotonic()
            id = page.ids()["big.safetensors"]
            about = page.get("tensor", id=id, n=0)
            assert about["shape"] == [50_000, 50_000]
            _, found = page.window(id=id, n=0)
            assert time.monotonic() - start < 1 and found.shape == (256, 256)
            assert cost() - before < 80 << 20
            assert np.abs(found).max() > 0.9
            for r0 in (0, 12_345, 49_000):
                before, start = cost(), time.monotonic()
                _, found = page.window(id=id, n=0, r0=r0, r1=r0 + 200, c0=40_000, c1=40_300)
                assert time.monotonic() - start < 1 and cost() - before < 2 << 20
            _, column = page.window(id=id, n=0, rows=1, columns=0, r0=7, r1=8)
            assert column.shape == (1, 256)
            start = time.monotonic()
            counted = page.get("statistics", id=id, n=0)
            assert (
                not counted["exact"]
                and counted["size"] == 2_500_000_000
                and time.monotonic() - start < 3
            )
            status = Path(f"/proc/{process.pid}/status").read_text()
            peak = int(
                next(line for line in status.splitlines() if line.startswith("VmHWM")).split()[1]
            )
            assert peak < 400_000  # kB
        finally:
            process.send_signal(signal.SIGINT)
            assert process.wait(10) == 0


def test_a_wide_and_a_flat_one(tmp_path):
    """Shapes whose rows are far too long to be read whole."""
    path = view_files.big(tmp_path, (2, 500_000_000))
    with tw.open(path) as file:
        start = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        values = runs.values_of(file["w"])
        assert viewport.window(
            values, viewport.Slice.of(values.shape, None, None, None)
        ).values.shape == (2, 256)
        assert viewport.window(
            values, viewport.Slice.of(values.shape, 1, 0, None)
        ).values.shape == (256, 2)
        assert viewport.line(values).complete is False
        assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - start < 200_000


# The command


def run(*arguments):
    return subprocess.run(
        [sys.executable, "-m", "tensorwire", "view", *arguments],
        capture_output=True,
        text=True,
        timeout=30,
    )


def test_the_command_prints_its_address_first_and_ends_quietly(folder, value):
    command = [sys.executable, "-m", "tensorwire", "view", str(folder), "--no-browser"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        page = Page(process.stdout.readline().strip())
        assert page.get("tree")["version"] == tw.__version__
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=10)
        assert (process.returncode, out, err) == (0, "", "")


@pytest.mark.slow
def test_the_command_is_told_what_is_wrong(tmp_path):
    found = run(str(tmp_path / "nothing"), "--no-browser")
    assert found.returncode == 1 and "no such file or folder" in found.stderr and found.stdout == ""
    assert run().returncode == 2
    assert run(str(tmp_path), "--port", "99999").returncode == 2
    with socket.create_server(("127.0.0.1", 0)) as taken:
        found = run(str(tmp_path), "--no-browser", "--port", str(taken.getsockname()[1]))
        assert found.returncode == 1 and "in use" in found.stderr
