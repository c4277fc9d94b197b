"""The programs of docs/tutorial.md print on three workers what the page shows for one."""

import ast
import re
import sys
import tempfile
import unittest
from importlib.util import find_spec
from pathlib import Path

import pytest

from launch import run

PAGE = Path(__file__).parents[2] / "docs" / "tutorial.md"
BLOCK = re.compile(
    r"^```python\n(?P<code>.*?)^```$\s*^```output\n(?P<output>.*?)^```$", re.DOTALL | re.MULTILINE
)
COMPILE_TIMEOUT = 400.0  # seconds for a job that compiles first

pytestmark = pytest.mark.one_mpi


def frameworks_of(code):
    """Return the modules that the code imports, except those that every environment has."""
    names = set()
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Import):
            names |= {alias.name.split(".")[0] for alias in node.names}
    return names - {"multiverso", "numpy"} - sys.stdlib_module_names


class TestTutorial(unittest.TestCase):
    @pytest.mark.slow
    def test_three_workers_print_the_same_as_one(self):
        self.check_blocks(with_frameworks=False)

    @pytest.mark.frameworks
    def test_three_workers_print_the_same_as_one_with_frameworks(self):
        self.check_blocks(with_frameworks=True)

    def check_blocks(self, with_frameworks):
        blocks = list(BLOCK.finditer(PAGE.read_text("utf-8")))
        parallel = [block for block in blocks if "mv.session" in block["code"]]
        self.assertGreater(len(parallel), 4)
        for block in parallel:
            names = frameworks_of(block["code"])
            if bool(names) != with_frameworks:
                continue
            with self.subTest(block["code"][:60]), tempfile.TemporaryDirectory() as folder:
                if missing := [name for name in sorted(names) if not find_spec(name)]:
                    self.skipTest(f"needs {', '.join(missing)}")
                script = Path(folder, "block.py")
                script.write_text(block["code"], "utf-8")
                job = run(script, np=3, timeout=COMPILE_TIMEOUT).check()
                # Only the master prints; Theano adds its own messages.
                printed = job.output.splitlines()
                for line in block["output"].splitlines():
                    self.assertEqual(printed.count(line), 1, job.output)
