"""Starts mpirun for tests, and sees to it that nothing of it outlives the test.

Each job has a process group, a folder and a wall limit of its own. The ranks write what happened
to files in the folder (`programs/worker.py` is their side of it). When the limit has passed, every
rank prints the stacks of its threads, and then the whole job is killed. However a job ends, it is
checked that it has left no process, no segment of shared memory and no temporary file. If the test
run itself is killed, a watchdog (`job_watchdog.py`) kills the job.

The MPI is that of the environment which runs the tests: ``mpirun`` beside ``sys.executable``.
"""

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
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Self

import job_watchdog
import multiverso
from multiverso._mpi.mpirun import mpirun_command

PROGRAMS = Path(__file__).parent / "mpi" / "programs"

#: Seconds that a job may take at most; a multiple of what any takes on a busy machine.
WALL_LIMIT = 150.0

#: Seconds for what should be gone at once: processes that were killed, files they had open.
GRACE = 20.0

#: What a rank says when MPI does not come back from a call, which no job gets over.
STUCK = b"has been in a call of MPI for"

#: Names the folder of the job to its ranks, and so marks all its processes.
MARK = "MULTIVERSO_TEST_JOB"

#: What Open MPI needs to run as root, with more ranks than cores, and without a false error; and to
#: start at once: its component for libfabric, of no use here, sleeps for a second before it knows.
OPEN_MPI = {
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "OMPI_MCA_btl": "^ofi",
    "OMPI_MCA_osc": "^ucx",
    "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
    "PRTE_MCA_hwloc_default_binding_policy": "none",
}

#: For ranks that compute with a framework: with a thread for each core each, they would be in each
#: other's way.
ONE_THREAD = {
    "OMP_NUM_THREADS": "1",
    "TF_CPP_MIN_LOG_LEVEL": "3",
    "TF_NUM_INTEROP_THREADS": "1",
    "TF_NUM_INTRAOP_THREADS": "1",
}


class MpiStuckError(Exception):
    """A rank has said that MPI does not come back from a call."""


@dataclass
class Result:
    """How a job ended.

    Attributes
    ----------
    returncode : int
        Of mpirun; negative if a signal ended it.
    output : str
        What mpirun and all ranks printed.
    reports : dict of int to dict
        What each rank reported.
    timed_out : bool
        Whether the job was killed because its wall limit had passed.
    leftovers : list of str
        What it left behind, in words.

    """

    returncode: int
    output: str
    reports: dict[int, dict[str, object]] = field(default_factory=dict)
    timed_out: bool = False
    leftovers: list[str] = field(default_factory=list)

    def check_clean(self) -> Self:
        """Raise AssertionError if the job hung or left anything behind."""
        if self.timed_out or self.leftovers:
            how = "passed its wall limit" if self.timed_out else "ended"
            msg = f"the job {how} and left {self.leftovers}; it printed:\n{self.output}"
            raise AssertionError(msg)
        return self

    def check(self) -> Self:
        """Raise AssertionError if it failed, too."""
        self.check_clean()
        if self.returncode != 0:
            msg = f"mpirun exited with {self.returncode} and printed:\n{self.output}"
            raise AssertionError(msg)
        return self

    def errors(self, *ranks: int, name: str = "error") -> list[list[str]]:
        """Return [type, message] of what each of the ranks reported under that name."""
        missing = [rank for rank in ranks if not self.reports.get(rank, {}).get(name)]
        if missing:
            msg = f"ranks {missing} reported no {name}:\n{self.reports}\n{self.output}"
            raise AssertionError(msg)
        return [self.reports[rank][name] for rank in ranks]

    def check_case(self, name: str, np: int) -> None:
        """Raise AssertionError if a case of `programs/cases.py` failed on any of `np` ranks."""
        failed = []
        for rank in range(np):
            outcomes = self.reports.get(rank, {}).get("outcomes", {})
            outcome = outcomes.get(name, "did not come to it")
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
        The script the ranks run; a bare name is looked up in `PROGRAMS`.
    *arguments : str
        Its arguments.
    np : int
        Number of ranks.
    limit : float, optional
        Seconds until it is killed.
    mpirun : Path, optional
        The launcher, if not that of this environment.
    cwd : Path, optional
        The folder in which the ranks run, if not that of this process.
    survives : bool, optional
        Whether the launcher leaves the other ranks alone when one dies.
    **environ : str
        Environment variables of the ranks.

    """

    def __init__(
        self,
        program: str | Path,
        *arguments: str,
        np: int,
        limit: float = WALL_LIMIT,
        mpirun: Path | None = None,
        cwd: Path | None = None,
        survives: bool = False,
        **environ: str,
    ) -> None:
        self.np = np
        self.deadline = time.monotonic() + limit
        # Short: the path of a socket in it has to fit into 108 characters.
        self.folder = Path(tempfile.mkdtemp(prefix="mvjob-"))
        self._temporary = self.folder / "tmp"
        self._temporary.mkdir()
        launcher = str(mpirun or find_mpirun())
        script = [sys.executable, "-X", "faulthandler", str(PROGRAMS / program), *arguments]
        command = mpirun_command(script, np, mpirun=launcher, survive=survives)
        self._mark = f"{MARK}={self.folder}"
        self._watchdog = job_watchdog.Watchdog(self._mark, self.folder)
        self._output = (self.folder / "output").open("w+b")
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=self._output,
            stderr=subprocess.STDOUT,
            env=self._environ(environ),
            start_new_session=True,
            cwd=cwd,
        )

    def _environ(self, extra: dict[str, str]) -> dict[str, str]:
        package = str(Path(multiverso.__file__).parents[1])
        path = os.pathsep.join(filter(None, (package, os.environ.get("PYTHONPATH"))))
        job = {
            "PYTHONPATH": path,
            "PYTHONUNBUFFERED": "1",
            "TMPDIR": str(self._temporary),
            MARK: str(self.folder),
        }
        return {**OPEN_MPI, **os.environ, **job, **extra}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._kill()
        self._process.wait()
        self._output.close()
        shutil.rmtree(self.folder, ignore_errors=True)
        self._watchdog.release()

    def wait_for(self, name: str, *ranks: int) -> None:
        """Wait until `ranks` (all by default) have announced `name`; see `worker.announce`."""
        wanted = [self.folder / f"{name}-{rank}" for rank in ranks or range(self.np)]
        while not all(path.exists() for path in wanted):
            if self._process.poll() is not None or time.monotonic() > self.deadline:
                late = [path.name for path in wanted if not path.exists()]
                msg = f"nobody announced {late}; the job printed:\n{self.finish().output}"
                raise AssertionError(msg)
            time.sleep(0.01)

    def wait_for_report(self, rank: int) -> None:
        """Wait until a rank has reported something."""
        path = self.folder / f"report-{rank}.json"
        while not path.exists() and time.monotonic() < self.deadline:
            time.sleep(0.01)

    def announce(self, name: str) -> None:
        """Let the ranks that wait for ``name`` go on."""
        (self.folder / f"{name}-test").touch()

    def pid(self, rank: int) -> int:
        """Return the process id of a rank that has begun."""
        return self._pids()[rank]

    def signal(self, rank: int, signum: signal.Signals) -> None:
        """Send a signal to one rank."""
        os.kill(self.pid(rank), signum)

    def finish(self) -> Result:
        """Wait for the end of the job and return how it went; MpiStuckError if it has none."""
        timed_out = stuck = False
        last_chance = self.deadline
        while not self._ends_within(0.5):
            if STUCK in self._printed():  # a rank that was stopped for long may say so, too
                last_chance = min(last_chance, time.monotonic() + GRACE)
            timed_out = time.monotonic() > self.deadline
            stuck = not timed_out and time.monotonic() > last_chance
            if timed_out or stuck:
                self._dump_stacks()
                self._kill()
                self._process.wait()
                break
        output = self._printed().decode(errors="replace")
        if stuck:
            raise MpiStuckError(output)
        leftovers = self._leftovers()
        return Result(self._process.returncode, output, self._reports(), timed_out, leftovers)

    def _ends_within(self, seconds: float) -> bool:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(max(0.0, min(seconds, self.deadline - time.monotonic())))
        return self._process.poll() is not None

    def _printed(self) -> bytes:
        return (self.folder / "output").read_bytes()

    def _pids(self) -> dict[int, int]:
        return {
            int(path.name.removeprefix("pid-")): int(path.read_text("utf-8"))
            for path in self.folder.glob("pid-*")
        }

    def _reports(self) -> dict[int, dict[str, object]]:
        return {
            int(path.stem.removeprefix("report-")): json.loads(path.read_text("utf-8"))
            for path in self.folder.glob("report-*.json")
        }

    def _dump_stacks(self) -> None:
        pids = self._pids().values()
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGUSR1)  # faulthandler's, see programs/worker.py
        if pids:
            time.sleep(2)

    def _kill(self) -> None:
        job_watchdog.kill(self._mark)

    def _processes(self) -> list[int]:
        """Return the living processes of the job, also those that left its process group."""
        return job_watchdog.processes(self._mark)

    def _leftovers(self) -> list[str]:
        deadline = time.monotonic() + GRACE
        while self._processes() and time.monotonic() < deadline:
            time.sleep(0.05)
        left = []
        for pid in self._processes():
            with contextlib.suppress(OSError):
                words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
                left.append(f"process {pid}: {b' '.join(words).decode(errors='replace')}")
        for pid in self._pids().values():
            left += map(str, Path("/dev/shm").glob(f"multiverso-*-{pid}-*"))
        left += map(str, self._temporary.rglob("*multiverso*"))
        return left


def run(program: str | Path, *arguments: str, np: int, **options: object) -> Result:
    """Run a job to its end; parameters are those of `Job`."""
    with Job(program, *arguments, np=np, **options) as job:  # type: ignore[arg-type]
        return job.finish()


def again_where_mpi_is_stuck(test: Callable[..., None]) -> Callable[..., None]:
    """Repeat a test in which MPI did not get over the death of a rank, at most twice.

    For tests that kill ranks of one machine that play different nodes: one killed as it puts a
    message into MPICH's shared memory leaves a receiver there that waits for ever (docs/faults.md).
    """

    @functools.wraps(test)
    def repeated(*arguments: object, **options: object) -> None:
        for _ in range(2):
            with contextlib.suppress(MpiStuckError):
                return test(*arguments, **options)
        return test(*arguments, **options)

    return repeated


def on_nodes(np: int, per_node: int) -> dict[str, str]:
    """Return the variables of a job with so many ranks on a node; those of all may share one."""
    return {} if np == per_node else {"MULTIVERSO_RANKS_PER_NODE": str(per_node)}


def find_mpirun() -> Path:
    """Return the mpirun of the environment that runs the tests."""
    mpirun = Path(sys.executable).parent / "mpirun"
    if not mpirun.exists():
        msg = (
            f"these tests need an MPI in the environment that runs them: expected {mpirun}; "
            f"'pip install multiverso[mpich]' brings one"
        )
        raise FileNotFoundError(msg)
    return mpirun
