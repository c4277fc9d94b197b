"""Random programs in sync mode with the same workers on different nodes."""

import os
import sys
from pathlib import Path

import worker
from cases import SEED, TIMEOUT

import multiverso as mv
from configurations import VARIABLE
from machine import programs


def place_on(node):
    """Let this rank join that virtual node. A setting puts rank r on node r // setting."""
    settings = range(1, worker.RANK + 2)
    found = next(setting for setting in settings if worker.RANK // setting == node)
    os.environ["MULTIVERSO_RANKS_PER_NODE"] = str(found)


def main():
    """Run a program for each number of nodes, with blocks of ranks and round-robin."""
    worker.begin()
    os.environ[VARIABLE] = "sync"
    tried = []
    for nodes in (1, 2, 3, 4, worker.SIZE):
        in_blocks = worker.RANK // -(-worker.SIZE // nodes)
        for name, node in (("blocks", in_blocks), ("round robin", worker.RANK % nodes)):
            place_on(node)
            session = mv.init(sync=True, timeout=TIMEOUT)
            tried.append((name, nodes, session.node, session.num_nodes))
            mv.shutdown()
            folder = Path(os.environ["MULTIVERSO_TEST_JOB"]) / f"program-{len(tried)}"
            folder.mkdir(exist_ok=True)
            programs.run(SEED + nodes, folder, timeout=TIMEOUT)
    worker.report(tried=tried)


if __name__ == "__main__":
    sys.exit(main())
