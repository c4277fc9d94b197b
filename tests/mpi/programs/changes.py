"""Cases about what has changed in a table."""

import numpy as np
from cases import SEED, case, equal, repeats

import multiverso as mv


@case
def changes_keep_a_copy_equal_to_the_table():
    rng = np.random.default_rng((SEED, mv.rank()))
    tables = [
        mv.ArrayTableHandler(70_000),
        mv.ArrayTableHandler(70_000, dtype="float16"),
        mv.MatrixTableHandler(9_000, 8, dtype="int64"),
        mv.MatrixTableHandler(3, 40_000),
        mv.MatrixTableHandler(9_000, 8, updater="momentum", max_bytes=1 << 24),
        mv.MatrixTableHandler(9_000, 8, init_value=mv.initializers.RandomUniform(-1, 1, seed=3)),
    ]
    copies = [table.get() for table in tables]
    versions = [0] * len(tables)
    for step in range(repeats(40)):
        for table in tables:
            if len(table.shape) == 2:
                rows = np.unique(rng.integers(0, table.shape[0], 2))
                table.add(rng.integers(-9, 10, (len(rows), table.shape[1])), rows)
            elif (step + mv.rank()) % 4 == 0:
                table.add(np.full(table.shape, step, table.value_dtype))
        for i, table in enumerate(tables):
            rows, values, version = table.get_changed(versions[i])
            assert version > versions[i]
            assert (np.diff(rows) > 0).all()
            copies[i][rows], versions[i] = values, version
    mv.barrier()
    for copy, table, version in zip(copies, tables, versions, strict=True):
        rows, values, version = table.get_changed(version)
        copy[rows] = values
        equal(copy, table.get())
        equal(len(table.get_changed(version)[0]), 0)
        mv.barrier()


@case
def changes_are_few_if_few_rows_change():
    table = mv.MatrixTableHandler(100_000, 8)
    *_, version = table.get_changed()
    mv.barrier()
    if mv.rank() == 0:
        table.add([[1] * 8], [77_777])
    mv.barrier()
    rows, values, _ = table.get_changed(version)
    assert 77_777 in rows
    assert len(rows) <= 2048
    equal(values.sum(), 8)


@case
def untouched_rows_have_not_changed():
    table = mv.MatrixTableHandler(1 << 24, 8, init_value=mv.initializers.Constant(2))
    mv.barrier()
    equal(len(table.get_changed()[0]), 0)
    mv.barrier()
    table.add([[1] * 8], [mv.rank() << 20])
    mv.barrier()
    rows, values, version = table.get_changed()
    assert len(rows) <= 2048 * mv.size()
    equal(values.sum(), 2 * values.size + 8 * mv.size())
    equal(len(table.get_changed(version)[0]), 0)
    mv.barrier()
