"""The NumPy examples: any number of workers is as good as one; errors for invalid input."""

import numpy as np
import pytest
from requirements import needs

from example_programs import POINT, ExampleProgramTestCase, run_alone

pytestmark = [pytest.mark.slow, pytest.mark.one_mpi]

REGRESSION = "numpy/logistic_regression.py"
WORD2VEC = "numpy/word2vec.py"
SPARSE = "numpy/sparse_logistic_regression.py"


@needs("tqdm")
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

    def test_options_out_of_range_and_unwritable_results_are_errors(self):
        target = self.folder / "no" / "folder.json"
        for options, text in (
            (("--epochs", "0"), "--epochs: invalid positive"),
            (("--batch-size", "-1"), "--batch-size: invalid positive"),
            (("--learning-rate", "nan"), "--learning-rate: invalid positive"),
            (("--epochs", "1", "--json", target), f"error: cannot write {target}"),
        ):
            returncode, _, errors = run_alone(REGRESSION, *options)
            self.assertEqual(returncode, 2)
            self.assertIn(text, errors)


@needs("tqdm")
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


@needs("tqdm")
class TestSparseLogisticRegression(ExampleProgramTestCase):
    @pytest.mark.release
    def test_any_number_of_workers_learns_few_weights(self):
        for ranks in (1, 3):
            with self.subTest(ranks=ranks):
                result = self.result(SPARSE, "--samples", "20000", ranks=ranks)
                self.assertEqual(result["samples"], 20_000)
                self.assertGreater(result["auc"], 0.68)
                self.assertLess(result["error"], 0.5)
                self.assertLess(result["nonzero"], result["features"] / 2)

    def write(self, name, lines):
        path = self.folder / name
        path.write_text("\n".join(lines), "utf-8")
        return path

    def test_reads_numbers_and_names_and_continues_a_save(self):
        # The label is 1 if the sample has the name; the number says nothing.
        lines = ["# a comment", ""]
        for i in range(400):
            named = " city=Bern:1.5" if i % 2 else ""
            lines.append(f"{'+1' if i % 2 else '-1'} {2**62 + i % 7}:1 -3:0.5{named}")
        data = self.write("data.svm", lines)
        arguments = [data, "--l1", "0.01", "--batch-size", "20", "--save", self.folder / "saved"]
        results = [self.result(SPARSE, *map(str, arguments), ranks=2) for _ in range(2)]
        self.assertEqual([result["samples"] for result in results], [400, 400])
        self.assertEqual(results[0]["features"], 9)
        self.assertGreater(results[0]["auc"], 0.99)
        self.assertLess(results[1]["log_loss"], 0.8 * results[0]["log_loss"])

    def test_rare_features_get_no_weight(self):
        arguments = ["--samples", "5000", "--admit", "4"]
        few = self.result(SPARSE, *arguments, ranks=1)
        every = self.result(SPARSE, "--samples", "5000", ranks=1)
        self.assertLess(few["features"], every["features"] / 2)

    def test_wrong_lines_print_one_sentence(self):
        for line, pattern in (
            ("2 1:1", "data.svm:2: expected a label of 0, -1 or 1, received '2'"),
            ("1 5:x", "data.svm:2: expected feature:value, received '5:x'"),
            ("1 5", "data.svm:2: expected feature:value, received '5'"),
            ("0 5:inf", "received '5:inf'"),
            (f"0 {2**63}:1", "expected a feature of 64 bits"),
        ):
            with self.subTest(line):
                data = self.write("data.svm", ["1 1:1", line])
                self.assert_rejects(pattern, SPARSE, data)
        self.assert_rejects("none.svm", SPARSE, self.folder / "none.svm")
