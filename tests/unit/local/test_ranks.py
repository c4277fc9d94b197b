"""The processes of a job without MPI, as programs that need no session."""

import contextlib
import io
import os
import sys
import unittest

from multiverso._local import ranks
from multiverso._local.cores import Share
from multiverso._local.first_cause import Failure, cause_of, first_cause
from multiverso._local.tagged_output import TaggedOutput, tag

#: Rank 1 ends, and the others run on or have lost rank 1. Each step waits for a report of another
#: rank, so that the order is known.
PROGRAM = """
import json, os, signal, sys, time
rank = int(os.environ["MULTIVERSO_RANK"])
_, descriptor, _, _, key = os.environ["MULTIVERSO_REPORTS"].split(":")
descriptor = int(descriptor)

def tell(event, **entries):
    line = {{"key": key, "pid": os.getpid(), "time": time.monotonic(), "event": event, **entries}}
    os.write(descriptor, json.dumps(line).encode() + b"\\n")

def wait_for(text, count=1):
    while os.pread(descriptor, 1 << 20, 0).count(text) < count:
        time.sleep(0.005)

def lose(code, text="victim"):
    tell("lost", cause=1, error="PeerLostError", text="rank 1 is gone")
    tell("failed", cause=1, error="PeerLostError", code=code, text=text + chr(10))
    sys.exit(code)

tell("opened", rank=rank)
wait_for(b"opened", {size})
if rank == 1:
    {end}
{others}
"""

FOREVER = "time.sleep(60)"
#: The others have ended long before rank 1 does.
LATE = "tell('left'); wait_for(b'failed', 2); time.sleep(0.5);"


class TestRun(unittest.TestCase):
    def run_job(self, end, others=FOREVER, size=2):
        """Run ranks, of which rank 1 ends; return code, reports and the standard error."""
        reports, errors = [], io.StringIO()
        command = [sys.executable, "-S", "-c", PROGRAM.format(end=end, others=others, size=size)]
        with contextlib.redirect_stderr(errors):
            code = ranks.run(command, [Share()] * size, report=reports.append)
        return code, reports, errors.getvalue()

    def test_names_the_rank_that_ended(self):
        for end, code, text in (
            ("os.kill(os.getpid(), signal.SIGKILL)", -9, "was ended by SIGKILL"),
            ("sys.exit(3)", 3, "exited with 3"),
        ):
            with self.subTest(end):
                result, reports, errors = self.run_job(end)
                self.assertEqual((result, errors, len(reports)), (code, "", 1))
                self.assertRegex(reports[0], rf"^rank 1 \(process \d+\) {text}$")

    def test_ranks_that_lost_another_do_not_decide(self):
        for end, code in (
            (f"{LATE} sys.exit(3)", 3),
            (f"{LATE} os.kill(os.getpid(), 9)", -9),
            (f"{LATE} tell('failed', code=1, error='ValueError', text='cause'); sys.exit(1)", 1),
            ("wait_for(b'failed', 2); sys.exit(4)", 4),
        ):
            with self.subTest(end):
                result, reports, errors = self.run_job(end, "lose(5)", size=3)
                self.assertEqual((result, errors), (code, ""))
                self.assertIn("rank 1 (process", reports[0])
                self.assertTrue(reports[1].startswith("2 more: PeerLostError of rank 1"), reports)

    def test_rank_that_fails_by_itself_later_does_not_decide(self):
        others = "wait_for(b'left'); tell('left'); sys.exit(6)"
        end = "tell('left'); wait_for(b'left', 2); time.sleep(0.5); sys.exit(3)"
        self.assertEqual(self.run_job(end, others)[0], 3)

    def test_lost_rank_that_does_not_fail_lets_the_first_of_the_others_decide(self):
        code, reports, errors = self.run_job("sys.exit(0)", "lose(5, 'the text')")
        self.assertEqual((code, errors, len(reports)), (5, "the text\n", 1))
        self.assertIn("rank 0 (process", reports[0])
        self.assertIn("exited with 5 after it had lost rank 1", reports[0])

    def test_lines_that_are_no_reports_are_ignored(self):
        end = "os.write(descriptor, b'null\\n{}\\n\\xff'); sys.exit(3)"
        self.assertEqual(self.run_job(end)[0], 3)


class TestTaggedOutput(unittest.TestCase):
    def test_tags_whole_lines(self):
        output, (read, write) = TaggedOutput(), os.pipe()
        pipe = output.open()
        source = os.dup(pipe)
        output.add(pipe, tag("rank 1"), write)
        for written, expected in (
            (b"a\nb", b"[rank 1] a\n"),
            (b"c\n", b"[rank 1] bc\n"),
            (b"1%\r2%\r", b"[rank 1] 1%\r"),
            (b"\n" + b"\n", b"[rank 1] 2%\r\n[rank 1] \n"),
        ):
            os.write(source, written)
            output.copy()
            self.assertEqual(os.read(read, 1 << 20), expected)
        os.write(source, b"no end")
        os.close(source)
        output.copy()
        self.assertEqual(os.read(read, 1 << 20), b"[rank 1] no end\n")
        self.assertEqual(output.descriptors, [])
        for descriptor in (read, write):
            os.close(descriptor)


class TestFirstCause(unittest.TestCase):
    def test_follows_the_ranks_that_were_lost(self):
        failures = [
            Failure("", 10, 1.0, rank=0, cause=2),
            Failure("", 12, 2.0, rank=2, cause=3),
            Failure("", 13, 3.0, rank=3),
            Failure("", 14, 2.5, rank=4),
            Failure("", 15, 1.5, rank=5, cause=6),
            Failure("", 16, 1.5, rank=6, cause=5),
        ]
        self.assertEqual(first_cause(failures).rank, 4)
        self.assertEqual([cause_of(each, failures).rank for each in failures[:4]], [3, 3, 3, 4])
        self.assertIn(cause_of(failures[4], failures).rank, (5, 6))
