"""docs/c.md lists the functions of the header, and docs/errors.md its error numbers."""

import re
import unittest
from pathlib import Path

import c_header

from multiverso._native import library

ROOT = Path(__file__).resolve().parents[3]
C_PAGE = (ROOT / "docs" / "c.md").read_text("utf-8")
HEADER = c_header.TEXT
ERRORS_PAGE = (ROOT / "docs" / "errors.md").read_text("utf-8")
PROTOTYPE = re.compile(r"^MV_EXPORT\b[^;(]*?\b(MV_\w+)\(([^)]*)\);", re.MULTILINE)
ERROR_ROWS = re.findall(r"^\| (-?\d+) \| `(\w+)` \| (?:`(\w+)` )?\|", ERRORS_PAGE, re.MULTILINE)
STATUSES = re.findall(
    r"^#define (MV_OK|MV_OUTDATED|MV_ERR_\w+) \(?(-?\d+)\)?", HEADER, re.MULTILINE
)


def functions_in(header):
    """Return (name, [parameter names]) for each function of a header."""
    return [
        (name, [] if text == "void" else [re.search(r"\w+$", p)[0] for p in text.split(",")])
        for name, text in PROTOTYPE.findall(header)
    ]


def functions_on(page):
    """Return (name, [parameter names]) for each row of a page's tables of functions."""
    rows = re.findall(r"^\| `(MV_\w+)\(([^)]*)\)` \| \S", page, re.MULTILINE)
    return [(name, parameters.split(", ") if parameters else []) for name, parameters in rows]


class TestTheReference(unittest.TestCase):
    def test_reference_matches_the_header(self):
        declared = functions_in(HEADER)
        self.assertEqual(len(declared), HEADER.count("\nMV_EXPORT "))
        self.assertGreater(len(declared), 25)
        self.assertEqual(functions_on(C_PAGE), declared)

    def test_detects_a_changed_parameter(self):
        changed = HEADER.replace("int64_t num_ids", "int64_t rows")
        self.assertNotEqual(functions_on(C_PAGE), functions_in(changed))


class TestErrorsByNumber(unittest.TestCase):
    def test_page_lists_the_error_numbers_of_the_header_in_order(self):
        self.assertGreater(len(STATUSES), 10)
        self.assertEqual([(name, number) for number, name, _ in ERROR_ROWS], STATUSES)

    def test_page_lists_the_exceptions_that_are_raised(self):
        for number, name, exception in ERROR_ROWS:
            with self.subTest(name):
                raised = library.ERRORS.get(int(number))
                self.assertEqual(exception, "" if raised is None else raised.__name__)
