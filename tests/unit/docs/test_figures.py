"""Each place of a figure in docs/figures.toml says the same value."""

import re
import sys
import unittest
from pathlib import Path

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib  # pytest needs it for the same reason

DOCS = Path(__file__).resolve().parents[3] / "docs"
FIGURES = tomllib.loads((DOCS / "figures.toml").read_text("utf-8"))


def says(text, sentence):
    """Return whether a page has a sentence, whatever its line breaks are."""
    return " ".join(sentence.split()) in " ".join(re.sub(r"^> ?", "", text, flags=re.M).split())


class TestFigures(unittest.TestCase):
    def test_every_place_says_the_figure(self):
        self.assertGreater(len(FIGURES), 5)
        for name, figure in FIGURES.items():
            for page, sentence in figure["places"]:
                with self.subTest(f"{name} in {page}"):
                    self.assertIn("{}", sentence)
                    expected = sentence.replace("{}", figure["value"])
                    self.assertTrue(says((DOCS / page).read_text("utf-8"), expected), expected)

    def test_finds_a_sentence_across_lines_and_in_boxes(self):
        self.assertTrue(says("> it takes\n> 3 s\n", "takes 3 s"))
        self.assertFalse(says("it takes 4 s\n", "takes 3 s"))
