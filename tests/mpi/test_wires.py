"""Values that travel between nodes as bfloat16 or int8: the cases of programs/wires.py."""

import pytest

import wires
from case_jobs import CaseJobs, on_nodes, on_ranks

# The messages between nodes are those of the cases of test_nodes.py and test_consistency.py, which
# run with each MPI.
pytestmark = pytest.mark.one_mpi

JOBS = on_ranks(1, 2) | on_nodes((3, 1), (4, 2))

TestWires = CaseJobs(wires, JOBS).tests()
