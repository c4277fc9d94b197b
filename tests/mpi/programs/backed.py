"""Changes tables in a folder, session after session, with twins in memory that a checkpoint keeps.

The arguments are the folder and the number of sessions that have ended before.
"""

import sys
from pathlib import Path

import numpy as np

import multiverso as mv

ROWS, COLUMNS = 2000, 24


def create(**options):
    """Return a table with a row for each id, a lazy one, and one with keys."""
    names = {"dense": "adagrad", "lazy": "adam", "keys": "rowwise_adagrad"}
    start = mv.initializers.RandomNormal(seed=5)
    folder = options.pop("folder", None)
    made = {}
    for name, updater in names.items():
        backing = None if folder is None else folder / name
        settings = {"updater": updater, "name": name + str(folder is None), "backing": backing}
        if name == "keys":
            made[name] = mv.HashTable(COLUMNS, ROWS, **settings)
        else:
            made[name] = mv.MatrixTable(
                ROWS, COLUMNS, start if name == "lazy" else None, **settings
            )
    return made


def same(one, other, ids):
    """Check that tables have the same bits."""
    for name, table in one.items():
        first, second = table.get(ids), other[name].get(ids)
        assert first.tobytes() == second.tobytes(), name


def main():
    """Run one session."""
    folder, number = Path(sys.argv[1]), int(sys.argv[2])
    with mv.session():
        twins = create()
        tables = create(folder=folder)
        assert all(table.reopened == (number > 0) for table in tables.values())
        for name, twin in twins.items():
            if number > 0:
                twin.load(folder / f"twin-{name}")
        mv.barrier()
        ids = np.arange(ROWS)
        same(tables, twins, ids)
        mv.barrier()
        # Each worker changes rows of its own, so that the order of the workers has no effect.
        mine = ids[ids % mv.num_workers() == mv.worker_id()]
        rng = np.random.default_rng([number, mv.rank()])
        for _ in range(10):
            chosen = rng.choice(mine, 40, replace=False)
            delta = rng.normal(size=(40, COLUMNS))
            for name, table in tables.items():
                table.add(delta, chosen)
                twins[name].add(delta, chosen)
        mv.barrier()
        same(tables, twins, ids)
        for name, twin in twins.items():
            twin.save(folder / f"twin-{name}")


if __name__ == "__main__":
    main()
