"""Faults of ranks, with real processes: a job for each row of `programs/fault_rows.py`.

Rows that mostly wait start together, a few at a time, when the first of them is tested.
"""

import concurrent.futures
import os
import re

import failpoints
import pytest
from fault_rows import ROWS
from requirements import is_installed

import launch

#: The jobs that wait at a time.
AT_A_TIME = 3


#: The rows of `make test`.
CORE = {"killed", "survived", "late", "suspended", "exception", "interrupt on nodes"}
#: The rows of process groups of PyTorch that `make test-all` runs.
TORCH = {"torch killed", "torch late"}


def marks_of(name):
    """Return the marks of a row: without MPI, its job is the same in each environment."""
    if ROWS[name].what.startswith("torch_"):
        return [pytest.mark.frameworks, *[pytest.mark.release][name in TORCH :]]
    marks = [] if name in CORE else [pytest.mark.slow]
    return [*marks, pytest.mark.one_mpi] if ROWS[name].launcher == "run" else marks


def why_skipped(row):
    """Return why a row cannot run here, or an empty string."""
    if row.needs_failpoints and not failpoints.LIBRARY.exists():
        return "needs the library with failpoints"
    if row.needs_torch and not is_installed("torch"):
        return "needs PyTorch"
    if row.needs_mpi and os.environ.get(launch.NO_MPI):
        return "is about MPI"
    return ""


class Runner:
    """Runs the jobs of rows; those that wait run beside the others, in the order of the tests."""

    def __init__(self, folder, names):
        self.folder = folder
        self.pool = concurrent.futures.ThreadPoolExecutor(AT_A_TIME)
        waiting = [name for name in names if ROWS[name].waits and not why_skipped(ROWS[name])]
        self.results = {name: self.pool.submit(self.run, name) for name in waiting}

    def result(self, name):
        """Return the result of a row's job, and the process ids of its ranks."""
        return self.results[name].result() if name in self.results else self.run(name)

    @launch.again_where_mpi_is_stuck
    def run(self, name):
        """Run the job of a row."""
        row = ROWS[name]
        folder = self.folder / re.sub(r"\W", "-", name)
        folder.mkdir(exist_ok=True)
        options = {"np": row.np, "survives": row.launcher == "survives", **row.environ}
        if row.launcher == "run":
            options["mpirun"] = launch.run_command(folder, *row.options)
        elif row.launcher == "torchrun":
            options["mpirun"] = launch.torchrun_command(folder)
        if row.per_node:
            options |= launch.on_nodes(row.np, row.per_node)
        if row.needs_failpoints:
            options |= failpoints.environment(factor=row.factor)
        with launch.Job("faults.py", name, **options) as job:
            return job.finish(), job.pids()


@pytest.fixture(scope="module")
def runner(request, tmp_path_factory):
    items = [item for item in request.session.items if item.module is request.module]
    names = [item.callspec.params["name"] for item in items if "runner" in item.fixturenames]
    runs = Runner(tmp_path_factory.mktemp("faults"), names)
    yield runs
    runs.pool.shutdown(cancel_futures=True)


def check_error(found, kinds, words, pids, victims):
    """Check the class and the message of an error."""
    kind, message = found or ("no error", "")
    assert kind in kinds.split(","), f"{kind}: {message}"
    rank = rf"rank ({'|'.join(map(str, victims))})\b"
    process = "|".join(rf"rank {rank} (on \S+ )?\(process {pids[rank]}\)" for rank in victims)
    for text in words:
        pattern = text.replace("VICTIM", rank).replace("PROCESS", f"({process})")
        assert re.search(pattern, message), f"{pattern} is not in: {message}"


def check_attributes(about, message, row, host):
    """Check what an error tells about the rank that has caused it."""
    assert about["rank"] in row.victims or row.what == "crosses", message
    assert about["host"] is None or about["host"].startswith(host), about
    assert about["silent_for"] is None or about["silent_for"] >= 0
    if row.what in ("late", "kill"):
        last_call = (about["last_call"] or "").partition(",")[0]
        assert all(known in message for known in (about["host"], last_call)), (about, message)
        assert about["last_checkpoint"] in message


@pytest.mark.parametrize("name", [pytest.param(name, marks=marks_of(name)) for name in ROWS])
def test_fault(name, runner):
    row = ROWS[name]
    if reason := why_skipped(row):
        pytest.skip(reason)
    result, pids = runner.result(name)
    result.check_clean()
    if row.code is not None:
        assert result.returncode == row.code or (row.code < 0 != result.returncode), result.output
    for pattern in row.printed:
        assert re.search(pattern, result.output), f"{pattern} is not in:\n{result.output}"
    if row.what.startswith("torch_"):
        # An abort or a segmentation fault at the end of a rank has no other trace here.
        assert not re.search("Fatal Python error|terminate called", result.output), result.output
    if not row.needs_mpi:
        assert "at its end for rank" not in result.output, result.output
    for rank in sorted(set(range(row.np)) - set(row.victims)) if row.kind != "" else ():
        report = result.reports.get(rank, {})
        assert report.get("ended"), f"rank {rank} did not end: {report}\n{result.output}"
        for call in row.when:
            if row.kind is None:
                assert report[call] is None, f"rank {rank}, {call}: {report[call]}"
                assert report.get(f"{call} afterwards") is None, report
                continue
            check_error(report[call], row.kind, row.words, pids, row.victims)
            if report[call][0] in ("PeerLostError", "OperationTimeout"):
                check_attributes(report[f"{call}_about"], report[call][1], row, report["host"])
    for rank in row.victims if row.own else ():
        report = result.reports[rank]
        for call in row.when:
            for outcome in {call, f"{call} again"} & report.keys():
                check_error(report[outcome], row.own, row.own_words, pids, row.victims)
            assert report.get(call) or report.get(f"{call} again"), report
