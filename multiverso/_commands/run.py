"""``multiverso run -np N train.py``: starts a job on this machine, and restarts a failed one."""

import argparse
import contextlib
import functools
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from multiverso._commands._argument_types import integer, seconds, worker_range
from multiverso._commands._signals import exit_code, noted_signals
from multiverso._extras import has_module
from multiverso._local import guard, processes, ranks
from multiverso._local.cores import BINDINGS, Cores, Share, amount, threads_of
from multiverso._native.reports import Reports


def add_parser(commands: Any) -> None:
    """Declare the command."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "run",
        help="start a job on this machine, and restart it after a failure",
        description="Starts the ranks without MPI, which they do not need on one machine. For a "
        "script that uses MPI itself, --mpi starts mpirun, with the options that the MPI of this "
        "environment needs. Each rank starts as many threads as it has cores: OMP_NUM_THREADS and "
        "its like are set, unless you have set them. A rank that fails ends the job, with the exit "
        "code and the traceback of the first one that failed by itself. With --restarts, a failed "
        "job is restarted; its script resumes from the "
        "last checkpoint with mv.load(DIRECTORY, missing_ok=True). With --elastic, a rank that "
        "fails does not end the others, and processes can join later.",
    )
    parser.add_argument(
        "-np",
        "-n",
        "--nproc-per-node",
        dest="np",
        type=integer(1),
        metavar="N",
        help="ranks (one for each core that is free to use)",
    )
    parser.add_argument("--max", type=integer(1), metavar="N", help="without -np, ranks at most")
    parser.add_argument(
        "--bind",
        choices=BINDINGS,
        help="bind each rank to cores of its own, to their NUMA nodes, or to none (core, if there "
        "are at least as many cores as ranks; never with --elastic or --mpi)",
    )
    parser.add_argument(
        "--restarts", type=integer(0), default=0, metavar="N", help="restarts at most (0)"
    )
    parser.add_argument(
        "--survive",
        action="store_true",
        help="keep the other ranks running when one dies, for scripts that call "
        "mv.init(on_peer_lost='continue')",
    )
    parser.add_argument(
        "--elastic",
        type=worker_range,
        metavar="MIN:MAX",
        help="let workers join and leave: the job ends when a rank fails and fewer than MIN "
        "remain, and never has more than MAX workers; without MPI",
    )
    parser.add_argument(
        "--respawn",
        action="store_true",
        help="with --elastic, start a process that joins in place of a rank that failed",
    )
    parser.add_argument(
        "--grace",
        type=seconds(0, 3600),
        default=guard.GRACE,
        metavar="SECONDS",
        help="how long ranks may take to end after SIGTERM, which they get when the job is to end; "
        f"then they are killed ({guard.GRACE:g})",
    )
    parser.add_argument(
        "--tag",
        action="store_true",
        help="begin each line that a rank prints with [rank N]; not with mpirun, which has an "
        "option of its own",
    )
    launcher = parser.add_mutually_exclusive_group()
    launcher.add_argument("--mpi", action="store_true", help="start the ranks with mpirun")
    launcher.add_argument(
        "--mpirun", metavar="PATH", help="the same with this mpirun, not that of this Python"
    )
    launcher.add_argument(
        "--no-mpi", action="store_true", help="start them without MPI, which is the default"
    )
    parser.add_argument(
        "-m", "--module", action="store_true", help="the script is a module, as after python -m"
    )
    parser.add_argument(
        "script", help="a Python script, or a command on the PATH that is one, as multiverso-learn"
    )
    parser.add_argument("arguments", nargs=argparse.REMAINDER, help="its arguments")
    parser.set_defaults(run=run)


def _fault(options: argparse.Namespace, cores: Cores) -> str | None:
    """Return why the options cannot be used together, or None."""
    binds = options.bind in ("core", "numa")
    if binds and (options.elastic or _uses_mpirun(options)):
        return f"--bind {options.bind}: expected neither --elastic nor mpirun, which binds itself"
    if binds and not cores.cpus:
        return f"--bind {options.bind}: this system cannot bind processes"
    if options.bind == "core" and options.np > len(cores.cpus):
        return f"--bind core: expected at most {len(cores.cpus)} ranks, received {options.np}"
    if options.tag and _uses_mpirun(options):
        return (
            "--tag: expected no mpirun, which tags lines itself: mpirun --tag-output (with MPICH "
            f"-prepend-rank) -np {options.np} python -m multiverso {options.script}"
        )
    if options.elastic is None:
        return "--respawn needs --elastic" if options.respawn else None
    if options.mpi or options.mpirun is not None:
        return "--elastic starts the ranks without MPI: expected neither --mpi nor --mpirun"
    if options.max is not None and options.max < options.elastic.least:
        return f"--max: expected {options.elastic} with --elastic, received {options.max}"
    if not options.elastic.least <= options.np <= options.elastic.most:
        return f"-np: expected {options.elastic} with --elastic, received {options.np}"
    return None


def run(options: argparse.Namespace) -> int:
    """Run the job; return the exit code of its last start."""
    cores = Cores.find()
    chooses = options.np is None
    if chooses:
        options.np = _choose_ranks(options, cores)
    elif options.max is not None:
        _report("--max: expected no -np, which it limits")
        return 2
    fault = _fault(options, cores)
    script = _script(options)
    if fault is None and not script:
        fault = f"{options.script}: {_missing(options)}"
    if fault is not None:
        _report(fault)
        return 2
    # With `-m multiverso` the first rank that fails ends the job; without, it may continue.
    runner = [] if options.survive or options.elastic else ["-m", "multiverso"]
    program = [sys.executable, *runner, *script, *options.arguments]
    guard.choose_grace(options.grace)
    how = options.bind or ("core" if _binds_by_itself(options, cores) else "none")
    shares = cores.shares(options.np, how)
    if chooses:
        _report(_describe(options.np, cores, how))
    with noted_signals() as received:
        code = guard.run_guarded(functools.partial(_run_job, program, shares, options), received)
    return exit_code(code, received)


def _script(options: argparse.Namespace) -> list[str]:
    """Return the arguments with which Python runs the script, or [] if it is missing."""
    if options.module:
        sys.path[0] = str(Path.cwd())  # as the ranks have it
        # To look into the package, this process would have to import it.
        return ["-m", options.script] if has_module(options.script.partition(".")[0]) else []
    if Path(options.script).is_file():
        return [options.script]
    command = shutil.which(options.script)
    if command is None:
        return []
    with open(command, "rb") as file:
        head = file.read(300)
    return [command] if head.startswith(b"#!") and b"python" in head else []


def _missing(options: argparse.Namespace) -> str:
    """Return what is wrong with a script that `_script` does not find."""
    if options.module:
        return "no such module"
    name = Path(options.script).name
    if name.startswith("python") and options.arguments:
        arguments = " ".join(options.arguments)
        return f"the ranks run this Python anyway, so write: multiverso run {arguments}"
    return "no such file, and no Python program on the PATH"


def _choose_ranks(options: argparse.Namespace, cores: Cores) -> int:
    """Return the number of ranks if the user has given none."""
    number = cores.number if options.max is None else min(cores.number, options.max)
    if options.elastic:
        number = min(max(number, options.elastic.least), options.elastic.most)
    return number


def _binds_by_itself(options: argparse.Namespace, cores: Cores) -> bool:
    if options.elastic or _uses_mpirun(options):
        return False
    return cores.can_bind(options.np, threads_of(os.environ) or 1)


def _uses_mpirun(options: argparse.Namespace) -> bool:
    return bool(options.mpi or options.mpirun or _spans_nodes(options))


def _describe(ranks: int, cores: Cores, how: str) -> str:
    threads = threads_of(os.environ) or cores.threads(ranks)
    bound = {"core": ", on cores of their own", "numa": ", on their NUMA nodes", "none": ""}[how]
    return (
        f"starts {amount(ranks, 'rank')} with {amount(threads, 'thread')} each{bound}, for the "
        f"{amount(cores.number, 'core')} that this process may use (options: -np, --max, --bind)"
    )


def _run_job(program: list[str], shares: list[Share], options: argparse.Namespace) -> int:
    """Run the job, and restart it if it fails; return the exit code of its last start."""
    for restart in range(1, options.restarts + 2):
        if _uses_mpirun(options):
            code, stopped = _run_mpirun(program, shares[0], options)
        else:
            code, stopped = _run_ranks(program, shares, options)
        if code == 0 or stopped or restart > options.restarts:
            break
        _report(f"the job exited with {code}; restart {restart} of {options.restarts}")
    return code


def _report(sentence: str) -> None:
    sys.stderr.write(f"multiverso run: {sentence}\n")


def _spans_nodes(options: argparse.Namespace) -> bool:
    """Return whether the ranks are to act as several nodes, which needs MPI."""
    return "MULTIVERSO_RANKS_PER_NODE" in os.environ and not (options.no_mpi or options.elastic)


def _run_mpirun(program: list[str], share: Share, options: argparse.Namespace) -> tuple[int, bool]:
    """Return the exit code of one job, and whether a signal stopped it."""
    # These imports would delay the start of other jobs.
    from multiverso._mpi.mpirun import mpirun_command, mpirun_environment
    from multiverso._mpi.shared_files import SharedFiles

    command = mpirun_command(program, options.np, mpirun=options.mpirun, survive=options.survive)
    files = SharedFiles(lambda: processes.descendants(os.getpid()))
    reports = Reports()
    with noted_signals() as received:
        # mpirun has a process group of its own, so that Ctrl-C reaches only this process directly.
        process = subprocess.Popen(
            command,
            env={**mpirun_environment(options.np), **share.variables, **reports.variables("")},
            pass_fds=[reports.descriptor],
            start_new_session=True,
            # It is safe, because this process has one thread. At SIGTERM mpirun ends its ranks.
            preexec_fn=functools.partial(guard.end_with_parent, signal.SIGTERM),
        )
        while process.poll() is None and not received:
            guard.reap([process.pid])
            files.look()
            processes.await_end([process.pid], 0.2)
        if received:
            _tell(process, received[0])
        _await_end(process)
    # A signal may have ended mpirun, or mpirun a rank, before it could end what it had started.
    if received or process.returncode < 0:
        guard.end_descendants()
    files.remove()
    code = ranks.explain_mpi_job(reports, process.returncode, _report, is_told=bool(received))
    return exit_code(code, received), bool(received)


def _tell(mpirun: subprocess.Popen[bytes], number: int) -> None:
    """Pass a signal on. SIGTERM goes to the ranks themselves: mpirun would kill them soon after."""
    ranks: list[int] = []
    if number == signal.SIGTERM:
        ranks = [pid for pid in processes.descendants(mpirun.pid) if processes.has_session(pid)]
    for pid in ranks or [mpirun.pid]:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


def _run_ranks(
    program: list[str], shares: list[Share], options: argparse.Namespace
) -> tuple[int, bool]:
    """Do the same without MPI."""
    with noted_signals() as received:

        def is_stopped() -> bool:
            return bool(received)

        if options.elastic:
            from multiverso._local.elastic import ElasticJob

            workers, respawn = options.elastic, options.respawn
            job = ElasticJob(
                program, shares, workers, respawn=respawn, report=_report, tags=options.tag
            )
            code = job.run(is_stopped)
        else:
            code = ranks.run(
                program,
                shares,
                survive=options.survive,
                is_stopped=is_stopped,
                report=_report,
                tags=options.tag,
            )
        if received:
            guard.end_descendants()  # what ranks have started and left behind
    return exit_code(code, received), bool(received)


def _await_end(process: subprocess.Popen[bytes]) -> None:
    """Wait for the end of the job; end it by signals if it takes too long."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        end = time.monotonic() + guard.grace()
        while process.poll() is None and time.monotonic() < end:
            processes.await_end([process.pid], 0.2)
        if process.poll() is not None:
            break
        if guard.lost_launcher():
            guard.end_descendants()
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)
    process.wait()
