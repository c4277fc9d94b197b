"""The gets of random programs, and their calls about keys."""

import numpy as np

from machine.operations import ALL, DENSE, draw_delta, draw_index, draw_rows, operation


@operation(kinds=DENSE)
def get(program, twin):
    """Get the whole table, in one of the ways that do the same."""
    is_collective = program.rng.random() < 0.2 and len(program.active) == program.workers

    def read():
        table, own, shape = twin.table, program.own, twin.spec.shape
        if is_collective and not program.in_rounds:
            return table.get(sync=True)
        match own.randrange(7):
            case 0:
                view = table.view()
                assert not view.flags.writeable
                return view
            case 1:
                return table.get_async().result()
            case 2:
                out = np.zeros(shape[::-1], twin.spec.value_dtype).T
                assert table.get(out=out) is out
                return out
            case 3:
                out = np.zeros(shape, table.dtype)
                return table.get(out=out).astype(twin.spec.value_dtype)
            case 4 if twin.prepared is not None:
                return twin.prepared[3]()
            case 5 if len(shape) == 2:
                return table.get(range(shape[0]))
        return table.get()

    program.get(twin, read, twin.values())


@operation(kinds=("matrix", "keys"))
def get_rows(program, twin):
    """Get some rows, which may be empty, unsorted and named twice."""
    rows = {worker: draw_rows(program, twin, worker) for worker in program.active}
    inserts = twin.spec.kind == "keys" and program.rng.random() < 0.5
    mine = rows.get(program.me, np.empty(0, int))

    def read():
        table, own, ids = twin.table, program.own, twin.ids[mine]
        options = {"insert": inserts} if twin.spec.kind == "keys" else {}
        match own.randrange(4):
            case 0:  # The result is asked for later, and must be that of now.
                expected = twin.model.values[mine]
                twin.futures.append((table.get_async(ids, **options), expected))
                return expected
            case 1:
                out = np.zeros((len(ids), twin.spec.shape[1]), table.dtype)
                assert table.get(ids, out=out, **options) is out
                return out.astype(twin.spec.value_dtype)
            case 2 if program.in_rounds or program.nodes == 1:
                return table.get(ids.tolist(), **options)
        return table.get(ids, **options)

    program.get(twin, read, twin.model.values[mine], ends=False)
    if inserts:
        twin.model.give_rows(np.concatenate([*rows.values()]).astype(int))
    program.end_turn()


@operation(kinds=DENSE)
def get_part(program, twin):
    """Get a part of the table."""
    index = draw_index(program.rng, twin.spec.shape)
    place = index if isinstance(index, tuple) else (index,)
    where = (0, *place) if twin.spec.kind == "array" else place
    expected = twin.values()[index]

    def read():
        if program.own.random() < 0.5:
            out = np.zeros(np.shape(expected)[::-1], twin.spec.value_dtype).T
            assert twin.table.get(index=index, out=out) is out
            return out
        return twin.table.get(index=index)

    program.get(twin, read, expected, part=where)


@operation(kinds=ALL)
def peek(program, twin):
    """Read the state after the last complete round, without taking part in one."""
    program.barrier()
    if program.me >= 0 and program.own.random() < 0.7:
        if twin.spec.kind == "array":
            program.check(twin, twin.table.peek(), twin.values())
        else:
            rows = np.array([program.own.randrange(twin.spec.shape[0]) for _ in range(5)])
            program.check(twin, twin.table.peek(twin.ids[rows]), twin.model.values[rows])
    program.barrier()


@operation("fresh", kinds=("matrix", "keys"))
def get_what_is_fresh(program, twin):
    """Get rows ahead, add to some of them, and receive them with the adds."""
    rows = draw_rows(program, twin, 0)
    futures = []

    def draw(worker):
        named = draw_rows(program, twin, worker)
        return named, draw_delta(program, twin, (len(named), twin.spec.shape[1]), worker)

    def call(named, delta):
        futures.append(twin.table.get_async(twin.ids[rows], fresh=True))
        adds = (twin.table.add, twin.table.add_async)
        program.own.choice(adds)(delta, twin.ids[named])

    program.add(twin, draw, call, ends=False)
    twin.model.give_rows(rows)
    for future in futures:
        program.check(twin, future.result(), twin.model.values[rows])
    program.end_turn()


@operation(kinds=DENSE)
def get_changed(program, twin):
    """Bring a copy of the table up to date."""

    def read():
        rows, values, twin.version = twin.table.get_changed(twin.version)
        twin.copy[rows] = values
        return twin.copy

    if twin.model.seen is not None:  # It would note only what has changed.
        return False
    program.get(twin, read, twin.values())
    return None


@operation(kinds=("keys",))
def remove(program, twin):
    """Take the rows of keys away."""
    workers = range(program.workers) if program.in_rounds else [program.one()]
    for worker in workers:
        rows = draw_rows(program, twin, worker)[:3]
        if worker == program.me:
            twin.table.remove(twin.ids[rows])
        twin.model.remove(rows)
    program.end_turn()


@operation(kinds=("keys",))
def list_keys(program, twin):
    """Ask which keys have rows, how many they are, and for all rows."""
    program.barrier()
    present = twin.model.has_row
    chunk = program.rng.choice((1, 7, 512))
    if program.me >= 0:
        program.same(twin.table.contains(twin.ids), present)
        assert len(twin.table) == present.sum()
    if program.me in program.active:
        parts = list(twin.table.items(chunk=chunk))
        found = np.concatenate([np.empty(0, np.int64), *(keys for keys, _ in parts)])
        rows = np.concatenate(
            [np.empty((0, twin.spec.shape[1]), twin.spec.value_dtype), *(rows for _, rows in parts)]
        )
        check_keys(program, twin, found, rows)
    program.barrier()


def check_keys(program, twin, keys, rows, *, is_complete=True):
    """Check keys and their rows; some may be missing if they are those of a node."""
    order, places = np.argsort(twin.ids), np.argsort(keys)
    expected = twin.ids[order][twin.model.has_row[order]]
    if is_complete:
        program.same(keys[places], expected)
    at = order[np.searchsorted(twin.ids[order], keys)]
    program.same(twin.ids[at], keys)
    program.check(twin, rows, twin.model.values[at])
