"""The DiLoCo example: what it measures, draws and refuses."""

import json

import pytest
from requirements import needs

import launch
from example_programs import EXAMPLES, ExampleProgramTestCase, run_alone

pytestmark = [pytest.mark.frameworks, pytest.mark.slow, pytest.mark.release]

PROGRAM = "torch/diloco.py"


@needs("torch", "tqdm", "matplotlib")
class TestDiLoCoExample(ExampleProgramTestCase):
    def setUp(self):
        super().setUp()
        self.text = self.folder / "text"
        self.text.write_text("Nothing will come of nothing: speak again.\n" * 100, "utf-8")

    def test_fewer_exchanges_send_fewer_bytes_and_still_reduce_the_loss(self):
        picture = self.folder / "two.png"
        arguments = ["--samples", "320", "--batch-size", "4", "--sync-every", "1", "10"]
        arguments += ["--inner-rate", "3e-3", "--text", str(self.text)]
        launch.run(EXAMPLES / PROGRAM, *arguments, "--json", str(self.json), np=2).check()
        runs = json.loads(self.json.read_text("utf-8"))["runs"]
        self.assertEqual([(run["workers"], run["sync_every"]) for run in runs], [(2, 1), (2, 10)])
        for run in runs:
            self.assertEqual((run["samples"][0], run["samples"][-1]), (0, 320))
            self.assertEqual(len(run["samples"]), len(run["loss"]))
            self.assertLess(run["loss"][-1], run["loss"][0] - 0.5)
        often, seldom = (run["bytes_per_sample"] for run in runs)
        self.assertAlmostEqual(often, 10 * seldom, places=6)

        returncode, printed, errors = run_alone(PROGRAM, self.json, "--plot", picture)
        self.assertEqual(returncode, 0, errors)
        self.assertIn("2 workers, H 10, float32: validation loss", printed)
        self.assertEqual(picture.read_bytes()[:4], b"\x89PNG")

    def test_encoded_fragments_send_fewer_bytes_and_learn_as_much(self):
        arguments = ["--samples", "480", "--batch-size", "4", "--sync-every", "6", "--async"]
        arguments += ["--wire", "float32", "int8", "--fragments", "3", "--inner-rate", "3e-3"]
        arguments += ["--text", str(self.text), "--json", str(self.json)]
        launch.run(EXAMPLES / PROGRAM, *arguments, np=2, **launch.on_nodes(2, 1)).check()
        whole, encoded = json.loads(self.json.read_text("utf-8"))["runs"]
        self.assertGreater(whole["bytes"][-1], 2 * encoded["bytes"][-1])
        for run in (whole, encoded):
            self.assertLess(run["loss"][-1], run["loss"][0] - 0.5)
            self.assertEqual(run["elapsed"], sorted(run["elapsed"]))

    def test_invalid_input_prints_one_sentence(self):
        empty = self.folder / "empty"
        empty.touch()
        self.assert_rejects("cannot read none: ", PROGRAM, "--text", "none")
        self.assert_rejects("or more, received 0", PROGRAM, "--text", empty)
        self.assert_rejects("as a report", PROGRAM, self.text)
