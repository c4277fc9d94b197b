"""Cases that every rank runs, each in its own session, and the helpers to write them.

A job may run under a configuration (`tests/configurations.py`), whose options the sessions of the
cases have. A case that this refuses is skipped with the sentence of the error.

Every rank reports that it has begun a case, so that the report names a case that hangs, and then
"ok" or its traceback. If a case fails on one rank, that rank leaves its session, which ends the
calls of the other ranks with errors, and these ranks report their tracebacks too.

A job may run its cases in several layouts one after the other: in sessions of its first rank alone,
of its first two ranks, and so on, on one node or on several. This saves the slow start of a
framework. The test lists the layouts (`LAYOUTS`), and the outcomes are named "LAYOUT: case".
"""

import os
import sys
import traceback
from pathlib import Path

import numpy as np
import worker

import multiverso as mv
from multiverso import api
from multiverso._native.supported import refusal_of, refusals

#: Programs that import this module may use the models and helpers of these folders.
TESTS = Path(__file__).parents[2]
sys.path += [str(TESTS), str(TESTS / "unit" / "support")]

import configurations  # noqa: E402

#: Seconds that a call may wait. A hanging case fails long before the job is killed.
TIMEOUT = 40.0

#: The seed of all random choices, printed when a case fails.
SEED = int(os.environ.get("MULTIVERSO_TEST_SEED", "20261121"))

#: Ranks and ranks per node, as in "3/2". If unset, the whole job is the only layout.
LAYOUTS = os.environ.get("MULTIVERSO_TEST_LAYOUTS", "").split()

#: The cases that a test selects, one a line; if unset, all cases run.
SELECTED = os.environ.get("MULTIVERSO_TEST_CASES", "").splitlines()

#: Seconds that a rank may wait for the ranks of a layout in which it takes no part.
LAYOUT_TIMEOUT = 400.0

_layout = {}  # "comm": the communicator of the sessions of the current layout

CASES = {}


def registrar(cases):
    """Return a decorator that adds functions to `cases` in the order in which they are written.

    Parameters
    ----------
    cases : dict of str to function
        The registered functions, by name.

    Returns
    -------
    callable
        ``@case(**options)``, with the options of the case's session.

    """

    def case(**options):
        def register(function):
            function.options = options
            cases[function.__name__] = function
            return function

        return register

    return case


def case(function):
    """Register a function in `CASES` as a case whose session has no options."""
    return registrar(CASES)()(function)


def repeats(count):
    """Return how often a case repeats an action: `count` times on one node.

    On several nodes, where each call is a message, the count is divided by ten.
    """
    return count if api.current_session().num_nodes == 1 else count // 10


def equal(actual, expected):
    """Check that two arrays or other values are exactly equal."""
    # The function that explains a difference takes several times as long to find none.
    if not np.array_equal(actual, expected):
        np.testing.assert_array_equal(actual, expected)


def raises(error, call, *texts):
    """Return the error that `call` must raise, whose message must contain `texts`."""
    try:
        call()
    except error as caught:
        for text in texts:
            if text not in str(caught):
                raise AssertionError(f"expected {text!r} in: {caught}") from caught
        return caught
    raise AssertionError(f"expected {error.__name__}, but nothing was raised")


def goes(*features):
    """Return whether features go together in the current session; the others are left out."""
    return refusal_of(*features, *api.current_session().features()) is None


def texts_of_ranks(text, length=64):
    """Return the texts, of at most `length` bytes, of all ranks in rank order. Collective."""
    data = np.frombuffer(text.encode().ljust(length, b"\0"), np.uint8)
    table = mv.MatrixTableHandler(mv.size(), length, dtype="int32")
    table.add([data], [mv.rank()])
    mv.barrier()
    return [bytes(row.astype(np.uint8)).rstrip(b"\0").decode() for row in table.get()]


def open_session(**options):
    """Open a session in the current layout and configuration, and report this rank's node."""
    given = {"timeout": TIMEOUT, "comm": _layout.get("comm"), **options}
    session = configurations.open_session(**given)
    worker.report(node=session.node, num_nodes=session.num_nodes, local=session.local_size)


def run_all(cases=CASES):
    """Run all cases, in the order in which they are written, in each layout.

    Parameters
    ----------
    cases : dict of str to function, optional
        The cases by name. A case with `options` gets a session with them.

    """
    worker.begin()
    worker.report(seed=SEED)
    outcomes = {}
    if not LAYOUTS:
        _run(cases, "", outcomes)
        return
    from mpi4py import MPI

    world = MPI.COMM_WORLD
    for layout in LAYOUTS:
        ranks, per_node = map(int, layout.split("/"))
        inside = world.rank < ranks
        _layout["comm"] = world.Split(0 if inside else MPI.UNDEFINED)
        os.environ["MULTIVERSO_RANKS_PER_NODE"] = str(per_node)
        if inside:
            _run(cases, f"{layout}: ", outcomes)
        # The ranks sleep here. Waiting in MPI would take a core from the ranks that still run.
        worker.meet(f"end of {ranks} ranks, {per_node} a node", LAYOUT_TIMEOUT)


def _run(cases, prefix, outcomes):
    """Run the selected cases in one layout and add their outcomes."""
    for case_name, function in cases.items():
        if SELECTED and case_name not in SELECTED:
            continue
        name = prefix + case_name
        worker.report(outcomes={**outcomes, name: "began, and did not end"})
        try:
            open_session(**getattr(function, "options", {}))
            function()  # some cases end the session and open others
            mv.barrier()
            mv.shutdown()
            outcomes[name] = "ok"
        except Exception as error:
            refusal = next((one for one in refusals() if one.sentence in str(error)), None)
            is_refused = refusal is not None and configurations.VARIABLE in os.environ
            outcomes[name] = traceback.format_exc()
            if is_refused:
                outcomes[name] = f"skipped: {refusal.sentence}"
                mv.shutdown()
            elif mv.is_initialized():
                api.current_session().leave_with(f"{name} failed: {error}")
        worker.report(outcomes=outcomes)
