"""The benchmark of faults causes faults and reports how long their detection took."""

import json
from pathlib import Path

import pytest
from programs import run_python

import launch

pytestmark = [pytest.mark.slow, pytest.mark.one_mpi]

FAULTS = Path(__file__).parents[2] / "benchmarks" / "faults.py"


def test_fault_benchmark_measures_detection_times(tmp_path):
    target = tmp_path / "report.json"
    cases = ["killed_sync", "interrupted", "different_tables", "hostile_checkpoint"]
    options = ["--only", *cases, "--repeat", "1", "--ranks", "3", "--silent", "--json", str(target)]
    status, _, err = run_python(FAULTS, *options, timeout=launch.JOB_TIMEOUT)
    # The exit code is 1 if a fault took too long to detect, which may happen on a busy machine.
    assert status in (0, 1), err
    assert target.exists(), err
    report = json.loads(target.read_text("utf-8"))
    assert report["ranks"] == 3
    assert report["environment"]["mpi"]
    assert [case["name"] for case in report["cases"]] == cases
    for case in report["cases"]:
        assert len(case["seconds"]) == 1
        assert 0 < case["median"] == case["max"]
        assert case["passed"] == (case["bound"] is None or case["max"] <= case["bound"])
