"""The logistic regression of the examples: any number of workers matches the plain program."""

import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

import numpy as np
import pytest

from launch import JOB_TIMEOUT, run

EXAMPLE = Path(__file__).parents[2] / "examples" / "theano" / "logistic_regression.py"
NEEDED = ("sklearn", "tqdm")
BACKENDS = ("pytensor", "aesara", "theano")
MISSING = [name for name in NEEDED if importlib.util.find_spec(name) is None]
if not any(map(importlib.util.find_spec, BACKENDS)):
    MISSING.append("PyTensor, Aesara or Theano")

POINT = 0.01  # one percentage point of the test error
EPOCHS = "40"

pytestmark = pytest.mark.slow


def run_alone(*arguments, **environ):
    """Run the example in one process without mpirun."""
    return subprocess.run(
        [sys.executable, str(EXAMPLE), *arguments],
        env={**os.environ, **environ},
        capture_output=True,
        text=True,
        timeout=JOB_TIMEOUT,
        check=False,
    )


@unittest.skipIf(MISSING, f"needs {' and '.join(MISSING)}")
class ExampleTestCase(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        self.json = self.folder / "result.json"

    def plain(self, *arguments):
        """Return the result of one process that cannot load Multiverso."""
        done = run_alone(
            "--plain", "--json", str(self.json), *arguments, MULTIVERSO_LIBRARY="/nonexistent"
        )
        self.assertEqual(done.returncode, 0, done.stderr)
        return json.loads(self.json.read_text("utf-8"))

    def parallel(self, ranks, *arguments, **environ):
        job = run(EXAMPLE, "--json", str(self.json), *arguments, np=ranks, **environ).check()
        return json.loads(self.json.read_text("utf-8")), job.output

    def assert_as_good(self, result, reference):
        self.assertLessEqual(abs(result["test_error"] - reference["test_error"]), POINT)
        self.assertEqual(result["updates"], reference["updates"])
        self.assertEqual(result["epochs"], reference["epochs"])
        self.assertGreater(result["seconds"], 0)


class TestTraining(ExampleTestCase):
    def test_any_number_of_workers_matches_one(self):
        reference = self.plain("--epochs", EPOCHS)
        self.assertEqual((reference["workers"], reference["epochs"]), (1, int(EPOCHS)))
        self.assertLess(reference["test_error"], 0.06)
        for ranks in (1, 2, 3, 4):
            with self.subTest(ranks=ranks):
                result, output = self.parallel(ranks, "--epochs", EPOCHS)
                self.assertEqual(result["workers"], ranks)
                self.assert_as_good(result, reference)
                # The master prints the result once, and no progress bar reaches a file.
                self.assertEqual(output.count("test error"), 1, output)
                self.assertIn(f"test error {result['test_error']:.2%}", output)
                self.assertEqual(len(output.splitlines()), int(EPOCHS) // 10 + 1, output)

    @pytest.mark.one_mpi
    def test_without_mpirun(self):
        reference = self.plain("--epochs", EPOCHS, "--seed", "3")
        done = run_alone("--epochs", EPOCHS, "--seed", "3", "--json", str(self.json))
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assert_as_good(json.loads(self.json.read_text("utf-8")), reference)

    @pytest.mark.one_mpi
    def test_all_workers_stop_early_together(self):
        result, _ = self.parallel(3, "--learning-rate", "3")
        self.assertLess(result["epochs"], 100)
        self.assertEqual(result["updates"], 50 * result["epochs"])

    @pytest.mark.one_mpi
    def test_more_workers_than_batches(self):
        options = ("--epochs", "30", "--batch-size", "400")
        result, _ = self.parallel(4, *options)
        self.assert_as_good(result, self.plain(*options))
        self.assertEqual(result["updates"], 3 * 30)

    @pytest.mark.one_mpi
    def test_nothing_is_written_to_the_home_folder(self):
        home = self.folder / "home"
        home.mkdir()
        self.parallel(2, "--epochs", "1", HOME=str(home))
        self.assertEqual(list(home.rglob("*")), [])

    @pytest.mark.one_mpi
    def test_reads_a_copy_of_mnist(self):
        rng = np.random.default_rng(0)
        centers = rng.normal(size=(10, 28, 28))

        def images(count):
            labels = rng.integers(0, 10, count).astype(np.uint8)
            pixels = 128 + 20 * centers[labels] + 60 * rng.normal(size=(count, 28, 28))
            return pixels.clip(0, 255).astype(np.uint8), labels

        x_train, y_train = images(1200)
        x_test, y_test = images(500)
        path = self.folder / "mnist.npz"
        np.savez(path, x_train=x_train, y_train=y_train, x_test=x_test, y_test=y_test)
        options = ("--data", str(path), "--epochs", "5")
        result, _ = self.parallel(3, *options)
        self.assert_as_good(result, self.plain(*options))


@pytest.mark.one_mpi
class TestWrongUse(ExampleTestCase):
    def assert_one_sentence(self, returncode, output, text):
        self.assertEqual(returncode, 2, output)
        self.assertEqual(output.count("error: "), 1, output)
        self.assertIn(text, output)
        self.assertNotIn("Traceback", output)

    def test_all_ranks_leave_when_there_is_no_data(self):
        path = self.folder / "mnist.npz"
        text = f"error: cannot use {path}: no such file or folder\n"
        for ranks in (1, 2, 4):
            with self.subTest(ranks=ranks):
                job = run(EXAMPLE, "--data", str(path), np=ranks).check_clean()
                self.assert_one_sentence(job.returncode, job.output, text)

    def test_all_ranks_leave_when_the_data_is_broken(self):
        path = self.folder / "mnist.npz"
        path.write_bytes(b"PK\x03\x04 but no more")
        job = run(EXAMPLE, "--data", str(path), np=3).check_clean()
        self.assert_one_sentence(job.returncode, job.output, f"{path}: it is not an .npz")

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
        job = run(script, str(EXAMPLE), np=3).check_clean()
        self.assert_one_sentence(job.returncode, job.output, "cannot use elsewhere.npz")

    def test_without_mpirun(self):
        for extra_arguments in ([], ["--plain"]):
            done = run_alone("--data", str(self.folder / "nothing"), *extra_arguments)
            self.assertEqual(done.stdout, "")
            self.assert_one_sentence(done.returncode, done.stderr, "no such file or folder")

    def test_unwritable_result_prints_one_sentence(self):
        done = run_alone("--plain", "--epochs", "1", "--json", str(self.folder / "no/folder.json"))
        self.assertRegex(done.stdout, r"test error \d")
        self.assert_one_sentence(done.returncode, done.stderr, "cannot write")

    def test_rejects_options_out_of_range(self):
        for wrong in (["--epochs", "0"], ["--batch-size", "-1"], ["--learning-rate", "nan"]):
            done = run_alone(*wrong)
            self.assertEqual(done.returncode, 2)
            self.assertIn(f"{wrong[0]}: invalid positive", done.stderr)
