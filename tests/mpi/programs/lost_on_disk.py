"""Ends a session whose tables lie in a folder, after one of its ranks was killed during an add.

The arguments are the folder, and the rank that dies, or -1 in the session that follows.
"""

import hashlib
import os
import signal
import sys
import threading
from pathlib import Path

import numpy as np
import worker

import multiverso as mv

ROWS, COLUMNS = 30_000, 32
#: The adds before the victim dies.
ADDS = 20


def main():
    """Run one session."""
    folder, victim = Path(sys.argv[1]), int(sys.argv[2])
    with mv.session(on_peer_lost="continue"):
        rows = mv.MatrixTable(ROWS, COLUMNS, updater="adagrad", backing=folder / "rows")
        # A rank that dies keeps the room that its call has taken for new keys.
        keys = mv.HashTable(COLUMNS, 2 * ROWS, backing=folder / "keys")
        ids, delta = np.arange(ROWS), np.ones((ROWS, COLUMNS))
        if victim >= 0:
            if mv.rank() == victim:
                threading.Timer(0.3, os.kill, [os.getpid(), signal.SIGKILL]).start()
            while mv.rank() == victim:
                rows.add(delta, ids)
                keys.add(delta, ids)
            for _ in range(ADDS):
                rows.add(delta, ids)
                keys.add(delta, ids)
        mv.barrier()
        values = [table.get(ids).tobytes() for table in (rows, keys)]
        worker.report(
            digest=hashlib.sha256(b"".join(values)).hexdigest(),
            reopened=[rows.reopened, keys.reopened],
        )


if __name__ == "__main__":
    main()
