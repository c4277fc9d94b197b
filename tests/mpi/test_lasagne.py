"""Lasagne networks on 1 to 4 ranks: the cases of programs/lasagne_params.py."""

import lasagne_params
import pytest
from requirements import is_installed

from case_jobs import CaseJobs, in_one_job, on_ranks

pytestmark = [
    pytest.mark.frameworks,
    pytest.mark.skipif(not is_installed("lasagne"), reason="needs Lasagne"),
]

TestNetworks = CaseJobs(lasagne_params, in_one_job(on_ranks(1, 3))).tests()
