"""An interrupt at any line of any public call changes nothing, or makes the whole call.

A tracer raises KeyboardInterrupt at each place to which a call comes. The places are the beginnings
of the package's lines, and the moments after its calls have returned, before their results are
stored, at which Python raises the exceptions of signal handlers. A place that several calls share
is tried once for each line that leads to it, and once more in a loop. After each interrupt the
values are those before the call or those after it, arrays to which the library writes have been
kept, and the same call works next. In the end there are as many descriptors, threads and maps of
shared memory as before.
"""

import contextlib
import dis
import functools
import gc
import inspect
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
ONES = np.ones(SIZE)  # Converted to the table's dtype in a temporary array.
ROWS = np.arange(0, 200, 3)
DELTA = np.ones((ROWS.size, 8))
KEYS, KEY_DELTA = [7, 9], np.ones((2, 4))


class Interrupt:
    """Raises KeyboardInterrupt at the first place of its block that has not been `seen`."""

    def __init__(self, seen: set[Any]) -> None:
        self.seen = seen
        self.where = None
        self.last: dict[Any, int] = {}
        self.turns: Counter[Any] = Counter()

    def __enter__(self):
        sys.settrace(self.trace)
        return self

    def __exit__(self, kind, error, traceback):
        sys.settrace(None)
        self.last.clear()
        return kind is KeyboardInterrupt

    def trace(self, frame, event, _):
        # A wait in the library runs these functions: another test interrupts waits.
        code = frame.f_code
        is_wait = code.co_name in ("_run", "_reason_to_end")
        if is_wait or not code.co_filename.startswith(PACKAGE):
            return None
        if event == "call":
            frame.f_trace_opcodes = True
            return self.trace
        is_place = event == "line"
        if event == "opcode":
            is_place = self.last.get(frame) in CALLS
            self.last[frame] = code.co_code[frame.f_lasti]
        elif event == "return":
            self.last.pop(frame, None)
        if is_place and self.where is None:
            place = (code, event, frame.f_lasti, frame.f_back.f_code, frame.f_back.f_lineno)
            self.turns[place] += 1
            turn = (place, min(self.turns[place], 2))
            if turn not in self.seen:
                self.seen.add(turn)
                self.where = f"{event} {code.co_filename}:{frame.f_lineno}"
                raise KeyboardInterrupt
        return self.trace


class Case(NamedTuple):
    """A call, which increases `value` by `step` or not at all. `undo` ends each trial.

    `make` returns the argument of all three. `options` are those of the session, or None if the
    call opens or closes it.
    """

    call: Callable[[Any], Any]
    make: Callable[[], Any] = lambda: None
    value: Callable[[Any], Any] = lambda _: 0
    step: float = 0
    undo: Callable[[Any], Any] = lambda _: None
    options: dict[str, Any] | None = {}


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


def attached():
    return published(), mv.attach(os.getpid())


def followed():
    table, place = published()
    return table, mv.follow(place, timeout=60)


def shut(_):
    if mv.is_initialized():
        mv.shutdown()


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
        Case(lambda t: ((f := t.get_async()).done(), f.wait(), f.result()), array),
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
        Case(lambda _: (mv.local_rank(), mv.is_master_worker(), mv.is_initialized())),
        Case(mv.aggregate, lambda: np.ones(9), np.copy),
        Case(mv.aggregate, lambda: np.ones((9, 2), "int16")[:, ::2], np.copy),
        Case(lambda s: (s.lost_ranks(), s.is_master_worker()), mv.api.current_session),
        Case(lambda s: s.membership(), mv.api.current_session, options={"elastic": True}),
        Case(lambda _: mv.init(elastic=True).on_membership(print), undo=shut, options=None),
    ],
}

CLASSES = (
    *(mv.ArrayTable, mv.MatrixTable, mv.HashTable, tables.Future, tables.View, tables.LiveTable),
    *(publishing.FollowedView, checkpoint.Checkpoint, mv.Work, sync.ParamSync, mv.Session),
)
SPECIAL = ("__iter__", "__len__", "__contains__", "__enter__", "__exit__")
#: Public names that no case calls, and why.
EXCEPTIONS = {
    "spawn": "starts processes; it is a program of its own, which ends them",
    "Checkpoint.read_keys": "as Checkpoint.read",
    "Checkpoint.read_row_state": "as Checkpoint.read",
    "assign_device": "asks frameworks, and takes nothing over",
    "ignore_notice": "is one call into C, in a process that a rank has started",
}


def used():
    """Return what the process uses: descriptors, threads and files in shared memory."""
    gc.collect()
    gc.collect()
    paths = [f"/proc/self/fd/{each}" for each in os.listdir("/proc/self/fd")]
    names = [os.readlink(path) for path in paths if os.path.lexists(path)]
    names += [thread.name for thread in threading.enumerate()]
    for line in Path("/proc/self/maps").read_text().splitlines():
        if ("/multiverso" in line or ":multiverso" in line) and ".so" not in line:
            names.append(f"map {line.split()[5]}")
    return Counter(names)


def settled():
    """Return what is used when threads in the background have nothing more to do."""
    now = None
    while now != (now := used()):
        time.sleep(0.05)
    return now


@contextlib.contextmanager
def made(case):
    """Yield the argument of a case in its session."""
    is_own = case.options is None
    try:
        with contextlib.nullcontext() if is_own else mv.session(name="interrupts", **case.options):
            yield case.make()
            if is_own:
                shut(None)
    except BaseException:
        sys.stderr.write(f"in the case of line {case.call.__code__.co_firstlineno}\n")
        raise


def try_every_place(case, it, seen):
    """Interrupt the call of a case at every place that has not been seen."""
    for _ in range(2):
        case.call(it)
        case.undo(it)
    before = settled()
    is_interrupted = True
    while is_interrupted:
        earlier = np.array(case.value(it), "float64")
        with Interrupt(seen) as interrupt:
            case.call(it)
        is_interrupted = interrupt.where is not None
        # The library would write to these arrays if it still used freed ones of the same size.
        mine = [np.full(size, -1.0, "float32") for size in (SIZE, 200 * 8, ROWS.size * 8, 8)]
        change = np.unique(np.array(case.value(it), "float64") - earlier)
        possible = ([0], [case.step]) if is_interrupted else ([case.step],)
        assert change.tolist() in possible, (interrupt.where, change)
        assert all((each == -1).all() for each in mine), interrupt.where
        case.undo(it)
        try:
            case.call(it)
        except BaseException as error:
            msg = f"the call does not work after an interrupt at {interrupt.where}"
            raise AssertionError(msg) from error
        case.undo(it)
    after = settled()
    assert after == before, f"after: {after - before}, before: {before - after}"


def run(group):
    seen: set[Any] = set()
    for case in GROUPS[group]:
        with made(case) as it:
            try_every_place(case, it, seen)
    sys.stdout.write(f"{len(seen)} interrupts\n")


def public():
    """Return the public functions and methods by their names."""
    found = {name: getattr(mv, name) for name in mv.__all__}
    for kind in CLASSES:
        names = [name for name in dir(kind) if name in SPECIAL or not name.startswith("_")]
        # A former name has only an error that says what to use instead.
        found |= {f"{kind.__name__}.{n}": getattr(kind, n) for n in names if hasattr(kind, n)}
    found = {name: inspect.unwrap(value) for name, value in found.items()}
    return {name: value.__code__ for name, value in found.items() if inspect.isfunction(value)}


def print_missing():
    """Print the public calls that no case makes."""
    called = set()
    for case in (case for cases in GROUPS.values() for case in cases):
        with made(case) as it:
            sys.setprofile(lambda frame, *_: called.add(frame.f_code))
            case.call(it)
            sys.setprofile(None)
            case.undo(it)
    missing = {name for name, code in public().items() if code not in called}
    sys.stdout.write(" ".join(sorted(missing - set(EXCEPTIONS))))


class TestInterruptsAtEveryLine(unittest.TestCase):
    def run_here(self, argument, printed=r"\d+ interrupts\n"):
        support = [Path(programs.__file__).parent]
        command = ("-W", "ignore", __file__, argument)
        status, out, err = run_python(*command, first_on_path=support, timeout=300)
        self.assertEqual(status, 0, out + err)
        self.assertRegex(out, f"^{printed}$")

    def test_every_public_call_has_a_case_or_an_exception(self):
        self.run_here("missing", "")


for each_group in GROUPS:
    method = functools.partialmethod(TestInterruptsAtEveryLine.run_here, each_group)
    setattr(TestInterruptsAtEveryLine, f"test_{each_group}", method)

if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as WORK:
        sys.unraisablehook = lambda _: None  # An interrupt in a finalizer reaches nobody.
        print_missing() if sys.argv[1] == "missing" else run(sys.argv[1])
