"""An interrupt at any line of any public call changes nothing, or makes the whole call."""

import os

import numpy as np
from interrupts import Case, class_of, folder, functions_of, main, shut

import multiverso as mv
from multiverso import checkpoint, sync, tables

SIZE = 40_000
ONES = np.ones(SIZE)  # Converted to the table's dtype in a temporary array.
ROWS = np.arange(0, 200, 3)
DELTA = np.ones((ROWS.size, 8))
KEYS, KEY_DELTA = [7, 9], np.ones((2, 4))


def adding(make, call, value=lambda table: (table.flush(), table.get())[1]):
    return Case(call, make, value, 1)


def array(**options):
    return mv.ArrayTable(SIZE, **options)


def matrix():
    return mv.MatrixTable(200, 8)


def rows(table):
    table.flush()
    return table.get(ROWS)


def hash_table():
    return mv.HashTable(4, capacity=1000)


def keyed(table):
    table.flush()
    return table.get(KEYS)


def saved():
    table, place = mv.ArrayTable(10, 3), folder()
    mv.save(place)
    return table, place


def published():
    table, place = mv.MatrixTable(10, 2, 1, name="w"), folder()
    mv.publish(to=place)
    mv.publish(to=place)
    return table, place


def attached():
    return published(), mv.attach(os.getpid())


def followed():
    table, place = published()
    return table, mv.follow(place, timeout=60)


def wait(it):
    """Wait for the last future behind the table."""
    for future in it[1:][-1:]:
        (future.done(), future.wait(), future.result())
    return 0


class Model:
    """A ParamSync, beside which others add; `trained` counts what its arrays were trained."""

    def __init__(self, dtype, options):
        whole = np.zeros((6, 8), dtype)
        self.arrays = [np.zeros((300, 9), dtype), whole[:, ::2]]
        self.trained, self.others = 0, 0
        self.sync = sync.ParamSync(self.arrays, **options)

    def step(self):
        for each in self.arrays:
            each += 1
        self.trained += 1
        for table in self.sync.tables:
            table.add(np.full(table.size, 16))
        self.others += 16

    def run(self):
        self.sync.sync()
        self.sync.wait()

    def missing(self):
        """Return what has been lost, when all has been exchanged."""
        for _ in range(2):  # The second exchange sends what the first one found trained.
            self.sync.sync_all()
            self.sync.wait()
        expected = self.trained + self.others
        wrong = [table.get() - expected for table in self.sync.tables]
        wrong += [np.asarray(each, "float64").reshape(-1) - expected for each in self.arrays]
        return float(max(abs(each).max() for each in wrong if each.size))


def syncing(dtype="float32", call=Model.run, **options):
    return Case(call, lambda: Model(dtype, options), Model.missing, undo=Model.step)


def read_checkpoint(it):
    with checkpoint.Checkpoint(it[1]) as opened:
        opened.verify()
        name = opened.tables[0].name
        return opened.read(name), opened.read_steps(name)


def pin(it):
    with it[1].pinned() as cut:
        return cut["w"].sum()


def within_session(_):
    with mv.session() as session:
        return session.rank


def within_views(it):
    with mv.attach(os.getpid()), mv.follow(it[1], timeout=60):
        pass


GROUPS: dict[str, list[Case]] = {
    "tables": [
        Case(lambda it: mv.ArrayTable(100, backing=it, name="w"), folder),
        Case(lambda _: mv.MatrixTable(10, 3, np.ones((10, 3)), dtype="float16")),
        Case(lambda it: mv.HashTable(4, 9, backing=it).reopened, folder),
        Case(lambda t: (t.get(), t.peek(), t.get_changed()), array),
        Case(lambda t: (t.view(), t.view(live=True), t.delta_buffer()), array),
        Case(lambda t: (t.view(), t.delta_buffer()), array, options={"sync": True}),
        Case(lambda t: (t.set_option(learning_rate=0.5), t.options), lambda: array(updater="sgd")),
        Case(lambda t: t.stats(), lambda: array(backing=folder())),
        Case(lambda t: t.prepare_get(np.empty(SIZE, "f"))(), array),
        adding(array, lambda t: t.prepare_add(np.ones(SIZE, "f"))()),
        adding(array, lambda t: t.prepare_add_get(*np.ones((2, SIZE), "f"))()),
        adding(array, lambda t: t.add(ONES)),
        adding(array, lambda t: t.add_get(ONES)),
        adding(array, lambda t: t.fetch_add(0), lambda t: t.get()[0]),
        adding(array, lambda t: t.compare_swap(0, (n := t.get()[0]), n + 1), lambda t: t.get()[0]),
        Case(lambda t: (t.get(ROWS), t.peek(ROWS), t.get(index=np.s_[2:3])), matrix),
        adding(matrix, lambda t: t.add(DELTA, ROWS), rows),
        adding(matrix, lambda t: t.add_get(np.ones((200, 8)))),
        adding(
            matrix, lambda t: t.add(np.ones((9, 8)), index=np.s_[1:10]), lambda t: t.get()[1:10]
        ),
        Case(lambda t: (t.get([3, 4]), t.peek([5]), t.contains([3])), hash_table),
        Case(lambda t: (t.get([1]), 4 in t, len(t), t.stats(), t.remove([1])), hash_table),
        Case(lambda t: (t.get([1]), list(t.items())), hash_table),
        adding(hash_table, lambda t: t.add(KEY_DELTA, KEYS), keyed),
        Case(lambda _: (len(work := mv.Work(range(3), lease=0.01)), set(work))),
        Case(lambda _: mv.hash_keys(["a", "b"])),
    ],
    "background": [
        Case(lambda it: (it.append(it[0].get_async()), wait(it)), lambda: [array()], wait),
        Case(lambda t: t.get_async(np.empty(SIZE, ">f4")).result(), array),
        adding(array, lambda t: (t.add_async(ONES), t.flush())),
        Case(lambda t: t.get_async(ROWS, fresh=True).result(), matrix),
        Case(lambda t: (t.get_async(ROWS), t.get_async()), matrix),
        adding(matrix, lambda t: t.add_async(DELTA, ROWS), rows),
        Case(lambda t: t.get_async(KEYS, fresh=True).result(), hash_table),
        adding(hash_table, lambda t: t.add_async(KEY_DELTA, KEYS), keyed),
    ],
    "sync": [
        Case(lambda _: Model("float32", {}).sync.tables),
        syncing(),
        syncing("float16"),
        syncing(average=True),
        syncing(fragments=2, sync_every=2),
        syncing(overlap=True),
        syncing("float16", overlap=True),
        syncing("int64", call=lambda m: m.sync.sync(), overlap=True),
        syncing(call=lambda m: m.sync.sync(), overlap=True, fragments=2),
        syncing(fragments=2, call=lambda m: m.sync.sync_all()),
    ],
    "saves": [
        Case(lambda it: (mv.save(it[1], keep=2), mv.load(it[1])), saved, lambda it: it[0].get()),
        Case(lambda it: (mv.save(it[1], keep=2, background=True), mv.wait_for_save()), saved),
        Case(lambda it: (it[0].save(it[1], keep=2), it[0].load(it[1])), saved),
        Case(read_checkpoint, saved),
        Case(lambda it: (checkpoint.verify(it[1]), checkpoint.latest(it[1])), saved),
    ],
    "readers": [
        Case(lambda _: mv.publish(), published),
        Case(lambda it: mv.publish(to=it[1]), published),
        Case(within_views, published),
        Case(lambda it: (it[1].cut(), it[1].wait(1), it[1].tables["w"].get([1])), attached),
        Case(pin, attached),
        Case(lambda it: (it[1].cut(), it[1].tables["w"].get([1])), followed),
        Case(lambda it: it[1].tables["w"].contains([1]), followed),
        Case(lambda it: (it[1].changed("w"), it[1].removed("w")), attached),
        Case(lambda it: (it[1].changed("w"), it[1].removed("w")), followed),
        Case(lambda it: it[1].wait(it[1].version), followed),
    ],
    "sessions": [
        Case(lambda _: mv.init(name="interrupts"), undo=shut, options=None),
        Case(lambda _: mv.shutdown(), mv.init, undo=lambda _: mv.init(), options=None),
        Case(within_session, undo=shut, options=None),
        Case(lambda _: mv.init(on_peer_lost="continue").leave(), undo=shut, options=None),
        Case(lambda _: mv.init().leave_with("it has failed"), undo=shut, options=None),
        Case(lambda _: (mv.barrier(), mv.check_leaving(), mv.is_leaving(), mv.finish())),
        Case(lambda _: (mv.stats(), mv.rank(), mv.size(), mv.num_workers(), mv.worker_id())),
        Case(lambda _: (mv.workers_num(), mv.servers_num(), mv.server_id())),
        Case(lambda _: (mv.local_rank(), mv.is_master_worker(), mv.is_initialized())),
        Case(mv.aggregate, lambda: np.ones(9), np.copy),
        Case(mv.aggregate, lambda: np.ones((9, 2), "int16")[:, ::2], np.copy),
        Case(lambda s: (s.lost_ranks(), s.is_master_worker()), mv.api.current_session),
        Case(lambda s: s.membership(), mv.api.current_session, options={"elastic": True}),
        Case(lambda _: mv.init(elastic=True).on_membership(print), undo=shut, options=None),
    ],
}

CLASSES = (
    *(mv.ArrayTable, mv.MatrixTable, mv.HashTable, tables.Future, tables.View, tables.ViewTable),
    *(checkpoint.Checkpoint, mv.Work, sync.ParamSync, mv.Session),
)
#: Public names that no case calls, and why.
EXCEPTIONS = {
    "spawn": "starts processes; it is a program of its own, which ends them",
    "Checkpoint.read_keys": "as Checkpoint.read",
    "Checkpoint.read_row_state": "as Checkpoint.read",
    "assign_device": "asks frameworks, and takes nothing over",
    "ignore_notice": "is one call into C, in a process that a rank has started",
}

TestInterruptsAtEveryLine = class_of(__file__, GROUPS)

if __name__ == "__main__":
    public = {name: getattr(mv, name) for name in mv.__all__}
    main(GROUPS, functions_of(public, *CLASSES), EXCEPTIONS)
