"""Cases that every rank runs, each in a session of its own, and what they are written with.

Every rank reports that it has begun a case, so that a hang has a name, and then "ok" or its
traceback. What happens to the other ranks in a case that fails is reported too: they are told when
the failing rank leaves its session.
"""

import os
import traceback

import numpy as np
import worker

import multiverso as mv
from multiverso import api

#: Seconds that a call may wait: a case that hangs shall fail long before the job is killed.
TIMEOUT = 40.0

#: Of what is random; printed when a case fails.
SEED = int(os.environ.get("MULTIVERSO_TEST_SEED", "20261121"))

CASES = {}


def registrar(cases):
    """Return a decorator for functions that are to be `cases`, in the order they are written.

    Parameters
    ----------
    cases : dict of str to function
        Where they go, by name.

    Returns
    -------
    callable
        ``@case(**options)``: what the session of that case is opened with.

    """

    def case(**options):
        def register(function):
            function.options = options
            cases[function.__name__] = function
            return function

        return register

    return case


def case(function):
    """Make a function one of `CASES`, in a session without options."""
    return registrar(CASES)()(function)


def repeats(number):
    """Return how often a case repeats what it does ``number`` times on one node.

    On several nodes, where each call is a message, it is a tenth.
    """
    return number if api.current_session().num_nodes == 1 else number // 10


def equal(actual, expected):
    """Compare arrays or anything else exactly."""
    np.testing.assert_array_equal(actual, expected)


def raises(error, call, *texts):
    """Return the error that `call` has to raise, with `texts` in its message."""
    try:
        call()
    except error as caught:
        for text in texts:
            if text not in str(caught):
                raise AssertionError(f"expected {text!r} in: {caught}") from caught
        return caught
    raise AssertionError(f"expected {error.__name__}, but nothing was raised")


def everywhere(value, length=64):
    """Return the text of every rank, in rank order; collective."""
    data = np.frombuffer(str(value).encode().ljust(length, b"\0"), np.uint8)
    table = mv.MatrixTableHandler(mv.size(), length, dtype="int32")
    table.add([data], [mv.rank()])
    mv.barrier()
    return [bytes(row.astype(np.uint8)).rstrip(b"\0").decode() for row in table.get()]


def run_all(cases=CASES):
    """Run all cases, in the order they are written.

    Parameters
    ----------
    cases : dict of str to function, optional
        The cases by name. One that has `options` gets a session with them.

    """
    worker.begin()
    worker.report(seed=SEED)
    outcomes = {}
    for name, function in cases.items():
        worker.report(outcomes={**outcomes, name: "began, and did not end"})
        try:
            session = mv.init(timeout=TIMEOUT, **getattr(function, "options", {}))
            worker.report(node=session.node, num_nodes=session.num_nodes, local=session.local_size)
            function()  # some end the session and open others
            mv.barrier()
            mv.shutdown()
            outcomes[name] = "ok"
        except Exception as error:
            outcomes[name] = traceback.format_exc()
            if mv.is_initialized():
                api.current_session().leave(f"{name} failed: {error}")
        worker.report(outcomes=outcomes)
