"""The backend of torch.distributed: the cases of programs/torch_distributed.py."""

import pytest
import torch_distributed
from requirements import is_installed

from case_jobs import CaseJobs, in_one_job, on_ranks

pytestmark = [
    pytest.mark.frameworks,
    pytest.mark.skipif(not is_installed("torch"), reason="needs PyTorch"),
]

TestGroups = CaseJobs(
    torch_distributed, in_one_job(on_ranks(1, 2, 3, 4, OMP_NUM_THREADS="1"))
).tests()
