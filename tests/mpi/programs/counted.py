"""Adds 1 to all rows of a table in a folder, which the argument names, and says what it found."""

import sys

import numpy as np

import multiverso as mv

ROWS, COLUMNS = 20_000, 16

with mv.session():
    table = mv.MatrixTable(ROWS, COLUMNS, mv.initializers.Zeros(), backing=sys.argv[1])
    mv.barrier()
    values = table.get(np.arange(ROWS))
    mv.barrier()
    is_master = mv.is_master_worker()
    if is_master:
        assert (values == values[0, 0]).all()
        sys.stdout.write(f"found {int(values[0, 0]) // mv.num_workers()}\n")
    for first in range(0, ROWS, 1000):
        table.add(np.ones((1000, COLUMNS)), np.arange(first, first + 1000))
if is_master:
    sys.stdout.write("ended\n")
