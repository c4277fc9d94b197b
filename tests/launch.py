"""Starts MPI jobs for tests, and detects what a job leaves behind.

Each job has its own process group, a timeout, and a folder, which its environment names. In
the folder, rank R writes ``pid-R`` when it begins, ``report-R.json`` with results, and empty files
``NAME-R`` as announcements; the test announces with ``NAME-test`` (`programs/worker.py` is the
ranks' side). When the timeout passes, SIGUSR1 makes every rank print the stacks of its threads, and
the whole job is killed. `Result.check_clean` fails if the job left a process, a shared memory
object or a temporary file of Multiverso. If the test run itself is killed, `job_watchdog.py` kills
the job. The jobs use the MPI of the environment that runs the tests (`multiverso._mpi.mpirun`).
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import job_watchdog
import multiverso
from multiverso._mpi import mpirun as launcher

if TYPE_CHECKING:
    from typing import Self

PROGRAMS = Path(__file__).parent / "mpi" / "programs"

#: A launcher of jobs on one machine without MPI, with the command line of an mpirun.
WITHOUT_MPI = Path(__file__).parent / "without_mpi"

#: If this variable is set, jobs start without MPI unless a test names a launcher, and tests with
#: ranks that act as several nodes are skipped.
NO_MPI = "MULTIVERSO_TEST_NO_MPI"

needs_mpi = pytest.mark.skipif(bool(os.environ.get(NO_MPI)), reason="is about MPI")

#: Seconds that a job may take: a multiple of the time of any job on a busy machine.
JOB_TIMEOUT = 150.0

#: Seconds within which an ended job must be cleaned up, and within which a stuck one may recover.
GRACE = 20.0

#: A rank logs this text about an MPI call that should have returned at once. Few jobs recover.
STUCK_IN_MPI = b"has been in a call of MPI for"

#: The variable with the folder of the job. It also marks all processes of the job.
MARK = "MULTIVERSO_TEST_JOB"

#: Settings for Open MPI with several ranks per core on one machine.
OPEN_MPI = {**launcher.ONE_MACHINE, "PRTE_MCA_hwloc_default_binding_policy": "none"}

#: Settings for ranks with a framework: a single thread, not one per core, and few log messages.
ONE_THREAD = {
    "OMP_NUM_THREADS": "1",
    "TF_CPP_MIN_LOG_LEVEL": "3",
    "TF_NUM_INTEROP_THREADS": "1",
    "TF_NUM_INTRAOP_THREADS": "1",
}


#: The rank as which the harness knows the process of ``multiverso run``.
RUNNER = 999


class MpiStuckError(Exception):
    """A job did not end after one of its ranks had logged `STUCK_IN_MPI`."""


@dataclass
class Result:
    """The result of a job.

    Attributes
    ----------
    returncode : int
        The exit code of mpirun; negative if a signal ended it.
    output : str
        The output of mpirun and all ranks.
    reports : dict of int to dict
        The report of each rank that has written one.
    timed_out : bool
        Whether the job was killed because its timeout passed.
    leftovers : list of str
        The processes, files and shared memory objects that the job left behind.

    """

    returncode: int
    output: str
    reports: dict[int, dict[str, object]] = field(default_factory=dict)
    timed_out: bool = False
    leftovers: list[str] = field(default_factory=list)

    def check_clean(self) -> Self:
        """Raise AssertionError if the job hung, left anything behind or lacks a rank's death."""
        if self.timed_out or self.leftovers:
            how = "timed out" if self.timed_out else "ended"
            msg = f"the job {how} and left {self.leftovers}; it printed:\n{self.output}"
            raise AssertionError(msg)
        alive = [rank for rank, report in self.reports.items() if report.get("not_killed")]
        if alive:
            msg = f"nothing killed ranks {alive}; the job printed:\n{self.output}"
            raise AssertionError(msg)
        return self

    def check(self) -> Self:
        """Raise AssertionError if the job hung, left anything behind or failed."""
        self.check_clean()
        if self.returncode != 0:
            msg = f"mpirun exited with {self.returncode} and printed:\n{self.output}"
            raise AssertionError(msg)
        return self

    def errors(self, *ranks: int, name: str = "error") -> list[list[str]]:
        """Return [type, message] of the error that each of `ranks` reported as `name`."""
        missing = [rank for rank in ranks if not self.reports.get(rank, {}).get(name)]
        if missing:
            msg = f"ranks {missing} reported no {name}:\n{self.reports}\n{self.output}"
            raise AssertionError(msg)
        return [self.reports[rank][name] for rank in ranks]

    def check_errors(self, kind: str, *texts: str, ranks: Iterable[int]) -> None:
        """Raise AssertionError unless all `ranks` reported this kind of error with these texts."""
        for found_kind, message in self.errors(*ranks):
            assert found_kind == kind, f"{found_kind}: {message}"
            assert message
            for text in texts:
                assert text in message, message

    def check_cases(self) -> None:
        """Raise AssertionError unless all cases of the job went well on all ranks."""
        names = {name for report in self.check().reports.values() for name in report["outcomes"]}
        assert names, self.output
        for name in names:
            self.check_case(name, len(self.reports))

    def check_case(self, name: str, np: int) -> None:
        """Raise AssertionError if a case that `programs/cases.py` ran failed on any rank."""
        failed = []
        for rank in range(np):
            outcomes = self.reports.get(rank, {}).get("outcomes", {})
            outcome = outcomes.get(name, "did not reach the case")
            if outcome.startswith("skipped: "):
                pytest.skip(outcome.removeprefix("skipped: "))
            if outcome != "ok":
                failed.append(f"rank {rank} of {np}: {outcome}")
        if failed:
            seeds = {report.get("seed") for report in self.reports.values()}
            raise AssertionError("\n".join([*failed, f"seeds: {seeds}", self.output]))


class Job:
    """One mpirun: ``with Job("program.py", np=2) as job: ...; result = job.finish()``.

    Parameters
    ----------
    program : str or Path
        The script of the ranks; a name without a folder is one of `PROGRAMS`.
    *arguments : str
        Its arguments.
    np : int
        Number of ranks.
    timeout : float, optional
        Seconds until the job is killed.
    mpirun : Path, optional
        The launcher, by default that of this environment.
    cwd : Path, optional
        The working folder of the ranks, by default that of this process.
    survives : bool, optional
        Whether the launcher lets the other ranks continue when one dies.
    **environ : str
        Environment variables of the ranks.

    """

    def __init__(
        self,
        program: str | Path,
        *arguments: str,
        np: int,
        timeout: float = JOB_TIMEOUT,
        mpirun: Path | None = None,
        cwd: Path | None = None,
        survives: bool = False,
        **environ: str,
    ) -> None:
        if os.environ.get(NO_MPI) and "MULTIVERSO_RANKS_PER_NODE" in environ:
            pytest.skip("several nodes need MPI")
        self.np = np
        self.deadline = time.monotonic() + timeout
        # A short path, because the path of a socket in it is limited to 108 characters.
        self.folder = Path(tempfile.mkdtemp(prefix="mvjob-"))
        self._temporary = self.folder / "tmp"
        self._temporary.mkdir()
        script = [sys.executable, "-X", "faulthandler", str(PROGRAMS / program), *arguments]
        mpirun = str(mpirun or find_mpirun())
        command = launcher.mpirun_command(script, np, mpirun=mpirun, survive=survives)
        self._mark = f"{MARK}={self.folder}"
        self._watchdog = job_watchdog.Watchdog(self._mark, self.folder)
        #: The environment of the job's processes.
        self.environ = self._environ(environ)
        #: The file to which the job's processes print.
        self.output = (self.folder / "output").open("w+b")
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=self.output,
            stderr=subprocess.STDOUT,
            env=self.environ,
            start_new_session=True,
            cwd=cwd,
        )

    def _environ(self, extra: dict[str, str]) -> dict[str, str]:
        package = str(Path(multiverso.__file__).parents[1])
        # A third of the time in which Keras is imported goes to these packages.
        hidden = str(PROGRAMS / "absent") if "KERAS_BACKEND" in extra else None
        path = os.pathsep.join(filter(None, (package, os.environ.get("PYTHONPATH"), hidden)))
        job = {
            "PYTHONPATH": path,
            "PYTHONUNBUFFERED": "1",
            # Starting a thread per core for NumPy takes a fifth of the time of a small job.
            "OPENBLAS_NUM_THREADS": "1",
            "TMPDIR": str(self._temporary),
            MARK: str(self.folder),
        }
        return {**environment(), **job, **extra}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self._kill()
        self._process.wait()
        self.output.close()
        shutil.rmtree(self.folder, ignore_errors=True)
        self._watchdog.release()

    def wait_for(self, name: str, *ranks: int) -> None:
        """Wait until `ranks`, by default all, have announced `name`; raise if they do not."""
        awaited = [self.folder / f"{name}-{rank}" for rank in ranks or range(self.np)]
        while not all(path.exists() for path in awaited):
            if self._process.poll() is not None or time.monotonic() > self.deadline:
                missing_names = [path.name for path in awaited if not path.exists()]
                msg = f"no rank announced {missing_names}; the job printed:\n{self.finish().output}"
                raise AssertionError(msg)
            time.sleep(0.01)

    def announce(self, name: str) -> None:
        """Release the ranks that wait for `name` from the test."""
        (self.folder / f"{name}-test").touch()

    def pids(self) -> dict[int, int]:
        """Return the process ids of the ranks that have called `worker.begin`, by rank."""
        return {
            int(path.name.removeprefix("pid-")): int(path.read_text("utf-8"))
            for path in self.folder.glob("pid-*")
        }

    def pid(self, rank: int) -> int:
        """Return the process id of a rank that has called `worker.begin`."""
        return self.pids()[rank]

    def signal(self, rank: int, signum: signal.Signals) -> None:
        """Send a signal to one rank."""
        # After the death of one rank, the launcher may have killed the others.
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid(rank), signum)

    def wait_until_asleep(self, rank: int) -> None:
        """Wait until the main thread of a rank sleeps, or until the timeout has passed."""
        stat = Path(f"/proc/{self.pid(rank)}/stat")
        # The state follows the name of the program, which is in parentheses.
        while stat.read_text("ascii").rpartition(") ")[2][0] != "S":
            if time.monotonic() > self.deadline:
                return
            time.sleep(0.01)

    def finish(self) -> Result:
        """Wait for the end of the job and return its result.

        Raises
        ------
        MpiStuckError
            If the job does not end after a rank has logged `STUCK_IN_MPI`.

        """
        timed_out = stuck = False
        stuck_deadline = self.deadline
        while not self._ends_within(0.5):
            if STUCK_IN_MPI in self._read_output():
                stuck_deadline = min(stuck_deadline, time.monotonic() + GRACE)
            timed_out = time.monotonic() > self.deadline
            stuck = not timed_out and time.monotonic() > stuck_deadline
            if timed_out or stuck:
                self._dump_stacks()
                self._kill()
                self._process.wait()
                break
        output = self._read_output().decode(errors="replace")
        if stuck:
            raise MpiStuckError(output)
        leftovers = self._leftovers()
        return Result(self._process.returncode, output, self._reports(), timed_out, leftovers)

    def _ends_within(self, seconds: float) -> bool:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(max(0.0, min(seconds, self.deadline - time.monotonic())))
        return self._process.poll() is not None

    def _read_output(self) -> bytes:
        return (self.folder / "output").read_bytes()

    def _reports(self) -> dict[int, dict[str, object]]:
        return {
            int(path.stem.removeprefix("report-")): json.loads(path.read_text("utf-8"))
            for path in self.folder.glob("report-*.json")
        }

    def _dump_stacks(self) -> None:
        pids = self.pids().values()
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGUSR1)  # programs/worker.py registers faulthandler
        if pids:
            time.sleep(2)  # for the output

    def _kill(self) -> None:
        job_watchdog.kill(self._mark)

    def _processes(self) -> list[int]:
        """Return the processes of the job, including those that left its process group."""
        return job_watchdog.processes(self._mark)

    def _leftovers(self) -> list[str]:
        deadline = time.monotonic() + GRACE
        while self._processes() and time.monotonic() < deadline:
            time.sleep(0.05)
        leftovers = []
        for pid in self._processes():
            with contextlib.suppress(OSError):
                arguments = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
                leftovers.append(f"process {pid}: {b' '.join(arguments).decode(errors='replace')}")
        for pid in self.pids().values():
            leftovers += map(str, Path("/dev/shm").glob(f"multiverso-*-{pid}-*"))
        leftovers += map(str, self._temporary.rglob("*multiverso*"))
        return leftovers


def run(program: str | Path, *arguments: str, np: int, **options: object) -> Result:
    """Run a job to its end; the parameters are those of `Job`."""
    with Job(program, *arguments, np=np, **options) as job:  # type: ignore[arg-type]
        return job.finish()


def run_command(folder: Path, *options: str) -> Path:
    """Return an "mpirun" in the folder, which executes ``multiverso run`` with these options.

    The harness knows its process as rank `RUNNER`, so that a test can signal it.
    """
    path = folder / "mpirun"
    path.write_text(
        f"#!{sys.executable}\n"
        "import os, sys\n"
        f"with open(os.path.join(os.environ['{MARK}'], 'pid-{RUNNER}'), 'w') as file:\n"
        "    file.write(str(os.getpid()))\n"
        f"command = [sys.executable, '-m', 'multiverso', 'run', *{options!r}]\n"
        # The arguments after -np N are python, -X, faulthandler and the script.
        "os.execv(sys.executable, command + sys.argv[1:3] + sys.argv[6:])\n",
        "utf-8",
    )
    path.chmod(0o755)
    return path


def torchrun_command(folder: Path) -> Path:
    """Return an "mpirun" in the folder, which starts the ranks with torchrun."""
    path = folder / "mpirun"
    path.write_text(
        f"#!{sys.executable}\n"
        "import sys\n"
        "from torch.distributed.run import main\n"
        "at = sys.argv.index('-np')\n"
        "size, script = sys.argv[at + 1], sys.argv[at + 5 :]\n"
        "main(['--standalone', '--nproc-per-node', size, *script])\n",
        "utf-8",
    )
    path.chmod(0o755)
    return path


def again_where_mpi_is_stuck(test: Callable[..., None]) -> Callable[..., None]:
    """Repeat a test up to twice if it raises MpiStuckError.

    This is for tests that kill ranks which act as nodes but are on one machine. If a rank is killed
    while it writes a message into MPICH's shared memory, the receiver waits forever
    (docs/faults.md).
    """

    @functools.wraps(test)
    def repeated(*arguments: object, **options: object) -> None:
        for _ in range(2):
            with contextlib.suppress(MpiStuckError):
                return test(*arguments, **options)
        return test(*arguments, **options)

    return repeated


def on_nodes(np: int, per_node: int) -> dict[str, str]:
    """Return the variables of a job with `per_node` ranks per node, or none for a single node."""
    return {} if np == per_node else {"MULTIVERSO_RANKS_PER_NODE": str(per_node)}


def environment() -> dict[str, str]:
    """Return the environment of this process with the settings that jobs need on this machine."""
    return {**OPEN_MPI, **launcher.mpirun_environment()}


def find_mpirun() -> Path:
    """Return the launcher of jobs: the mpirun of this environment, or `WITHOUT_MPI` on request."""
    return WITHOUT_MPI if os.environ.get(NO_MPI) else Path(launcher.find_mpirun())
