"""Files that earlier code wrote are read, and written again byte for byte.

scripts/golden.py has the values and the cases, and made the files.
"""

import importlib.util
import json
from pathlib import Path

import pytest

import tensorwire as tw

_SPEC = importlib.util.spec_from_file_location(
    "golden", Path(__file__).parents[3] / "scripts" / "golden.py"
)
golden = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(golden)

MANIFEST = json.loads((golden.FOLDER / golden.MANIFEST).read_text())
VALUES = golden.values()
CASES = list(golden.cases())
KEPT = [case for case in CASES if case.name not in MANIFEST["refused"]]
IDS = [f"{case.name}{'-converted' if case.converted else ''}" for case in KEPT]


def files_of(case):
    return sorted(name for name, entry in MANIFEST["files"].items() if entry["case"] == case.name)


def test_every_file_is_there():
    names = {path.name for path in golden.FOLDER.iterdir()}
    assert names == {golden.MANIFEST, *MANIFEST["files"]}
    assert {case.name for case in CASES} == {
        *MANIFEST["refused"],
        *(entry["case"] for entry in MANIFEST["files"].values()),
    }
    assert sum(path.stat().st_size for path in golden.FOLDER.iterdir()) < 200_000
    for name, entry in MANIFEST["files"].items():
        assert golden.sha256((golden.FOLDER / name).read_bytes()) == entry["sha256"], name


@pytest.mark.parametrize("case", KEPT, ids=IDS)
def test_a_golden_file_is_read(case):
    value = VALUES[case.value]
    found = case.read(golden.FOLDER / case.name, value)
    if isinstance(found, tw.Bundle) and not isinstance(value, tw.Bundle):
        found = dict(found)  # the format has no other word for a dict
    assert tw.equal(found, case.expected(value)), found


@pytest.mark.parametrize("case", KEPT, ids=IDS)
def test_a_golden_file_is_written_again(case, tmp_path):
    files = golden.write(case, VALUES[case.value], tmp_path)
    assert sorted(files) == files_of(case)
    if case.exact:
        for name, data in files.items():
            assert data == (golden.FOLDER / name).read_bytes(), name


@pytest.mark.parametrize("name", MANIFEST["refused"])
def test_what_was_refused_is_refused(name, tmp_path):
    case = next(case for case in CASES if case.name == name)
    with pytest.raises(tw.EncodeError):
        golden.write(case, VALUES[case.value], tmp_path)
