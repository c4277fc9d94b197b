"""The updaters on one node and on several: the cases of programs/optimizers.py."""

import optimizers

from case_jobs import CaseJobs, on_nodes, on_ranks

JOBS = on_ranks(1, 2, 3, 4) | on_nodes((2, 1), (3, 2), (4, 2))

# The formulas do not depend on the number of ranks, and four ranks take turns slowly.
TestUpdaters = CaseJobs(optimizers, JOBS, core={"1_ranks", "2_ranks"}).tests()
