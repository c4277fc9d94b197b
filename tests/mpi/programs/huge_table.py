"""Measures the memory of a table that is larger than the machine's memory and hardly used."""

import re
import sys
import tempfile
from pathlib import Path

sys.path.append(str(Path(__file__).parents[2]))

import numpy as np  # noqa: E402
import worker  # noqa: E402

import multiverso as mv  # noqa: E402
from machine.initial_values import initial_rows  # noqa: E402

ROWS, COLUMNS = 300_000_000, 64  # 77 GB of float32, and as much state
READ, CHANGED = 100_000, 2_000


def own_bytes():
    """Return this rank's part of the memory that it maps, in bytes."""
    text = Path("/proc/self/smaps_rollup").read_text("utf-8")
    return int(re.search(r"Pss: +(\d+) kB", text)[1]) * 1024


def main():
    """Report by how much creating, reading, changing and saving a table change this rank's part."""
    worker.begin()
    initial = mv.initializers.RandomUniform(-0.01, 0.01, seed=7)
    rng = np.random.default_rng(7)
    ids = np.unique(rng.integers(0, ROWS, READ))
    changed = ids[:: len(ids) // CHANGED]
    with mv.session() as session, tempfile.TemporaryDirectory() as folder:
        expected = initial_rows(initial, ids, COLUMNS, "float32")
        out = -expected  # whose pages are touched before the first measurement
        delta = np.ones((len(changed), COLUMNS), np.float32)
        before = own_bytes()
        mv.barrier()
        table = mv.MatrixTableHandler(ROWS, COLUMNS, initial, updater="momentum", learning_rate=1)
        mv.barrier()
        created = own_bytes() - before
        mv.barrier()
        table.get(ids, out=out)
        mv.barrier()
        read = own_bytes() - before
        mv.barrier()
        np.testing.assert_array_equal(out, expected)
        before_changes = own_bytes()
        mv.barrier()
        if mv.is_master_worker():
            table.add(delta, changed)
        mv.barrier()
        used = own_bytes() - before_changes
        mv.barrier()
        table.get(changed, out=out[: len(changed)])
        kept = expected[:: len(ids) // CHANGED] - np.float32(1)
        np.testing.assert_array_equal(out[: len(changed)], kept)
        if session.size == 1:
            mv.save(folder, step=1)
            saved = sum(path.stat().st_size for path in Path(folder).rglob("*.mv"))
            table.add(delta, changed)
            mv.load(folder)
            table.get(changed, out=out[: len(changed)])
            np.testing.assert_array_equal(out[: len(changed)], kept)
            worker.report(saved=saved)
        worker.report(created=created, read=read, used=used, rows=len(changed))


if __name__ == "__main__":
    main()
