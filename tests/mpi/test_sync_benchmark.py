"""The benchmark of sync mode measures rounds and sums, and compares them with MPI."""

import json
from pathlib import Path

import pytest

import launch

pytestmark = [pytest.mark.slow, pytest.mark.one_mpi]

SYNC = Path(__file__).parents[2] / "benchmarks" / "sync.py"


def test_sync_benchmark_compares_rounds_and_sums_with_mpi(tmp_path):
    target = tmp_path / "report.json"
    arguments = ["--quick", "--silent", "--sizes", "3", "1000", "--json", str(target)]
    launch.run(SYNC, *arguments, np=2).check()
    (run,) = json.loads(target.read_text("utf-8"))["runs"]
    assert run["ranks"] == 2
    measured = [(case["operation"], case["size"]) for case in run["cases"]]
    operations = ("round", "zero-copy round", "aggregate")
    assert measured == [(name, size) for name in operations for size in (3, 1000)]
    for case in run["cases"]:
        names = [series["name"] for series in case["series"]]
        assert names[:2] == ["Multiverso", "MPI Allreduce"]
        assert all(min(series["seconds"]) > 0 for series in case["series"])
    references = {bar["reference"] for bar in run["bars"]}
    assert "MPI Allreduce" in references
