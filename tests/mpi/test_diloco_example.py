"""The DiLoCo example: what it measures, draws and refuses."""

import importlib.util
import json
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

import pytest

import launch

pytestmark = [pytest.mark.frameworks, pytest.mark.slow]

PROGRAM = Path(__file__).parents[2] / "examples" / "torch" / "diloco.py"
NEEDED = ("torch", "tqdm", "matplotlib")
MISSING = [name for name in NEEDED if importlib.util.find_spec(name) is None]


@unittest.skipIf(MISSING, f"needs {', '.join(MISSING)}")
class TestDiLoCoExample(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        self.text = self.folder / "text"
        self.text.write_text("Nothing will come of nothing: speak again.\n" * 100, "utf-8")

    def test_fewer_exchanges_send_fewer_bytes_and_still_reduce_the_loss(self):
        report, picture = self.folder / "two.json", self.folder / "two.png"
        arguments = ["--samples", "320", "--batch-size", "4", "--sync-every", "1", "10"]
        arguments += ["--inner-rate", "3e-3", "--text", str(self.text)]
        launch.run(PROGRAM, *arguments, "--json", str(report), np=2).check()
        runs = json.loads(report.read_text("utf-8"))["runs"]
        self.assertEqual([(run["workers"], run["sync_every"]) for run in runs], [(2, 1), (2, 10)])
        for run in runs:
            self.assertEqual((run["samples"][0], run["samples"][-1]), (0, 320))
            self.assertEqual(len(run["samples"]), len(run["loss"]))
            self.assertLess(run["loss"][-1], run["loss"][0] - 0.5)
        often, seldom = (run["bytes_per_sample"] for run in runs)
        self.assertAlmostEqual(often, 10 * seldom, places=6)

        drawn = subprocess.run(
            [sys.executable, PROGRAM, report, "--plot", picture],
            check=True,
            capture_output=True,
            text=True,
            timeout=launch.JOB_TIMEOUT,
        )
        self.assertIn("2 workers, H 10: validation loss", drawn.stdout)
        self.assertEqual(picture.read_bytes()[:4], b"\x89PNG")

    def test_invalid_input_prints_one_sentence(self):
        empty = self.folder / "empty"
        empty.touch()
        for arguments, wanted in (
            (["--text", "none"], "cannot read none: "),
            (["--text", str(empty)], "or more, received 0"),
            ([str(self.text)], "as a report"),
        ):
            with self.subTest(arguments=arguments):
                ended = subprocess.run(
                    [sys.executable, PROGRAM, *arguments],
                    capture_output=True,
                    text=True,
                    check=False,
                    timeout=launch.JOB_TIMEOUT,
                )
                self.assertEqual(ended.returncode, 2, ended.stderr)
                self.assertIn(wanted, ended.stderr)
                self.assertEqual(ended.stderr.count("\n"), 1, ended.stderr)
