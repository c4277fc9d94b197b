"""The programs of docs/tutorial.md print the same on several workers as on one."""

import ast
import importlib.util
import os
import re
import sys
import tempfile
import unittest
from pathlib import Path

import pytest

from launch import run

PAGE = Path(__file__).parents[2] / "docs" / "tutorial.md"
BLOCK = re.compile(
    r"^```python\n(?P<code>.*?)^```$\s*^```output\n(?P<output>.*?)^```$", re.DOTALL | re.MULTILINE
)
COMPILING = 400.0  # seconds for a job that compiles first

pytestmark = pytest.mark.one_mpi


# Set where other environments run the rest: "frameworks" for blocks that need one, or names of
# modules, like "jax,flax", for blocks that import one of them.
ONLY = os.environ.get("MULTIVERSO_TEST_DOCS", "")


def why_not_here(code):
    """Return why the code cannot run in this environment, or None."""
    names = set()
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Import):
            names |= {alias.name.split(".")[0] for alias in node.names}
    if missing := sorted(name for name in names if importlib.util.find_spec(name) is None):
        return f"needs {', '.join(missing)}"
    if ONLY == "frameworks" and not names - {"multiverso", "numpy"} - sys.stdlib_module_names:
        return "needs no framework"
    if ONLY not in ("", "frameworks") and not names.intersection(ONLY.split(",")):
        return f"imports none of {ONLY}"
    return None


class TestTheTutorial(unittest.TestCase):
    def test_three_workers_print_the_same_as_one(self):
        blocks = list(BLOCK.finditer(PAGE.read_text("utf-8")))
        parallel = [block for block in blocks if "mv.session" in block["code"]]
        self.assertGreater(len(parallel), 4)
        for block in parallel:
            with self.subTest(block["code"][:60]), tempfile.TemporaryDirectory() as folder:
                if reason := why_not_here(block["code"]):
                    self.skipTest(reason)
                script = Path(folder, "block.py")
                script.write_text(block["code"], "utf-8")
                job = run(script, np=3, limit=COMPILING).check()
                # Only the master prints; Theano adds its own messages.
                printed = job.output.splitlines()
                for line in block["output"].splitlines():
                    self.assertEqual(printed.count(line), 1, job.output)


if __name__ == "__main__":
    unittest.main()
