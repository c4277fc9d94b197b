"""A random program that saves increments: ``increments.py FOLDER SEED MODE SAVES``.

All ranks draw the same operations, and each is made by one of them, or in rounds by all, of which
the others add zeros. Integers add up exactly in any order, so a model in NumPy has the same values.
"""

import os
import sys

import numpy as np
import worker

import multiverso as mv

SIZE, ROWS, KEYS = 70_001, 20_003, 6_000


def _tables(has_keys):
    normal = mv.initializers.RandomNormal(seed=5)
    keyed = {}
    if has_keys:
        keyed["keys"] = mv.HashTableHandler(8, capacity=3 * KEYS, name="keys")
        keyed["keys of adam"] = mv.HashTableHandler(
            4, capacity=2 * KEYS, initializer=normal, updater="adam", name="keys of adam"
        )
    return {
        **keyed,
        "array": mv.ArrayTableHandler(SIZE, name="array"),
        "rows": mv.MatrixTableHandler(ROWS, 17, name="rows"),
        "adam": mv.MatrixTableHandler(9_001, 9, updater="adam", name="adam", dtype="float64"),
        "one count": mv.ArrayTableHandler(SIZE, updater="adam", name="one count"),
        "lazy": mv.MatrixTableHandler(30_011, 9, normal, updater="adagrad", name="lazy"),
        "state per row": mv.MatrixTableHandler(
            ROWS, 5, updater="rowwise_adam", name="state per row"
        ),
        "half": mv.MatrixTableHandler(ROWS, 6, dtype="float16", updater="momentum", name="half"),
    }


class Program:
    """The tables, their model, and the operations on both."""

    def __init__(self, seed, mode):
        self.random = np.random.default_rng(seed)
        self.has_rounds = mode != "async"
        # Hash tables have no rounds on several nodes.
        self.tables = _tables(has_keys=mode != "sync")
        if not self.has_rounds:
            self.tables["evicts"] = mv.HashTableHandler(
                3, capacity=2_000, evict="lfu", name="evicts"
            )
        self.added = np.empty(0, np.int64)  # keys that "evicts" has had
        self.model = {
            "array": np.zeros(SIZE, np.float32),
            "rows": np.zeros((ROWS, 17), np.float32),
        }
        if "keys" in self.tables:
            self.model["keys"] = np.zeros((2 * KEYS, 8), np.float32)

    def add(self, name):
        """Add random integers to some rows that are close to each other, or to the whole table."""
        table, random = self.tables[name], self.random
        owner = random.integers(worker.SIZE)
        is_owner = owner == worker.RANK
        if name in ("array", "one count"):
            # An array that counts its updates is always updated as a whole.
            is_whole = name == "one count" or random.random() < 0.3
            first = 0 if is_whole else random.integers(SIZE - 500)
            part = np.s_[first : SIZE if first == 0 else first + random.integers(1, 500)]
            delta = np.zeros(SIZE)
            delta[part] = random.integers(-3, 4, len(delta[part]))
            if self.has_rounds:
                table.add(delta * int(is_owner))
            elif is_owner and is_whole:
                table.add(delta)
            elif is_owner:
                table.add(delta[part], index=part)
        else:
            is_hash = isinstance(table, mv.HashTableHandler)
            end = {"keys": KEYS, "keys of adam": KEYS, "evicts": 20_000}.get(name)
            first = random.integers(end or table.num_row - 60)
            ids = first + random.choice(60, random.integers(1, 40), replace=False)
            ids = ids * 2 if is_hash and name == "keys" and first % 2 else ids
            ids = ids[ids < 2 * KEYS]
            delta = random.integers(-3, 4, (len(ids), table.num_col))
            if is_owner or self.has_rounds:
                table.add(delta * int(is_owner), ids)
            if name == "evicts":
                self.added = np.append(self.added, ids)
        if name in self.model and name == "array":
            self.model[name] += delta
        elif name in self.model:
            self.model[name][ids] += delta

    def get_keys(self):
        """Get random keys, which changes their uses. Gets take part in no rounds in async mode."""
        owner = self.random.integers(worker.SIZE)
        if len(self.added) > 0:
            keys = self.random.choice(self.added, 3)
            if owner == worker.RANK:
                self.tables["evicts"].get(keys)

    def agrees(self):
        """Return whether the tables have the values of the model."""
        values = {name: self.tables[name].get() for name in ("array", "rows")}
        if "keys" in self.tables:
            values["keys"] = self.tables["keys"].get(np.arange(2 * KEYS), insert=False)
        return all(bool((values[name] == self.model[name]).all()) for name in values)


def main(folder, seed, mode, saves):
    options = {"sync": {"sync": True}, "stale": {"staleness": 3}}.get(mode, {})
    with mv.session(**options):
        program = Program(int(seed), mode)
        increments, full = os.path.join(folder, "increments"), os.path.join(folder, "full")
        loaded = mv.load(increments, missing_ok=True)
        if loaded is not None:
            with np.load(os.path.join(folder, f"{loaded}.npz")) as saved:
                program.model = {name: saved[name] for name in saved.files}
        agrees = program.agrees()
        mv.barrier()  # no rank adds while others compare
        random = program.random
        first = (loaded or 0) + 1
        for step in range(first, first + int(saves)):
            names = sorted(program.tables)
            for _ in range(random.integers(6)):
                program.add(names[random.integers(len(names))])
            program.get_keys()
            if random.random() < 0.1:
                program.tables["adam"].set_option(learning_rate=float(random.random()))
            incremental, background = random.random() < 0.8, random.random() < 0.5
            keep = None if random.random() < 0.7 else int(random.integers(1, 4))
            mv.save(
                increments, step=step, keep=keep, background=background, incremental=incremental
            )
            mv.save(full, step=step)
            if mv.is_master_worker():
                np.savez(os.path.join(folder, f"{step}.npz"), **program.model)
        agrees = program.agrees() and agrees
        worker.report(agrees=agrees)
        mv.barrier()


if __name__ == "__main__":
    main(*sys.argv[1:])
