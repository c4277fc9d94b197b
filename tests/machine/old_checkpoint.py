"""The checkpoint of version 0.2 in tests/configs, which the tables of a configuration begin with.

It was written by ``PYTHONPATH=VERSION_0.2 python tests/machine/old_checkpoint.py FOLDER``. So this
module uses only what that version has.
"""

import sys
import zlib

import numpy as np

import multiverso as mv

_ADAM = {"learning_rate": 0.03, "beta_1": 0.8, "beta_2": 0.97, "epsilon": 1e-6}

#: The kind, shape, dtype, updater, options and initializer of each table, by its name.
TABLES = {
    "sums": ("array", (37,), "float32", "add", {}, None),
    "means": ("array", (40,), "float64", "adam", _ADAM, None),
    "delays": (
        *("array", (5,), "float32", "dcasgda"),
        {"learning_rate": 0.1, "variance_control": 0.6, "rho": 0.8, "epsilon": 1e-6},
        None,
    ),
    "counts": ("array", (5,), "int64", "add", {}, None),
    "velocities": (
        *("matrix", (9, 5), "float32", "momentum"),
        {"learning_rate": 0.1, "momentum": 0.7},
        None,
    ),
    "rows": (
        *("matrix", (9, 5), "bfloat16", "rowwise_adagrad"),
        {"learning_rate": 0.3, "epsilon": 1e-5},
        None,
    ),
    "uniform": (
        *("matrix", (300, 7), "float64", "adagrad"),
        {"learning_rate": 0.3, "initial_accumulator_value": 0.2, "epsilon": 1e-5},
        mv.initializers.RandomUniform(-1, 3, seed=7),
    ),
    "normal": (
        *("matrix", (40, 64), "float16", "adamw"),
        {**_ADAM, "weight_decay": 0.2},
        mv.initializers.RandomNormal(seed=0),
    ),
    "keys": (
        *("keys", (20, 3), "float32", "adam"),
        _ADAM,
        mv.initializers.TruncatedNormal(1, 2, seed=9),
    ),
    "keyed": ("keys", (12, 64), "int64", "add", {}, None),
}


def keys_of(shape):
    """Return the keys of a table."""
    return np.random.default_rng(shape).integers(-(2**63), 2**63, shape[0])


def adds_of(name, kind, shape, dtype):
    """Yield the rows, or None for all, and the delta of each add."""
    rng = np.random.default_rng(zlib.crc32(name.encode()))
    for number in range(4):
        rows = rng.integers(0, shape[0], 7) if kind != "array" and number else None
        rows = np.arange(shape[0] // 2) if kind == "keys" and rows is None else rows
        count = shape if rows is None else (len(rows), *shape[1:])
        delta = rng.integers(-900, 900, count)
        yield rows, delta if dtype.startswith("int") else (delta / 64).astype(np.float32)


def train(name, model):
    """Change the model of a table as the table was changed."""
    kind, shape, dtype, *_ = TABLES[name]
    for rows, delta in adds_of(name, kind, shape, dtype):
        delta = delta.astype(model.values.dtype)
        model.add(delta.reshape(1, -1) if kind == "array" else delta, rows)
        if kind == "array":
            model.note_get(0)


def write(folder):
    """Write the checkpoint."""
    with mv.session():
        tables = []
        for name, (kind, shape, dtype, updater, options, initializer) in TABLES.items():
            options = {"dtype": dtype, "updater": updater, "name": name, **options}
            if kind == "keys":
                start = initializer or mv.initializers.Zeros()
                table = mv.HashTableHandler(shape[1], 4000, start, **options)
            else:
                make = mv.ArrayTableHandler if kind == "array" else mv.MatrixTableHandler
                table = make(*shape, initializer, **options)
            for rows, delta in adds_of(name, kind, shape, dtype):
                ids = keys_of(shape)[rows] if kind == "keys" else rows
                table.add(delta, *([] if rows is None else [ids]))
                if kind == "array":
                    table.get()
            tables.append(table)
        mv.save(folder, step=2)


if __name__ == "__main__":
    write(sys.argv[1])
