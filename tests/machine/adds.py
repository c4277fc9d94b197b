"""The adds of random programs."""

import numpy as np

from machine.operations import (
    ALL,
    DENSE,
    clear,
    draw_delta,
    draw_index,
    draw_rows,
    operation,
    passed,
)
from machine.tables import values_of


@operation(kinds=DENSE)
def add(program, twin):
    """Add to the whole table, in one of the ways that do the same."""
    shape = twin.spec.shape

    def call(_, delta):
        table, own = twin.table, program.own
        delta = delta.reshape(shape)
        way = own.randrange(7)
        if way == 0 and len(shape) == 2:
            table.add(delta, range(shape[0]))
        elif way == 1:
            table.add_async(passed(own, delta))
        elif way == 2:
            buffer = table.delta_buffer()
            program.same(buffer, twin.in_buffer)
            buffer[...] = twin.in_buffer[...] = delta
            table.add(buffer)
        elif way == 3:
            if twin.prepared is None:
                twin.prepared = np.empty(shape, delta.dtype), np.empty(shape, delta.dtype)
                twin.prepared += (table.prepare_add(twin.prepared[0]),)
                twin.prepared += (table.prepare_get(twin.prepared[1]),)
                twin.prepared += (table.prepare_add_get(*twin.prepared[:2]),)
            twin.prepared[0][...] = delta
            twin.prepared[2]()
        elif way == 4 and len(shape) == 2:
            table.add(delta, index=np.s_[:])
        else:
            data = passed(own, delta)
            table.add(data)
            clear(data)

    program.add(twin, lambda w: (None, draw_delta(program, twin, twin.spec.rows_shape, w)), call)


@operation(kinds=DENSE)
def add_get(program, twin):
    """Add to the whole table and get it, in one call or in two."""
    shape, got = twin.spec.shape, []

    def call(_, delta):
        delta, own = delta.reshape(shape).copy(), program.own
        way = own.randrange(4)
        if way == 0:
            twin.table.add(delta)
            got.append(twin.table.get())
        elif way == 1 and twin.prepared is not None:
            twin.prepared[0][...] = delta
            assert twin.prepared[4]() is twin.prepared[1]
            got.append(twin.prepared[1])
        elif way == 2:
            assert twin.table.add_get(delta, out=delta) is delta
            got.append(delta)
        else:
            got.append(twin.table.add_get(passed(own, delta)))

    def draw(worker):
        return None, draw_delta(program, twin, twin.spec.rows_shape, worker)

    for worker in program.add(twin, draw, call, ends=False):
        twin.model.note_get(worker)
    if got:
        program.check(twin, got[0], twin.values())
    program.end_turn()


@operation(kinds=("matrix", "keys"))
def add_rows(program, twin):
    """Add to some rows, which may be empty, unsorted and named twice."""

    def draw(worker):
        rows = draw_rows(program, twin, worker)
        return rows, draw_delta(program, twin, (len(rows), twin.spec.shape[1]), worker)

    def call(rows, delta):
        ids, own = twin.ids[rows], program.own
        ids = ids.tolist() if own.random() < 0.3 else ids
        data = passed(own, delta)
        if own.random() < 0.3:
            twin.table.add_async(data, ids)
        else:
            twin.table.add(data, ids)
            clear(data)

    program.add(twin, draw, call)


def _add_part(program, twin, index):
    """Add to a part of the table, which is at an index of its shape."""
    where = (0, *index) if twin.spec.kind == "array" else index
    shown = index if len(index) > 1 else index[0]
    shape = np.empty(twin.spec.shape, bool)[shown].shape

    def draw(worker):
        return index, draw_delta(program, twin, shape, worker)

    def call(_, delta):
        twin.table.add(passed(program.own, delta), index=shown)

    program.add(twin, draw, call, part=where)


@operation("add to a part of rows", kinds=("matrix",))
def add_to_columns(program, twin):
    """Add to some columns of some rows."""
    index = draw_index(program.rng, twin.spec.shape)
    _add_part(program, twin, index if isinstance(index, tuple) else (index,))


@operation("add to a part of an array", kinds=("array",))
def add_to_elements(program, twin):
    """Add to a part of an array."""
    index = draw_index(program.rng, twin.spec.shape)
    _add_part(program, twin, index if isinstance(index, tuple) else (index,))


@operation(kinds=("matrix",))
def add_to_whole_rows(program, twin):
    """Add to adjacent rows."""
    first = program.rng.randrange(twin.spec.shape[0])
    end = program.rng.randrange(first, twin.spec.shape[0] + 1)
    rows = np.arange(first, end)

    def draw(worker):
        return rows, draw_delta(program, twin, (len(rows), twin.spec.shape[1]), worker)

    def call(_, delta):
        twin.table.add(passed(program.own, delta), index=np.s_[first:end])

    program.add(twin, draw, call)


@operation("fetch_add", kinds=DENSE)
def change_element(program, twin):
    """Change one element, and get its value before."""
    rng, shape = program.rng, twin.spec.shape
    index = tuple(rng.randrange(-length, length) for length in shape)
    place = (0, *index) if twin.spec.kind == "array" else index
    who, swaps, is_equal = program.one(), rng.random() < 0.5, rng.random() < 0.5
    before = twin.model.values[place]
    delta = values_of(program.numbers(who), (), twin.spec.value_dtype)[()]
    expected = before if is_equal else np.asarray(before + 1, before.dtype)[()]
    if who == program.me:
        at = index if len(index) > 1 else index[0]
        call = twin.table.compare_swap if swaps else twin.table.fetch_add
        got = call(at, *((expected, delta) if swaps else (delta,)))
        program.same(np.asarray(got), np.asarray(before))
    if not swaps:
        with np.errstate(all="ignore"):
            twin.model.values[place] += delta
    elif before == expected:
        twin.model.values[place] = delta
    program.end_turn(always=True)


@operation(kinds=DENSE)
def add_at_the_same_time(program, twin):
    """Let all workers add at the same time, which has one result if the numbers are integers."""
    if twin.spec.value_dtype.kind != "i" or program.in_rounds:
        return False
    for worker in program.even(twin):
        rng = program.numbers(worker)
        for _ in range(rng.integers(1, 4) if not program.staleness else 1):
            delta = values_of(rng, twin.spec.rows_shape, twin.spec.value_dtype)
            if worker == program.me:
                twin.table.add(delta.reshape(twin.spec.shape))
            twin.model.add(delta)
    program.end_turn(always=True)


@operation(kinds=ALL)
def add_what_is_not_finite(program, twin):
    """Add NaN or infinity, which an option of the session refuses; then nothing changes."""
    if twin.spec.value_dtype.kind != "f" or not program.is_strict:
        return False
    if program.me not in program.active:
        return None  # Only what all ranks know decides whether an operation counts.
    shape = twin.spec.shape
    delta = np.ones((1, shape[1]) if twin.spec.kind == "keys" else shape, twin.spec.value_dtype)
    place = program.own.randrange(delta.size)
    delta.flat[place] = program.own.choice((np.nan, np.inf, -np.inf))
    named = ", ".join(map(str, np.unravel_index(place, delta.shape)))
    delta = program.own.choice((delta, np.asfortranarray(delta), delta.astype(np.float64)))
    table, calls = twin.table, []
    if twin.spec.kind == "keys":
        key = twin.ids[:1]
        calls += [lambda: table.add(delta, key), lambda: table.add_async(delta, key)]
    else:
        plain = np.ascontiguousarray(delta, twin.spec.value_dtype)
        calls += [lambda: table.add(delta), lambda: table.add_get(delta)]
        calls += [lambda: table.add_async(delta), table.prepare_add(plain)]
        calls += [table.prepare_add_get(plain, np.empty_like(plain))]
    program.raises(ValueError, program.own.choice(calls), f"[{named}]: ")
    return None
