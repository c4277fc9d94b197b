"""The benchmark of rows measures gets and training steps, and compares them with NumPy and C."""

import json
from pathlib import Path

import pytest

import launch

pytestmark = pytest.mark.slow

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
