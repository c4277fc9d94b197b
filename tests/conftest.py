"""Sets the environment variables that the tests need, and marks and orders the tests."""

import contextlib
import datetime
import fcntl
import importlib.util
import itertools
import os
import resource
import signal
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import pytest

import drawing
from drawing import HAS_OPEN_MPI

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

#: Ranks, and ranks per node, of the jobs of `make test` that no case draws.
CORE_LAYOUTS = {(1, 1), (2, 2), (3, 3), (4, 4), (4, 2)}

#: The files of tests/mpi in `make test`, which takes less than five minutes: those of the promises
#: in the README. The others test rarer options, faults and ends of jobs.
CORE_FILES = {
    *("test_consistency.py", "test_disagreements.py", "test_faults.py", "test_live.py"),
    *("test_nodes.py", "test_param_sync.py", "test_semantics.py"),
}

#: The files whose tests wait for deadlines and ends of processes most of the time: their processor
#: seconds are less than a quarter of their seconds.
WAITING_FILES = {
    *("test_disagreements.py", "test_elastic.py", "test_faults.py"),
    *("test_notices.py", "test_restarts.py"),
}

#: The variables with the number of files that compute at the same time, from the Makefile, and with
#: the name of the run, from pytest-xdist.
SLOTS, RUN = "MULTIVERSO_TEST_SLOTS", "PYTEST_XDIST_TESTRUNUID"

#: The files that take longest for their number of tests.
LONG_FILES = {
    *("test_docs.py", "test_install.py", "test_lasagne_example.py", "test_learn.py"),
    *("test_theano_cnn.py", "test_windows.py"),
}


def processor_seconds() -> float:
    """Return the processor time of this process and of its children that have ended."""
    usages = map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


def pytest_runtest_logstart() -> None:
    """Remember the processor time at the beginning of a test."""
    global started_at
    started_at = processor_seconds()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> None:
    """Write the processor time of a test to the JUnit file, for `summary.py`."""
    if call.when == "teardown":
        item.user_properties.append(("processor", round(processor_seconds() - started_at, 3)))


def pytest_configure() -> None:
    """Choose the seed of the drawn jobs (`case_jobs`); the processes of the run inherit it."""
    os.environ.setdefault(drawing.SEED, str(datetime.date.today().toordinal()))


def pytest_report_header() -> str:
    """Return the line that repeats the drawn jobs."""
    return f"{drawing.SEED}={os.environ[drawing.SEED]}"


# This hook must run before that of pytest, which evaluates -m.
@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what `make test` and `make test-all` leave out, and order the files.

    Long tests start first, so that none ends alone. A file that waits follows each of the first
    files that compute. Of the slow tests, Open MPI runs the drawn ones in `make test-all`.
    """
    for item in items:
        params = item.callspec.params if hasattr(item, "callspec") else {}
        # Tests without a parameter np run on 3 ranks.
        ranks, per_node = params.get("np", 3), params.get("per_node")
        is_core = item.path.parent != MPI_TESTS or item.path.name in CORE_FILES
        if not is_core or (per_node and (ranks, per_node) not in CORE_LAYOUTS):
            item.add_marker("slow")
        is_slow = item.get_closest_marker("slow") is not None
        if HAS_OPEN_MPI and is_slow and not item.get_closest_marker("drawn"):
            item.add_marker("release")

    def position(item: pytest.Item) -> tuple[bool, bool]:
        return item.path.name not in LONG_FILES, item.get_closest_marker("slow") is None

    items.sort(key=position)
    files = list(dict.fromkeys(item.path for item in items))
    waiting = [path for path in files if path.name in WAITING_FILES]
    computing = [path for path in files if path.name not in WAITING_FILES]
    pairs = itertools.zip_longest(computing, waiting)
    places = {path: place for place, path in enumerate(itertools.chain.from_iterable(pairs))}
    items.sort(key=lambda item: places[item.path])


@contextlib.contextmanager
def slot() -> Iterator[None]:
    """Wait for one of the slots of the test files that compute, as many as there are cores.

    Files that wait for deadlines take none, so that they run beside these, in processes of their
    own. A slot is the lock of a file, which also ends with the process.
    """
    folder = Path(tempfile.gettempdir(), f"slots-of-tests-{os.environ[RUN]}")
    folder.mkdir(exist_ok=True)
    with contextlib.ExitStack() as stack:
        paths = (folder / str(number) for number in range(int(os.environ[SLOTS])))
        files = [stack.enter_context(path.open("w")) for path in paths]
        while not any(map(is_locked_now, files)):
            time.sleep(0.01)
        yield


def is_locked_now(file: IO[str]) -> bool:
    """Return whether this process could lock the file."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Run a test in a slot, unless its file waits, or no other process runs tests."""
    waits = item.path.name in WAITING_FILES or SLOTS not in os.environ or RUN not in os.environ
    with contextlib.nullcontext() if waits else slot():
        return (yield)


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
