"""The programs of docs/tutorial.md print on three workers what the page shows for one."""

from pathlib import Path

import pytest
from folders import FolderTestCase
from page_blocks import blocks_of, missing_modules, modules_of

from launch import run

PAGE = Path(__file__).parents[2] / "docs" / "tutorial.md"
COMPILE_TIMEOUT = 400.0  # seconds for a job that compiles first

pytestmark = pytest.mark.one_mpi


class TestTutorial(FolderTestCase):
    @pytest.mark.slow
    def test_three_workers_print_the_same_as_one(self):
        self.check_blocks(with_frameworks=False)

    @pytest.mark.release
    @pytest.mark.frameworks
    def test_three_workers_print_the_same_as_one_with_frameworks(self):
        self.check_blocks(with_frameworks=True)

    def check_blocks(self, with_frameworks):
        blocks = blocks_of(PAGE.read_text("utf-8"))
        parallel = [(code, output) for _, code, output in blocks if output and "mv.session" in code]
        self.assertGreater(len(parallel), 4)
        for code, output in parallel:
            if bool(modules_of(code)) != with_frameworks:
                continue
            with self.subTest(code[:60]):
                if missing := missing_modules(code):
                    self.skipTest(f"needs {', '.join(missing)}")
                script = self.folder / "block.py"
                script.write_text(code, "utf-8")
                job = run(script, np=3, timeout=COMPILE_TIMEOUT).check()
                # Only the master prints; Theano adds its own messages.
                printed = job.output.splitlines()
                for line in output.splitlines():
                    self.assertEqual(printed.count(line), 1, job.output)
