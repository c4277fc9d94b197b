"""Every test runs in `make test` or in another part of `make test-release`."""

import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

from project import PYPROJECT

ROOT = Path(__file__).resolve().parents[2]
MAKEFILE = (ROOT / "Makefile").read_text("utf-8")
SIMULATIONS = ["simulate-undefined", "simulate-address"]
PYTEST = PYPROJECT["tool"]["pytest"]


class TestMakefile(unittest.TestCase):
    def test_runs_in_the_first_environment_complement_each_other(self):
        for expression in ("not slow and not frameworks", "(slow or frameworks) $(AND)"):
            self.assertIn(f',-m "{expression}"))', MAKEFILE)  # and no list of files follows
        # Only test-all leaves tests out.
        self.assertEqual(re.findall(r"^(.+): .*\bAND\b *=", MAKEFILE, re.MULTILINE), ["test-all"])
        self.assertEqual(PYTEST["ini_options"]["testpaths"], ["tests"])

    def test_folders_that_pytest_leaves_out_have_a_run(self):
        for folder in {*PYTEST["ini_options"]["norecursedirs"]} - {".*"}:
            self.assertRegex(MAKEFILE, rf"pytest .*tests/{folder}\)")

    def test_all_parts_run_in_test_all_and_test_release(self):
        (parts,) = re.findall(r"^test-all test-release: PARTS := (.*)$", MAKEFILE, re.MULTILINE)
        (more,) = re.findall(r"^test-release: PARTS \+= (.*)$", MAKEFILE, re.MULTILINE)
        of_release = ["test-posix", "test-asan", "test-tsan", "fuzz", *SIMULATIONS, "release-check"]
        self.assertEqual(more.split(), of_release)
        targets = re.findall(r"^(test-\w+):", MAKEFILE, re.MULTILINE)
        parts = [*parts.split(), *more.split()]
        self.assertEqual({*targets} - {*parts}, {"test-all", "test-release", "test-unit"})

    def parts_of(self, target):
        """Return the parts of a target, with `make`'s own reading of the Makefile."""
        command = ["make", "-n", target, "MAKE=true", "PYTHON=true"]
        printed = subprocess.run(command, cwd=ROOT, timeout=60, capture_output=True, text=True)
        (parts,) = re.findall(rf"summary.py {target} \S+ (.*); exit", printed.stdout)
        return parts.split()

    def test_ci_runs_all_parts_side_by_side_and_test_release_each_night(self):
        run = (ROOT / ".ci" / "run").read_text("utf-8")
        self.assertIn('target="${1:-test-all}"\n', run)
        self.assertIn('exec make "$target" "${@:2}"\n', run)
        for name, scheduled, others in (
            (
                ".github/workflows/ci.yml",
                "if: github.event_name == 'schedule'",
                "if: github.event_name != 'schedule'",
            ),
            (
                ".gitlab-ci.yml",
                '- if: $CI_PIPELINE_SOURCE == "schedule"',
                '- if: $CI_PIPELINE_SOURCE != "schedule"',
            ),
        ):
            with self.subTest(name):
                text = (ROOT / name).read_text("utf-8")
                # The first job is that of each change.
                change, nightly = re.split(r"^ *nightly:\n", text, flags=re.MULTILINE)
                for job, condition, target in (
                    (change, others, "test-all"),
                    (nightly, scheduled, "test-release"),
                ):
                    self.assertIn(condition, job)
                    self.assertRegex(job, rf'- (run: )?.ci/run {target} PARTS="\$.*"\n')
                    for part in self.parts_of(target):
                        self.assertRegex(job, rf"[ ,\[]{part}[ ,\]\n]")
        workflow = (ROOT / ".github/workflows/ci.yml").read_text("utf-8")
        # Five fields, of which the first two are a minute and an hour.
        self.assertRegex(workflow, r'- cron: "[1-5]?\d (1?\d|2[0-3]) \* \* \*"')

    def test_names_of_test_files_are_those_that_pytest_collects(self):
        for path in (ROOT / "tests").rglob("*.py"):
            if re.search(r"^(class Test|def test_)", path.read_text("utf-8"), re.MULTILINE):
                with self.subTest(path.name):
                    self.assertRegex(path.name, r"^test_")


class TestMissingTools(unittest.TestCase):
    def test_demo_says_what_to_install(self):
        with tempfile.TemporaryDirectory() as folder:
            tree, tools = Path(folder, "tree"), Path(folder, "bin")
            tree.mkdir()
            tools.mkdir()
            for path in ROOT.iterdir():
                if not path.name.startswith(".") and path.name not in ("build", "multiverso"):
                    (tree / path.name).symlink_to(path)
            (tree / "multiverso").mkdir()
            (tree / "multiverso" / "_version.py").touch()
            for name in ("sh", "env", "find", "cat", "sort", "false"):
                (tools / name).symlink_to(shutil.which(name))
            for missing, python in (
                ("a C++ compiler", "python3"),
                ("Python 3.10 or newer as no-python", "no-python"),
                ("the modules venv and ensurepip of false", "false"),
            ):
                with self.subTest(missing):
                    result = subprocess.run(
                        [shutil.which("make"), "demo", f"PYTHON={python}"],
                        cwd=tree, env={"PATH": str(tools)}, timeout=550,
                        capture_output=True, text=True,
                    )  # fmt: skip
                    self.assertEqual(result.returncode, 2)
                    self.assertIn(f"expected {missing}. Debian, Ubuntu: apt install", result.stderr)
                    self.assertEqual(os.listdir(tree / "multiverso"), ["_version.py"])
                # The other tools are looked for when there is a compiler.
                (tools / "g++").touch(mode=0o755)

    def test_environment_says_which_python_it_needs(self):
        wanted = "version == (3, 9)"
        with tempfile.TemporaryDirectory() as folder:
            for name in ("Makefile", "src", "cmake"):
                Path(folder, name).symlink_to(ROOT / name)
            command = [
                "make",
                ".venv-jax/.created",
                f"PYTHON={sys.executable}",
                f"PYTHONS={wanted}",
            ]
            result = subprocess.run(
                command, cwd=folder, timeout=550, capture_output=True, text=True
            )
            self.assertEqual(result.returncode, 2)
            self.assertIn(f"expected Python with {wanted} for .venv-jax, received", result.stderr)
            self.assertFalse(Path(folder, ".venv-jax").exists())
