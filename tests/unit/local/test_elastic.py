"""The processes of elastic jobs: what a failure ends, and what replaces a rank. No rank has tables.

A script reports to the launcher what a rank does whose session opens and ends.
"""

import os
import sys
import textwrap
import unittest
from unittest import mock

from folders import FolderTestCase

from multiverso._local import elastic, ranks
from multiverso._local.cores import Share
from multiverso._local.job import WorkerRange, find_join, find_local_job, find_worker_range
from multiverso.errors import LauncherError

#: What each script starts with.
BEGIN = """
    import json, os, pathlib, sys, time
    rank, folder = os.environ["MULTIVERSO_RANK"], pathlib.Path(sys.argv[1])
    is_joiner = "MULTIVERSO_JOIN" in os.environ

    def note(name):
        with open(folder / name, "a") as file:
            file.write(f"{os.getpid()}\\n")

    def wait_for(name, count=1):
        path = folder / name
        while not path.exists() or len(path.read_text().split()) < count:
            time.sleep(0.005)

    def wait_for_end(name, count=1):
        wait_for(name, count)  # and until the launcher knows of the ends
        while any(os.path.exists(f"/proc/{pid}") for pid in (folder / name).read_text().split()):
            time.sleep(0.005)

    def tell(event):
        _, descriptor, _, _, key = os.environ["MULTIVERSO_REPORTS"].split(":")
        line = {"key": key, "pid": os.getpid(), "time": time.monotonic(), "event": event}
        os.write(int(descriptor), json.dumps({**line, "rank": int(rank)}).encode() + b"\\n")
"""

FOREVER = "wait_for('nothing')"


class TestElasticJob(FolderTestCase):
    def run_job(self, script, size=2, least=1, respawn=False, is_stopped=lambda: False):
        """Run a script as an elastic job; return its exit code and what the launcher reported."""
        path = self.folder / "train.py"
        path.write_text(textwrap.dedent(BEGIN) + textwrap.dedent(script), "utf-8")
        reports = []
        job = elastic.ElasticJob(
            [sys.executable, "-S", str(path), str(self.folder)],
            [Share()] * size,
            WorkerRange(least, 8),
            respawn=respawn,
            report=reports.append,
        )
        code = job.run(is_stopped)
        return code, "\n".join(reports)

    def pids(self, name):
        return [int(pid) for pid in (self.folder / name).read_text("utf-8").split()]

    def check_ended(self, pids):
        for pid in pids:
            self.assertRaises(ProcessLookupError, os.kill, pid, 0)

    def test_failed_rank_does_not_end_the_others(self):
        code, reports = self.run_job("""
            if rank == "1":
                note("failed")
                sys.exit(3)
            wait_for_end("failed")
        """)
        self.assertEqual(code, 0)
        self.assertIn("exited with 3", reports)

    def test_too_few_ranks_after_a_failure_end_the_job(self):
        script = f"""
            if rank == "2":
                wait_for("waiting", 2)
                sys.exit(3)
            note("waiting")
            {FOREVER}
        """
        code, reports = self.run_job(script, size=3, least=3)
        self.assertEqual(code, 3)
        self.assertIn("2 ranks remain: expected at least 3", reports)
        self.check_ended(self.pids("waiting"))

    def test_ranks_that_end_without_a_failure_do_not_end_the_job(self):
        script = """
            if rank == "0":
                wait_for_end("ended", 2)
                note("last")
            else:
                note("ended")
        """
        self.assertEqual(self.run_job(script, size=3, least=3), (0, ""))
        self.assertEqual(len(self.pids("last")), 1)

    def test_code_is_that_of_the_last_rank(self):
        code, _ = self.run_job("""
            if rank == "0":
                note("first")
            else:
                wait_for_end("first")
                sys.exit(5)
        """)
        self.assertEqual(code, 5)

    def test_code_of_a_killed_rank_is_its_signal(self):
        self.assertEqual(self.run_job("os.kill(os.getpid(), 9)", size=1)[0], -9)

    def test_rank_that_fails_before_the_session_is_started_again(self):
        script = """
            if rank == "1":
                note("starts")
                if len((folder / "starts").read_text().split()) == 1:
                    sys.exit(1)
                assert not is_joiner and os.environ["MULTIVERSO_SIZE"] == "2"
            wait_for("starts", 2)
        """
        code, reports = self.run_job(script, respawn=True)
        self.assertEqual(code, 0)
        first, second = self.pids("starts")
        self.assertEqual(reports, f"process {first} exited with 1; process {second} replaces it")

    def test_rank_that_fails_in_the_session_is_replaced_by_a_joiner(self):
        script = f"""
            if is_joiner:
                assert rank == "1" and "MULTIVERSO_JOB" not in os.environ
                assert os.environ["MULTIVERSO_JOIN"] == "{os.getpid()}"
                assert os.environ["MULTIVERSO_ELASTIC"] == "1:8"
                note("joined")
            else:
                tell("opened")
                note("open")
                wait_for("open", 2)
                if rank == "1":
                    os.kill(os.getpid(), 9)
                wait_for("joined")
        """
        code, reports = self.run_job(script, respawn=True)
        self.assertEqual(code, 0)
        self.assertIn("was ended by SIGKILL", reports)
        self.assertEqual(reports.count("replaces it"), 1)

    def test_replacement_that_fails_is_replaced(self):
        script = """
            if is_joiner:
                note("joiners")
                if len((folder / "joiners").read_text().split()) < 3:
                    sys.exit(1)
            else:
                tell("opened")
                note("open")
                wait_for("open", 2)
                if rank == "1":
                    sys.exit(1)
                wait_for("joiners", 3)
        """
        code, reports = self.run_job(script, respawn=True)
        self.assertEqual((code, reports.count("replaces it")), (0, 3))

    def test_script_that_always_fails_at_once_is_not_replaced_any_more(self):
        script = f"""
            if rank == "1":
                note("starts")
                sys.exit(7)
            {FOREVER}
        """
        with mock.patch.object(elastic, "_QUICK_SECONDS", 1e6):
            code, reports = self.run_job(script, least=2, respawn=True)
        self.assertEqual(code, 7)
        self.assertEqual(len(self.pids("starts")), 5)
        self.assertIn("it is not replaced, because this is failure 5 in a row", reports)

    def test_ranks_that_are_killed_or_fail_slowly_are_replaced_without_a_limit(self):
        fails = 'sys.exit(len((folder / "starts").read_text().split()) < 8)'
        for quick_seconds, end in ((1e6, "os.kill(os.getpid(), 9)"), (0, fails)):
            script = f"""
                if rank == "1":
                    note("starts")
                    {end}
                wait_for("starts", 8)
            """
            with mock.patch.object(elastic, "_QUICK_SECONDS", quick_seconds):
                code, reports = self.run_job(script, respawn=True)
            self.assertNotIn("not replaced", reports)
            self.assertGreaterEqual(len(self.pids("starts")), 8)
            (self.folder / "starts").unlink()
        self.assertEqual((code, reports.count("replaces it")), (0, 7))

    def test_joiner_that_is_too_late_does_not_change_the_code(self):
        script = """
            if is_joiner:
                note("late")
                wait_for_end("over")
                sys.exit("there is no session to join")
            tell("opened")
            note("open")
            wait_for("open", 2)
            if rank == "1":
                sys.exit(1)
            wait_for("late")
            note("over")
        """
        code, reports = self.run_job(script, respawn=True)
        self.assertEqual(code, 0)
        self.assertEqual(reports.count("replaces it"), 1)

    def test_joiner_that_fails_as_the_last_rank_fails_the_job(self):
        script = """
            tell("opened")
            note("open")
            if is_joiner:
                wait_for_end("over")
                sys.exit(6)
            wait_for("open", 2)
            if rank == "1":
                sys.exit(1)
            wait_for("open", 3)
            note("over")
        """
        self.assertEqual(self.run_job(script, respawn=True)[0], 6)

    def test_rank_that_fails_after_its_session_is_not_replaced_and_fails_the_job(self):
        for number, before in enumerate(("", "tell('opened'); tell('closed')")):
            with self.subTest(before):
                script = f"""
                    {before}
                    tell("opened")
                    note("open{number}")
                    wait_for("open{number}", 3)
                    tell("closed")
                    if rank == "1":
                        note("failed{number}")
                        sys.exit(3)
                    wait_for_end("failed{number}")
                """
                code, reports = self.run_job(script, size=3, respawn=True)
                self.assertEqual((code, len(self.pids(f"open{number}"))), (3, 3))
                self.assertIn("after its session, so nothing replaces it", reports)

    def test_rank_that_leaves_its_session_by_a_failure_is_replaced(self):
        script = """
            tell("opened")
            note("open")
            if not is_joiner:
                wait_for("open", 2)
            if rank == "1" and not is_joiner:
                tell("left")
                sys.exit(1)
            wait_for("open", 3)
        """
        code, reports = self.run_job(script, respawn=True)
        self.assertEqual((code, reports.count("replaces it")), (0, 1))

    def test_stop_ends_all_ranks_and_replacements(self):
        script = f"""
            if rank == "1" and not (folder / "failed").exists():
                note("failed")
                sys.exit(1)
            note("waiting")
            {FOREVER}
        """

        def is_stopped():
            path = self.folder / "waiting"
            return path.exists() and len(path.read_text("utf-8").split()) == 3

        self.run_job(script, size=3, respawn=True, is_stopped=is_stopped)
        self.assertEqual(len(self.pids("waiting")), 3)
        self.check_ended(self.pids("waiting"))


class TestVariables(unittest.TestCase):
    def test_range_of_workers(self):
        variables = WorkerRange(2, 8).variables()
        self.assertEqual(find_worker_range(variables), WorkerRange.parse("2:8"))
        self.assertIsNone(find_worker_range({}))

    def test_joiner_is_no_rank_of_a_job_from_the_start(self):
        variables = {"MULTIVERSO_JOIN": "train", "MULTIVERSO_JOB": "x", "MULTIVERSO_RANK": "1"}
        self.assertEqual(find_join(variables), "train")
        self.assertIsNone(find_local_job(variables))
        self.assertIsNone(find_join({"MULTIVERSO_JOIN": ""}))

    def test_names_that_are_not_text_are_refused_with_their_variable(self):
        for variable in ("MULTIVERSO_JOIN", "MULTIVERSO_JOB"):
            given = {variable: os.fsdecode(b"tr\xffain")}
            with self.assertRaisesRegex(LauncherError, rf"UTF-8 .*{variable}.* b'tr\\xffain'"):
                find_local_job({**given, "MULTIVERSO_RANK": "0", "MULTIVERSO_SIZE": "1"})

    def test_job_does_not_inherit_the_variables_of_its_parent(self):
        inherited = {"MULTIVERSO_JOIN": "a", "MULTIVERSO_ELASTIC": "1:2", "MULTIVERSO_JOB": "b"}
        with mock.patch.dict(os.environ, {**inherited, "MULTIVERSO_LOG": "off"}):
            variables = ranks.environment({"MULTIVERSO_RANK": "0"})
        self.assertFalse(inherited.keys() & variables.keys())
        self.assertEqual(variables["MULTIVERSO_LOG"], "off")
