"""A short run of scripts/attack.py: mutants of every format against every reader. `make torture`
runs the long one.
"""

import json
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "scripts" / "attack.py"


@pytest.mark.large
def test_mutants_are_values_or_errors_of_ours(tmp_path):
    words = [
        sys.executable,
        SCRIPT,
        "--mutants",
        "3000",
        "--seed",
        "11",
        "--json",
        tmp_path / "report.json",
    ]
    run = subprocess.run(words, capture_output=True, text=True)
    report = json.loads((tmp_path / "report.json").read_text())
    assert run.returncode == 0 and report["findings"] == [], run.stdout
    assert len(report["targets"]) >= 27 and sum(report["targets"].values()) >= 2900
