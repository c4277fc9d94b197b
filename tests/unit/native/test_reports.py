"""Only the process that is the rank reports, whatever it forks, starts and closes."""

import os
import subprocess
import sys
import unittest

from requirements import PLATFORM

from multiverso._native.reports import VARIABLE, Reports

#: What a program does between the start of its session and its end.
ACTIONS = {
    "nothing": "",
    "a forked child that ends the session": """
child = os.fork()
if child == 0:
    mv.api.current_session().leave_with("child")
    os._exit(0)
os.waitpid(child, 0)
""",
    "another program with a session": """
program = "import multiverso as mv; mv.init(); mv.shutdown(); mv.init()"
subprocess.run([sys.executable, "-c", program], check=True, close_fds=False)
""",
    "all descriptors closed, and their numbers used for files": """
os.closerange(3, 256)
files = [open(os.devnull) for _ in range(20)]
""",
    "standard streams closed": "os.closerange(0, 3)",
}


@unittest.skipUnless(PLATFORM == "linux", "needs /proc")
class TestReports(unittest.TestCase):
    def events(self, program):
        """Run a program as a rank; return its state, and the states of others."""
        reports = Reports()
        try:
            subprocess.run(
                [sys.executable, "-c", f"import os, subprocess, sys, multiverso as mv\n{program}"],
                env={**os.environ, **reports.variables("7")},
                pass_fds=[reports.descriptor],
                timeout=60,
                check=False,
                stderr=subprocess.DEVNULL,
            )
            states = reports.states()
        finally:
            reports.close()
        return states.pop("7", None), states

    def test_rank_tells_its_phase(self):
        for name, action in ACTIONS.items():
            for end, phase in (("mv.shutdown()", "after"), ("os._exit(3)", "in")):
                with self.subTest(name, end=end):
                    state, others = self.events(f"mv.init()\n{action}\n{end}")
                    self.assertEqual((state.phase, state.rank, others), (phase, 0, {}))

    def test_phase_follows_several_sessions(self):
        for program, phase in (
            ("", None),
            ("mv.init(); mv.shutdown(); mv.init(); os._exit(1)", "in"),
            ("mv.init(); mv.shutdown(); mv.init(); mv.shutdown()", "after"),
            ("mv.init(); sys.exit(1)", "in"),
            ("with mv.session(): raise ValueError", "in"),
            ("with mv.session(elastic=True) as session: session.leave()", "after"),
        ):
            with self.subTest(program):
                state, _ = self.events(program)
                self.assertEqual(None if state is None else state.phase, phase)

    def test_descriptor_is_no_standard_stream(self):
        streams = [os.dup(stream) for stream in range(3)]
        os.closerange(0, 3)
        try:
            reports = Reports()
            descriptor = reports.descriptor
            reports.close()
        finally:
            for number, stream in enumerate(streams):
                os.dup2(stream, number)
                os.close(stream)
        self.assertGreater(descriptor, 2)

    def test_other_variables_are_ignored(self):
        for value in ("", "1:2", "a:b:c:d:e", f"{os.getpid()}:999:1:1:0"):
            with self.subTest(value):
                subprocess.run(
                    [sys.executable, "-c", "import multiverso as mv; mv.init(); mv.shutdown()"],
                    env={**os.environ, VARIABLE: value},
                    timeout=60,
                    check=True,
                )
