"""Cases about bounded staleness, and about get(sync=True) in all modes."""

import random

import numpy as np
from cases import TIMEOUT, equal
from modes import case, dawdle

import multiverso as mv


def _check_bound(staleness, pace):
    """Count each worker's adds in its own element, and check by how much the counts differ."""
    rng = random.Random(f"{pace} {mv.rank()}")
    me, n = mv.worker_id(), mv.num_workers()
    table, matrix = mv.ArrayTableHandler(n, dtype="int64"), mv.MatrixTableHandler(n, 3)
    mine = np.zeros(n, np.int64)
    mine[me] = 1
    for made in range(1, 60):
        for _ in range(rng.choice((0, 0, 0, 3))):
            dawdle(rng)
        if rng.random() < 0.5:
            seen = table.add_get(mine)
        else:
            table.add(mine)
            seen = table.get()
        matrix.add([[1, 2, 3]], [me])
        assert seen[me] == made, "not its own adds"
        # Only the own count is exact: counts stored on several nodes are read at different times.
        assert abs(seen - made).max() <= staleness, f"{seen} with staleness {staleness}"
        rows = matrix.get()[:, 0]
        assert rows[me] == made
        assert abs(rows - made).max() <= staleness, f"{rows} with staleness {staleness}"
    mv.barrier()
    equal(table.get(), np.full(n, 59))
    equal(matrix.get([me, me]), [[59, 118, 177]] * 2)


@case()
def staleness_is_never_exceeded_and_the_sum_is_exact():
    mv.shutdown()
    for staleness in (1, 2, 5):
        with mv.session(staleness=staleness, timeout=TIMEOUT) as session:
            for pace in range(3 if session.num_nodes == 1 else 1):
                _check_bound(staleness, pace)
    mv.init(timeout=TIMEOUT)
