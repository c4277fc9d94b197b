"""The example of n-gram memories: a lower loss with them, and a run that continues."""

import json

import pytest
from requirements import needs

import launch
from example_programs import EXAMPLES, ExampleProgramTestCase

pytestmark = [pytest.mark.frameworks, pytest.mark.slow, pytest.mark.one_mpi]

PROGRAM = "torch/ngram_lm.py"


@needs("torch", "tqdm")
class TestNgramExample(ExampleProgramTestCase):
    def runs(self, *arguments, ranks):
        options = ["--batch-size", "8", "--json", str(self.json), *arguments]
        launch.run(EXAMPLES / PROGRAM, *options, np=ranks).check()
        return json.loads(self.json.read_text("utf-8"))["runs"]

    def test_memories_lower_the_loss_at_equal_steps(self):
        without, with_memories = self.runs("--steps", "60", ranks=2)
        self.assertEqual((without["rows"], with_memories["rows"]), (0, 1 << 20))
        self.assertLess(with_memories["loss"], without["loss"] - 0.1)

    def test_continues_from_a_checkpoint_with_other_workers(self):
        arguments = ["--rows", "4096", "--save", str(self.folder / "saved"), "--steps"]
        (first,) = self.runs(*arguments, "20", ranks=2)
        (second,) = self.runs(*arguments, "60", "--prefetch", "0", ranks=1)
        self.assertEqual((first["begin"], second["begin"]), (0, 20))
        self.assertLess(second["loss"], first["loss"])

    def test_invalid_input_prints_one_sentence(self):
        self.assert_rejects("cannot read none: ", PROGRAM, "--text", "none")
        self.assert_rejects("--rows: expected 0, or 2 or more", PROGRAM, "--rows", "1")
