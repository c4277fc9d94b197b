"""The benchmarks of sync mode, rows and faults measure what they name, beside their references."""

import json
from pathlib import Path

import pytest
from programs import run_python

import launch

pytestmark = [pytest.mark.slow, pytest.mark.one_mpi]

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


def run_of(target, program, *arguments, np):
    """Run a benchmark as a job; return its only run, and the names of the series of each case."""
    options = [*arguments, "--quick", "--silent", "--json", str(target)]
    launch.run(BENCHMARKS / program, *options, np=np).check()
    (run,) = json.loads(target.read_text("utf-8"))["runs"]
    assert run["ranks"] == np
    for case in run["cases"]:
        assert all(min(series["seconds"]) > 0 for series in case["series"])
    return run, {case["operation"]: [s["name"] for s in case["series"]] for case in run["cases"]}


def test_sync_benchmark_compares_rounds_and_sums_with_mpi(tmp_path):
    run, names = run_of(tmp_path / "report.json", "sync.py", "--sizes", "3", "1000", np=2)
    assert list(names) == ["round", "zero-copy round", "aggregate"]
    assert all(series[:2] == ["Multiverso", "MPI Allreduce"] for series in names.values())
    assert "MPI Allreduce" in {bar["reference"] for bar in run["bars"]}


@pytest.mark.release
@pytest.mark.parametrize("np", [1, 2])
def test_rows_benchmark_measures_uniform_and_skewed_ids(np, tmp_path):
    options = ("--rows", "1000", "--batches", "64")
    _, names = run_of(tmp_path / "report.json", "rows.py", *options, np=np)
    operations = ("get uniform", "get zipf", "step uniform", "step zipf")
    assert list(names) == [f"{operation}, 1,000" for operation in operations]
    for operation, series in names.items():
        assert series[0] == "Multiverso"
        assert ("np.take" in series) == (np == 1 and operation.startswith("get"))


@pytest.mark.release
def test_rows_benchmark_measures_keys(tmp_path):
    options = ("--keys", "--rows", "1000", "--batches", "64")
    _, names = run_of(tmp_path / "report.json", "rows.py", *options, np=1)
    operations = ("get", "fetch", "step")
    assert list(names)[::2] == [f"{operation} keys uniform, 1,000" for operation in operations]
    assert names["get keys zipf, 1,000"][1:3] == ["rows by number", "dict of rows"]


def test_fault_benchmark_measures_detection_times(tmp_path):
    target = tmp_path / "report.json"
    cases = ["killed_sync", "interrupted", "different_tables", "hostile_checkpoint"]
    options = ["--only", *cases, "--repeat", "1", "--ranks", "3", "--silent", "--json", str(target)]
    status, _, err = run_python(BENCHMARKS / "faults.py", *options, timeout=launch.JOB_TIMEOUT)
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
