"""Ranks die in collective calls: ``collective_losses.py CALL POINTS POSITION``.

One rank after the other dies at a failpoint of the call, until only one is left or all failpoints
have been reached. The remaining ranks repeat the call if it raised PeerLostError, and
report what they have seen. The hits of a failpoint in a call are not known before: if the victim
survives the call, it has more hits than there are.
"""

import os
import sys
import tempfile

import numpy as np
import worker

import multiverso as mv

SIZE = 5000
#: Elements of the arrays of `aggregate`: one collective, and several chunks.
SMALL, LARGE = 8, 100_000
#: The longest wait in a call, which a mistake causes.
TIMEOUT = 30.0
#: How often a call is made: one loss ends at most one.
ATTEMPTS = 3

CALLS = {}


def collective(function):
    """Register a call with all remaining ranks; it returns what all of them must see."""
    CALLS[function.__name__] = function
    return function


@collective
def barrier(_table, _folder):
    mv.barrier()


@collective
def create_table(_table, _folder):
    values = mv.ArrayTableHandler(SIZE, 3.0).get()
    return [float(values.min()), float(values.max())]


@collective
def create_hash_table(_table, _folder):
    mv.HashTableHandler(100, 4)


@collective
def get(table, _folder):
    values = table.get(sync=True)
    return [float(values.min()), float(values.max())]


@collective
def aggregate(_table, _folder):
    values = mv.aggregate(np.ones(SMALL))
    return [values.min(), values.max()]


@collective
def aggregate_in_chunks(_table, _folder):
    values = mv.aggregate(np.ones(LARGE))
    return [values.min(), values.max()]


@collective
def save(_table, folder):
    mv.save(folder, step=3)


@collective
def save_in_background(_table, folder):
    mv.save(folder, background=True)
    mv.wait_for_save()


@collective
def load(_table, folder):
    return mv.load(folder)


@collective
def publish(table, _folder):
    table.add(np.ones(SIZE))
    return mv.publish(7)


def make(call, *arguments):
    """Make a call until it succeeds; return what each attempt has raised or returned."""
    outcomes = []
    while len(outcomes) < ATTEMPTS:
        try:
            outcomes.append(call(*arguments))
        except mv.PeerLostError as error:
            outcomes.append(f"PeerLostError about rank {error.rank}")
        else:
            break
    return outcomes


def remaining_ranks():
    """Return the ranks that take part in a call now, the same on all of them."""
    present = np.zeros(worker.SIZE)
    present[worker.RANK] = 1
    mv.aggregate(present)
    return np.flatnonzero(present).tolist()


def victim_among(alive, kind):
    """Return the first or the last rank, or None if it is the only one left."""
    if len(alive) < 2:
        return None
    return alive[0 if kind == "first" else -1]


def loses_ranks_in(call, points, position):
    """Make a call again and again, and lose a rank in each, from a position in `points` on."""
    folder = tempfile.gettempdir() + "/saved"
    table = mv.ArrayTableHandler(SIZE, 1.0, name="table")
    mv.save(folder, step=3)
    place, hit = map(int, position.split("."))
    history = []
    alive = remaining_ranks()
    while place < len(points):
        point, _, kind = points[place].partition("/")
        victim = victim_among(alive, kind)
        if victim is None:
            break
        if worker.RANK == victim:
            # The text is another one each time, so that the hits are counted from now on.
            os.environ["MULTIVERSO_FAILPOINTS"] = f"{point}@{hit}=kill,at={len(history)}"
        outcomes = make(CALLS[call], table, folder)
        if worker.RANK == victim:
            os.environ["MULTIVERSO_FAILPOINTS"] = "none"
        alive = remaining_ranks()
        survived = victim in alive
        history.append([points[place], hit, victim, survived, outcomes])
        place, hit = (place + 1, 1) if survived else (place, hit + 1)
        worker.report(history=history, position=f"{place}.{hit}")
    mv.shutdown()


def loses_a_rank_in_shutdown(points, position):
    """Lose a rank in `mv.shutdown`, after which a job has no other call."""
    place, hit = map(int, position.split("."))
    point, _, kind = points[place].partition("/")
    victim = victim_among(range(worker.SIZE), kind)
    if worker.RANK == victim:
        os.environ["MULTIVERSO_FAILPOINTS"] = f"{point}@{hit}=kill,at=shutdown"
    try:
        mv.shutdown()
    except mv.PeerLostError as error:
        outcome = f"PeerLostError about rank {error.rank}"
    else:
        outcome = "ended"
    worker.report(history=[points[place], hit, victim, outcome], position=f"{place + 1}.{hit}")


if __name__ == "__main__":
    _, name, points, position = sys.argv
    worker.begin()
    session_name = os.path.basename(os.environ["MULTIVERSO_TEST_JOB"])
    mv.init(on_peer_lost="continue", timeout=TIMEOUT, name=session_name)
    try:
        if name == "shutdown":
            loses_a_rank_in_shutdown(points.split(), position)
        else:
            loses_ranks_in(name, points.split(), position)
        worker.report(ended=True)
    except mv.MultiversoError as error:
        worker.report(error=f"{type(error).__name__}: {error}")
        raise
