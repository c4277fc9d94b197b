"""Cases about what has changed in a table, and about gets that transfer only that."""

import numpy as np
from cases import SEED, case, equal, repeats

import multiverso as mv
from multiverso.sync import ParamSync


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


@case
def whole_gets_fetch_what_has_changed():
    rng = np.random.default_rng((SEED, mv.rank()))
    table = mv.MatrixTableHandler(80_000, 16, dtype="int32", name="fetched")
    expected = np.zeros((80_000, 16), np.int32)
    table.get()
    for step in range(repeats(12)):
        rows = np.unique(rng.integers(0, 80_000, 3))
        delta = rng.integers(-9, 10, (len(rows), 16)).astype(np.int32)
        if step % 5 == 4:
            table.add(np.ones((80_000, 16), np.int32))
            expected += 1
        table.add(delta, rows)
        expected[rows] += delta
        values = table.get()
        if mv.size() == 1:
            equal(values, expected)
    mv.barrier()
    equal(table.get(), mv.aggregate(expected))
    mv.barrier()
    before = mv.stats()["fetched"]
    equal(table.get(), expected)
    table.get(range(1000))
    counts = {name: count - before[name] for name, count in mv.stats()["fetched"].items()}
    equal((counts["gets"], counts["bytes_got"]), (2, 4 * 16 * 81_000))
    assert counts["bytes_sent"] + counts["bytes_received"] < 200_000
    mv.barrier()


def bytes_of(sync):
    """Run a sync; return the bytes that it takes between nodes."""
    name = sync.tables[0].name
    before = mv.stats()[name]
    sync.sync()
    after = mv.stats()[name]
    return sum(after[count] - before[count] for count in ("bytes_sent", "bytes_received"))


@case
def syncs_transfer_what_has_changed():
    rng = np.random.default_rng((SEED, mv.rank()))
    sizes = [300_000, 0, 7, 900_000]
    for updater in ("add", "sgd", "momentum"):
        arrays = [np.zeros(size, np.float32) for size in sizes]
        options = {} if updater == "add" else {"learning_rate": 1.0}
        sync = ParamSync(arrays, updater=updater, name=updater, **options)
        learned = [np.zeros(size, np.float32) for size in sizes]
        for _ in range(5):
            for array, own in zip(arrays, learned, strict=True):
                if not array.size or rng.random() < 0.3:
                    continue
                begin = rng.integers(array.size)
                end = begin + (array.size if rng.random() < 0.1 else 5000)
                delta = rng.integers(-9, 10, array[begin:end].size)
                array[begin:end] += delta
                own[begin:end] += delta
            sync.sync()
        mv.barrier()
        sync.sync()
        if updater != "momentum":
            for array, own in zip(arrays, learned, strict=True):
                equal(array, mv.aggregate(own) if own.size else own)
        mv.barrier()
        for _ in range(2):  # the first gets what others have changed in the last sync
            quiet = bytes_of(sync)
            mv.barrier()
        arrays[3][5] += mv.rank()
        few = bytes_of(sync)
        mv.barrier()
        sync.sync()
        if updater != "momentum":
            assert quiet < 10_000, quiet
            assert few < 250_000, few
            equal(arrays[3][5], mv.aggregate(np.array([learned[3][5] + mv.rank()]))[0])
        mv.barrier()
