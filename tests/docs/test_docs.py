"""Every Python block of the README and of docs/ runs, in page order; those behind `<!-- needs:
torch -->` once more with that framework.
"""

import os
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = sorted([ROOT / "README.md", *ROOT.glob("docs/*.md")])
BLOCK = re.compile(r"(?:<!-- needs: (?P<needs>\w+) -->\n+)?```python\n(?P<code>.*?)```", re.S)


def blocks(page):
    return [
        (match["needs"], match["code"], page.read_text()[: match.start("code")].count("\n"))
        for match in BLOCK.finditer(page.read_text())
    ]


def run(page, tmp_path, needs):
    here = os.getcwd()
    os.chdir(tmp_path)
    scope = {"__name__": "docs"}
    try:
        for wanted, code, line in blocks(page):
            if wanted in needs:
                exec(compile("\n" * line + code, str(page), "exec"), scope)
    finally:
        os.chdir(here)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_blocks_run_without_any_framework(page, tmp_path):
    run(page, tmp_path, {None})


@pytest.mark.parametrize(
    ("page", "framework"),
    [
        pytest.param(
            page, framework, marks=getattr(pytest.mark, framework), id=f"{page.name}-{framework}"
        )
        for page in PAGES
        for framework in sorted({needs for needs, _, _ in blocks(page) if needs})
    ],
)
@pytest.mark.filterwarnings("ignore:Use 'expr' instead")  # of Ray: the page shows what people write
def test_blocks_run_with_their_framework(page, framework, tmp_path):
    run(page, tmp_path, {None, framework})


def test_there_is_something_to_run():
    assert sum(len(blocks(page)) for page in PAGES) >= 12


def test_links_lead_somewhere():
    for page in [*PAGES, ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md"]:
        for target in re.findall(r"\]\(([^)#\s]+)\)", page.read_text()):
            if "://" not in target:
                assert (page.parent / target).exists(), f"{page.name}: {target}"
