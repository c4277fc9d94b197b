"""Calls in the background on several ranks: one test per case of programs/background.py."""

import background
import pytest

from case_jobs import CaseJobs, on_nodes, on_ranks
from configurations import jobs

# The messages between nodes are those of the cases of test_nodes.py and test_consistency.py, which
# run with each MPI.
pytestmark = pytest.mark.one_mpi

JOBS = on_ranks(1, 2, 4) | on_nodes((2, 1), (4, 2)) | jobs("elastic", "continues")

TestTables = CaseJobs(background, JOBS).tests()
