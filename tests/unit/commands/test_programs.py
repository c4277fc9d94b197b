"""The commands `examples`, `demo` and `bench` start the programs that come with the package."""

import contextlib
import io
import re
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path
from unittest import mock

from multiverso._commands import main
from multiverso._commands.programs import folder_of


def outcome_of(*arguments):
    """Return the exit code of a command, what it printed, and its errors."""
    output, errors = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(output), contextlib.redirect_stderr(errors):
        code = main(list(map(str, arguments)))
    return code, output.getvalue(), errors.getvalue()


class TestExamples(unittest.TestCase):
    def test_listed_examples_are_copied_with_their_modules(self):
        code, output, _ = outcome_of("examples")
        self.assertEqual(code, 0)
        described = dict(line.split(maxsplit=1) for line in output.splitlines() if ".py  " in line)
        self.assertIn("Softmax", described["numpy/logistic_regression.py"])
        listed = [*described]
        with tempfile.TemporaryDirectory() as folder:
            copy = Path(folder, "new")
            code, output, _ = outcome_of("examples", "--copy", copy)
            self.assertEqual(code, 0)
            self.assertIn(f"to {copy}\n", output)
            (command,) = re.findall("run one with: multiverso run -np 2 (.*)", output)
            self.assertTrue(Path(command).is_file())
            for name in [*listed, "common/digit_images.py", "c/CMakeLists.txt"]:
                original = folder_of("examples") / name
                self.assertEqual((copy / name).read_bytes(), original.read_bytes())

    def test_folder_with_files_is_not_changed(self):
        with tempfile.TemporaryDirectory() as folder:
            Path(folder, "mine").touch()
            code, _, errors = outcome_of("examples", "--copy", folder)
            self.assertEqual(code, 2)
            self.assertIn("expected a new or an empty folder", errors)
            self.assertEqual([path.name for path in Path(folder).iterdir()], ["mine"])


class TestPrograms(unittest.TestCase):
    def test_demo_starts_the_example_with_its_ranks(self):
        with mock.patch("subprocess.run") as start:
            start.return_value.returncode = 3
            self.assertEqual(outcome_of("demo", "-np", 2)[0], 3)
        (command,) = start.call_args.args
        self.assertEqual(command[:-1], [sys.executable, "-m", "multiverso", "run", "-np", "2"])
        self.assertTrue(Path(command[-1]).is_file())

    def test_bench_passes_options_that_the_benchmark_accepts(self):
        with mock.patch("subprocess.run") as start:
            outcome_of("bench", "--ranks", 1, 2, "--json", "file.json")
        (command,) = start.call_args.args
        self.assertEqual(command[0], sys.executable)
        self.assertEqual(command[2:], ["--quick", "--json", "file.json", "--ranks", "1", "2"])
        subprocess.run([*command, "--help"], check=True, stdout=subprocess.DEVNULL, timeout=100)
