"""An interrupt at any line of any public call changes nothing, or makes the whole call.

A tracer raises KeyboardInterrupt at the n-th place of a call, for every n. The places are the
beginnings of the package's lines, and the moments after its calls have returned, before their
results are stored, at which Python raises the exceptions of signal handlers. After each interrupt
the values are those before the call or those after it, arrays to which the library writes have
been kept, and the same call works next. In the end there are as many descriptors, threads and maps
of shared memory as before. Each group of calls runs in a process of its own.
"""

import contextlib
import dis
import gc
import inspect
import itertools
import os
import sys
import tempfile
import threading
import time
import unittest
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import programs
from programs import run_python

import multiverso as mv
from multiverso import checkpoint, publishing, sync, tables

PACKAGE = str(Path(mv.__file__).parent)
CALLS = {code for name, code in dis.opmap.items() if name.startswith("CALL")}
SIZE = 40_000


class Interrupt:
    """Raises KeyboardInterrupt at a place of the code in its block, counted from 0."""

    def __init__(self, place: int) -> None:
        self.left = place
        self.where = None
        self.last: dict[Any, int] = {}

    def __enter__(self):
        sys.settrace(self.trace)
        return self

    def __exit__(self, kind, error, traceback):
        sys.settrace(None)
        self.last.clear()
        return kind is KeyboardInterrupt

    def trace(self, frame, event, _):
        # A wait in the library runs `_Interrupts._run`: another test interrupts waits.
        is_wait = frame.f_code.co_name in ("_run", "_reason_to_end")
        if is_wait or not frame.f_code.co_filename.startswith(PACKAGE):
            return None
        if event == "call":
            frame.f_trace_opcodes = True
            return self.trace
        is_place = event == "line"
        if event == "opcode":
            is_place = self.last.get(frame) in CALLS
            self.last[frame] = frame.f_code.co_code[frame.f_lasti]
        elif event == "return":
            self.last.pop(frame, None)
        if is_place and self.where is None:
            if self.left == 0:
                self.where = f"{event} {frame.f_code.co_filename}:{frame.f_lineno}"
                raise KeyboardInterrupt
            self.left -= 1
        return self.trace


class Case(NamedTuple):
    """Public names, and a call of them.

    `make` returns an object for all trials, `call` makes the call on it, and `value` returns
    numbers which the call increases by `step` or not at all. `undo` ends each trial.
    """

    names: str
    call: Callable[[Any], Any]
    make: Callable[[], Any] = lambda: None
    value: Callable[[Any], Any] = lambda _: 0
    step: float = 0
    undo: Callable[[Any], Any] = lambda _: None
    options: dict[str, Any] = {}
    is_own_session: bool = False


def array(**options):
    return lambda: mv.ArrayTable(SIZE, **options)


def matrix(**options):
    return lambda: mv.MatrixTable(200, 8, **options)


def hash_table(**options):
    return lambda: mv.HashTable(4, capacity=1000, **options)


def values(table):
    table.flush()
    return table.get([7, 9]) if isinstance(table, mv.HashTable) else table.get()


def folder():
    return Path(tempfile.mkdtemp(dir=WORK))


def saved():
    table, place = mv.ArrayTable(10, 3), folder()
    mv.save(place)
    return table, place


def published():
    table, place = mv.MatrixTable(10, 2, 1, name="w"), folder()
    mv.publish(to=place)
    mv.publish(to=place)
    return table, place


def opened(view_of):
    def make():
        table, place = published()
        return table, view_of(place)

    return make


def shut():
    if mv.is_initialized():
        mv.shutdown()


class Model:
    """A ParamSync, beside which others add; `trained` counts what its arrays were trained."""

    def __init__(self, arrays, **options):
        self.arrays, self.trained, self.others = arrays, 0, 0
        self.sync = sync.ParamSync(arrays, **options)
        self.is_waiting = False

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


def model(dtype="float32", **options):
    def make():
        whole = np.zeros((6, 8), dtype)
        return Model([np.zeros((300, 9), dtype), whole[:, ::2]], **options)

    return make


SYNC = "ParamSync.sync ParamSync.wait ParamSync.sync_all"
IN_BACKGROUND = "ArrayTable.get_async Future.result Future.wait Future.done"
ONES = np.ones(SIZE, "float64")  # converted to the table's dtype in a temporary array
ROWS = np.arange(0, 200, 3)


def rows_of(data, columns=8):
    return np.full((len(data), columns), 1.0)


def handed_out(work):
    """Hand out all items of a Work, of which none is lost."""
    return sorted(set(work))


GROUPS: dict[str, list[Case]] = {
    "tables": [
        Case("ArrayTable", lambda d: mv.ArrayTable(100, backing=d, name="w"), folder),
        Case("MatrixTable", lambda _: mv.MatrixTable(10, 3, np.ones((10, 3)), dtype="float16")),
        Case(
            "HashTable HashTable.reopened", lambda d: mv.HashTable(4, 9, backing=d).reopened, folder
        ),
        Case("ArrayTable.get ArrayTable.peek", lambda t: (t.get(), t.peek()), array()),
        Case("ArrayTable.add", lambda t: t.add(ONES), array(), values, 1),
        Case("ArrayTable.add_get", lambda t: t.add_get(ONES), array(), values, 1),
        Case("ArrayTable.get_changed", lambda t: t.get_changed(), array()),
        Case("ArrayTable.fetch_add", lambda t: t.fetch_add(0), array(), lambda t: t.get()[0], 1),
        Case(
            "ArrayTable.compare_swap",
            lambda t: t.compare_swap(0, t.get()[0], t.get()[0] + 1),
            array(),
            lambda t: t.get()[0],
            1,
        ),
        Case(
            "ArrayTable.set_option ArrayTable.options",
            lambda t: (t.set_option(learning_rate=0.5), t.options),
            array(updater="sgd"),
        ),
        Case(
            "ArrayTable.view ArrayTable.delta_buffer",
            lambda t: (t.view(), t.view(live=True), t.delta_buffer()),
            array(),
        ),
        Case(
            "ArrayTable.view ArrayTable.delta_buffer",
            lambda t: (t.view(), t.delta_buffer()),
            array(),
            options={"sync": True},
        ),
        Case(
            "ArrayTable.prepare_add ArrayTable.prepare_get ArrayTable.prepare_add_get",
            lambda t: (
                t.prepare_add(np.ones(SIZE, "f"))(),
                t.prepare_get(np.empty(SIZE, "f"))(),
                t.prepare_add_get,
            ),
            array(),
            values,
            1,
        ),
        Case("ArrayTable.stats", lambda t: t.stats(), lambda: mv.ArrayTable(100, backing=folder())),
        Case(
            "MatrixTable.get MatrixTable.peek",
            lambda t: (t.get(ROWS), t.peek(ROWS), t.get(index=np.s_[2:3])),
            matrix(),
        ),
        Case(
            "MatrixTable.add MatrixTable.add_get",
            lambda t: (t.add_get(np.zeros((200, 8))), t.add(rows_of(ROWS), ROWS)),
            matrix(),
            lambda t: values(t)[ROWS],
            1,
        ),
        Case(
            "MatrixTable.add",
            lambda t: t.add(rows_of(range(9)), index=np.s_[1:10]),
            matrix(),
            lambda t: values(t)[1:10],
            1,
        ),
        Case(
            "HashTable.get HashTable.peek HashTable.contains HashTable.__contains__ "
            "HashTable.__len__ HashTable.stats",
            lambda t: (t.get([3, 4]), t.peek([5]), t.contains([3]), 4 in t, len(t), t.stats()),
            hash_table(),
        ),
        Case("HashTable.add", lambda t: t.add(rows_of([7, 9], 4), [7, 9]), hash_table(), values, 1),
        Case(
            "HashTable.remove HashTable.items HashTable.changes",
            lambda t: (t.get([1]), t.remove([1]), list(t.items()), list(t.changes().read())),
            hash_table(),
        ),
        Case(
            "Work Work.__iter__ Work.__len__", lambda _: handed_out(mv.Work(range(3), lease=0.01))
        ),
        Case("hash_keys", lambda _: mv.hash_keys(["a", "b"])),
    ],
    "background": [
        Case(IN_BACKGROUND, lambda t: t.get_async().result(), array()),
        Case(IN_BACKGROUND, lambda t: t.get_async(np.empty(SIZE, ">f4")).result(), array()),
        Case(
            "ArrayTable.add_async ArrayTable.flush",
            lambda t: (t.add_async(ONES), t.flush()),
            array(),
            values,
            1,
        ),
        Case("MatrixTable.get_async", lambda t: t.get_async(ROWS, fresh=True).result(), matrix()),
        Case("MatrixTable.get_async", lambda t: (t.get_async(ROWS), t.get_async()), matrix()),
        Case(
            "MatrixTable.add_async",
            lambda t: t.add_async(rows_of(ROWS), ROWS),
            matrix(),
            lambda t: values(t)[ROWS],
            1,
        ),
        Case(
            "HashTable.get_async", lambda t: t.get_async([7, 9], fresh=True).result(), hash_table()
        ),
        Case(
            "HashTable.add_async",
            lambda t: t.add_async(rows_of([7, 9], 4), [7, 9]),
            hash_table(),
            values,
            1,
        ),
    ],
    "sync": [
        Case("ParamSync", lambda _: Model([np.ones(5)]).sync.tables),
        Case(SYNC, Model.run, model(), Model.missing, undo=Model.step),
        Case(SYNC, Model.run, model("float16"), Model.missing, undo=Model.step),
        Case(SYNC, Model.run, model(average=True), Model.missing, undo=Model.step),
        Case(SYNC, Model.run, model(fragments=2, sync_every=2), Model.missing, undo=Model.step),
    ],
    "overlap": [
        Case(SYNC, Model.run, model(overlap=True), Model.missing, undo=Model.step),
        Case(SYNC, Model.run, model("float16", overlap=True), Model.missing, undo=Model.step),
        Case(
            SYNC,
            lambda m: m.sync.sync(),
            model("int64", overlap=True),
            Model.missing,
            undo=Model.step,
        ),
        Case(
            SYNC,
            lambda m: m.sync.sync(),
            model(overlap=True, fragments=2),
            Model.missing,
            undo=Model.step,
        ),
    ],
    "saves": [
        Case(
            "save load",
            lambda it: (mv.save(it[1], keep=2), mv.load(it[1])),
            saved,
            lambda it: it[0].get(),
        ),
        Case(
            "save wait_for_save",
            lambda it: (mv.save(it[1], keep=2, background=True), mv.wait_for_save()),
            saved,
        ),
        Case(
            "ArrayTable.save ArrayTable.load",
            lambda it: (it[0].save(it[1], keep=2), it[0].load(it[1])),
            saved,
            lambda it: it[0].get(),
        ),
        Case(
            "checkpoint.Checkpoint Checkpoint.read Checkpoint.read_steps "
            "Checkpoint.require_room Checkpoint.verify Checkpoint.close Checkpoint.__enter__ "
            "Checkpoint.__exit__",
            lambda it: read_checkpoint(it[1]),
            saved,
        ),
        Case(
            "checkpoint.verify checkpoint.latest checkpoint.saved_in",
            lambda it: (checkpoint.verify(it[1]), checkpoint.latest(it[1])),
            saved,
        ),
    ],
    "readers": [
        Case("publish", lambda _: mv.publish(), published),
        Case("publish", lambda it: mv.publish(to=it[1]), published),
        Case(
            "attach View.close View.__enter__ View.__exit__",
            lambda _: mv.attach(os.getpid()).close(),
        ),
        Case(
            "View.cut View.wait View.name View.step View.tables View.version LiveTable.get",
            read_live := lambda it: (
                it[1].cut(),
                it[1].wait(1),
                it[1].step,
                it[1].tables["w"].get([1]),
                it[1].name,
            ),
            opened(lambda _: mv.attach(os.getpid())),
        ),
        Case("View.pinned", lambda it: pin(it[1]), opened(lambda _: mv.attach(os.getpid()))),
        Case(
            "follow FollowedView.close FollowedView.__enter__ FollowedView.__exit__",
            lambda it: mv.follow(it[1], timeout=60).close(),
            published,
        ),
        Case(
            "FollowedView.cut FollowedView.changed FollowedView.removed FollowedView.name "
            "FollowedView.step FollowedView.tables FollowedView.version",
            lambda it: (
                it[1].cut(),
                it[1].changed("w"),
                it[1].removed("w"),
                it[1].tables["w"].get([1]),
            ),
            opened(lambda place: mv.follow(place, timeout=60)),
        ),
        Case(
            "FollowedView.wait",
            lambda it: it[1].wait(it[1].version),
            opened(lambda place: mv.follow(place, timeout=60)),
        ),
    ],
    "sessions": [
        Case(
            "init", lambda _: mv.init(name="interrupts"), undo=lambda _: shut(), is_own_session=True
        ),
        Case(
            "shutdown Session.close",
            lambda _: mv.shutdown(),
            undo=lambda _: mv.init(),
            is_own_session=True,
        ),
        Case(
            "session Session.__enter__ Session.__exit__",
            lambda _: within_session(),
            undo=lambda _: shut(),
            is_own_session=True,
        ),
        Case(
            "Session.leave Session.leave_with",
            lambda _: mv.init(on_peer_lost="continue").leave(),
            undo=lambda _: shut(),
            is_own_session=True,
        ),
        Case(
            "barrier finish is_leaving check_leaving is_initialized rank size num_workers "
            "worker_id is_master_worker local_rank stats",
            lambda _: (
                mv.barrier(),
                mv.check_leaving(),
                mv.is_leaving(),
                mv.stats(),
                mv.rank(),
                mv.finish(),
            ),
        ),
        Case("aggregate", lambda a: mv.aggregate(a), lambda: np.ones(9), lambda a: a.copy()),
        Case(
            "aggregate",
            lambda a: mv.aggregate(a),
            lambda: np.ones((9, 2), "int16")[:, ::2],
            lambda a: a.copy(),
        ),
        Case(
            "Session.lost_ranks Session.is_master_worker",
            lambda s: (s.lost_ranks(), s.is_master_worker()),
            lambda: mv.api.current_session(),
        ),
        Case(
            "Session.membership Session.on_membership",
            lambda s: s.membership(),
            lambda: mv.api.current_session(),
            options={"elastic": True},
        ),
    ],
}

#: Public names that no case calls, and why.
EXCEPTIONS = {
    "spawn": "starts processes; it is a program of its own, which ends them",
    "HashTable.to_parquet": "reads as items does, and needs pyarrow",
    "Checkpoint.read_keys": "as Checkpoint.read",
    "Checkpoint.read_row_state": "as Checkpoint.read",
    "assign_device": "asks frameworks, and takes nothing over",
    "ignore_notice": "is one call into C, in a process that a rank has started",
}
CLASSES = (
    *(mv.ArrayTable, mv.MatrixTable, mv.HashTable, tables.Future, tables.View, tables.LiveTable),
    *(publishing.FollowedView, checkpoint.Checkpoint, mv.Work, sync.ParamSync, mv.Session),
)


def read_checkpoint(place):
    with checkpoint.Checkpoint(place) as opened_checkpoint:
        opened_checkpoint.verify()
        opened_checkpoint.read_steps(opened_checkpoint.tables[0].name)
        return opened_checkpoint.read(opened_checkpoint.tables[0].name)


def pin(view):
    with view.pinned() as cut:
        return cut["w"].sum()


def within_session():
    with mv.session() as session:
        return session.rank


def used():
    """Return what the process uses: descriptors, threads and files in shared memory."""
    gc.collect()
    gc.collect()
    paths = [f"/proc/self/fd/{each}" for each in os.listdir("/proc/self/fd")]
    maps = Path("/proc/self/maps").read_text().splitlines()
    return Counter(
        [
            *(os.readlink(path) for path in paths if os.path.lexists(path)),
            *(thread.name for thread in threading.enumerate()),
            *(
                f"map {line.split()[5]}"
                for line in maps
                if "/multiverso" in line or ":multiverso" in line
                if ".so" not in line
            ),
        ]
    )


def settled():
    """Return what is used when threads in the background have nothing more to do."""
    now = None
    while now != (now := used()):
        time.sleep(0.05)
    return now


def try_every_place(case):
    """Interrupt the call of a case at every place; return how often."""
    it = case.make()
    case.call(it)
    case.undo(it)
    case.call(it)
    case.undo(it)
    before = settled()
    for place in itertools.count():
        earlier = np.array(case.value(it), "float64")
        with Interrupt(place) as interrupt:
            case.call(it)
        # The library would write to these arrays if it still used freed ones of the same size.
        mine = [np.full(count, -1.0, "float32") for count in (SIZE, 200 * 8, ROWS.size * 8, 8)]
        now = np.array(case.value(it), "float64")
        change = np.unique(now - earlier)
        assert change.tolist() in ([0], [case.step]), (interrupt.where, change)
        assert interrupt.where or change == case.step, "the call had no effect"
        assert all((each == -1).all() for each in mine), interrupt.where
        if interrupt.where is None:
            case.undo(it)
            break
        case.undo(it)
        try:
            case.call(it)
        except BaseException as error:
            raise AssertionError(
                f"the call does not work after an interrupt at {interrupt.where}"
            ) from error
        case.undo(it)
    after = settled()
    assert after == before, f"after: {after - before}, before: {before - after}"
    return place


def run(group):
    total = 0
    for case in GROUPS[group]:
        with (
            contextlib.nullcontext()
            if case.is_own_session
            else mv.session(name="interrupts", **case.options)
        ):
            if case.names.startswith("shutdown"):
                mv.init()
            try:
                total += try_every_place(case)
            except BaseException:
                sys.stderr.write(f"in {case.names} {case.options}\n")
                raise
            finally:
                if case.is_own_session:
                    shut()
    sys.stdout.write(f"{total} interrupts\n")


def is_call(kind, name):
    """Return whether a name of a class is a public method of this package."""
    special = ("__iter__", "__len__", "__contains__", "__enter__", "__exit__")
    is_here = str(getattr(getattr(kind, name), "__module__", "")).startswith("multiverso")
    return is_here and (name in special or not name.startswith("_"))


def found(name):
    """Return what a name of a case means, such as a function that several classes share."""
    first, _, second = name.partition(".")
    places = (mv, mv.api, tables, publishing, sync, checkpoint)
    value = next(getattr(each, first) for each in places if first in dir(each))
    return getattr(value, second) if second else value


class TestInterruptsAtEveryLine(unittest.TestCase):
    def test_every_public_call_has_a_case_or_an_exception(self):
        names = {name for cases in GROUPS.values() for case in cases for name in case.names.split()}
        called = [found(name) for name in names | set(EXCEPTIONS)]
        public = {name: getattr(mv, name) for name in mv.__all__}
        public |= {
            f"{k.__name__}.{n}": getattr(k, n) for k in CLASSES for n in dir(k) if is_call(k, n)
        }
        missing = {
            name
            for name, value in public.items()
            if inspect.isroutine(value)
            and value not in called
            and name.removeprefix("Session.") not in names | set(EXCEPTIONS)
        }
        self.assertEqual(missing, set())


def add_test(group):
    def test(self):
        support = [Path(programs.__file__).parent]
        command = ("-W", "ignore", __file__, group)
        status, out, err = run_python(*command, first_on_path=support, timeout=300)
        self.assertEqual(status, 0, out + err)

    setattr(TestInterruptsAtEveryLine, f"test_{group}", test)


for each_group in GROUPS:
    add_test(each_group)

if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as WORK:
        sys.unraisablehook = lambda _: None  # An interrupt in a finalizer reaches nobody.
        run(sys.argv[1])
