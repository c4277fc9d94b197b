"""Workers of an elastic job join, leave and are killed at random while all of them add."""

import os
import random
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
from requirements import needs_found_sessions

import launch

pytestmark = needs_found_sessions

PROGRAM = launch.PROGRAMS / "churn.py"
SEED = int(os.environ.get("MULTIVERSO_TEST_SEED", "0")) or random.SystemRandom().getrandbits(32)
#: The number of joins, leaves and kills.
EVENTS = 1000 if os.environ.get("MULTIVERSO_SOAK") == "full" else 30
ITEMS = 20 * EVENTS
#: The first ranks, and the fewest and the most workers.
FIRST, LEAST, MOST = 3, 2, 6
#: Seconds that all events and the end of the job may take.
TIMEOUT = 60 + 3 * EVENTS


class Churn:
    """The workers of a job, which join, leave and die at random."""

    def __init__(self, job, name):
        self.job = job
        self.arguments = [name, str(ITEMS), str(EVENTS + FIRST)]
        self.environ = {**job.environ, "MULTIVERSO_JOIN": name}
        self.random = random.Random(SEED)
        self.joiners = []
        self.gone = set()  # the process ids of workers that have been killed or told to leave
        self.kills = self.leaves = 0

    def workers(self):
        """Return the process ids of the workers that take part and have not been told to end."""
        paths = self.job.folder.glob("joined-*")
        joined = {int(path.name.removeprefix("joined-")) for path in paths}
        pids = self.job.pids()
        return [pids[rank] for rank in joined if pids[rank] not in self.gone]

    def run(self):
        """Make all events, while the deadline of the job has not passed."""
        made = 0
        while made < EVENTS and time.monotonic() < self.job.deadline:
            made += self.step()
        assert made == EVENTS

    def step(self):
        """Let one worker join, leave or die, if there are enough; return how many did."""
        present = self.workers()
        starting = [p for p in self.joiners if p.poll() is None and p.pid not in present]
        starting = [p for p in starting if p.pid not in self.gone]
        choices = [self.join] if len(present) + len(starting) < MOST else []
        if len(present) > LEAST:
            choices += [self.kill, self.leave]
        if not choices:
            time.sleep(0.02)
            return 0
        self.random.choice(choices)()
        return 1

    def join(self):
        command = [sys.executable, "-X", "faulthandler", str(PROGRAM), *self.arguments]
        # The harness ends and looks for the joiners too, since they have the job's environment.
        self.joiners.append(
            subprocess.Popen(
                command,
                env=self.environ,
                stdin=subprocess.DEVNULL,
                stdout=self.job.output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        )

    def kill(self):
        self.end(signal.SIGKILL)
        self.kills += 1

    def leave(self):
        self.end(signal.SIGTERM)
        self.leaves += 1

    def end(self, signum):
        pid = self.random.choice(self.workers())
        self.gone.add(pid)
        os.kill(pid, signum)


@pytest.mark.parametrize("launcher", [pytest.param("run", marks=pytest.mark.one_mpi), "mpirun"])
def test_returned_adds_and_items_survive_joins_leaves_and_kills_at_random(launcher, tmp_path):
    name = f"churn-{os.getpid()}-{launcher}"
    runner = launch.run_command(tmp_path, "--elastic", f"1:{MOST + 2}")
    options = {"mpirun": runner} if launcher == "run" else {"survives": True}
    arguments = (name, str(ITEMS), str(EVENTS + FIRST))
    with launch.Job("churn.py", *arguments, np=FIRST, timeout=TIMEOUT, **options) as job:
        job.wait_for("busy")
        churn = Churn(job, name)
        churn.run()
        job.announce("stop")
        for joiner in churn.joiners:
            joiner.wait(TIMEOUT)
        result = job.finish().check_clean()
        # A worker may be killed before its file has its size.
        counts = {
            int(path.name.removeprefix("adds-")): np.frombuffer(
                path.read_bytes().ljust(16, b"\0"), np.int64
            )
            for path in job.folder.glob("adds-*")
        }
    assert len(result.reports) >= LEAST, f"MULTIVERSO_TEST_SEED={SEED}\n{result.output}"
    possible = churn.kills  # the adds that had not returned
    for report in result.reports.values():
        own = report["own"]
        for rank, value in enumerate(own):
            returned = counts[rank][0] if rank in counts else 0
            assert returned <= value <= returned + (rank in report["left"]), rank
        returned = sum(int(adds[1]) for adds in counts.values())
        assert returned <= report["least"] <= report["most"] <= returned + possible
        assert min(report["done"]) == 1
        assert sum(report["done"]) <= ITEMS + churn.kills + churn.leaves
