"""Measures the memory of a table, as the kernel divides it among the ranks that map its pages."""

import re
from pathlib import Path

import numpy as np
import worker

import multiverso as mv

SIZE = 32 * 2**20  # float32: 128 MiB


def shared_bytes():
    """Return this rank's part of the shared memory that it maps, in bytes."""
    text = Path("/proc/self/smaps_rollup").read_text("utf-8")
    return int(re.search(r"Pss_Shmem: +(\d+) kB", text)[1]) * 1024


def main():
    """Report by how much creating, touching and freeing a table changes this rank's part."""
    worker.begin()
    with mv.session():
        mv.barrier()
        before = shared_bytes()
        mv.barrier()
        table = mv.ArrayTableHandler(SIZE)
        mv.barrier()
        created = shared_bytes() - before
        mv.barrier()
        out = np.ones(SIZE, np.float32)
        table.add_get(out, out=out)
        mv.barrier()
        touched = shared_bytes() - before
        mv.barrier()
        del table
        mv.barrier()
        freed = shared_bytes() - before
        worker.report(bytes=4 * SIZE, created=created, touched=touched, freed=freed)


if __name__ == "__main__":
    main()
