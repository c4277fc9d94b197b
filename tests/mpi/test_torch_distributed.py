"""The backend of torch.distributed: the cases of two files of programs."""

import pytest
import torch_distributed
import torch_distributed_hosts
from requirements import is_installed

from case_jobs import CaseJobs, in_one_job, on_nodes, on_ranks

pytestmark = [
    pytest.mark.frameworks,
    pytest.mark.skipif(not is_installed("torch"), reason="needs PyTorch"),
]


def jobs(of):
    """Return the options of jobs that run one after the other as layouts of one."""
    return in_one_job({name: {**options, "OMP_NUM_THREADS": "1"} for name, options in of.items()})


TestGroups = CaseJobs(torch_distributed, jobs(on_ranks(1, 2, 4))).tests()

TestGroupsOverHosts = CaseJobs(torch_distributed_hosts, jobs(on_nodes((4, 2)))).tests()
