"""The program of the doctor's trial: each rank adds to a table and prints a line of JSON.

Its argument is the timeout of each call in seconds. `_checks.judge_hello` reads the lines.
"""

import json
import platform
import sys

import numpy as np

import multiverso as mv
from multiverso._mpi.mpirun import allowed_cores

#: Elements of the table, which then occupies several pages of shared memory.
_SIZE = 10_000


def main() -> int:
    """Add 1 on each rank and print the result; return 0 if it is the sum."""
    with mv.session(timeout=float(sys.argv[1])) as session:
        table = mv.ArrayTable(_SIZE, name="hello")
        table.add(np.ones(_SIZE))
        mv.barrier()
        right = bool((table.get() == session.num_workers).all())
        line = {
            "rank": session.rank,
            "size": session.size,
            "num_nodes": session.num_nodes,
            "local_size": session.local_size,
            "right": right,
            "host": platform.node(),
            "cores": allowed_cores(),
        }
        # The line is one write, so that the lines of two ranks do not mix.
        sys.stdout.write(json.dumps(line) + "\n")
        sys.stdout.flush()
    return 0 if right else 1


if __name__ == "__main__":
    sys.exit(main())
