"""The NumPy examples: any number of workers is as good as one; errors for invalid input."""

import importlib.util
import json
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

import numpy as np
import pytest

from launch import JOB_TIMEOUT, run

FOLDER = Path(__file__).parents[2] / "examples" / "numpy"
MISSING = [name for name in ("sklearn", "tqdm") if importlib.util.find_spec(name) is None]
POINT = 0.01  # one percentage point of the test error

pytestmark = [pytest.mark.slow, pytest.mark.one_mpi]


@unittest.skipIf(MISSING, f"needs {' and '.join(MISSING)}")
class ExampleTestCase(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def result(self, example, *arguments, ranks):
        path = self.folder / "result.json"
        run(FOLDER / example, "--json", str(path), *arguments, np=ranks).check()
        return json.loads(path.read_text("utf-8"))

    def error_of(self, example, *arguments):
        done = subprocess.run(
            [sys.executable, str(FOLDER / example), *arguments],
            capture_output=True,
            text=True,
            timeout=JOB_TIMEOUT,
            check=False,
        )
        self.assertEqual(done.returncode, 2, done.stderr)
        return done.stderr


class TestLogisticRegression(ExampleTestCase):
    def test_any_number_of_workers_matches_one(self):
        one_worker = self.result("logistic_regression.py", ranks=1)
        self.assertLess(one_worker["test_error"], 0.06)
        for ranks, arguments in ((2, []), (4, []), (3, ["--sync"])):
            with self.subTest(ranks=ranks, arguments=arguments):
                result = self.result("logistic_regression.py", *arguments, ranks=ranks)
                self.assertEqual(result["workers"], ranks)
                self.assertEqual(result["updates"], one_worker["updates"])
                self.assertLessEqual(abs(result["test_error"] - one_worker["test_error"]), POINT)

    def test_missing_data_prints_one_sentence(self):
        message = self.error_of("logistic_regression.py", "--data", str(self.folder / "none.npz"))
        self.assertIn("none.npz", message)
        self.assertEqual(len(message.splitlines()), 1)


class TestWordVectors(ExampleTestCase):
    """Trainings on a text whose chapters are about two subjects that share no word."""

    def setUp(self):
        super().setUp()
        rng = np.random.default_rng(0)
        subjects = [[f"{name}{letter}" for letter in "abcdefgh"] for name in ("x", "y")]
        chapters = [rng.choice(subjects[i % 2], 1000) for i in range(30)]
        self.text = self.folder / "text.txt"
        self.text.write_text("\n".join(" ".join(words) for words in chapters), "utf-8")

    def test_words_of_one_subject_are_neighbors(self):
        options = ["--text", str(self.text), "--words", "xa ye unheard", "--dimension", "8"]
        for ranks in (1, 3):
            with self.subTest(ranks=ranks):
                result = self.result("word2vec.py", *options, "--epochs", "5", ranks=ranks)
                self.assertEqual(result["workers"], ranks)
                self.assertEqual(result["vocabulary"], 16)
                self.assertEqual(set(result["nearest"]), {"xa", "ye"})
                for word, others in result["nearest"].items():
                    self.assertEqual({other[0] for other in others}, {word[0]})
                self.assertLess(result["costs"][-1], result["costs"][0])

    def test_missing_or_empty_text_prints_one_sentence(self):
        self.assertIn("none.txt", self.error_of("word2vec.py", "--text", "none.txt"))
        self.text.write_text("1 2 3", "utf-8")
        self.assertIn("--min-count", self.error_of("word2vec.py", "--text", str(self.text)))
