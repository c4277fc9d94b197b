"""ParamSync on one node and on several: the cases of every adapter, and of array_params.py."""

import adapter_suite
import array_params
import pytest

from case_jobs import CaseJobs, on_nodes, on_ranks
from configurations import jobs

# The messages between nodes are those of the cases of test_nodes.py and test_consistency.py, which
# run with each MPI.
pytestmark = pytest.mark.one_mpi

JOBS = on_ranks(1, 2, 3, 4) | on_nodes((2, 1), (4, 2)) | jobs("continues")

TestParamSync = CaseJobs(array_params, JOBS).tests()

NUMPY = {name: {**options, "arguments": ("numpy",)} for name, options in JOBS.items()}
TestAdapter = CaseJobs(adapter_suite, NUMPY).tests()
