"""Type checkers accept a right program of a user, and find each mistake of a wrong one."""

import json
import re
import sys
from pathlib import Path

import pytest
from folders import FolderTestCase
from programs import run_command

pytest.importorskip("mypy", reason="needs mypy: pip install mypy")
pytest.importorskip("basedpyright", reason="needs basedpyright: pip install basedpyright")

ROOT = Path(__file__).parents[2]
RIGHT, WRONG = (Path(__file__).with_name("typed") / name for name in ("right.py", "wrong.py"))
#: The lines of the wrong program that have a mistake.
MISTAKES = [
    number
    for number, line in enumerate(WRONG.read_text("utf-8").splitlines(), 1)
    if line.endswith("# wrong")
]
TIMEOUT = 300  # seconds, because a checker reads all of NumPy's types


class TestTypes(FolderTestCase):
    def check(self, *command):
        """Run a checker in a folder without settings of this project; return its output."""
        environment = {"PYTHONPATH": str(ROOT), "MYPYPATH": str(ROOT)}
        options = {"cwd": self.folder, "timeout": TIMEOUT, **environment}
        _, output, _ = run_command(sys.executable, "-m", *command, **options)
        return output

    def mypy(self, program):
        output = self.check("mypy", "--strict", "--cache-dir", self.folder / "cache", program)
        return [int(line) for line in re.findall(r"\.py:(\d+): error:", output)]

    def pyright(self, program):
        (self.folder / "pyrightconfig.json").write_text('{"typeCheckingMode": "standard"}', "utf-8")
        output = self.check("basedpyright", "--outputjson", program)
        found = json.loads(output)["generalDiagnostics"]
        lines = [one["range"]["start"]["line"] + 1 for one in found if one["severity"] == "error"]
        return sorted(set(lines))

    def test_a_right_program_has_no_errors(self):
        self.assertEqual(self.mypy(RIGHT), [])
        self.assertEqual(self.pyright(RIGHT), [])

    def test_each_mistake_is_found(self):
        self.assertEqual(len(MISTAKES), 10)
        self.assertEqual(self.mypy(WRONG), MISTAKES)
        self.assertEqual(self.pyright(WRONG), MISTAKES)
