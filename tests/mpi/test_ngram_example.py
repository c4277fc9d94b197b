"""The example of n-gram memories: a lower loss with them, and a run that continues."""

import json
import time

import pytest
from requirements import needs

import launch
from example_programs import EXAMPLES, ExampleProgramTestCase
from multiverso.checkpoint import Checkpoint
from multiverso.errors import CheckpointIOError

pytestmark = [pytest.mark.frameworks, pytest.mark.slow, pytest.mark.release, pytest.mark.one_mpi]

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

    def test_continues_after_a_kill(self):
        saved = self.folder / "saved"
        arguments = ["--rows", "4096", "--save", str(saved), "--save-every", "5", "--steps", "100"]
        program = EXAMPLES / PROGRAM
        with launch.Job(program, "--batch-size", "4", *arguments, np=2) as job:
            while not self.has_checkpoint(saved / "4096") and time.monotonic() < job.deadline:
                time.sleep(0.01)
        # The end of the job's context has killed its ranks.
        (run,) = self.runs("--batch-size", "4", *arguments, ranks=2)
        self.assertIn(run["begin"], range(5, 100, 5))

    @staticmethod
    def has_checkpoint(folder):
        try:
            Checkpoint(folder).close()
        except CheckpointIOError:
            return False
        return True

    def test_invalid_input_prints_one_sentence(self):
        self.assert_rejects("cannot read none: ", PROGRAM, "--text", "none")
        self.assert_rejects("--rows: expected 0, or 2 or more", PROGRAM, "--rows", "1")
