"""The backend of torch.distributed: the cases of programs/torch_distributed.py."""

import pytest
import torch_distributed
from requirements import is_installed

from case_jobs import CaseJobs, in_one_job, on_nodes, on_ranks

pytestmark = [
    pytest.mark.frameworks,
    pytest.mark.skipif(not is_installed("torch"), reason="needs PyTorch"),
]

#: One host, two hosts with different numbers of ranks, and four, which exchange in another way and
#: whose pairwise sum is not a sum from left to right.
JOBS = on_ranks(1, 2, 4) | on_nodes((4, 3), (4, 1))

TestGroups = CaseJobs(
    torch_distributed,
    in_one_job({name: {**options, "OMP_NUM_THREADS": "1"} for name, options in JOBS.items()}),
).tests()
