"""``multiverso run -np N train.py``: starts a job on this machine, and restarts a failed one."""

import argparse
import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from multiverso._commands._argument_types import integer
from multiverso._local import ranks
from multiverso._mpi.mpirun import find_mpirun, mpirun_command, mpirun_environment
from multiverso.errors import LauncherError

#: Seconds that mpirun has to end the job after each signal.
_GRACE: Final = 10.0
#: The signals that stop the job and prevent a restart.
_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)


def add_parser(commands: Any) -> None:
    """Declare the command."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "run",
        help="start a job on this machine, and restart it after a failure",
        description="Starts mpirun with the options that the MPI of this environment needs. If "
        "there is no MPI, or with --no-mpi, it starts the ranks itself. The first rank that fails "
        "ends the job with its exit code. With --restarts, a failed job is restarted; its script "
        "resumes from the last checkpoint with mv.load(DIRECTORY, missing_ok=True).",
    )
    parser.add_argument("-np", "-n", type=integer(1), default=1, metavar="N", help="ranks (1)")
    parser.add_argument(
        "--restarts", type=integer(0), default=0, metavar="N", help="restarts at most (0)"
    )
    parser.add_argument(
        "--survive",
        action="store_true",
        help="keep the other ranks running when one dies, for scripts that call "
        "mv.init(on_peer_lost='continue')",
    )
    launcher = parser.add_mutually_exclusive_group()
    launcher.add_argument(
        "--mpirun", metavar="PATH", help="the launcher, if not that of this Python"
    )
    launcher.add_argument("--no-mpi", action="store_true", help="start the ranks without MPI")
    parser.add_argument("script", help="a Python script")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, help="its arguments")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Run the job; return the exit code of its last start."""
    if not Path(options.script).is_file():
        sys.stderr.write(f"multiverso run: {options.script}: no such file\n")
        return 2
    # With `-m multiverso` the first rank that fails ends the job; with --survive none does.
    runner = [] if options.survive else ["-m", "multiverso"]
    program = [sys.executable, *runner, options.script, *options.arguments]
    for restart in range(1, options.restarts + 2):
        if options.no_mpi or not (options.mpirun or _has_mpirun()):
            code, stopped = _run_ranks(program, options)
        else:
            code, stopped = _run_mpirun(program, options)
        if code == 0 or stopped or restart > options.restarts:
            break
        sys.stderr.write(
            f"multiverso run: the job exited with {code}; restart {restart} of {options.restarts}\n"
        )
    return code


def _has_mpirun() -> bool:
    try:
        find_mpirun()
    except LauncherError:
        return False
    return True


@contextlib.contextmanager
def _noted_signals() -> Iterator[list[int]]:
    """Yield a list to which the signals that stop the job are appended when they arrive."""
    received: list[int] = []
    handlers = {
        number: signal.signal(number, lambda number, _frame: received.append(number))
        for number in _SIGNALS
    }
    try:
        yield received
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)


def _exit_code(code: int, received: list[int]) -> int:
    """Return 128 + N for an end by signal N, as a shell does; Popen has -N."""
    if received:
        return 128 + received[0]
    return code if code >= 0 else 128 - code


def _run_mpirun(program: list[str], options: argparse.Namespace) -> tuple[int, bool]:
    """Return the exit code of one job, and whether a signal stopped it."""
    command = mpirun_command(program, options.np, mpirun=options.mpirun, survive=options.survive)
    with _noted_signals() as received:
        # mpirun has a process group of its own, so that Ctrl-C reaches only this process directly.
        process = subprocess.Popen(
            command, env=mpirun_environment(options.np), start_new_session=True
        )
        while process.poll() is None and not received:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(0.2)  # A signal does not end the wait.
        if received:
            process.send_signal(received[0])
        _await_end(process)
    return _exit_code(process.returncode, received), bool(received)


def _run_ranks(program: list[str], options: argparse.Namespace) -> tuple[int, bool]:
    """Do the same without MPI."""
    with _noted_signals() as received:
        code = ranks.run(
            program, options.np, survive=options.survive, is_stopped=lambda: bool(received)
        )
    return _exit_code(code, received), bool(received)


def _await_end(process: subprocess.Popen[bytes]) -> None:
    """Wait for the end of the job; end it by signals if it takes too long."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            process.wait(_GRACE)
            break
        except subprocess.TimeoutExpired:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, number)
    process.wait()
