"""Ranks of which some have a fault: ``faults.py ROW [shielded]``, a row of `fault_rows.py`.

The others report the error of each call under its name, and the victims theirs as well.
"""

import os
import random
import signal
import socket
import sys
import tempfile
import threading
import time
from dataclasses import dataclass

import numpy as np
import worker
from fault_programs import PROGRAMS
from fault_rows import ROUNDS, ROWS, ROWS_OF_HOSTS

import multiverso as mv
from multiverso.api import current_session

#: Rounds of a table before the fault.
COMPLETED = 2
#: Elements of the table of most calls: several stripes, each with a lock of its own.
SHAPE = (10_000, 4)
#: Seconds of which only a mistake needs more.
TIMEOUT = 60.0
FAULTS = {}


def fault(function):
    """Register what a victim does while the others make, or will make, a call."""
    FAULTS[function.__name__] = function
    return function


@dataclass
class Moment:
    """A session in which a fault happens: its row, and the call that the others make."""

    row: object
    name: str
    weights: mv.MatrixTable
    biases: mv.ArrayTable

    @property
    def others(self):
        """The ranks without the fault."""
        return sorted(set(range(worker.SIZE)) - set(self.row.victims))

    def call(self):
        """Make the call."""
        calls_of(self.weights)[self.name]()

    def repeat(self):
        """Make the call until it fails: the first may need only what the victim did before."""
        self.call()
        while mv.is_initialized():
            self.call()

    def report(self, call, name=None):
        """Report the error of a call under the name of the moment's, or under another one."""
        worker.report_call(call, name=name or self.name)

    def announce(self, what):
        """Announce something about this call."""
        worker.announce(f"{self.name} {what}")

    def await_others(self, what):
        """Wait until all ranks without the fault have announced something."""
        for rank in self.others:
            worker.wait_for(f"{self.name} {what}", rank)


def calls_of(table):
    """Return the calls that may meet a fault, by name."""
    ones = np.ones(SHAPE, np.float32)
    return {
        "add": lambda: table.add(ones),
        "call": lambda: (table.add(ones), table.get()),
        "add_get": lambda: table.add_get(ones),
        "get": lambda: (table.add(ones), table.get()),
        "rows": lambda: (table.add([[1, 1, 1, 1]], [3]), table.get([3, 3])),
        "get_rows": lambda: (table.add(ones), table.get([3, 3])),
        "result": lambda: (table.add_async(ones), table.get_async().result()),
        "flush": lambda: (table.add_async(ones), table.get_async(), table.flush()),
        "collective_get": lambda: table.get(sync=True),
        "aggregate": lambda: mv.aggregate(np.ones(100_000)),
        "barrier": mv.barrier,
        "create": lambda: mv.ArrayTable(3),
        "shutdown": mv.shutdown,
        "save": lambda: mv.save(f"{tempfile.gettempdir()}/saved", step=8),
        "publish": lambda: mv.publish(7),
        "work": lambda: (table.add(ones), table.add([[1, 1, 1, 1]], [3]), table.get(sync=True)),
    }


def meet_fault(row, name):
    """Open a session, complete some rounds, and meet the fault in a call."""
    # A session that continues publishes, too, and therefore has a name.
    job = os.path.basename(os.environ["MULTIVERSO_TEST_JOB"])
    modes = {
        "async": {},
        "sync": {"sync": True},
        "stale": {"staleness": 2},
        "continue": {"on_peer_lost": "continue", "name": job},
    }
    options = {"timeout": TIMEOUT, "start_timeout": worker.WAIT_TIMEOUT, **row.session}
    worker.meet(f"{name} opens")
    mv.init(**options, **modes["sync" if name in ROUNDS else row.mode])
    moment = Moment(
        row, name, mv.MatrixTable(*SHAPE, name="weights"), mv.ArrayTable(3, name="biases")
    )
    for _ in range(COMPLETED):
        moment.weights.add(np.ones(SHAPE, np.float32))
        moment.weights.get()
    mv.save(f"{tempfile.gettempdir()}/saved", step=7)
    worker.report(host=socket.gethostname())
    worker.meet(f"{name} begins")
    is_victim = worker.RANK in row.victims
    if is_victim:
        os.environ["MULTIVERSO_FAILPOINTS"] = row.points or "none"
    (FAULTS[row.what] if is_victim else OTHERS.get(row.what, go_on))(moment)
    os.environ["MULTIVERSO_FAILPOINTS"] = "none"
    if is_victim:
        return end(row, name)
    worker.report(ended=True)
    moment.announce("reported")
    # A rank that ends would be named by slower ones.
    moment.await_others("reported")
    return end(row, name)


def end(row, name):
    """End the session, which has failed unless the row has no errors."""
    if mv.is_initialized():
        mv.shutdown() if row.kind is None else current_session().leave_with(f"{name} is over")


def go_on(moment):
    """Make the call until it fails, or, if it must not, with the ranks that remain."""
    moment.announce("waits")
    if moment.row.kind is not None:
        moment.report(moment.repeat)
        return
    moment.report(lambda: until_made(moment.call))
    if mv.is_initialized():
        moment.report(mv.barrier, f"{moment.name} afterwards")


def until_made(call):
    """Make a collective call again after each loss in it, which all remaining ranks get."""
    while True:
        try:
            return call()
        except mv.PeerLostError:
            continue


@fault
def late(moment):
    """Come after the others have given up."""
    moment.await_others("reported")
    moment.report(moment.repeat)


@fault
def crosses(moment):
    """Wait for the others in another table."""
    moment.report(lambda: moment.biases.add_get(np.ones(3)))


@fault
def kill(moment):
    """Be killed outside of any call, while the others wait."""
    moment.await_others("waits")
    os.kill(os.getpid(), signal.SIGKILL)


@fault
def kill_soon(moment):
    """Be killed at a random moment of repeated calls."""
    _kill_soon()
    moment.repeat()


def _kill_soon():
    soon = random.uniform(0, 0.3)
    threading.Timer(soon, os.kill, [os.getpid(), signal.SIGKILL]).start()


@fault
def kill_in_call(moment):
    """Be killed, by a failpoint, in the call that the others make, too."""
    moment.report(moment.call)
    worker.wait_for_kill(timeout=20)


@fault
def kill_in_add(moment):
    """Be killed, by a failpoint, in an add, with a lock that the others need."""
    kill_in_call(moment)


def _add_after_kill(moment):
    """Check that all adds but the victim's are exact."""
    (victim,) = moment.row.victims
    worker.wait_until_gone(victim)
    go_on(moment)
    least = COMPLETED * worker.SIZE + len(moment.others)
    values = np.unique(moment.weights.get()).tolist()
    assert values == [least, least + 1], values


@fault
def exception(moment):
    """Raise an exception that ends the script."""
    raise ValueError("bad batch 17")


@fault
def block(moment):
    """Raise an exception in the block of the session."""
    with current_session():
        raise KeyError("lost in the block")


@fault
def exits(moment):
    """End the script with a code."""
    sys.exit(3)


@fault
def silently(moment):
    """End the script without an error."""
    sys.exit()


def _interrupt(moment, number):
    def send():
        worker.wait_for_library_call()
        signal.pthread_kill(threading.main_thread().ident, number)

    threading.Thread(target=send, daemon=True).start()
    moment.report(moment.call)
    moment.announce("interrupted")


@fault
def interrupt(moment):
    """Press Ctrl-C while this rank waits for the others."""
    _interrupt(moment, signal.SIGINT)


def _raise(signum, frame):
    raise ValueError("bad batch 17")


@fault
def handler(moment):
    """Let the handler of a signal raise an exception while this rank waits for the others."""
    signal.signal(signal.SIGALRM, _raise)
    _interrupt(moment, signal.SIGALRM)


def _go_on_after_interrupt(moment):
    worker.wait_for(f"{moment.name} interrupted", moment.row.victims[0])
    go_on(moment)


@fault
def suspend(moment):
    """Stop, in the call if a failpoint says so, until the others have reported their errors."""
    if moment.row.points:
        moment.report(moment.call)
    else:
        os.kill(os.getpid(), signal.SIGSTOP)
    moment.report(moment.call, f"{moment.name} again")


def _go_on_until_resumed(moment):
    """Make the call without the suspended ranks, and let these continue afterwards."""
    for rank in moment.row.victims:
        worker.wait_until_suspended(rank)
    go_on(moment)
    moment.announce("gave up")
    moment.await_others("gave up")
    if worker.RANK == moment.others[0]:
        for rank in moment.row.victims:
            worker.resume(rank)


@fault
def suspend_briefly(moment):
    """Stop until another rank has slept for a moment."""
    os.kill(os.getpid(), signal.SIGSTOP)
    go_on(moment)


def _resume_soon(moment):
    worker.wait_until_suspended(moment.row.victims[0])
    time.sleep(0.5)
    worker.resume(moment.row.victims[0])
    go_on(moment)


#: What the ranks without a fault do, where it is more than the call.
OTHERS = {
    "interrupt": _go_on_after_interrupt,
    "handler": _go_on_after_interrupt,
    "kill_in_add": _add_after_kill,
    "suspend": _go_on_until_resumed,
    "suspend_briefly": _resume_soon,
}


if __name__ == "__main__":
    if "shielded" in sys.argv:
        worker.shield()
    worker.begin()
    the_row = (ROWS | ROWS_OF_HOSTS)[sys.argv[1]]
    if the_row.what.startswith("torch_"):
        from torch_faults import PROGRAMS
    if the_row.what in PROGRAMS:
        PROGRAMS[the_row.what](the_row)
    else:
        for call_name in the_row.when:
            meet_fault(the_row, call_name)
