"""Ranks are suspended for a while: ``suspensions.py FUNCTION ...``."""

import os
import random
import signal
import sys
import tempfile
import threading
import time
from pathlib import Path

import numpy as np
import worker
from cases import goes

import multiverso as mv
from multiverso.api import current_session
from multiverso.sync import ParamSync

#: The rank that is suspended.
VICTIM = 1

SIZE = 2000
#: An answer about half of these elements has several parts.
LARGE = 800_000
ROWS = 60
KEYS = np.arange(0, 4000, 7)
ELEMENTS = (SIZE // 2, SIZE // 2 + 17, SIZE - 1)


class _Model:
    """Tables that only this rank changes, and what they contain."""

    def __init__(self):
        def filled(shape, value):
            return np.full(shape, value, np.int64)

        self.values = {
            "small": filled(SIZE, 10),
            "large": filled(LARGE, 2000),
            "matrix": filled((ROWS, 5), 300_000),
        }
        self.counts = dict.fromkeys(KEYS.tolist(), 0)
        self.small = mv.ArrayTableHandler(SIZE, self.values["small"], dtype="int64")
        self.large = mv.ArrayTableHandler(LARGE, self.values["large"], dtype="int64")
        self.matrix = mv.MatrixTableHandler(ROWS, 5, self.values["matrix"], dtype="int64")
        self.hash = mv.HashTableHandler(1, 4 * len(KEYS), dtype="int64")
        self.hash.add(np.zeros((len(KEYS), 1), np.int64), KEYS)
        self.kept = []  # what messages of ended calls may still refer to

    def call(self, kind, rng):
        """Make a call that needs the other node, and check its result."""
        value = rng.randrange(1, 100)
        keys = np.array(rng.sample(KEYS.tolist(), 20))  # of both nodes
        rows = [ROWS - 1, 0, ROWS // 2 + rng.randrange(5), ROWS - 1]
        element = rng.choice(ELEMENTS)
        expected = got = None
        if kind in ("small", "large"):
            expected, got = self.values[kind], getattr(self, kind).get()
        elif kind == "rows":
            expected, got = self.values["matrix"][rows], self.matrix.get(rows)
        elif kind == "keys":
            expected = [[self.counts[key]] for key in keys.tolist()]
            got = self.hash.get(keys)
        elif kind == "contains":
            expected, got = np.ones(20, bool), self.hash.contains(keys)
        elif kind == "part":
            part = np.s_[SIZE // 2 : SIZE - 3]
            expected, got = self.values["small"][part], self.small.get(index=part)
        elif kind == "fetch_add":
            expected = int(self.values["small"][element])
            self.values["small"][element] += value
            got = self.small.fetch_add(int(element), value)
        elif kind == "add_small":
            self.values["small"] += value
            self.kept.append(np.full(SIZE, value, np.int64))
            self.small.add(self.kept[-1])
        elif kind == "add_rows":
            np.add.at(self.values["matrix"], rows, value)
            self.matrix.add(np.full((4, 5), value, np.int64), rows)
        elif kind == "add_keys":
            for key in keys.tolist():
                self.counts[key] += value
            self.hash.add(np.full((20, 1), value, np.int64), keys)
        np.testing.assert_array_equal(got, expected, kind)

    def settle(self):
        """Wait until the adds whose calls have ended without answers are made.

        The server makes them when it resumes.
        """
        deadline = time.monotonic() + 60
        expected = [[count] for count in self.counts.values()]
        while not (
            all((getattr(self, name).get() == self.values[name]).all() for name in self.values)
            and (self.hash.get(KEYS) == expected).all()
        ):
            assert time.monotonic() < deadline, "an add of an ended call was not made"


GETS = ("small", "large", "rows", "keys", "contains", "part")
CHANGES = ("fetch_add", "add_small", "add_rows")
#: An add of keys first looks them up, and is not made if it ends before.
CALLS = (*GETS, *CHANGES, "add_keys")


def _suspend_victim(pid):
    os.kill(pid, signal.SIGSTOP)
    tasks = Path(f"/proc/{pid}/task")
    while not all(" T " in (task / "stat").read_text("ascii") for task in tasks.iterdir()):
        time.sleep(0.001)


def _end_without_answer(model, kind, rng, how, pid):
    """Make a call that ends while the other node is suspended, and let that node continue."""
    _suspend_victim(pid)
    if how == "interrupt":
        soon = threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGINT))
        soon.start()
    try:
        model.call(kind, rng)
    except (KeyboardInterrupt, mv.OperationTimeout):
        pass
    else:
        raise AssertionError(f"{kind} of a suspended node has returned")
    finally:
        os.kill(pid, signal.SIGCONT)


def gets_its_own_answers(seed):
    """Each call gets its own answer, also after calls that ended without theirs."""
    worker.await_start()
    mv.init(timeout=worker.SHORT_TIMEOUT, peer_timeout=600)
    model = _Model() if worker.RANK == 0 else None
    if model is None:
        for shape in (SIZE, LARGE):
            mv.ArrayTableHandler(shape, dtype="int64")
        mv.MatrixTableHandler(ROWS, 5, dtype="int64")
        mv.HashTableHandler(1, 4 * len(KEYS), dtype="int64")
        worker.announce("serves")
        worker.wait_for("over", 0)
        os._exit(0)
    worker.wait_for("serves", VICTIM)
    pid = int((Path(os.environ["MULTIVERSO_TEST_JOB"]) / f"pid-{VICTIM}").read_text())
    rng = random.Random(seed)
    kinds = GETS + CHANGES
    for kind in kinds:
        _end_without_answer(model, kind, rng, "interrupt", pid)
        for other in rng.sample(GETS, len(GETS)) if kind in GETS else ():
            model.call(other, rng)
        model.settle()
    _end_without_answer(model, "large", rng, "timeout", pid)
    for kind in rng.sample(CALLS, len(CALLS)):
        model.call(kind, rng)
    for _ in range(60):
        if rng.random() < 0.3:
            _end_without_answer(model, kind := rng.choice(kinds), rng, "interrupt", pid)
            if kind in CHANGES:
                model.settle()
        model.call(rng.choice(CALLS), rng)
    worker.report(error=None)
    worker.announce("over")
    os._exit(0)


def loses_a_silent_node(mode):
    """Ranks call a node that has been silent for longer than peer_timeout, and then resumes."""
    mv.init(mode == "sync", timeout=60, peer_timeout=4.0)
    array = mv.ArrayTableHandler(90, name="w")
    matrix = mv.MatrixTableHandler(9, 4)
    table = None if mode == "sync" else mv.HashTableHandler(1, 1000)
    rows = [4, 4]  # of the victim
    calls = {
        "get": array.get,
        "add": lambda: array.add(np.ones(90)),
        "add_get": lambda: array.add_get(np.ones(90)),
        "get_rows": lambda: matrix.get(rows),
        "add_rows": lambda: matrix.add(np.ones((2, 4)), rows),
        "get_keys": lambda: table.get(range(50)),
        "add_keys": lambda: table.add(np.ones((50, 1)), range(50)),
        "contains": lambda: table.contains(range(50)),
        "len": lambda: len(table),
        "fetch_add": lambda: array.fetch_add(45, 1),
        "barrier": mv.barrier,
        "create": lambda: mv.ArrayTableHandler(3),
        "aggregate": lambda: mv.aggregate(np.ones(100)),
    }
    own = {
        "get_own_rows": lambda: matrix.get([4]),
        "add_own_part": lambda: array.add([1.0], index=np.s_[45:46]),
    }
    if mode == "sync":  # Others do not need the victim, or meet a different call of a slower rank.
        calls = {"get": array.get}
    mv.barrier()
    worker.announce("ready")
    if worker.RANK == VICTIM:
        worker.wait_for("resumed")
        first = dict(list(own.items()) + list(calls.items()))
    else:
        worker.wait_for("suspended")
        worker.report_call(lambda: (array.add(np.ones(90)), array.get()), name="while_silent")
        worker.announce("has-lost")
        worker.wait_for("resumed")
        first = calls
    for repetition in range(2):
        for name, call in first.items():
            worker.report_call(call, name=f"{name}-{repetition}")
    worker.report(over=True)
    worker.meet("over")
    os._exit(0)


#: Where ranks 1, 2, ... suspend themselves, and in which call, of tables that only they change.
STOPS = (
    ("shard.write@2", lambda tables: tables.array.add(np.ones(LARGE))),
    ("shard.write_row@9", lambda tables: tables.matrix.add(np.ones((ROWS, 5)), range(ROWS))),
    ("shard.write_row@9", lambda tables: tables.hash.add(np.ones((len(KEYS), 1)), KEYS)),
    ("shard.write@2", lambda tables: tables.background.add_async(np.ones(LARGE)).wait()),
    ("shard.write@2", lambda tables: tables.synced.sync()),
    ("group.begin@1", lambda _: mv.aggregate(np.ones(9))),
    ("group.begun@1", lambda _: mv.barrier()),
)


class _Tables:
    """Tables that a suspended rank is changing."""

    def __init__(self):
        self.array = mv.ArrayTable(LARGE)
        self.matrix = mv.MatrixTable(ROWS, 5)
        self.hash = mv.HashTable(1, 4 * len(KEYS)) if goes("keys") else None
        self.background = mv.ArrayTable(LARGE)
        self.weights = np.zeros(LARGE, np.float32)
        self.synced = ParamSync([self.weights])
        if self.hash is not None:
            self.hash.add(np.zeros((len(KEYS), 1)), KEYS)


def stops_in_calls():
    """Go on without the other ranks, each of which is suspended in the middle of a call."""
    mv.init(on_peer_lost="continue", peer_timeout=2.0, timeout=30.0)
    tables = _Tables()
    mv.barrier()
    if worker.RANK > 0:
        stop, call = STOPS[worker.RANK - 1]
        tables.weights += 1
        os.environ["MULTIVERSO_FAILPOINTS"] = f"{stop}=stop"
        worker.announce("stops")
        worker.report_call(lambda: call(tables), name="resumed")
        os._exit(0)
    for rank in range(1, worker.SIZE):
        worker.wait_for("stops", rank)
    with tempfile.TemporaryDirectory() as folder:
        for name, add in (
            ("array", lambda: tables.array.add(np.ones(LARGE))),
            ("rows", lambda: tables.matrix.add(np.ones((ROWS, 5)), range(ROWS))),
            ("keys", lambda: tables.hash.add(np.ones((len(KEYS), 1)), KEYS)),
            ("background", lambda: tables.background.add(np.ones(LARGE))),
            ("sync", tables.synced.sync),
            ("barrier", mv.barrier),  # which the last rank has begun
            ("aggregate", lambda: mv.aggregate(np.ones(9))),
            ("save", lambda: mv.save(f"{folder}/saved")),
        ):
            worker.report_call(add, name=name)
    worker.announce("went-on")
    worker.wait_for("resumed")
    values = (
        tables.array.get(),
        tables.matrix.get(),
        tables.hash.get(KEYS),
        tables.background.get(),
    )
    worker.report(
        values=[sorted(set(np.ravel(array).tolist())) for array in values],
        lost=list(current_session().lost_ranks()),
    )
    mv.shutdown()


def _suspend_this(_):
    os.kill(os.getpid(), signal.SIGSTOP)


def _call_the_other_node(tables):
    """Call the last rank's node, whose other rank waits for nobody meanwhile."""
    if worker.RANK >= worker.SIZE // 2:
        worker.wait_for("has-lost", 0)
        mv.barrier()
    tables.array.add(np.ones(LARGE))
    tables.array.get()


def _repeat(call, tables):
    """Make a call until it fails, since the last rank may not be suspended yet."""
    while True:
        call(tables)


def _save(_):
    with tempfile.TemporaryDirectory() as folder:
        mv.save(f"{folder}/saved")


#: Where the last rank of a session suspends itself, in which call, and what the others call.
STOPS_OF_LAST = {
    "array": (*STOPS[0], STOPS[0][1]),
    "rows": (*STOPS[1], STOPS[1][1]),
    "keys": (*STOPS[2], STOPS[2][1]),
    "background": (*STOPS[3], STOPS[3][1]),
    "sync": ("", _suspend_this, lambda tables: tables.array.add_get(np.ones(LARGE))),
    "barrier": ("", _suspend_this, lambda _: mv.barrier()),
    "other node": ("", _suspend_this, _call_the_other_node),
    "service": ("service.reply@1", lambda _: worker.wait_for("has-lost", 0), _call_the_other_node),
}


def ends_for_a_silent_rank(where):
    """Wait for a rank that is suspended, in a session that fails and has the default timeout."""
    mv.init(peer_timeout=2.0, sync=where == "sync")
    tables = _Tables()
    last = worker.SIZE - 1
    stop, call, others_call = STOPS_OF_LAST[where]
    mv.barrier()
    if worker.RANK == last:
        if stop:
            os.environ["MULTIVERSO_FAILPOINTS"] = f"{stop}=stop"
        worker.announce("stops")
        worker.report_call(call, tables, name="resumed")
        worker.report_call(tables.array.get, name="get")
    else:
        worker.wait_for("stops", last)
        saves = worker.RANK == 1 and where != "sync"
        worker.report_call(_repeat, _save if saves else others_call, tables, name="first")
        worker.announce("has-lost")
    worker.report_call(mv.barrier, name="barrier")
    worker.meet("over")
    os._exit(0)


def is_suspended_as_a_whole():
    """Make calls until the test has suspended the job for a while, and resumed it rank by rank."""
    mv.init(on_peer_lost="continue", peer_timeout=2.0, timeout=60.0)
    table = mv.ArrayTable(SIZE)
    mv.barrier()
    worker.announce("ready")
    while not worker.is_announced("resumed"):
        table.add(np.ones(SIZE))
    mv.barrier()
    worker.report(lost=list(current_session().lost_ranks()))
    mv.shutdown()


if __name__ == "__main__":
    worker.begin()
    globals()[sys.argv[1]](*sys.argv[2:])
