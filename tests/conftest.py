"""Sets the environment variables that the tests need, and marks and orders the tests."""

import importlib.util
import os
import signal
import sys
from pathlib import Path

import pytest

HAS_OPEN_MPI = (Path(sys.executable).parent / "ompi_info").exists()
if HAS_OPEN_MPI:
    import launch

    # Jobs need these settings, and so do programs that start jobs.
    os.environ.update(launch.environment())

if importlib.util.find_spec("theano"):
    # Theano 1.0.5 searches for a BLAS with distutils, which Python no longer has.
    os.environ.setdefault("THEANO_FLAGS", "blas.ldflags=,floatX=float32")

# A shell starts background jobs so that they ignore Ctrl-C, and so would the programs of the tests.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Where ranks outnumber cores, threads of OpenMP that poll keep the others from working.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")

MPI_TESTS = Path(__file__).parent / "mpi"

#: Ranks, and ranks per node, of the jobs of `make test`: on one node, and two nodes of two ranks.
CORE_LAYOUTS = {(1, 1), (2, 2), (3, 3), (4, 4), (4, 2)}

#: The jobs of `case_jobs.py` that `make test-all` runs with Open MPI and not with MPICH, unless
#: their outcome is the same with any MPI.
THREE_NODES = "3_ranks_1_per_node"

#: The files of tests/mpi in `make test`, which takes less than five minutes: those of the promises
#: in the README. The others test rarer options, faults and ends of jobs.
CORE_FILES = {
    *("test_consistency.py", "test_disagreements.py", "test_live.py", "test_losses.py"),
    *("test_nodes.py", "test_param_sync.py", "test_semantics.py"),
}

#: The files that take longest for their number of tests.
LONG_FILES = {
    *("test_docs.py", "test_install.py", "test_lasagne_example.py", "test_learn.py"),
    *("test_theano_cnn.py", "test_windows.py"),
}


# This hook must run before that of pytest, which evaluates -m.
@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what `make test` and `make test-all` leave out, and start long tests first.

    So no long test ends alone. Of the slow tests, `make test-all` runs those of `THREE_NODES` with
    Open MPI and the others with MPICH.
    """
    for item in items:
        params = item.callspec.params if hasattr(item, "callspec") else {}
        # Tests without a parameter np run on 3 ranks.
        ranks, per_node = params.get("np", 3), params.get("per_node")
        is_core = item.path.parent != MPI_TESTS or item.path.name in CORE_FILES
        if not is_core or (per_node and (ranks, per_node) not in CORE_LAYOUTS):
            item.add_marker("slow")
        needs_open_mpi = params.get("job") == THREE_NODES and not item.get_closest_marker("one_mpi")
        if item.get_closest_marker("slow") and HAS_OPEN_MPI != needs_open_mpi:
            item.add_marker("release")

    def position(item: pytest.Item) -> tuple[bool, bool]:
        return item.path.name not in LONG_FILES, item.get_closest_marker("slow") is None

    items.sort(key=position)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print how many calls each configuration has made and left out (`tests/configurations.py`)."""
    totals: dict[str, list[int]] = {}
    for report in terminalreporter.getreports("passed"):
        noted = dict(report.user_properties)
        if report.when == "call" and "configuration" in noted:
            total = totals.setdefault(str(noted["configuration"]), [0, 0])
            total[0] += int(str(noted["calls"]))
            total[1] += sum(noted["skipped"].values())  # type: ignore[attr-defined]
    for name, (calls, skipped) in totals.items():
        terminalreporter.write_line(f"configuration {name}: {calls} calls, {skipped} left out")
