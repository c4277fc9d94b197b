"""Run a program on one core, another one for each rank of this host.

    mpirun -np 2 python benchmarks/pinned.py PROGRAM.py [ARGUMENT ...]

mpirun's own options for that differ from one MPI to the other.
"""

from __future__ import annotations

import os
import sys

import multiverso as mv


def pin() -> None:
    """Let this process run on one core only, from now on."""
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {cores[mv.local_rank() % len(cores)]})


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit("expected a program and its arguments, received none")
    pin()
    os.execv(sys.executable, [sys.executable, *sys.argv[1:]])
