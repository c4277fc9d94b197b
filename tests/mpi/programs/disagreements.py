"""Programs whose ranks make different calls in sync mode, each in its own session.

Every rank runs all `PROGRAMS` and reports the first error of each.
"""

from typing import NamedTuple

import numpy as np
import worker
from cases import TIMEOUT

import multiverso as mv
from multiverso import api

#: Rounds of the table before the calls differ.
ROUNDS = 5

SHAPE = (10_000, 4)

LAST = worker.SIZE - 1


#: The round in which the calls differ.
_ROUND = f"round {ROUNDS} of table 'weights'"
_CREATION = "called the creation of a table"
_END = "called shutdown (call number 10 on the table); a worker with fewer batches calls finish"


class Program(NamedTuple):
    """The calls of the ranks after some rounds; all ranks that get no error then call `shutdown`.

    The calls of the last rank and those of each other rank are names, separated by commas. `texts`
    are parts of the message of every rank's MismatchError; without any, no error is expected. With
    `server`, rank 0 is only a server, which makes only calls that concern all ranks. The staleness
    is that of the session; 0 is sync mode.
    """

    last_rank: str
    others: str
    texts: tuple[str, ...] = ()
    server: bool = False
    staleness: int = 0

    @property
    def name(self):
        """The name of the program."""
        staleness = f", staleness {self.staleness}" if self.staleness else ""
        return f"{self.last_rank}, others {self.others}{staleness}{', server' * self.server}"


_DIFFERENT = [
    Program(last_rank, others, (_ROUND, f"called {first}", f"called {second}"))
    for last_rank, others, first, second in (
        ("add", "get", "add", "get"),
        ("get", "add,get", "get", "add"),
        ("add_get", "get", "add", "get"),
        ("add_rows", "get_rows", "add", "get"),
        ("get,add", "add_get", "get", "add"),
        ("aggregate", "add_get", "aggregate", "add_get"),
        ("add_get", "aggregate", "aggregate", "add_get"),
    )
]

#: The last rank lacks a call, which the error names as it is listed here.
_EXTRA_CALLS = [
    Program(then, f"{extra},{then}", (_ROUND, text, f"called {named}"))
    for then, text in (("barrier", "called barrier"), ("create", _CREATION), ("shutdown", _END))
    for extra, named in (("add", "add"), ("add,get", "get"), ("add_get", "add"),
                         ("add_rows", "add"), ("get", "get"))
    if (extra, then) != ("get", "shutdown")  # a trailing get is not an error
]  # fmt: skip

_AGGREGATES = [
    Program("aggregate", "barrier", ("called aggregate", "called barrier")),
    Program("barrier", "aggregate_large", ("called aggregate", "called barrier")),
    Program("create", "aggregate", ("called aggregate", _CREATION)),
    Program("nothing", "aggregate", ("called aggregate", "called shutdown")),
]

PROGRAMS = {
    program.name: program
    for program in (
        *_DIFFERENT,
        *_EXTRA_CALLS,
        *_AGGREGATES,
        Program("aggregate", "aggregate_longer", ("of 10 float64", "of 11 float64")),
        Program("aggregate_large", "aggregate", ("of 1000000 float64", "of 10 float64")),
        Program("aggregate_empty", "aggregate", ("of 0 float64", "of 10 float64")),
        Program("aggregate", "aggregate_integers", ("of 10 float64", "of 10 int64")),
        *(
            program._replace(server=True)
            for program in (*_DIFFERENT[-2:], *_AGGREGATES, _EXTRA_CALLS[0], _EXTRA_CALLS[-1])
        ),
        Program(
            "barrier", "add,add", ("of table 'weights'", "called add", "called barrier"), False, 1
        ),
        Program("nothing", "add_get,add_get", ("called add_get", "called shutdown"), False, 1),
        Program("create", "add,add,get", ("called add", _CREATION), False, 1),
        Program("get", "nothing"),
        Program("finish", "add_get,add_get,get"),
        Program("finish,barrier", "add,add,barrier,get"),
        Program("finish,create", "add_get,create"),
        Program("add,finish", "add,finish"),
        Program("barrier", "add,barrier", staleness=1),
    )
}


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
