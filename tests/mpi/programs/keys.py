"""Cases about hash tables on any number of ranks: keys that get, keep and lose rows."""

import functools
import os
from pathlib import Path

import numpy as np
import worker
from cases import SEED, equal, open_session, raises, registrar, run_all

import multiverso as mv
from machine.initial_values import initial_rows
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


def keys_of_share(share, shares, count):
    """Return keys whose stripes are in that share of the stripes of a table."""
    keys = np.arange(1, 200_000, dtype=np.uint64)
    with np.errstate(over="ignore"):  # the hash of src/numbers/key_hash.h
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
