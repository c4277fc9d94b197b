"""The updaters on one node and on several: the cases of programs/optimizers.py."""

import optimizers

from case_jobs import CaseJobs, on_nodes, on_ranks

# The formulas do not depend on the number of ranks, which the programs of other tests vary.
JOBS = on_ranks(1, 2) | on_nodes((3, 2))

TestUpdaters = CaseJobs(optimizers, JOBS).tests()
