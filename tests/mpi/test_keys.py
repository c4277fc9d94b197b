"""Hash tables on one node and on several: programs/keys.py, and programs/lost_keys.py."""

import contextlib
import os
import random
import signal
import time

import keys
import pytest

import launch
from case_jobs import CaseJobs, on_nodes, on_ranks

JOBS = {
    **on_ranks(1, 2, 3, 4),
    **on_nodes((3, 2), (4, 2)),
}
KILLS = int(os.environ.get("MULTIVERSO_TEST_KILLS", "4"))
SEED = int(os.environ.get("MULTIVERSO_TEST_SEED", "0")) or random.SystemRandom().getrandbits(32)

# The messages between nodes are those of the cases of test_nodes.py and test_consistency.py, which
# run with each MPI.
TestKeys = pytest.mark.one_mpi(CaseJobs(keys, JOBS).tests())


@pytest.mark.one_mpi
@pytest.mark.parametrize(
    "number", [0, *(pytest.param(n, marks=pytest.mark.slow) for n in range(1, KILLS))]
)
def test_survivors_keep_all_keys_and_every_acknowledged_add(number):
    rng = random.Random(f"{SEED}-{number}")
    victim = rng.randrange(4)
    with launch.Job("lost_keys.py", str(victim), np=4, survives=True) as job:
        job.wait_for("busy")
        time.sleep(rng.random() * 0.2)
        with contextlib.suppress(ProcessLookupError):
            job.signal(victim, signal.SIGKILL)
        job.announce("killed")
        result = job.finish().check_clean()
    survivors = [rank for rank in range(4) if rank != victim]
    assert all(result.reports.get(rank, {}).get("ended") for rank in survivors), (
        f"MULTIVERSO_TEST_SEED={SEED}\n{result.output}"
    )
