"""Cases about hash tables on any number of ranks: keys that get, keep and lose rows."""

import functools
import os
from pathlib import Path

import numpy as np
import worker
from cases import SEED, equal, open_session, raises, registrar, run_all
from initializer_model import initial_rows
from modes import for_seeds, same_bits
from updater_model import MATRIX_OPTIONS

import multiverso as mv
from multiverso import api, initializers
from multiverso.api import current_session

CASES = {}

case = registrar(CASES)


def case_in_rounds(function):
    """Register a case in sync mode, where only the ranks of one node have hash tables."""

    @functools.wraps(function)
    def run_on_one_node():
        if current_session().num_nodes == 1:
            function()

    return case(sync=True)(run_on_one_node)


#: Keys that a table might reserve for itself, or whose hashes might be special.
SPECIAL = (0, -1, 1, 2**63 - 1, -(2**63), 2**32, -(2**32), 0x9E3779B97F4A7C15 - 2**64)
COLUMNS = 5


def random_keys(rng, count):
    """Return different keys, the special ones among them; the same for equal generators."""
    keys = np.unique(np.concatenate([rng.integers(-(2**63), 2**63, count), SPECIAL]))
    return rng.permutation(keys)


def all_items(table, chunk=512):
    """Return the keys of a table and their rows, in the order of the keys."""
    parts = list(table.items(chunk=chunk))
    assert all(len(keys) == len(rows) <= chunk for keys, rows in parts)
    keys = np.concatenate([keys for keys, _ in parts] or [np.empty(0, np.int64)])
    rows = np.concatenate([rows for _, rows in parts] or [np.empty((0, table.num_col))])
    order = np.argsort(keys)
    return keys[order], rows[order]


def folder_of(name):
    """Return a folder of the job for checkpoints."""
    return Path(os.environ["MULTIVERSO_TEST_JOB"]) / f"saved-{name}"


def check_against_matrix(updater, seed):
    """Check that keys have the values of rows of a matrix that gets the same deltas."""
    rng = np.random.default_rng([SEED, seed])
    keys = random_keys(rng, 300)
    options = {"updater": updater, **MATRIX_OPTIONS[updater]}
    initial = initializers.Constant(0.5)
    by_key = mv.HashTableHandler(COLUMNS, len(keys), initial, **options)
    by_row = mv.MatrixTableHandler(len(keys), COLUMNS, initial, **options)
    mine = np.random.default_rng([SEED, seed, mv.worker_id()])
    repeats = updater != "easgd"
    for turn in range(8):
        rows = mine.choice(len(keys), mine.integers(0, 60), replace=repeats)
        delta = mine.integers(-8, 9, (len(rows), COLUMNS)) / 8
        by_key.add(delta, keys[rows])
        by_row.add(delta, rows)
        asked = mine.choice(len(keys), 70)
        same_bits(by_key.get(keys[asked], insert=turn % 2 == 0), by_row.get(asked))
    mv.barrier()
    same_bits(by_key.get(keys, insert=False), by_row.get(range(len(keys))))
    mv.barrier()


@case_in_rounds
def keys_equal_rows_in_sync_mode():
    for seed, updater in enumerate(MATRIX_OPTIONS):
        check_against_matrix(updater, seed)


@case_in_rounds
def values_do_not_depend_on_the_rows_of_the_keys():
    keys = random_keys(np.random.default_rng(SEED), 300)
    rng = np.random.default_rng([SEED, mv.worker_id()])
    initial = initializers.RandomUniform(-1, 1, seed=6)
    options = {"updater": "rowwise_adagrad", "dtype": "bfloat16"}
    tables = [mv.HashTableHandler(COLUMNS, 400, initial, **options) for _ in range(2)]
    for table, order in zip(tables, (keys, keys[::-1]), strict=True):
        table.get(order[mv.worker_id() :])  # takes rows in that order
    for _ in range(5):
        asked = rng.choice(keys, 60)
        delta = rng.standard_normal((60, COLUMNS))
        for table in tables:
            table.add(delta, asked)
    same_bits(tables[0].get(keys), tables[1].get(keys))


@case()
def keys_equal_rows_of_one_worker():
    # Of several workers, the order of the adds is not determined.
    if mv.num_workers() == 1:
        for seed, updater in enumerate(MATRIX_OPTIONS):
            check_against_matrix(updater, seed)


@case()
def initial_values_are_those_of_the_keys():
    keys = random_keys(np.random.default_rng(SEED), 2000)
    for initial in (initializers.RandomNormal(seed=7), initializers.RandomUniform(-1, 3, seed=1)):
        for dtype in ("float32", "float64"):
            table = mv.HashTableHandler(COLUMNS, 4000, initial, dtype=dtype)
            expected = initial_rows(initial, keys, COLUMNS, dtype)
            same_bits(table.get(keys, insert=False), expected)
            assert len(table) == 0
            mv.barrier()
            same_bits(table.get(keys), expected)
            same_bits(table.get(keys[::-3], sync=True), expected[::-3])
            mv.barrier()
            assert len(table) == len(keys)
            assert table.contains(keys).all()
            found, rows = all_items(table)
            equal(found, np.sort(keys))
            same_bits(rows, expected[np.argsort(keys)])
            mv.barrier()
            table.remove(keys[mv.worker_id() :: mv.num_workers()])
            mv.barrier()
            assert len(table) == 0
            mv.barrier()
            table.add(np.ones((len(keys), COLUMNS)), keys)
            mv.barrier()
            got = table.get(keys, insert=False)
            assert np.allclose(got - expected, mv.num_workers(), atol=1e-5)
            mv.barrier()


def run_random_program(seed, updater):
    """Compare a table with a dict: each worker has keys of its own, and all have some together."""
    rng = np.random.default_rng([SEED, seed, mv.worker_id()])
    shared = random_keys(np.random.default_rng([SEED, seed]), 40)[:40]
    own = np.setdiff1d(rng.integers(-(2**63), 2**63, 700), shared)
    options = {"learning_rate": 1.0} if updater == "momentum" else {}
    table = mv.HashTableHandler(3, 20_000, updater=updater, dtype="float64", **options)
    values, state, total = {}, {}, 0
    for _ in range(40):
        keys = rng.choice(own, rng.integers(1, 80))
        operation = rng.integers(6)
        if operation <= 1:
            delta = rng.integers(-9, 10, (len(keys), 3)).astype(np.float64)
            table.add(delta, keys)
            sums = {}
            for key, row in zip(keys.tolist(), delta, strict=True):
                sums[key] = sums.get(key, 0) + row
            for key, row in sums.items():
                if updater == "momentum":
                    state[key] = 0.9 * state.get(key, np.zeros(3)) - row
                    row = state[key]
                values[key] = values.get(key, np.zeros(3)) + row
        elif operation == 2:
            got = table.get(keys)
            expected = [values.setdefault(key, np.zeros(3)) for key in keys.tolist()]
            assert np.allclose(got, expected, rtol=1e-9)
        elif operation == 3:
            got = table.get_async(keys, insert=False).result()
            expected = [values.get(key, np.zeros(3)) for key in keys.tolist()]
            assert np.allclose(got, expected, rtol=1e-9)
        elif operation == 4:
            table.remove(keys[:20])
            for key in keys[:20].tolist():
                values.pop(key, None)
                state.pop(key, None)
        else:
            equal(table.contains(own), [key in values for key in own.tolist()])
        if updater == "add":
            table.add_async(np.ones((len(shared), 3)), shared)
            total += 1
    table.flush()
    counts = np.array([len(values), total], np.int64)
    mv.aggregate(counts)
    mv.barrier()
    assert len(table) == counts[0] + (len(shared) if updater == "add" else 0)
    if updater == "add":
        equal(table.get(shared), np.full((len(shared), 3), counts[1]))
    found, rows = all_items(table, chunk=100)
    found_rows = dict(zip(found.tolist(), rows, strict=True))
    found_own = [found_rows[key] for key in values]
    assert np.allclose(found_own, list(values.values()), rtol=1e-9)
    assert np.isin(np.setdiff1d(own, list(values)), found).sum() == 0
    mv.barrier()


@case()
def random_programs_agree_with_a_dict():
    for_seeds(run_random_program, "add")
    for_seeds(run_random_program, "momentum")


@case(staleness=2)
def random_programs_with_staleness_agree_with_a_dict():
    keys = random_keys(np.random.default_rng(SEED), 200)
    table = mv.HashTableHandler(2, 500, dtype="int64")
    for turn in range(20):
        table.add(np.ones((len(keys), 2), int), keys)
        assert (table.get(keys) >= turn + 1).all()
    mv.barrier()
    equal(table.get(keys), np.full((len(keys), 2), 20 * mv.num_workers()))


@case_in_rounds
def removal_in_sync_mode_is_a_call_of_all_workers():
    table = mv.HashTableHandler(1, 100, dtype="int64")
    mine = [10 + mv.worker_id()]
    for _ in range(3):
        table.add([[1], [1]], [5, *mine])
        equal(table.get([5]), [[mv.num_workers()]])
        table.remove([5] if mv.worker_id() == 0 else mine)
        equal(table.get([5, 10], insert=False), [[0], [table.get([10], insert=False)[0, 0]]])
        mv.barrier()
        assert 5 not in table
        mv.barrier()
    equal(len(table), 1)  # the key of worker 0
    equal(table.get([10]), [[3]])


@case_in_rounds
def removal_in_sync_mode_needs_no_rank_that_only_serves():
    if mv.size() == 1:
        return
    mv.shutdown()
    open_session(sync=True, role="server" if worker.RANK == 0 else "all")
    table = mv.HashTableHandler(1, 100)
    if worker.RANK > 0:
        table.add([[1]], [5])
        table.remove([5])
        equal(len(table), 0)
    mv.barrier()


@case()
def full_table_raises_and_changes_nothing():
    capacity = 1000
    table = mv.HashTableHandler(2, capacity, dtype="int64", name="small")
    keys = np.arange(mv.worker_id(), 100_000, mv.num_workers())
    inserted = 0
    for first in range(0, 4 * capacity, 50):
        part = keys[first : first + 50]
        try:
            table.add(np.ones((50, 2), int), part)
            inserted += 50
        except MemoryError:
            assert not (table.get(part, insert=False) != 0).any()
    counts = np.array([inserted], np.int64)
    mv.aggregate(counts)
    assert len(table) >= counts[0]
    assert len(table) <= (capacity if api.current_session().num_nodes == 1 else 1.5 * capacity)
    mv.barrier()
    before = len(table)
    raises(MemoryError, lambda: table.get(keys[-5000:]), "cannot hold", "keys more", "capacity")
    equal(len(table), before)
    mv.barrier()
    table.remove(keys)
    mv.barrier()
    equal(len(table), 0)
    mv.barrier()
    own = keys[-1:] + 10**9
    table.add(np.ones((1, 2), int), own)
    equal(table.get(own), [[1, 1]])


def check_eviction(evict):
    initial = initializers.RandomUniform(1, 2, seed=3)
    table = mv.HashTableHandler(3, 2000, initial, updater="adagrad", learning_rate=0.5, evict=evict)
    reference = mv.MatrixTableHandler(40_000, 3, initial, updater="adagrad", learning_rate=0.5)
    rng = np.random.default_rng([SEED, mv.worker_id()])
    own = np.arange(mv.worker_id(), 40_000, mv.num_workers())
    changed = set()
    for _ in range(60):
        keys = rng.choice(own[: len(own) // 4], 100)
        delta = rng.standard_normal((100, 3))
        before = table.get(keys)
        expected = initial_rows(initial, keys, 3, "float32")
        # A key is at its initial value or has a part of its steps, since it may have come back.
        is_initial = (before == expected).all(1)
        assert all(key in changed for key in keys[~is_initial].tolist())
        table.add(delta, keys)
        changed.update(keys.tolist())
        # Right after the add, a key has made a step unless it has been evicted.
        after = table.get(keys, insert=False)
        assert ((after != before).all(1) | (after == expected).all(1)).all()
    mv.barrier()
    stats = table.stats()
    assert stats["keys"] <= 2000
    assert stats["evictions"] > 0, stats
    assert stats["admissions"] - stats["evictions"] == stats["keys"], stats
    assert len(all_items(table)[0]) == stats["keys"]
    mv.barrier()
    del reference


@case()
def evicted_keys_begin_again():
    for evict in ("lru", "lfu"):
        check_eviction(evict)


@case()
def evicting_table_never_holds_more_keys_than_its_capacity():
    for evict, capacity in (("lru", 57), ("lfu", 1000)):
        table = mv.HashTableHandler(1, capacity, evict=evict)
        own = np.arange(mv.worker_id(), 5 * capacity, mv.num_workers())
        for first in range(0, len(own), 40):
            table.get(own[first : first + 40])
            assert len(table) <= capacity
        mv.barrier()
        equal(len(table), capacity)
        mv.barrier()
    few = current_session().num_servers - 1
    if few > 0:
        raises(ValueError, lambda: mv.HashTableHandler(1, few, evict="lru"), "each server")


@case()
def least_recent_and_least_frequent_keys_are_evicted():
    if mv.size() > 1:
        return
    for evict, hot in (("lru", False), ("lfu", True)):
        table = mv.HashTableHandler(1, 60, evict=evict)
        table.add(np.ones((60, 1)), np.arange(60))
        for _ in range(5 if hot else 1):
            table.get(np.arange(30))
        table.get(np.arange(100, 130))
        kept = table.contains(np.arange(60))
        assert kept[:30].all(), evict
        if evict == "lru":  # with "lfu", the new keys are used as rarely as the others
            assert not kept[30:].any()
        stats = table.stats()
        equal((stats["keys"], stats["evictions"], stats["admissions"]), (60, 30, 90))


@case()
def keys_are_admitted_after_some_gets():
    table = mv.HashTableHandler(1, 1000, admit=3)
    keys = np.arange(40) * 1000 + mv.worker_id()
    for turn in range(2):
        table.get(keys)
        table.add(np.ones((40, 1)), keys)
        assert not table.contains(keys).any(), turn
    table.get(keys)
    assert table.contains(keys).all()
    table.add(np.ones((40, 1)), keys)
    equal(table.get(keys), np.ones((40, 1)))
    mv.barrier()
    stats = table.stats()
    equal(stats["admissions"], 40 * mv.num_workers())
    equal(stats["rejections"], 2 * 40 * mv.num_workers())
    mv.barrier()


def check_save(options, capacity):
    keys = random_keys(np.random.default_rng(SEED), 3000)
    initial = initializers.RandomNormal(seed=5)
    table = mv.HashTableHandler(COLUMNS, 4000, initial, name="w", **options)
    mine = keys[mv.worker_id() :: mv.num_workers()]
    rng = np.random.default_rng([SEED, mv.worker_id()])
    delta = rng.standard_normal((len(mine), COLUMNS))
    for _ in range(3):
        table.add(delta, mine)
    mv.barrier()
    folder = folder_of(f"{capacity}-{'-'.join(map(str, options.values()))}")
    table.save(folder, step=3)
    saved_keys, saved_rows = all_items(table)
    mv.barrier()
    table.add(delta, mine)
    expected = table.get(mine)
    mv.barrier()
    other = mv.HashTableHandler(COLUMNS, capacity, initial, name="w", **options)
    other.add(delta[:10], mine[:10] ^ 12345)  # keys that the load removes
    mv.barrier()
    equal(other.load(folder), 3)
    found_keys, found_rows = all_items(other)
    equal(found_keys, saved_keys)
    same_bits(found_rows, saved_rows)
    mv.barrier()
    other.add(delta, mine)
    same_bits(other.get(mine), expected)  # the state was loaded, too
    mv.barrier()


@case()
def loaded_tables_have_the_keys_rows_and_state():
    for capacity in (4000, 3200, 100_000):
        check_save({"updater": "adam"}, capacity)
    check_save({"updater": "rowwise_adagrad", "evict": "lfu"}, 4000)
    check_save({"updater": "momentum", "admit": 1}, 4000)


def keys_of_share(share, shares, count):
    """Return keys whose stripes are in that share of the stripes of a table."""
    keys = np.arange(1, 200_000, dtype=np.uint64)
    with np.errstate(over="ignore"):  # the hash of src/shard/key_hash.h
        bits = keys + np.uint64(0x9E3779B97F4A7C15)
        for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
            bits = (bits ^ (bits >> np.uint64(shift))) * np.uint64(factor)
        bits ^= bits >> np.uint64(31)
    shares_of_keys = ((bits >> np.uint64(32)) * np.uint64(shares)) >> np.uint64(32)
    return keys[shares_of_keys == share][:count].astype(np.int64)


@case()
def full_tables_are_loaded_over_other_keys():
    # Each rank loads a share of the stripes, and needs the room of keys that others remove.
    if current_session().num_nodes > 1:
        return  # Each node has room for its own keys only.
    shares = mv.size()
    saved, others = keys_of_share(0, shares, 500), keys_of_share(shares - 1, shares, 1000)[500:]
    for evict in (None, "lru", "lfu"):
        options = {} if evict is None else {"evict": evict}
        table = mv.HashTableHandler(COLUMNS, 500, name="w", **options)
        if mv.rank() == 0:
            table.add(np.repeat(saved[:, None], COLUMNS, 1), saved)
        mv.barrier()
        folder = folder_of(f"full-{evict}")
        table.save(folder)
        for _ in range(4):
            if mv.rank() == 0:
                table.remove(all_items(table)[0])
                table.add(np.zeros((500, COLUMNS)), others)
            mv.barrier()
            table.load(folder)
            equal(table.contains(saved), np.ones(500, bool))
            equal(table.get(saved), np.repeat(saved[:, None], COLUMNS, 1))
            mv.barrier()


@case()
def smaller_tables_that_evict_load_rows_with_their_values():
    keys = np.arange(1, 20_001)
    table = mv.HashTableHandler(COLUMNS, len(keys), name="w")
    if mv.rank() == 0:
        table.add(np.repeat(keys[:, None], COLUMNS, 1), keys)
    mv.barrier()
    folder = folder_of("larger")
    table.save(folder)
    for evict in ("lru", "lfu"):
        small = mv.HashTableHandler(COLUMNS, 6000, name="w", evict=evict)
        small.load(folder)
        found, rows = all_items(small)
        # Two ranks may evict a key each for the same room.
        assert 5900 < len(found) <= 6000, len(found)
        equal(rows, np.repeat(found[:, None], COLUMNS, 1))
        mv.barrier()


@case_in_rounds
def loaded_tables_in_sync_mode_have_the_keys_rows_and_state():
    table = mv.HashTableHandler(2, 50, updater="adagrad", name="w")
    table.add([[1, 2], [3, 4]], [mv.worker_id(), 100])
    expected = table.get([0, 100])
    folder = folder_of("sync")
    table.save(folder)
    table.load(folder)
    same_bits(table.get([0, 100]), expected)


@case()
def checkpoint_with_too_many_keys_does_not_fit():
    table = mv.HashTableHandler(2, 300, name="w")
    table.get(range(200))
    mv.barrier()
    folder = folder_of("small")
    table.save(folder)
    small = mv.HashTableHandler(2, 100, name="w")
    raises(mv.errors.MismatchError, lambda: small.load(folder), "100 keys at most", "received 200")


@case()
def rows_are_never_torn_nor_those_of_another_key():
    # A row of key k has k times a small number in all columns, so it is not one of another prime.
    primes = [p for p in range(1_000_003, 1_004_000, 2) if all(p % d for d in range(3, 1003, 2))]
    rng = np.random.default_rng([SEED, mv.worker_id()])
    for columns in (64, 1500):  # short rows are read without the lock
        table = mv.HashTableHandler(columns, 100, dtype="int64", evict="lru")
        for _ in range(300):
            keys = rng.choice(primes, 20)
            if rng.random() < 0.5:
                table.add(np.broadcast_to(keys[:, None], (20, columns)), keys)
            if rng.random() < 0.1:
                table.remove(keys[:5])
            rows = table.get(keys, insert=bool(rng.integers(2)))
            assert (rows == rows[:, :1]).all()
            assert (rows[:, 0] % keys == 0).all()
        mv.barrier()


@case()
def many_keys_survive_growth():
    table = mv.HashTableHandler(1, 200_000, dtype="int64")
    keys = random_keys(np.random.default_rng([SEED, mv.worker_id()]), 40_000)[:40_000]
    for first in range(0, len(keys), 5000):
        table.add(np.ones((5000, 1), int), keys[first : first + 5000])
    shared = np.isin(keys, SPECIAL)
    assert (table.get(keys)[~shared] == 1).all()
    mv.barrier()
    assert len(table) >= 40_000 * mv.num_workers() - len(SPECIAL) * (mv.num_workers() - 1)
    mv.barrier()


if __name__ == "__main__":
    run_all(CASES)
