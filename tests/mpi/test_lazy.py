"""Lazy rows on one node and on several: the cases of programs/lazy.py."""

import lazy
import pytest

from case_jobs import CaseJobs, on_nodes, on_ranks
from configurations import jobs

# The messages between nodes are those of the cases of test_nodes.py and test_consistency.py, which
# run with each MPI.
pytestmark = pytest.mark.one_mpi

JOBS = {
    **on_ranks(1, 2, 4),
    **on_nodes((3, 2), (4, 2)),
    **jobs("files"),
}

TestLazyRows = CaseJobs(lazy, JOBS).tests()
