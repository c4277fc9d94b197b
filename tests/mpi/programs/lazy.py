"""Cases about lazy rows on any number of ranks: what they read as, share and may use."""

import numpy as np
from cases import SEED, equal, raises, registrar, run_all
from modes import same_bits

import multiverso as mv
from machine.initial_values import initial_rows, initial_values
from multiverso import api, initializers

CASES = {}

case = registrar(CASES)


def table_of(shape, initializer, dtype="float32", **options):
    kind = mv.ArrayTableHandler if len(shape) == 1 else mv.MatrixTableHandler
    return kind(*shape, initializer, dtype=dtype, **options)


@case()
def all_ranks_pass_the_same_initializer():
    if mv.size() == 1:
        return
    seed = 8 if mv.rank() == 0 else 9
    raises(
        mv.errors.MismatchError,
        lambda: table_of((4, 4), initializers.RandomUniform(seed=seed)),
        "initially RandomUniform(-0.05, 0.05, seed=8)",
        "seed=9",
    )
    initializer = None if mv.rank() == 0 else initializers.Zeros()
    raises(mv.errors.MismatchError, lambda: table_of((4, 4), initializer), "Zeros()")
    equal(table_of((2,), initializers.Constant(1)).get(), [1, 1])


@case()
def concurrent_adds_to_the_same_rows_are_all_applied():
    rows, columns, turns = 3000, 5, 6
    initial = initializers.RandomUniform(-4, 4, seed=1)
    table = table_of((rows, columns), initial, "float64")
    rng = np.random.default_rng([SEED, mv.rank()])
    for _ in range(turns):
        table.add(np.ones((rows, columns)), rng.permutation(rows))
        got = table.get()
        # The values are sums of a few numbers between -4 and 64 whose roundings differ in order.
        difference = got - initial_values(initial, (rows, columns), "float64")
        assert np.allclose(difference, np.round(difference), atol=1e-12)
    mv.barrier()
    expected = initial_values(initial, (rows, columns), "float64")
    for _ in range(turns * mv.num_workers()):
        expected += 1
    same_bits(table.get(), expected)


@case()
def add_without_room_raises_and_changes_nothing():
    rows, columns = 1200, 4
    row_bytes = 2 * columns * 4  # parameters and one slot of the state
    initial = initializers.RandomNormal(seed=4)
    table = table_of((rows, columns), initial, updater="adagrad", max_bytes=100 * row_bytes)
    expected = initial_values(initial, (rows, columns), "float32")
    everything = np.arange(rows)
    for _ in range(2):
        error = raises(
            MemoryError,
            lambda: table.add(np.ones((rows, columns)), everything),
            "cannot hold",
            f"at most {100 * row_bytes / 1024:.1f} KiB (max_bytes)",
            f"rows of {row_bytes} bytes",
        )
        assert "add" in str(error)
        raises(MemoryError, lambda: table.add(np.ones((rows, columns))), "max_bytes")
        same_bits(table.get(), expected)
        mv.barrier()


@case()
def add_with_room_on_one_node_only_changes_nothing():
    rows, columns, room = 60_000, 4, 100
    table = table_of((rows, columns), initializers.Constant(1), max_bytes=room * columns * 4)
    mv.barrier()
    # The first rows are on the first node and have room there; those at the end have none.
    first, last = np.arange(room // 2), np.arange(rows - 1 - room, rows)
    for ids in (np.concatenate([first, last]), np.concatenate([last, first])):
        raises(
            MemoryError, lambda ids=ids: table.add(np.ones((len(ids), columns)), ids), "max_bytes"
        )
        equal(table.get(), np.ones((rows, columns)))
        mv.barrier()
    table.add(np.ones((len(first), columns)), first)
    mv.barrier()
    equal(table.get(first), np.full((len(first), columns), 1 + mv.num_workers()))
    equal(table.get(last), np.ones((len(last), columns)))


@case()
def workers_share_the_room_of_a_node():
    columns, per_call = 4, 8
    table = table_of((100_000, columns), initializers.Constant(1), max_bytes=64 * columns * 4)
    mine = np.arange(mv.worker_id(), 100_000, mv.num_workers())
    added = []
    for at in range(0, len(mine) - per_call, len(mine) // 100):
        ids = mine[at : at + per_call]
        try:
            table.add(np.ones((per_call, columns)), ids)
        except MemoryError:
            continue
        added.append(ids)
    mv.barrier()
    values = table.get()
    changed = np.flatnonzero((values != 1).any(axis=1))
    assert (values[changed] == 2).all()
    own = changed[changed % mv.num_workers() == mv.worker_id()]
    equal(own, np.sort(np.concatenate([*added, []])).astype(int))
    assert 0 < len(changed) <= 64 * api.current_session().num_nodes
    mv.barrier()
    if added:  # rows that have memory can be changed again
        table.add(np.ones((per_call, columns)), added[0])
        equal(table.get(added[0]), np.full((per_call, columns), 3))


@case(sync=True)
def round_without_room_raises_on_every_worker_and_rounds_continue():
    rows, columns = 1200, 4
    initial = initializers.RandomUniform(seed=4)
    # A call that fails must leave the room to the smaller calls after it.
    table = table_of((rows, columns), initial, max_bytes=10 * columns * 4)
    expected = initial_values(initial, (rows, columns), "float32")
    everything = np.ones((rows, columns))
    for ids in (np.arange(rows), np.arange(rows)[::-1]):
        raises(MemoryError, lambda ids=ids: table.add(everything, ids), "max_bytes")
    raises(MemoryError, lambda: table.add_get(everything), "max_bytes")
    same_bits(table.get(), expected)
    if mv.size() == 1:
        raises(MemoryError, table.view, "max_bytes")
    for step in range(3):
        table.add(everything[:2], [step, rows - 1])
        for row in (step, rows - 1):
            expected[row] += np.float32(mv.num_workers())
        same_bits(table.get(), expected)


@case()
def reading_a_huge_table_takes_no_memory():
    rows, columns = 300_000_000, 64
    initial = initializers.RandomUniform(seed=3)
    table = table_of((rows, columns), initial, updater="adagrad", max_bytes=4096)
    rng = np.random.default_rng([SEED, mv.rank()])
    for _ in range(3):
        ids = rng.integers(0, rows, 500)
        same_bits(table.get(ids), initial_rows(initial, ids, columns, "float32"))
    table.add(np.ones((1, columns)), [5])
    mv.barrier()
    assert (table.get([5]) < initial_rows(initial, [5], columns, "float32")).all()


if __name__ == "__main__":
    run_all(CASES)
