"""The logistic regression of the examples: any number of workers matches the plain program."""

import json

import pytest
from requirements import THEANOS, needs

from example_programs import EXAMPLES, POINT, ExampleProgramTestCase, run_alone
from launch import run

EXAMPLE = "theano/logistic_regression.py"
EPOCHS = "40"

pytestmark = [pytest.mark.slow, pytest.mark.one_mpi]


@needs("tqdm", THEANOS)
class LogisticRegressionTestCase(ExampleProgramTestCase):
    def run_alone(self, *arguments, **environ):
        """Run the example without mpirun; return the result that it wrote as JSON."""
        self.json.unlink(missing_ok=True)
        options = ("--json", self.json, *arguments)
        returncode, _, errors = run_alone(EXAMPLE, *options, **environ)
        self.assertEqual((returncode, errors), (0, ""))
        return json.loads(self.json.read_text("utf-8"))

    def plain(self, *arguments):
        """Return the result of one process that cannot load Multiverso."""
        return self.run_alone("--plain", *arguments, MULTIVERSO_LIBRARY="/nonexistent")

    def assert_as_good(self, result, reference):
        self.assertLessEqual(abs(result["test_error"] - reference["test_error"]), POINT)
        self.assertEqual(result["updates"], reference["updates"])
        self.assertEqual(result["epochs"], reference["epochs"])
        self.assertGreater(result["seconds"], 0)


class TestTraining(LogisticRegressionTestCase):
    def test_any_number_of_workers_matches_one(self):
        reference = self.plain("--epochs", EPOCHS)
        self.assertEqual((reference["workers"], reference["epochs"]), (1, int(EPOCHS)))
        self.assertLess(reference["test_error"], 0.06)
        # Two workers have equally many batches, and three do not.
        for ranks in (2, 3):
            with self.subTest(ranks=ranks):
                options = ("--epochs", EPOCHS)
                result, output = self.result_and_output(EXAMPLE, *options, ranks=ranks)
                self.assert_as_good(result, reference)
                # No progress bar reaches a file.
                self.assertIn(f"test error {result['test_error']:.2%}", output)
                self.assertNotIn("%|", output)
                told = [line for line in output.splitlines() if line.startswith("epoch ")]
                self.assertEqual(len(told), int(EPOCHS) // 10, output)

    @pytest.mark.release
    def test_without_mpirun(self):
        options = ("--epochs", EPOCHS, "--seed", "3")
        self.assert_as_good(self.run_alone(*options), self.plain(*options))

    @pytest.mark.release
    def test_all_workers_stop_early_together(self):
        result = self.result(EXAMPLE, "--learning-rate", "3", ranks=3)
        self.assertLess(result["epochs"], 100)
        self.assertEqual(result["updates"], 50 * result["epochs"])

    @pytest.mark.release
    def test_more_workers_than_batches(self):
        options = ("--epochs", "30", "--batch-size", "400")
        result = self.result(EXAMPLE, *options, ranks=4)
        self.assert_as_good(result, self.plain(*options))
        self.assertEqual(result["updates"], 3 * 30)

    def test_nothing_is_written_to_the_home_folder(self):
        home = self.folder / "home"
        home.mkdir()
        self.result(EXAMPLE, "--epochs", "1", ranks=2, HOME=str(home))
        self.assertEqual(list(home.rglob("*")), [])


class TestWrongUse(LogisticRegressionTestCase):
    def assert_one_sentence(self, returncode, output, text):
        self.assertEqual(returncode, 2, output)
        self.assertEqual(output.count("error: "), 1, output)
        self.assertIn(text, output)
        self.assertNotIn("Traceback", output)

    def test_all_ranks_leave_when_there_is_no_data(self):
        path = self.folder / "mnist.npz"
        text = f"error: cannot use {path}: no such file or folder\n"
        job = run(EXAMPLES / EXAMPLE, "--data", str(path), np=2).check_clean()
        self.assert_one_sentence(job.returncode, job.output, text)

    def test_all_ranks_leave_when_one_has_no_data(self):
        # Each process opens the file in its own working folder; only the second folder lacks it.
        script = self.folder / "one_without.py"
        script.write_text(
            "import os, runpy, sys\n"
            "rank = int(os.environ.get('PMI_RANK', os.environ.get('OMPI_COMM_WORLD_RANK', 0)))\n"
            "sys.argv[0] = sys.argv.pop(1)\n"
            "sys.path.insert(0, os.path.dirname(sys.argv[0]))\n"
            "if rank == 1:\n"
            "    sys.argv += ['--data', 'elsewhere.npz']\n"
            "runpy.run_path(sys.argv[0], run_name='__main__')\n",
            "utf-8",
        )
        job = run(script, str(EXAMPLES / EXAMPLE), np=2).check_clean()
        self.assert_one_sentence(job.returncode, job.output, "cannot use elsewhere.npz")

    def test_plain_program_without_data_prints_one_sentence(self):
        options = ("--plain", "--data", self.folder / "nothing")
        returncode, printed, errors = run_alone(EXAMPLE, *options)
        self.assertEqual(printed, "")
        self.assert_one_sentence(returncode, errors, "no such file or folder")
