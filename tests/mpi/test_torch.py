"""PyTorch modules on 1 to 4 ranks: the cases of programs/torch_params.py."""

import pytest
import torch_params
from requirements import is_installed

from case_jobs import CaseJobs, in_one_job, on_ranks

pytestmark = [
    pytest.mark.frameworks,
    pytest.mark.skipif(not is_installed("torch"), reason="needs PyTorch"),
]

TestModules = CaseJobs(torch_params, in_one_job(on_ranks(1, 3, OMP_NUM_THREADS="1"))).tests()
