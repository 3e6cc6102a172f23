"""The floors of the house: imports go down, packages keep their private names to themselves, and
the docs show it.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "scripts"))

import architecture


def test_imports_go_only_down():
    assert architecture.upward() == []
    seen = {
        (architecture.top(name), architecture.top(found.target))
        for name in architecture.MODULES
        for found in architecture.imports(name)
    }
    # tables of names are seen too
    assert {
        ("codecs", "lowering"),
        ("api", "codecs"),
        ("checkpoint", "codecs"),
        ("", "api"),
    } <= seen


def test_every_package_has_its_floor():
    tops = {architecture.top(name) for name in architecture.MODULES} - set(architecture.FRONT)
    assert tops == set(architecture.FLOOR)


def test_every_form_of_import_is_seen(monkeypatch, tmp_path):
    path = tmp_path / "sly.py"
    path.write_text(
        "import tensorwire.api.values\nfrom tensorwire import api\nfrom .. import view\nfrom ..cli"
        " import main\ndef f():\n    from ..api.lazy import open\nNAMES = {'x':"
        " 'datasets.dispatch'}\nROW = 'tensorwire.testing.matrix:Matrix'\n"
    )
    monkeypatch.setattr(architecture, "MODULES", {**architecture.MODULES, "core.sly": path})
    targets = {found.target for found in architecture.imports("core.sly")}
    assert targets == {
        "api.values",
        "api",
        "view",
        "cli.main",
        "api.lazy.open",
        "datasets.dispatch",
        "testing.matrix",
    }
    assert len(architecture.upward()) == 7


def test_packages_of_one_floor_import_in_no_circle():
    assert architecture.circles() == []


def test_private_names_stay_in_their_package():
    assert architecture.private() == []


def test_the_page_shows_the_floors():
    text = architecture.PAGE.read_text()
    assert architecture.START in text
    assert architecture.page(text) == text, "run scripts/architecture.py --write"
