"""The NumPy examples: any number of workers is as good as one; errors for invalid input."""

import numpy as np
import pytest
from requirements import needs

from example_programs import POINT, ExampleProgramTestCase

pytestmark = [pytest.mark.slow, pytest.mark.one_mpi]

REGRESSION = "numpy/logistic_regression.py"
WORD2VEC = "numpy/word2vec.py"


@needs("sklearn", "tqdm")
class TestLogisticRegression(ExampleProgramTestCase):
    def test_any_number_of_workers_matches_one(self):
        one_worker = self.result(REGRESSION, ranks=1)
        self.assertLess(one_worker["test_error"], 0.06)
        for ranks, arguments in ((2, []), (4, []), (3, ["--sync"])):
            with self.subTest(ranks=ranks, arguments=arguments):
                result = self.result(REGRESSION, *arguments, ranks=ranks)
                self.assertEqual(result["updates"], one_worker["updates"])
                self.assertLessEqual(abs(result["test_error"] - one_worker["test_error"]), POINT)

    def test_missing_data_prints_one_sentence(self):
        self.assert_rejects("none.npz", REGRESSION, "--data", self.folder / "none.npz")


@needs("sklearn", "tqdm")
class TestWordVectors(ExampleProgramTestCase):
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
                result = self.result(WORD2VEC, *options, "--epochs", "5", ranks=ranks)
                self.assertEqual(result["vocabulary"], 16)
                self.assertEqual(set(result["nearest"]), {"xa", "ye"})
                for word, others in result["nearest"].items():
                    self.assertEqual({other[0] for other in others}, {word[0]})
                self.assertLess(result["costs"][-1], result["costs"][0])

    def test_missing_or_empty_text_prints_one_sentence(self):
        self.assert_rejects("none.txt", WORD2VEC, "--text", "none.txt")
        self.text.write_text("1 2 3", "utf-8")
        self.assert_rejects("--min-count", WORD2VEC, "--text", self.text)
