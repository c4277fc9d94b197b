"""The ranks of `doctor`'s trial: a table, an add of each, and a line of JSON from every rank."""

import json
import os
import platform
import sys

import numpy as np

import multiverso as mv

#: More than a page, so that the ranks meet in memory that one of them has made.
_SIZE = 10_000


def main() -> int:
    """Add one each, and say what came of it; return 0 if it is the sum."""
    with mv.session(timeout=float(sys.argv[1])) as session:
        table = mv.ArrayTableHandler(_SIZE, name="hello")
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
            "cores": len(os.sched_getaffinity(0)),
        }
        # One write, so that the lines of two ranks do not mix.
        sys.stdout.write(json.dumps(line) + "\n")
        sys.stdout.flush()
        mv.barrier()
    return 0 if right else 1


if __name__ == "__main__":
    sys.exit(main())
