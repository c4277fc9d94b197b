"""docs/supported.md is what docs/site/supported.py makes from the table of the library."""

import sys
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "docs" / "site"))

import supported  # noqa: E402

from multiverso._native.supported import features, refusals  # noqa: E402


class TestWhatGoesWithWhat(unittest.TestCase):
    maxDiff = None

    def test_page_is_made_from_the_table(self):
        advice = "run: python docs/site/supported.py"
        self.assertEqual(supported.PAGE.read_text("utf-8"), supported.page(), advice)

    def test_every_number_stands_in_a_table_of_pairs(self):
        page = supported.page()
        for number, refusal in enumerate(refusals(), 1):
            with self.subTest(refusal.features):
                self.assertIn(f"[{number}](#s{number})", page)
        self.assertGreater(len(features()), 40)
