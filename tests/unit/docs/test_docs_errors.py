"""docs/errors.md lists the errors of the header, by number and name, and Python's exceptions."""

import re
import unittest
from pathlib import Path

from multiverso._native import library

ROOT = Path(__file__).resolve().parents[3]
PAGE = (ROOT / "docs" / "errors.md").read_text("utf-8")
HEADER = (ROOT / "src" / "include" / "multiverso" / "c_api.h").read_text("utf-8")

ROWS = re.findall(r"^\| (-?\d+) \| `(\w+)` \| (?:`(\w+)` )?\|", PAGE, re.MULTILINE)
STATUSES = re.findall(r"^#define (MV_OK|MV_PENDING|MV_ERR_\w+) \(?(-?\d+)\)?", HEADER, re.MULTILINE)


class TestErrorsByNumber(unittest.TestCase):
    def test_page_lists_the_error_numbers_of_the_header_in_order(self):
        self.assertGreater(len(STATUSES), 10)
        self.assertEqual([(name, number) for number, name, _ in ROWS], STATUSES)

    def test_page_lists_the_exceptions_that_are_raised(self):
        for number, name, exception in ROWS:
            with self.subTest(name):
                raised = library.ERRORS.get(int(number))
                self.assertEqual(exception, "" if raised is None else raised.__name__)
