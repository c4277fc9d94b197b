"""``python -m multiverso SCRIPT`` in one process, and what ``multiverso run`` refuses."""

import contextlib
import io
import os
import subprocess
import sys
import tempfile
import textwrap
import unittest
from pathlib import Path

from multiverso._commands import main

ROOT = Path(__file__).resolve().parents[3]


def python_m(script, *arguments):
    """Run a script with ``python -m multiverso``."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "train.py")
        path.write_text(textwrap.dedent(script), "utf-8")
        Path(folder, "beside.py").write_text("HERE = True\n", "utf-8")
        return subprocess.run(
            [sys.executable, "-m", "multiverso", str(path), *arguments],
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )


class TestScript(unittest.TestCase):
    def test_it_is_the_main_program(self):
        result = python_m(
            """
            import sys
            from beside import HERE
            print(__name__, sys.argv[1:], HERE)
            """,
            "--lr",
            "0.5",
        )
        self.assertEqual(result.stdout, "__main__ ['--lr', '0.5'] True\n", result.stderr)
        self.assertEqual(result.returncode, 0)

    def test_exit_codes_are_those_of_python(self):
        for code, expected, text in (
            ("None", 0, ""),
            ("0", 0, ""),
            ("3", 3, ""),
            ("-1", 255, ""),
            ("'no data'", 1, "no data\n"),
        ):
            with self.subTest(code):
                result = python_m(f"import sys; sys.exit({code})")
                self.assertEqual((result.returncode, result.stderr), (expected, text))

    def test_traceback_is_that_of_the_script(self):
        result = python_m("def f():\n    raise KeyError('batch')\nf()\n")
        self.assertEqual(result.returncode, 1)
        lines = result.stderr.splitlines()
        self.assertEqual(lines[0], "Traceback (most recent call last):")
        self.assertIn("train.py", lines[1])
        self.assertEqual(lines[-1], "KeyError: 'batch'")
        self.assertNotIn("runpy", result.stderr)

    def test_session_that_the_script_leaves_open_does_no_harm(self):
        result = python_m(
            "import multiverso as mv\nmv.init()\nt = mv.ArrayTableHandler(3)\nraise OSError('x')\n"
        )
        self.assertEqual(result.returncode, 1)
        self.assertTrue(result.stderr.endswith("OSError: x\n"), result.stderr)


class TestRun(unittest.TestCase):
    def refused(self, *arguments):
        with contextlib.redirect_stderr(io.StringIO()) as err:
            try:
                code = main(["run", *arguments])
            except SystemExit as error:
                code = error.code
        self.assertEqual(code, 2)
        return err.getvalue()

    def test_wrong_arguments(self):
        self.assertIn(">= 1, received '0'", self.refused("-np", "0", "train.py"))
        self.assertIn("received 'two'", self.refused("-np", "two", "train.py"))
        self.assertIn(">= 0, received '-1'", self.refused("--restarts", "-1", "train.py"))
        self.assertIn("no such file", self.refused("-np", "2", "/nowhere/train.py"))


if __name__ == "__main__":
    unittest.main()
