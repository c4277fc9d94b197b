"""``python -m multiverso SCRIPT`` in one process, and invalid arguments of ``multiverso run``."""

import contextlib
import io
import tempfile
import textwrap
import unittest
from pathlib import Path

from programs import run_python

from multiverso._commands import main


def run_script(script, *arguments):
    """Run a script with ``python -m multiverso``, beside a module that it can import."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "train.py")
        path.write_text(textwrap.dedent(script), "utf-8")
        Path(folder, "beside.py").write_text("HERE = True\n", "utf-8")
        return run_python("-m", "multiverso", path, *arguments)


class TestScript(unittest.TestCase):
    def test_script_runs_as_the_main_program(self):
        code = """
            import sys
            from beside import HERE
            print(__name__, sys.argv[1:], HERE)
        """
        printed = "__main__ ['--lr', '0.5'] True\n"
        self.assertEqual(run_script(code, "--lr", "0.5"), (0, printed, ""))

    def test_exit_codes_match_python(self):
        for code, expected, text in (
            ("None", 0, ""),
            ("0", 0, ""),
            ("3", 3, ""),
            ("-1", 255, ""),
            ("'no data'", 1, "no data\n"),
        ):
            with self.subTest(code):
                result = run_script(f"import sys; sys.exit({code})")
                self.assertEqual(result, (expected, "", text))

    def test_traceback_begins_in_the_script(self):
        status, _, errors = run_script("def f():\n    raise KeyError('batch')\nf()\n")
        self.assertEqual(status, 1)
        lines = errors.splitlines()
        self.assertEqual(lines[0], "Traceback (most recent call last):")
        self.assertIn("train.py", lines[1])
        self.assertEqual(lines[-1], "KeyError: 'batch'")
        self.assertNotIn("runpy", errors)

    def test_script_may_leave_its_session_open(self):
        status, _, errors = run_script(
            "import multiverso as mv\nmv.init()\nt = mv.ArrayTableHandler(3)\nraise OSError('x')\n"
        )
        self.assertEqual(status, 1)
        self.assertTrue(errors.endswith("OSError: x\n"), errors)


class TestRun(unittest.TestCase):
    def error_of_run(self, *arguments):
        with contextlib.redirect_stderr(io.StringIO()) as err:
            try:
                code = main(["run", *arguments])
            except SystemExit as error:
                code = error.code
        self.assertEqual(code, 2)
        return err.getvalue()

    def test_run_rejects_invalid_arguments(self):
        self.assertIn(">= 1, received '0'", self.error_of_run("-np", "0", "train.py"))
        self.assertIn("received 'two'", self.error_of_run("-np", "two", "train.py"))
        self.assertIn(">= 0, received '-1'", self.error_of_run("--restarts", "-1", "train.py"))
        self.assertIn("no such file", self.error_of_run("-np", "2", "/nowhere/train.py"))

    def test_run_rejects_options_that_do_not_fit_elastic(self):
        for arguments, text in (
            (["--elastic", "8:2"], "expected MIN:MAX with 1 <= MIN <= MAX, received '8:2'"),
            (["--elastic", "2:4"], "expected 2 to 4 ranks with --elastic, received 1"),
            (["-np", "5", "--elastic", "2:4"], "expected 2 to 4 ranks with --elastic, received 5"),
            (["--elastic", "1:4", "--mpirun", "x"], "expected neither --mpi nor --mpirun"),
            (["--respawn"], "--respawn needs --elastic"),
        ):
            with self.subTest(arguments):
                self.assertIn(text, self.error_of_run(*arguments, "train.py"))
