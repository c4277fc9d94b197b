"""The benchmark of faults makes them happen, and tells when each rank knew."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import launch

pytestmark = pytest.mark.slow

FAULTS = Path(__file__).parents[2] / "benchmarks" / "faults.py"


def test_times_of_faults_are_measured(tmp_path):
    target = tmp_path / "report.json"
    cases = ["killed_sync", "interrupted", "different_tables", "hostile_checkpoint"]
    options = ["--only", *cases, "--repeat", "1", "--ranks", "3", "--silent", "--json", str(target)]
    done = subprocess.run(
        [sys.executable, str(FAULTS), *options],
        env={**os.environ, "PYTHONPATH": str(FAULTS.parents[1])},
        capture_output=True,
        text=True,
        timeout=launch.WALL_LIMIT,
        check=False,
    )
    # 1 if it took longer than it may, which on a busy machine it may.
    assert done.returncode in (0, 1), done.stderr
    assert target.exists(), done.stderr
    report = json.loads(target.read_text("utf-8"))
    assert report["ranks"] == 3
    assert report["environment"]["mpi"]
    assert [case["name"] for case in report["cases"]] == cases
    for case in report["cases"]:
        assert len(case["seconds"]) == 1
        assert 0 < case["median"] == case["max"]
        assert case["passed"] == (case["bound"] is None or case["max"] <= case["bound"])
