"""The benchmark ddp.py trains with DistributedDataParallel and with Multiverso, and compares."""

import json
import sys
from pathlib import Path

import pytest
from folders import FolderTestCase
from requirements import needs

import launch

pytestmark = [pytest.mark.frameworks, pytest.mark.slow, pytest.mark.release, pytest.mark.one_mpi]

PROGRAM = Path(__file__).parents[2] / "benchmarks" / "ddp.py"


@needs("torch", "matplotlib", "tqdm")
class TestDdpBenchmark(FolderTestCase):
    def test_compares_both_modes_with_ddp_and_one_process(self):
        report, chart = self.folder / "report.json", self.folder / "chart.svg"
        small = ["--models", "small", "--batch-sizes", "4", "8", "--quick", "--sample", "0.001"]
        files = ["--json", str(report), "--plot", str(chart)]
        launch.run(PROGRAM, *small, *files, "--silent", np=2, timeout=300.0).check()
        measured = json.loads(report.read_text("utf-8"))
        (run,) = measured["runs"]
        cases = [
            (case["operation"], [series["workers"] for series in case["series"]])
            for case in run["cases"]
        ]
        names = [f"{mode}: 0.13 M, batch {size}" for size in (4, 8) for mode in ("sync", "async")]
        self.assertEqual(cases, [(name, [2, 2, 1]) for name in names])
        for case in run["cases"]:
            self.assertEqual(
                [series["name"] for series in case["series"]][1:], ["DDP", "one process"]
            )
            self.assertTrue(all(min(series["seconds"]) > 0 for series in case["series"]))
        self.assertEqual(sum("loss after" in note for note in measured["notes"]), 2)
        self.assertIn("<svg", chart.read_text("utf-8"))

    def test_rejects_candidates_that_learn_differently(self):
        sys.path.insert(0, str(PROGRAM.parent))
        try:
            import ddp
        finally:
            sys.path.remove(str(PROGRAM.parent))

        class Learned:
            def __init__(self, name, after):
                self.name, self.after = name, after

            def losses(self):
                return 2.0, self.after

        class Ranks:
            size = 2

        def check(sync, asynchronous):
            losses = {"DDP": 1.0, "sync": sync, "async": asynchronous, "one process": 3.0}
            return ddp.check(Ranks(), [Learned(*pair) for pair in losses.items()])

        self.assertIn("1.0000 (DDP), 1.0001 (sync), 1.5000 (async)", check(1.0001, 1.5))
        with self.assertRaisesRegex(SystemExit, r"expected the same loss, received 1.0 \(DDP\)"):
            check(1.01, 1.5)
        with self.assertRaisesRegex(SystemExit, r"async: expected a loss below 2.0000"):
            check(1.0, 2.5)
