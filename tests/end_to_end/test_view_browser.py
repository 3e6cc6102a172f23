"""The page of `tensorwire view` in a real Chromium: every kind of file opened, sliced, paged,
searched and compared.

Screenshots of all of it go to build/screenshots, for people to look at. `python
tests/end_to_end/test_view_browser.py` says which browser would be used; with a folder (docs/images) it writes
the screenshots of docs/view.md there.
"""

import contextlib
import os
import re
import shutil
import sys
import time
from pathlib import Path

import pytest

from support import view_files
from support.view_server import running

SCREENSHOTS = Path(__file__).parents[2] / "build" / "screenshots"
NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
PLACES = (
    "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome",
    "/Applications/Chromium.app/Contents/MacOS/Chromium",
)
NONE = (
    "NO BROWSER: install Debian's chromium (apt-get install chromium) or Chrome, or set"
    " TENSORWIRE_BROWSER to one"
)

pytestmark = pytest.mark.browser


def browser_path():
    """The browser that is there; None if there is none."""
    named = os.environ.get("TENSORWIRE_BROWSER")
    found = (
        [named]
        if named
        else [shutil.which(name) for name in NAMES]
        + [place for place in PLACES if os.path.exists(place)]
    )
    return next(filter(None, found), None)


@contextlib.contextmanager
def launched():
    from playwright.sync_api import sync_playwright

    # As root, as in containers, Chromium has no sandbox; what it is shown here are our own files.
    arguments = ["--no-sandbox"] if hasattr(os, "geteuid") and os.geteuid() == 0 else []
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=browser_path(), args=arguments)
        try:
            yield browser
        finally:
            browser.close()


@pytest.fixture(scope="module")
def browser():
    if browser_path() is None:
        pytest.skip(NONE)
    SCREENSHOTS.mkdir(parents=True, exist_ok=True)
    with launched() as found:
        yield found


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    found = tmp_path_factory.mktemp("view") / "files"
    found.mkdir()
    view_files.everything(found, 300)
    return found


@pytest.fixture(scope="module")
def server(folder):
    with running(folder) as found:
        yield found


class Tab:
    """One page of the browser, and what went wrong on it."""

    def __init__(self, browser, server, **options):
        self.context = browser.new_context(
            **{"viewport": {"width": 1280, "height": 860}, **options}
        )
        self.page, self.server, self.faults = self.context.new_page(), server, []
        self.page.set_default_timeout(10_000)
        self.page.on(
            "console",
            lambda said: (
                self.faults.append(said.text) if said.type in ("error", "warning") else None
            ),
        )
        self.page.on("pageerror", lambda error: self.faults.append(str(error)))
        self.page.on(
            "requestfailed",
            lambda request: (
                self.faults.append(request.url)
                if "ERR_ABORTED" not in str(request.failure)
                else None
            ),
        )
        self.page.on("request", lambda request: self._stays(request.url))
        self.page.goto(f"http://127.0.0.1:{server.port}/?token={server.token}")
        self.page.wait_for_selector(".leaf", state="attached")
        self.ids = server.ids()

    def _stays(self, url):
        if not url.startswith((f"http://127.0.0.1:{self.server.port}/", "blob:", "data:")):
            self.faults.append(f"asked for {url}")

    def file(self, name):
        return next(
            id for way, id in self.ids.items() if way.rpartition("/")[2] == name or way == name
        )

    def show(self, hash):
        self.page.evaluate("hash => { location.hash = hash; }", hash)
        self.page.wait_for_timeout(50)

    def tensor(self, file, name, view=""):
        id = self.file(file)
        self.show(f"#{id}/{self.server.numbers(id)[name]}{view}")
        self.page.wait_for_selector(
            f".title h1:text-is({name!r})" if "<" not in name else ".title h1"
        )

    def text(self, selector="main"):
        return self.page.inner_text(selector)

    def wait(self, text, selector="main"):
        self.page.wait_for_function(
            "([selector, text]) => [...document.querySelectorAll(selector)].some((one) =>"
            " one.innerText.includes(text))",
            arg=[selector, text],
        )

    def settled(self):
        self.page.wait_for_load_state("networkidle")
        self.page.wait_for_timeout(150)

    def shot(self, name, folder=SCREENSHOTS):
        self.settled()
        self.page.screenshot(path=str(folder / f"{name}.png"))

    def painted(self, selector="canvas"):
        """How many colours a canvas shows."""
        return self.page.evaluate(
            """selector => {
                const canvas = document.querySelector(selector), found = new Set();
                const data = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data;
                for (let i = 0; i < data.length; i += 4) if (data[i + 3]) found.add(data[i] << 16 | data[i + 1] << 8 | data[i + 2]);
                return found.size; }""",
            selector,
        )

    def close(self):
        hacked = self.page.evaluate("window.hacked")
        self.context.close()
        assert self.faults == [] and hacked is None


@pytest.fixture
def tab(browser, server):
    found = Tab(browser, server)
    yield found
    found.close()


def test_the_token_leaves_the_address(tab):
    assert "token" not in tab.page.url
    assert "files" in tab.text()
    tab.page.reload()
    tab.page.wait_for_selector(".leaf")
    assert tab.page.evaluate("document.cookie") == ""  # which scripts cannot read
    tab.shot("welcome")


def test_without_a_token_there_is_nothing(browser, server):
    context = browser.new_context()
    page = context.new_page()
    assert page.goto(f"http://127.0.0.1:{server.port}/").status == 403
    assert "token" in page.inner_text("body")
    context.close()


def test_a_file_by_mouse(tab):
    tab.page.click(".leaf:has-text('predictions.safetensors')")
    tab.wait("16 tensors")
    tab.shot("file")
    tab.page.click(".leaf.tensor:has-text('attention')")
    tab.page.wait_for_selector("h1:text-is('attention')")
    tab.wait("std")
    tab.settled()
    tab.shot("heat-map")
    assert tab.painted("canvas.map") > 100
    tab.page.go_back()
    tab.wait("16 tensors")


def test_statistics_and_histogram(tab):
    tab.tensor("predictions.safetensors", "holes")
    tab.wait("std")
    figures = dict(
        zip(
            tab.page.locator(".figures dt").all_inner_texts(),
            tab.page.locator(".figures dd").all_inner_texts(),
            strict=True,
        )
    )
    assert (
        figures["NaN"].startswith("40")
        and figures["inf"].startswith("2")
        and figures["elements"] == "2,400"
    )
    assert "Histogram of 2,358 elements" in tab.page.get_attribute("canvas:not(.map)", "aria-label")
    tab.page.check("text=log scale")
    tab.shot("nan-and-infinity")


def test_slices(tab):
    tab.tensor("predictions.safetensors", "layers/0/kernel")
    tab.wait("rows 0 to 31 of 32, columns 0 to 47 of 48", ".readout")
    before = tab.page.evaluate("document.querySelector('canvas.map').toDataURL()")
    tab.page.locator("input[type=range]").fill("4")
    tab.settled()
    assert tab.page.evaluate("document.querySelector('canvas.map').toDataURL()") != before
    tab.page.locator("label:has-text('rows') select").select_option("0")
    tab.wait("rows 0 to 5 of 6, columns 0 to 47 of 48", ".readout")
    tab.page.locator("label:has-text('columns') select").select_option("0")  # which swaps the two
    tab.wait("rows 0 to 47 of 48, columns 0 to 5 of 6", ".readout")
    tab.shot("slices")


def test_zoom_and_pan_by_keys_and_mouse(tab, folder):
    tab.tensor("predictions.safetensors", "attention")
    tab.wait("rows 0 to 191", ".readout")
    canvas = tab.page.locator("canvas.map")
    canvas.focus()
    for _ in range(5):
        tab.page.keyboard.press("+")
        tab.settled()
    tab.wait("of 192", ".readout")
    assert int(re.search(r"rows (\d+) to (\d+)", tab.text(".readout")).group(1)) > 80
    tab.shot("numbers-in-cells")
    inside = tab.text(".readout")
    tab.page.keyboard.press("ArrowRight")
    tab.settled()
    assert tab.text(".readout") != inside
    tab.page.keyboard.press("0")
    tab.wait("rows 0 to 191", ".readout")
    box = canvas.bounding_box()
    tab.page.mouse.move(box["x"] + 200, box["y"] + 200)
    assert re.fullmatch(r"\[\d+, \d+\] = [\d.e−-]+", tab.text(".readout"))
    tab.page.mouse.dblclick(box["x"] + 200, box["y"] + 200)
    tab.settled()
    tab.page.mouse.move(box["x"] + 5, box["y"] + 460)
    assert "of 192" in tab.text(".readout") and "rows 0 to 191" not in tab.text(".readout")


def test_lines(tab):
    tab.tensor("predictions.safetensors", "layers/0/bias")
    tab.wait("elements 0 to 3,999", ".readout")
    assert tab.painted("canvas.map") > 2
    tab.page.get_by_label("Zoom in").click()
    tab.wait("elements 1,000 to 2,999", ".readout")
    tab.shot("line")


def test_values(tab):
    tab.tensor("predictions.safetensors", "ids", "/values")
    tab.page.wait_for_selector("table.values td")
    value = view_files.np.array(
        [
            [int(cell) for cell in row.split("\t")[1:]]
            for row in tab.text("table.values tbody").splitlines()
        ]
    )
    assert value.shape == (8, 5) and abs(value).max() > 2**53  # exact, past what JavaScript counts
    tab.tensor("predictions.safetensors", "attention", "/values")
    tab.wait("rows 0 to 19 of 192")
    tab.page.keyboard.press("ArrowRight")
    tab.wait("rows 20 to 39 of 192")
    tab.shot("values")


def test_images(tab):
    for name, count in (("pictures", 24), ("pictures_chw", 6)):
        tab.tensor("predictions.safetensors", name, "/images")
        tab.page.wait_for_function(
            """count => { const all = [...document.querySelectorAll('.album img')];
                return all.length === count && all.every((one) => one.complete && one.naturalWidth === 40); }""",
            arg=count,
        )
        tab.shot(f"images-{name}")


def test_strings_are_searched(tab):
    tab.tensor("predictions.safetensors", "words")
    tab.wait("strings 0 to 99 of 2,000")
    tab.page.keyboard.press("/")
    tab.page.keyboard.type("größe-12")
    tab.wait("match")
    assert all("Größe-12" in text for text in tab.page.locator(".string .text").all_inner_texts())
    tab.shot("search")
    tab.page.keyboard.press("Escape")
    tab.page.locator("#search").fill("")
    tab.wait("strings 0 to 99 of 2,000")
    tab.page.locator("main").focus()
    tab.page.keyboard.press("ArrowRight")
    tab.wait("strings 100 to 199 of 2,000")
    tab.tensor("predictions.safetensors", "photos")
    tab.page.wait_for_function(
        "() => [...document.querySelectorAll('img.found')].filter((one) => one.naturalWidth ==="
        " 40).length === 4"
    )


def test_sparse_and_ragged(tab):
    tab.tensor("predictions.safetensors", "clicks")
    tab.wait("density")
    assert tab.painted("canvas[aria-label^='Sparsity pattern']") > 5
    tab.shot("sparse")
    tab.tensor("predictions.safetensors", "tokens")
    tab.wait("rows 0 to 19 of 500")
    tab.wait("mean length")
    tab.page.keyboard.press("ArrowRight")
    tab.wait("rows 20 to 39 of 500")
    tab.shot("ragged")


@pytest.mark.parametrize("name", ["mask", "spectrum", "scalar", "nothing", "ids"])
def test_odd_tensors(tab, name):
    tab.tensor("predictions.safetensors", name)
    tab.wait("elements", ".figures")
    tab.shot(f"odd-{name}")


def test_records(tab):
    tab.page.click(".leaf:has-text('train.tfrecord')")
    tab.wait("records 0 to 9 of 300")
    tab.page.wait_for_function(
        "() => document.querySelectorAll('img.found').length === 10 &&"
        " document.querySelector('img.found').naturalWidth === 48"
    )
    tab.shot("records")
    tab.page.locator("main").focus()
    tab.page.keyboard.press("ArrowRight")
    tab.wait("records 10 to 19 of 300")
    tab.page.get_by_label("Go to record").fill("257")
    tab.page.keyboard.press("Enter")
    tab.wait("Record 257")
    assert "record 257" in tab.text() and tab.page.url.endswith("/records/257")
    tab.page.click("text=Schema")
    tab.wait("from all 300 records")
    assert "50 %" in tab.text("tr:has-text('tags')")
    tab.shot("schema")
    tab.page.click("text=Integrity")
    tab.wait("OK", ".figures")
    assert "NOT" not in tab.text(".figures")


def test_damage(tab):
    tab.show(f"#{tab.file('damaged.tfrecord')}")
    tab.wait("This file is damaged")
    tab.page.click(".tabs >> text=Integrity")
    tab.wait("DAMAGED")
    assert tab.page.locator(".strip i").count() == 3
    tab.shot("integrity")


def test_comparison(tab):
    tab.tensor("predictions.safetensors", "layers/0/kernel", "/compare")
    held = []
    tab.page.route(f"**/api/*id={tab.file('predictions-2.npz')}*", lambda route: held.append(route))
    tab.page.select_option("#with-file", tab.file("predictions-2.npz"))
    tab.page.wait_for_timeout(100)
    # what is to be chosen is not there yet
    assert len(held) == 1 and tab.page.is_disabled("button:text-is('Compare')")
    held[0].continue_()
    tab.page.unroute_all()
    tab.page.click("button:text-is('Compare')")
    tab.wait("unequal")
    assert "240" in tab.text(".figures")
    tab.settled()
    assert tab.painted("canvas.map") > 50  # it begins where the difference is
    tab.shot("comparison")
    tab.tensor(
        "predictions.safetensors", "attention", f"/compare/{tab.file('predictions-2.npz')}/1"
    )
    tab.wait("Bit-exact")


@pytest.mark.tensorflow
def test_a_request_is_built(browser, tf, tmp_path):
    import tensorwire as tw

    weights = tf.Variable(tf.ones([1000, 4]))
    tw.serving.export(
        lambda clicks, profile: {
            "score": tf.reduce_sum(tf.sparse.sparse_dense_matmul(clicks, weights) + profile, 1)
        },
        tmp_path / "ranker",
        {"clicks": ("sparse", "float32", [None, 1000]), "profile": ("float32", [None, 4])},
        version=1,
    )
    with running(tmp_path) as server:
        tab = Tab(browser, server)
        tab.show(f"#{tab.file('1')}")
        tab.wait("serving_default")
        tab.page.get_by_label("profile").fill("[[1, 2, 3, 4]]")
        tab.page.click("text=Build request")
        tab.wait("TensorFlow Serving would accept this body")
        assert '"profile":[[1.0,2.0,3.0,4.0]]' in tab.text()
        assert "curl -sS -X POST" in tab.text() and "/v1/models/ranker:predict" in tab.text()
        tab.shot("model")
        tab.page.get_by_label("profile").fill("[[1, 2")
        tab.page.click("text=Build request")
        tab.wait("is not valid JSON")
        tab.page.get_by_label("profile").fill("[[1, 2]]")
        tab.page.click("text=Build request")
        tab.page.wait_for_selector(".fault")
        tab.show(f"#{tab.file('variables')}")
        tab.wait("checkpoint")
        tab.close()


def test_hostile_names_are_shown_and_not_run(tab):
    id = tab.file("predictions.safetensors")
    tab.tensor("predictions.safetensors", view_files.HOSTILE)
    tab.wait(view_files.HOSTILE, ".strings")
    assert tab.page.inner_text("h1") == view_files.HOSTILE
    tab.shot("hostile-name")
    tab.show(f"#{id}")
    tab.wait("nmt-v2")
    assert (
        view_files.HOSTILE in tab.text()
        and tab.page.locator("main script, main img, main svg").count() == 0
    )
    tab.show("#" + "<img src=x onerror=window.hacked=1>")
    tab.wait("files")


def test_hostile_files_are_said(tab):
    for way, id in tab.ids.items():
        if "/strange/" in way:
            for hash in (
                f"#{id}",
                f"#{id}/0",
                f"#{id}/integrity",
                f"#{id}/schema",
                f"#{id}/0/values",
                f"#{id}/0/compare",
            ):
                tab.show(hash)
                tab.settled()
                assert "Traceback" not in tab.text()
    tab.show(f"#{tab.file('cut.safetensors')}")
    tab.wait("the tensors need 800 bytes", ".fault")
    tab.shot("hostile-file")
    tab.tensor("predictions.safetensors", "attention")


@pytest.mark.timing
def test_ten_gigabytes(browser, tmp_path):
    path = view_files.big(tmp_path)
    with running(path) as server:
        tab = Tab(browser, server)
        tab.wait("[50000, 50000]")
        seconds = tab.page.evaluate(
            """hash => new Promise((done) => { const start = performance.now(); location.hash = hash;
            const look = () => ([...document.querySelectorAll(".readout")].some((one) => one.innerText.includes("of 50,000"))
                ? done((performance.now() - start) / 1000) : requestAnimationFrame(look)); look(); })""",
            f"#{tab.file('big.safetensors')}/0",
        )
        assert seconds < 1
        assert tab.painted("canvas.map") > 20
        tab.page.locator("canvas.map").focus()
        for key in ("+", "+", "ArrowDown", "ArrowDown", "ArrowRight", "+", "+"):
            before, start = tab.text(".readout"), time.monotonic()
            tab.page.keyboard.press(key)
            tab.page.wait_for_function(
                "before => document.querySelector('.readout').innerText !== before", arg=before
            )
            assert time.monotonic() - start < 1
        tab.wait("From a sample of 4,194,304 elements.")
        tab.shot("ten-gigabytes")
        tab.close()


def test_on_a_phone(browser, server):
    tab = Tab(
        browser,
        server,
        viewport={"width": 390, "height": 844},
        device_scale_factor=2,
        has_touch=True,
        is_mobile=True,
    )
    assert not tab.page.is_visible("#side")
    tab.page.tap("#menu")
    tab.page.wait_for_selector("#side", state="visible")
    tab.shot("phone-menu")
    tab.page.tap(".leaf:has-text('predictions.safetensors')")
    tab.wait("16 tensors")
    for name in ("attention", "words", "clicks", "tokens"):
        tab.tensor("predictions.safetensors", name)
        tab.settled()
        wide = tab.page.evaluate(
            "[document.documentElement.scrollWidth, document.querySelector('main').scrollWidth,"
            " innerWidth]"
        )
        assert max(wide[:2]) <= wide[2], name
        tab.shot(f"phone-{name}")
    tab.show(f"#{tab.file('train.tfrecord')}")
    tab.wait("Record 0")
    tab.shot("phone-records")
    tab.close()


def test_light_and_dark(browser, server):
    tab = Tab(browser, server, color_scheme="dark")
    assert tab.page.evaluate("document.documentElement.dataset.theme") == "dark"
    tab.tensor("predictions.safetensors", "layers/0/kernel")
    tab.wait("std")
    tab.shot("dark")
    tab.page.locator("main").focus()
    tab.page.keyboard.press("t")
    assert tab.page.evaluate("document.documentElement.dataset.theme") == "light"
    tab.page.reload()
    tab.page.wait_for_selector("h1")
    # the choice stays
    assert tab.page.evaluate("document.documentElement.dataset.theme") == "light"
    tab.close()


def test_by_keyboard_alone(tab):
    tab.page.keyboard.press("?")
    assert tab.page.is_visible("#keys")
    tab.shot("help")
    tab.page.keyboard.press("Escape")
    tab.page.keyboard.press("/")
    tab.page.keyboard.type("predictions.safe")
    tab.page.keyboard.press("Tab")
    while "predictions.safetensors" not in tab.page.evaluate("document.activeElement.innerText"):
        tab.page.keyboard.press("ArrowDown")
    tab.page.keyboard.press("Enter")
    tab.wait("16 tensors")


def test_everything_has_a_name(tab):
    """Buttons, fields and pictures say what they are, for those who do not see them."""
    unnamed = """() => [...document.querySelectorAll('button, input, select, textarea, canvas, img, a')].filter((one) => {
        const labels = one.labels ? [...one.labels].map((label) => label.innerText).join('') : '';
        const label = one.getAttribute('aria-label') || one.getAttribute('alt') || one.innerText || one.title || labels;
        return !(label || '').trim() && one.getAttribute('alt') !== ''; }).map((one) => one.outerHTML.slice(0, 120))"""
    for name, view in (
        ("attention", ""),
        ("attention", "/values"),
        ("attention", "/compare"),
        ("words", ""),
        ("clicks", ""),
        ("tokens", ""),
        ("pictures", "/images"),
    ):
        tab.tensor("predictions.safetensors", name, view)
        tab.settled()
        assert tab.page.evaluate(unnamed) == []
    for view in ("", "/schema", "/integrity"):
        tab.show(f"#{tab.file('train.tfrecord')}{view}")
        tab.settled()
        assert tab.page.evaluate(unnamed) == []


def write_docs(folder):
    """The pictures of docs/view.md."""
    import tempfile

    with tempfile.TemporaryDirectory() as place, launched() as browser:
        files = Path(place) / "files"
        files.mkdir()
        view_files.everything(files)
        shutil.rmtree(files / "strange")
        with running(files) as server:
            small = {"viewport": {"width": 1280, "height": 820}, "device_scale_factor": 0.75}
            tab = Tab(browser, server, **small)
            tab.tensor("predictions.safetensors", "attention")
            tab.wait("std")
            tab.shot("view-tensor", folder)
            tab.show(f"#{tab.file('train.tfrecord')}")
            tab.wait("Record 0")
            tab.shot("view-records", folder)
            tab.close()
            tab = Tab(browser, server, color_scheme="dark", **small)
            tab.tensor(
                "predictions.safetensors",
                "layers/0/kernel",
                f"/compare/{tab.file('predictions-2.npz')}/0",
            )
            tab.wait("unequal")
            tab.shot("view-compare", folder)
            tab.close()
            tab = Tab(
                browser,
                server,
                viewport={"width": 390, "height": 780},
                is_mobile=True,
                has_touch=True,
            )
            tab.tensor("predictions.safetensors", "clicks")
            tab.wait("density")
            tab.shot("view-phone", folder)
            tab.close()


if __name__ == "__main__":
    if browser_path() is None:
        sys.exit(NONE)
    if len(sys.argv) > 1:
        Path(sys.argv[1]).mkdir(parents=True, exist_ok=True)
        write_docs(Path(sys.argv[1]))
    else:
        print(browser_path())
