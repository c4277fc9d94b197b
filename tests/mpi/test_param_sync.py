"""ParamSync on one node and on several: the cases of programs/array_params.py."""

import array_params

from case_jobs import CaseJobs, on_nodes, on_ranks

JOBS = on_ranks(1, 2, 3, 4) | on_nodes((2, 1), (4, 2))

TestParamSync = CaseJobs(array_params, JOBS).tests()
