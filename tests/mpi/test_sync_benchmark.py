"""The benchmark of sync mode runs on several ranks and checks itself."""

import json
from pathlib import Path

import pytest

import launch

pytestmark = pytest.mark.slow

SYNC = Path(__file__).parents[2] / "benchmarks" / "sync.py"


def test_sync_benchmark_compares_rounds_and_sums_with_mpi(tmp_path):
    target = tmp_path / "report.json"
    arguments = ["--quick", "--silent", "--sizes", "1000", "--json", str(target)]
    launch.run(SYNC, *arguments, np=2).check()
    (run,) = json.loads(target.read_text("utf-8"))["runs"]
    assert run["ranks"] == 2
    assert [case["operation"] for case in run["cases"]] == ["round", "aggregate"]
    for case in run["cases"]:
        names = [one["name"] for one in case["series"]]
        assert names[:2] == ["Multiverso", "MPI Allreduce"]
        assert all(min(one["seconds"]) > 0 for one in case["series"])
    against = {bar["reference"] for bar in run["bars"]}
    assert "MPI Allreduce" in against
