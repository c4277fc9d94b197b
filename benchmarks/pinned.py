"""Run a program on one core, a different one for each rank of this machine.

    mpirun -np 2 python benchmarks/pinned.py PROGRAM.py [ARGUMENT ...]

It replaces the options of mpirun for pinning, which differ between MPIs.
"""

from __future__ import annotations

import os
import sys

import multiverso as mv


def pin() -> None:
    """Restrict this process to one core."""
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {cores[mv.local_rank() % len(cores)]})


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit("expected a program and its arguments, received nothing")
    pin()
    os.execv(sys.executable, [sys.executable, *sys.argv[1:]])
