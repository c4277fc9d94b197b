"""``python -m multiverso SCRIPT`` in one process, and invalid arguments of ``multiverso run``."""

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
    def test_script_runs_as_the_main_program(self):
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

    def test_exit_codes_match_python(self):
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

    def test_traceback_begins_in_the_script(self):
        result = python_m("def f():\n    raise KeyError('batch')\nf()\n")
        self.assertEqual(result.returncode, 1)
        lines = result.stderr.splitlines()
        self.assertEqual(lines[0], "Traceback (most recent call last):")
        self.assertIn("train.py", lines[1])
        self.assertEqual(lines[-1], "KeyError: 'batch'")
        self.assertNotIn("runpy", result.stderr)

    def test_script_may_leave_its_session_open(self):
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

    def test_run_rejects_invalid_arguments(self):
        self.assertIn(">= 1, received '0'", self.refused("-np", "0", "train.py"))
        self.assertIn("received 'two'", self.refused("-np", "two", "train.py"))
        self.assertIn(">= 0, received '-1'", self.refused("--restarts", "-1", "train.py"))
        self.assertIn("no such file", self.refused("-np", "2", "/nowhere/train.py"))
