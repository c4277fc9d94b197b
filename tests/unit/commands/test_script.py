"""``python -m multiverso SCRIPT`` in one process, and invalid arguments of ``multiverso run``."""

import os
import tempfile
import textwrap
import unittest
from pathlib import Path

from programs import run_python

from multiverso._local.cores import THREAD_VARIABLES, Cores


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


class TestProgramsOfRanks(unittest.TestCase):
    """``multiverso run`` starts scripts, modules and commands."""

    CODE = "import sys, multiverso as mv; mv.init(); print(__name__, *sys.argv[1:], mv.size())\n"

    def run_in_folder(self, *program):
        with tempfile.TemporaryDirectory() as folder:
            for part in ("tools", "bin"):
                Path(folder, part).mkdir()
            for path in ("tools/__init__.py", "tools/train.py", "bin/train"):
                start = "#!/usr/bin/env python\n" if path == "bin/train" else ""
                Path(folder, path).write_text(start + self.CODE * ("train" in path), "utf-8")
                Path(folder, path).chmod(0o755)
            found = os.pathsep.join([f"{folder}/bin", os.environ["PATH"]])
            return run_python("-m", "multiverso", "run", "-np", 1, *program, cwd=folder, PATH=found)

    def test_runs_a_module_or_a_command_with_its_arguments(self):
        for program in (["-m", "tools.train", "-x"], ["train", "-x"], ["tools/train.py", "-x"]):
            status, printed, errors = self.run_in_folder(*program)
            self.assertEqual((status, printed), (0, "__main__ -x 1\n"), errors)

    def test_says_what_there_is_not(self):
        for program, text in (
            (["-m", "tool"], "tool: no such module"),
            (["-m", "tools.trai"], "tools.trai: no such module"),
            (["trai"], "trai: no such file"),
            (["true"], "true: no such file"),
        ):
            status, _, errors = self.run_in_folder(*program)
            self.assertIn(text, errors)
            self.assertEqual(status, 2)


class TestCores(unittest.TestCase):
    CODE = """
        import os
        import numpy
        import multiverso as mv
        with mv.session():
            seen = os.environ["OMP_NUM_THREADS"], os.environ["NPROC"], len(os.sched_getaffinity(0))
            everyone = mv.aggregate(numpy.array(seen, numpy.float64))
            if mv.rank() == 0:
                print(mv.size(), *everyone.tolist())
    """

    def run_job(self, *options, **variables):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "train.py")
            path.write_text(textwrap.dedent(self.CODE), "utf-8")
            run = ("-m", "multiverso", "run", *options, path)
            names = dict.fromkeys(THREAD_VARIABLES, "")
            status, printed, errors = run_python(*run, **{**names, **variables})
        self.assertEqual(status, 0, errors)
        return [float(word) for word in printed.split()], errors

    def test_run_starts_a_rank_for_each_core(self):
        cores = Cores.find()
        found, errors = self.run_job("--max", "2")
        ranks = min(cores.number, 2)
        threads = ranks * cores.threads(ranks)
        self.assertEqual(found[:3], [ranks, threads, threads])
        self.assertIn(f"starts {ranks} rank", errors)

    def test_each_rank_has_cores_of_its_own(self):
        cores = Cores.find()
        ranks = len(cores.cpus)
        found, errors = self.run_job("-np", str(ranks), "--bind", "core")
        self.assertEqual(found[0::3], [ranks, sum(map(len, cores.cpus))])
        self.assertEqual(errors, "")
        found, _ = self.run_job("-np", "2", "--bind", "none")
        self.assertEqual(found[3], 2 * sum(map(len, cores.cpus)))

    def test_threads_of_the_user_stay(self):
        found, _ = self.run_job("-np", "2", OMP_NUM_THREADS="7")
        self.assertEqual(found[:3], [2, 14, 14])
