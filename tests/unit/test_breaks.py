"""The breaks that the simulation must notice still fit the source files."""

import runpy
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


class TestBreaks(unittest.TestCase):
    def test_each_line_to_break_is_in_its_file_once(self):
        mutants = runpy.run_path(str(ROOT / "tests" / "sim" / "mutants.py"), run_name="mutants")
        for each in (each for name in mutants["LISTS"] for each in mutants["read_breaks"](name)):
            for file, line in zip(each.files, each.before, strict=True):
                with self.subTest(each.says):
                    self.assertEqual((ROOT / file).read_text("utf-8").count(line), 1, file)
