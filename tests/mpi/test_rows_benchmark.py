"""The benchmark of rows measures gets and training steps, and compares them with NumPy and C."""

import json
from pathlib import Path

import pytest

import launch

pytestmark = [pytest.mark.slow, pytest.mark.release, pytest.mark.one_mpi]

ROWS = Path(__file__).parents[2] / "benchmarks" / "rows.py"


@pytest.mark.parametrize("np", [1, 2])
def test_rows_benchmark_measures_uniform_and_skewed_ids(np, tmp_path):
    target = tmp_path / "report.json"
    arguments = ["--quick", "--silent", "--rows", "1000", "--batches", "64", "--json", str(target)]
    launch.run(ROWS, *arguments, np=np).check()
    (run,) = json.loads(target.read_text("utf-8"))["runs"]
    assert run["ranks"] == np
    operations = [case["operation"] for case in run["cases"]]
    assert operations == [
        f"{name}, 1,000" for name in ("get uniform", "get zipf", "step uniform", "step zipf")
    ]
    for case in run["cases"]:
        names = [series["name"] for series in case["series"]]
        assert names[0] == "Multiverso"
        assert ("np.take" in names) == (np == 1 and case["operation"].startswith("get"))
        assert all(min(series["seconds"]) > 0 for series in case["series"])


def test_rows_benchmark_measures_keys(tmp_path):
    target = tmp_path / "report.json"
    arguments = ["--keys", "--quick", "--silent", "--rows", "1000", "--batches", "64"]
    launch.run(ROWS, *arguments, "--json", str(target), np=1).check()
    (run,) = json.loads(target.read_text("utf-8"))["runs"]
    references = {
        case["operation"]: [series["name"] for series in case["series"][1:]]
        for case in run["cases"]
    }
    assert list(references)[::2] == [
        f"{name} keys uniform, 1,000" for name in ("get", "fetch", "step")
    ]
    assert references["get keys zipf, 1,000"][:2] == ["rows by number", "dict of rows"]
