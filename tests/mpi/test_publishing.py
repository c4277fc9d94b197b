"""Publications in a folder: of several ranks and nodes, and of jobs and readers that are killed."""

import random
import subprocess
import sys
import tempfile
import time

import followed
import following
import pytest
from requirements import needs_found_sessions

import multiverso as mv
from case_jobs import CaseJobs, on_nodes, on_ranks

pytestmark = [needs_found_sessions, pytest.mark.one_mpi]

TestPublishing = CaseJobs(following, on_ranks(1, 2, 4) | on_nodes((2, 1), (4, 2), (3, 1))).tests()


def start(role, folder):
    command = [sys.executable, followed.__file__, role, folder]
    return subprocess.Popen(command, stdout=subprocess.PIPE)


def end(process):
    """Kill a process, which must still run."""
    assert process.poll() is None, "it failed by itself"
    process.kill()
    process.wait(60)


def test_kills_never_show_what_was_not_published():
    rng = random.Random(1)
    model, view, processes = followed.Model(), None, []
    with tempfile.TemporaryDirectory() as folder:
        try:
            for _ in range(6):
                trainer, reader = start("train", folder), start("read", folder)
                processes += [trainer, reader]
                assert reader.stdout.readline() == b"follows\n"
                time.sleep(rng.uniform(0, 0.5))
                for victim in rng.sample([trainer, reader], 2):
                    end(victim)
                view = view or mv.follow(folder)
                view.wait(mv.follow(folder).version, timeout=60)
                model.check(view)
                with mv.follow(folder) as late:
                    model.check(late)
            assert view.step > 6
        finally:
            for process in processes:
                process.kill()
                process.wait(60)
                process.stdout.close()
