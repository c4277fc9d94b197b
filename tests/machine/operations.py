"""The calls of random programs: their registry, and what they draw.

Each function gets the program and one of its tables. All ranks run it with the same random numbers
of `program.rng`, and with numbers of their own, `program.own`, which choose between calls that must
have the same result. A function returns False if it has not made a call, on all ranks alike. The
calls are in `adds`, `gets` and `sessions`.
"""

import dataclasses
from collections.abc import Callable

import numpy as np

from machine.tables import values_of

ALL = ("array", "matrix", "keys")
DENSE = ("array", "matrix")


@dataclasses.dataclass(frozen=True)
class Operation:
    """A call: the kinds of tables that have it, and the features that it uses."""

    run: Callable
    kinds: tuple[str, ...]
    features: tuple[str, ...]


OPERATIONS = {}


def operation(*features, kinds=ALL):
    """Register a function as an operation."""

    def register(run):
        OPERATIONS[run.__name__] = Operation(run, kinds, features)
        return run

    return register


def draw_delta(program, twin, shape, worker):
    """Return the delta of a worker, the same on all ranks."""
    rng = program.numbers(worker)
    if twin.spec.draws_exactly and twin.model.options.get("clipnorm"):
        return rng.integers(-8, 9, shape).astype(twin.spec.value_dtype) / 8
    delta = values_of(rng, shape, twin.spec.value_dtype)
    if delta.dtype.kind == "f" and delta.size and program.may_be_special and not twin.model.wire:
        specials = (np.nan, np.inf, -np.inf, 1e-40, 3e38, 65_504)
        delta.flat[rng.integers(0, delta.size)] = specials[rng.integers(len(specials))]
    return delta


def passed(rng, delta):
    """Return a delta as a program may pass it: in another memory layout, dtype or type."""
    match rng.randrange(7 if delta.ndim else 1):
        case 0 if delta.ndim:
            return np.asfortranarray(delta)
        case 1:
            wide = np.zeros((*delta.shape, 2), delta.dtype)
            wide[..., 1] = delta
            return wide[..., 1]
        case 2 if delta.dtype == np.float32:
            return delta.astype(np.float64)
        case 3 if delta.size < 100:
            return delta.tolist() if delta.size else delta
        case 4:
            return delta[::-1].copy()[::-1]
    return delta.copy()


def draw_rows(program, twin, worker):
    """Return the places of the rows that an add or a get of a worker names."""
    rng, count = program.numbers(worker), twin.spec.shape[0]
    rows = rng.integers(0, count, rng.integers(0, min(2 * count, 12) + 1))
    return np.unique(rows) if twin.spec.updater == "easgd" or rng.random() < 0.3 else rows


def draw_index(rng, shape):
    """Return an index of NumPy's basic indexing."""
    items = []
    for length in shape:
        if rng.random() < 0.2:
            items.append(rng.randrange(-length, length))
        else:
            bounds = [rng.choice((None, rng.randrange(-length - 2, length + 3))) for _ in range(2)]
            items.append(slice(*bounds))
    items = items[: rng.randrange(1, len(items) + 1)]
    if rng.random() < 0.2:
        items.append(Ellipsis)
    return items[0] if len(items) == 1 else tuple(items)


def clear(array):
    """Overwrite an array that has been passed, which a program may reuse."""
    if isinstance(array, np.ndarray) and array.flags.writeable:
        array.fill(99)
