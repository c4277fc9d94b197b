"""Measure how soon the other ranks detect a fault.

    python benchmarks/faults.py
    python benchmarks/faults.py --repeat 20 --only killed_sync interrupted --json out.json
    python benchmarks/faults.py --table mpich.json openmpi.json     # as in docs/faults.md

Each sample is a separate job, on the MPI of this environment, in which one rank dies, is suspended,
interrupted or late, fails or makes a different call; or a process without MPI that uses a corrupt
checkpoint or a full disk. Its time is that from the fault until the last of the other ranks has its
Python exception or, if the job continues, completes its call. The bound is the promise of
docs/faults.md. The program returns 1 if a time exceeds its bound.

The case of a rank that dies during an add needs the library with failpoints, which `make test`
builds; without the library the case is skipped. fault_ranks.py describes the files that the
processes of a sample exchange.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from environment import describe
from fault_ranks import PEER_TIMEOUT, TIMEOUT
from mpirun_jobs import job_environment, progress
from multiverso._mpi.mpirun import mpirun_command
from options import deliver, make_parser, positive
from report import print_environment, print_table

_ROOT = Path(__file__).resolve().parents[1]
_RANKS_PROGRAM = Path(__file__).with_name("fault_ranks.py")
_FAILPOINTS = _ROOT / "build" / "cmake" / "libmultiverso_failpoints.so"
#: The words of a case's text that Markdown shows as code.
_CODE = re.compile(
    r"\b(\w+Error|OperationTimeout|KeyboardInterrupt|add_get|aggregate|shutdown|(?:peer_)?timeout)\b"
)
#: Seconds after which a job that has not finished its sample is killed.
_JOB_TIMEOUT = 40.0


@dataclass(frozen=True)
class Case:
    """A fault and the expected reaction.

    Attributes
    ----------
    name : str
        Name of the case.
    fault, seen : str
        The fault, and what the other ranks see, in words.
    kind : str
        The exception that they must get; "none" if they continue.
    bound : float or None
        Longest time in seconds; None if it is part of a call's own work.
    program : str
        The function of fault_ranks.py that the ranks run.
    sent_signal : signal.Signals or None
        Signal for the last rank, or for the first if it is SIGINT. None if the last rank causes the
        fault itself.
    deadline : float
        Seconds of a deadline that the program set, which are subtracted from the measured time.
    rank_per_node : bool
        Whether each rank is on its own (virtual) node.
    without_mpi : bool
        Whether the case is one process without MPI.
    """

    name: str
    fault: str
    seen: str
    kind: str
    bound: float | None
    program: str
    sent_signal: signal.Signals | None = None
    deadline: float = 0.0
    rank_per_node: bool = False
    without_mpi: bool = False

    @property
    def is_absence(self) -> bool:
        """Whether the fault is that a rank does not come, which happens at no certain time."""
        return self.deadline > 0 and self.sent_signal is None


_KILL, _STOP, _INT = signal.SIGKILL, signal.SIGSTOP, signal.SIGINT
_LOST, _LATE = "PeerLostError", "OperationTimeout"
_MISMATCH = "MismatchError"
CASES = [
    Case("killed_async", "SIGKILL, others in a barrier", _LOST, _LOST, 1, "barrier", _KILL),
    Case("killed_sync", "SIGKILL, others in rounds", _LOST, _LOST, 1, "rounds", _KILL),
    Case("continued", "SIGKILL, 'continue'", "the barrier completes", "none", 1, "survive", _KILL),
    Case("lock", "SIGKILL in an add", "the next add gets the lock", "none", 1, "lock"),
    Case("lost_node", "SIGKILL, alone on its node", _LOST, _LOST, 1, "barrier", _KILL,
         rank_per_node=True),
    Case("stopped", "SIGSTOP", f"{_LATE}, after peer_timeout", _LATE, 1, "stopped", _STOP,
         deadline=PEER_TIMEOUT),
    Case("late", "never arrives", f"{_LATE}, after timeout", _LATE, 1, "late", deadline=TIMEOUT),
    Case("no_init", "never calls mv.init", f"{_LATE}, after timeout, and exit", _LATE, 1, "no_init",
         deadline=TIMEOUT),
    Case("no_train", "never calls train()", f"{_LATE}, after timeout", _LATE, 1, "no_train",
         deadline=TIMEOUT),
    Case("exception", "unhandled exception", _LOST, _LOST, 1, "exception"),
    Case("interrupted", "Ctrl-C", "KeyboardInterrupt there, AbortedError", "AbortedError", 1,
         "barrier", _INT),
    Case("different_calls", "aggregate instead of add_get", _MISMATCH, _MISMATCH, 1,
         "different_calls"),
    Case("call_fewer", "shutdown instead of add_get", _MISMATCH, _MISMATCH, 1, "call_fewer"),
    Case("different_tables", "another table", _MISMATCH, _MISMATCH, 1, "different_tables"),
    Case("hostile_checkpoint", "a wrong bit in 64 MiB", "CheckpointCorruptError",
         "CheckpointCorruptError", None, "corrupt_checkpoint", without_mpi=True),
    Case("full_disk", "space for 16 of 64 MiB", "CheckpointIOError", "CheckpointIOError", None,
         "full_disk", without_mpi=True),
]  # fmt: skip


class _Job:
    """The processes of one sample, and the folder with their observations."""

    def __init__(self, case: Case, num_ranks: int) -> None:
        self._case_name = case.name
        self.num_ranks = 1 if case.without_mpi else num_ranks
        self.folder = Path(tempfile.mkdtemp(prefix="multiverso-faults-"))
        self._deadline = time.monotonic() + _JOB_TIMEOUT
        command = [sys.executable, str(_RANKS_PROGRAM), case.program, str(self.folder)]
        environ = dict(os.environ)
        if not case.without_mpi:
            command = mpirun_command(command, num_ranks, survive=True)
            environ = job_environment()
        if case.rank_per_node:
            environ["MULTIVERSO_RANKS_PER_NODE"] = "1"
        if case.name == "lock":
            environ["MULTIVERSO_LIBRARY"] = str(_FAILPOINTS)
        with (self.folder / "output").open("w") as output:
            self._process = subprocess.Popen(
                command,
                env=environ,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for file in self.folder.glob("pid-*"):
            with contextlib.suppress(ProcessLookupError):
                os.kill(json.loads(file.read_text()), signal.SIGKILL)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)

    def read(self, name: str) -> Any:
        """Wait for a file of the folder and return its content."""
        path = self.folder / name
        while not path.exists():
            if time.monotonic() > self._deadline:
                output = (self.folder / "output").read_text()
                raise SystemExit(
                    f"{self._case_name}: expected {name} in time; the job printed:\n{output}"
                )
            time.sleep(0.002)
        return json.loads(path.read_text("utf-8"))

    def signal(self, rank: int, signum: signal.Signals) -> None:
        """Send a signal to a rank."""
        os.kill(self.read(f"pid-{rank}"), signum)

    def create(self, name: str) -> None:
        """Create an empty file that the ranks wait for."""
        (self.folder / name).touch()

    def end(self) -> None:
        """Let the surviving ranks end, and wait briefly for them."""
        self.create("over")
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(2.0)


def measure(case: Case, num_ranks: int) -> list[dict[str, float]]:
    """Cause the fault once; return the seconds until each observed rank detected it.

    Raises
    ------
    SystemExit
        If a rank gets another exception, or none in time.
    """
    with _Job(case, num_ranks) as job:
        last = job.num_ranks - 1
        for rank in range(job.num_ranks):
            job.read(f"ready-{rank}")
        # The random delay lets the fault occur at any point of a rank's wait.
        time.sleep(0.1 + 0.1 * random.random())
        signal_time = time.monotonic()
        if case.sent_signal is not None:
            job.signal(0 if case.sent_signal == _INT else last, case.sent_signal)
        job.create("go")
        self_inflicted = case.sent_signal is None and not case.is_absence
        fault_time = job.read("fault") if self_inflicted else signal_time
        seen = []
        for rank in range(max(last, 1)):
            observed = job.read(f"seen-{rank}")
            expected = "KeyboardInterrupt" if case.sent_signal == _INT and rank == 0 else case.kind
            if observed["kind"] != expected:
                raise SystemExit(
                    f"{case.name}: rank {rank}: expected {expected}, received {observed['kind']}"
                )
            begin = observed["began"] if case.is_absence else fault_time
            if "took" in observed:
                seconds = observed["took"]
            else:
                seconds = observed["at"] - begin - case.deadline
            seen.append({"rank": rank, "seconds": seconds})
        job.end()
    return seen


def summarize(case: Case, samples: list[list[dict[str, float]]]) -> dict[str, Any]:
    """Return one case for JSON, with the time of the last rank in each sample."""
    seconds = [max(rank["seconds"] for rank in sample) for sample in samples]
    summary = {
        "name": case.name,
        "fault": case.fault,
        "seen": case.seen,
        "bound": case.bound,
        "seconds": seconds,
        "median": statistics.median(seconds),
        "max": max(seconds),
        "passed": case.bound is None or max(seconds) <= case.bound,
    }
    if case.sent_signal == _INT:  # rank 0, which was interrupted
        interrupted = [sample[0]["seconds"] for sample in samples]
        summary["here"] = {"median": statistics.median(interrupted), "max": max(interrupted)}
    return summary


def _time_text(seconds: float) -> str:
    return f"{seconds * 1e3:.3g} ms" if seconds < 1 else f"{seconds:.2f} s"


def _promise_text(case: dict[str, Any]) -> str:
    return "the call" if case["bound"] is None else f"{case['bound']:g} s"


def show(report: dict[str, Any]) -> None:
    """Print the report as a table."""
    rows = []
    for case in report["cases"]:
        verdict = "PASS" if case["passed"] else "above"
        times = [_time_text(case[name]) for name in ("median", "max")]
        rows.append([case["fault"], case["seen"], *times, _promise_text(case), verdict])
        if "here" in case:
            here = [_time_text(case["here"][name]) for name in ("median", "max")]
            rows.append(["", "KeyboardInterrupt alone", *here, "", ""])
    print_environment(report)
    title = (
        f"{report['ranks']} ranks: from the fault until the last rank detects it, "
        f"{report['repeat']} times"
    )
    columns = ("what goes wrong", "what the others get", "median", "maximum", "promised", "")
    print_table(title, columns, rows, texts=2)


def _rows(reports: list[dict[str, Any]], case: dict[str, Any]) -> list[str]:
    """Return the rows of a Markdown table for a case of the first report."""

    def times(summary: dict[str, Any]) -> str:
        return f"{_time_text(summary['median'])}, {_time_text(summary['max'])}"

    found = [
        next((other for other in report["cases"] if other["name"] == case["name"]), None)
        for report in reports
    ]
    cells = [times(summary) if summary else "" for summary in found]
    rows = [f"| {case['fault']} | {case['seen']} | {_promise_text(case)} | {' | '.join(cells)} |"]
    if "here" in case:
        cells = [times(summary["here"]) if summary else "" for summary in found]
        rows.append(f"| | KeyboardInterrupt alone | | {' | '.join(cells)} |")
    return rows


def markdown(reports: list[dict[str, Any]]) -> str:
    """Return the reports side by side as a Markdown table: median and maximum of each case."""
    mpis = [report["environment"]["mpi"].replace(" Version:", "") for report in reports]
    lines = [f"| what goes wrong | what the others get | promised | {' | '.join(mpis)} |"]
    lines.append("|---" * (3 + len(reports)) + "|")
    for case in reports[0]["cases"]:
        lines += _rows(reports, case)
    return _CODE.sub(r"`\1`", "\n".join(lines)) + "\n"


def _mpi_module() -> Any:
    """Return mpi4py.MPI for its version, without initializing MPI."""
    import mpi4py

    mpi4py.rc.initialize = False
    from mpi4py import MPI

    return MPI


def _select_cases(only: list[str] | None) -> tuple[list[Case], list[str]]:
    """Return the selected cases that can run, and notes about the others."""
    cases = [case for case in CASES if only is None or case.name in only]
    if _FAILPOINTS.exists():
        return cases, []
    note = f"the case 'lock' needs {_FAILPOINTS}, which does not exist"
    return [case for case in cases if case.name != "lock"], [note]


def main() -> int:
    """Run the benchmark; return 1 if a time exceeds its bound."""
    parser = make_parser(__doc__)
    names = [case.name for case in CASES]
    parser.add_argument("--only", nargs="+", choices=names, metavar="CASE", help=", ".join(names))
    parser.add_argument("--repeat", type=positive(int), default=10, help="jobs per case (10)")
    parser.add_argument("--ranks", type=int, default=4, help="per job (4)")
    parser.add_argument(
        "--table", nargs="+", type=Path, metavar="JSON", help="print reports as Markdown instead"
    )
    options = parser.parse_args()
    if options.ranks < 2:
        parser.error(f"argument --ranks: expected an integer >= 2, received {options.ranks}")
    if options.table:
        reports = [json.loads(path.read_text()) for path in options.table]
        sys.stdout.write(markdown(reports))
        return 0
    cases, notes = _select_cases(options.only)
    samples: dict[str, list[list[dict[str, float]]]] = {case.name: [] for case in cases}
    # The cases alternate, so that other load on the machine affects all of them.
    for case in progress(cases * options.repeat, is_master=not options.silent):
        samples[case.name].append(measure(case, options.ranks))
    report = {
        "environment": describe(_mpi_module()),
        "notes": notes,
        "ranks": options.ranks,
        "repeat": options.repeat,
        "cases": [summarize(case, samples[case.name]) for case in cases],
    }
    deliver(report, options, show)
    return 0 if all(case["passed"] for case in report["cases"]) else 1


if __name__ == "__main__":
    sys.exit(main())
