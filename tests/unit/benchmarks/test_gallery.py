"""The benchmark gallery.py: the histories of the examples, from given results."""

import sys
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "benchmarks"))

import gallery  # noqa: E402


class TestErrors(unittest.TestCase):
    def test_reads_the_history_of_each_kind_of_example(self):
        for history in ([0.5, 0.25], [[9.0, 0.5], [8.0, 0.25]], {"val_accuracy": [0.5, 0.75]}):
            with self.subTest(history):
                self.assertEqual(gallery.errors_of({"history": history}), [0.5, 0.25])

    def test_an_example_without_a_history_has_no_errors(self):
        self.assertEqual(gallery.errors_of({}), [])
        self.assertEqual(gallery.errors_of({"history": {"loss": [1.0]}}), [])
