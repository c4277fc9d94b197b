"""Programs whose ranks make different calls in sync mode, each in its own session.

Every rank runs all `PROGRAMS` and reports the first error of each.
"""

from dataclasses import dataclass

import numpy as np
import worker
from cases import TIMEOUT

import multiverso as mv
from multiverso import api

#: Rounds of the table before the calls differ.
ROUNDS = 5

SHAPE = (10_000, 4)

LAST = worker.SIZE - 1


@dataclass(frozen=True)
class Program:
    """The calls of the ranks after some rounds; all ranks that get no error then call `shutdown`.

    Attributes
    ----------
    last_rank, others : str
        The calls of the last rank, and of each other rank: names, separated by commas.
    texts : tuple of str
        Parts of the message of every rank's MismatchError; empty if no error is expected.
    staleness : int
        The staleness of the session; 0 is sync mode.
    server : bool
        Whether rank 0 is only a server, which makes only calls that concern all ranks.

    """

    last_rank: str
    others: str
    texts: tuple[str, ...] = ()
    staleness: int = 0
    server: bool = False

    @property
    def name(self):
        """The name of the program."""
        staleness = f", staleness {self.staleness}" if self.staleness else ""
        return f"{self.last_rank}, others {self.others}{staleness}{', server' * self.server}"


_ROUND = f"round {ROUNDS} of table 'weights'"

#: The call that the error names for a rank whose extra calls are these.
_NAMED_CALL = {"add": "add", "add,get": "get", "add_get": "add", "add_rows": "add", "get": "get"}

_DIFFERENT = [
    Program(last_rank, others, (_ROUND, *texts))
    for last_rank, others, *texts in (
        ("add", "get", "called add", "called get"),
        ("get", "add,get", "called get", "called add"),
        ("add_get", "get", "called add", "called get"),
        ("add_rows", "get_rows", "called add", "called get"),
        ("get,add", "add_get", "called get", "called add"),
        ("aggregate", "add_get", "called aggregate", "called add_get"),
        ("add_get", "aggregate", "called aggregate", "called add_get"),
    )
]

_EXTRA_CALLS = [
    Program(then, f"{extra},{then}", (_ROUND, f"called {name}", f"called {named_call}"))
    for then, name in (
        ("barrier", "barrier"),
        ("create", "the creation of a table"),
        (
            "shutdown",
            "shutdown (call number 10 on the table); a worker with fewer batches calls finish",
        ),
    )
    for extra, named_call in _NAMED_CALL.items()
    if (extra, then) != ("get", "shutdown")  # a trailing get is not an error
]

_NOT_ALL_AGGREGATE = [
    Program("aggregate", "barrier", ("called aggregate", "called barrier")),
    Program("barrier", "aggregate_large", ("called aggregate", "called barrier")),
    Program("create", "aggregate", ("called aggregate", "called the creation of a table")),
    Program("nothing", "aggregate", ("called aggregate", "called shutdown")),
]

_AGGREGATED_ARRAYS = [
    Program("aggregate", "aggregate_longer", ("of 10 float64", "of 11 float64")),
    Program("aggregate_large", "aggregate", ("of 1000000 float64", "of 10 float64")),
    Program("aggregate_empty", "aggregate", ("of 0 float64", "of 10 float64")),
    Program("aggregate", "aggregate_integers", ("of 10 float64", "of 10 int64")),
]

_WITH_A_SERVER = [
    Program(program.last_rank, program.others, program.texts, server=True)
    for program in [*_DIFFERENT[-2:], *_NOT_ALL_AGGREGATE, _EXTRA_CALLS[0], _EXTRA_CALLS[-1]]
]

_STALE = [
    Program("barrier", "add,add", ("of table 'weights'", "called add", "called barrier"), 1),
    Program("nothing", "add_get,add_get", ("called add_get", "called shutdown"), 1),
    Program("create", "add,add,get", ("called add", "called the creation of a table"), 1),
]

_WITHOUT_ERROR = [
    Program("get", "nothing"),
    Program("finish", "add_get,add_get,get"),
    Program("finish,barrier", "add,add,barrier,get"),
    Program("finish,create", "add_get,create"),
    Program("add,finish", "add,finish"),
    Program("barrier", "add,barrier", staleness=1),
]

PROGRAMS = {
    program.name: program
    for program in (
        *_DIFFERENT, *_EXTRA_CALLS, *_NOT_ALL_AGGREGATE, *_AGGREGATED_ARRAYS,
        *_WITH_A_SERVER, *_STALE, *_WITHOUT_ERROR,
    )
}  # fmt: skip


def _calls(table):
    """Return the calls by name."""
    ones = np.ones(SHAPE, np.float32)
    return {
        "add": lambda: table.add(ones),
        "add_rows": lambda: table.add([[1, 1, 1, 1]], [3]),
        "get": table.get,
        "get_rows": lambda: table.get([3, 3]),
        "add_get": lambda: table.add_get(ones),
        "aggregate": lambda: mv.aggregate(np.ones(10)),
        "aggregate_longer": lambda: mv.aggregate(np.ones(11)),
        "aggregate_empty": lambda: mv.aggregate(np.ones(0)),
        "aggregate_large": lambda: mv.aggregate(np.ones(10**6)),
        "aggregate_integers": lambda: mv.aggregate(np.ones(10, np.int64)),
        "barrier": mv.barrier,
        "create": lambda: mv.ArrayTableHandler(7, name="later"),
        "finish": mv.finish,
        "nothing": lambda: None,
        "shutdown": mv.shutdown,
    }


def _run(program):
    """Run a program; return this rank's first error as [type, message, call], or None."""
    role = "server" if program.server and worker.RANK == 0 else "all"
    mv.init(staleness=program.staleness, role=role, timeout=TIMEOUT)
    table = mv.MatrixTableHandler(*SHAPE, name="weights")
    names = (program.last_rank if worker.RANK == LAST else program.others).split(",")
    if mv.worker_id() < 0:
        names = [name for name in names if name in ("barrier", "create")]
    else:
        # A slow rank may learn during its last round that the others already disagree.
        names = ["add_get"] * ROUNDS + names
    calls = _calls(table)
    try:
        for name in [*names, "shutdown"]:
            if mv.is_initialized():
                calls[name]()
    except Exception as error:
        if mv.is_initialized():
            api.current_session().leave_with(f"{program.name} is over")
        return [type(error).__name__, str(error), name]
    return None


if __name__ == "__main__":
    worker.begin()
    outcomes = {}
    for name, program in PROGRAMS.items():
        print(f"rank {worker.RANK}: {name}", flush=True)  # noqa: T201 (the test shows it)
        outcomes[name] = _run(program)
        worker.report(outcomes=outcomes)
