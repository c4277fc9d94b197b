"""Hash tables on one node and on several: programs/keys.py."""

import keys
import pytest

from case_jobs import CaseJobs, on_nodes, on_ranks

JOBS = {
    **on_ranks(1, 2, 3, 4),
    **on_nodes((3, 2), (4, 2)),
}

# The messages between nodes are those of the cases of test_nodes.py and test_consistency.py, which
# run with each MPI.
TestKeys = pytest.mark.one_mpi(CaseJobs(keys, JOBS).tests())
