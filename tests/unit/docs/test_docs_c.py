"""docs/c.md lists every function of the header with its parameters, in the same order."""

import re
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
PAGE = (ROOT / "docs" / "c.md").read_text("utf-8")
HEADER = (ROOT / "src" / "include" / "multiverso" / "c_api.h").read_text("utf-8")
PROTOTYPE = re.compile(r"^MV_EXPORT\b[^;(]*?\b(MV_\w+)\(([^)]*)\);", re.MULTILINE)


def functions(header):
    """Return (name, [parameter names]) for each function of a header."""
    return [
        (name, [] if given == "void" else [re.search(r"\w+$", p)[0] for p in given.split(",")])
        for name, given in PROTOTYPE.findall(header)
    ]


def rows(page):
    """Return (name, [parameter names]) for each row of a page's tables."""
    found = re.findall(r"^\| `(MV_\w+)\(([^)]*)\)` \| \S", page, re.MULTILINE)
    return [(name, given.split(", ") if given else []) for name, given in found]


class TestTheReference(unittest.TestCase):
    def test_reference_matches_the_header(self):
        declared = functions(HEADER)
        self.assertEqual(len(declared), HEADER.count("\nMV_EXPORT "))
        self.assertGreater(len(declared), 25)
        self.assertEqual(rows(PAGE), declared)

    def test_detects_a_changed_parameter(self):
        changed = HEADER.replace("int64_t num_ids", "int64_t rows")
        self.assertNotEqual(rows(PAGE), functions(changed))
