"""Values that travel between nodes as bfloat16 or int8: the cases of programs/wires.py."""

import wires
from case_jobs import CaseJobs, on_nodes, on_ranks

JOBS = on_ranks(1, 2) | on_nodes((2, 1), (3, 1), (4, 2))

TestWires = CaseJobs(wires, JOBS).tests()
