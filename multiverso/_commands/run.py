"""``multiverso run -np N train.py``: starts a job on this machine, and restarts a failed one."""

import argparse
import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

from multiverso._commands._argument_types import integer
from multiverso._mpi.mpirun import mpirun_command, mpirun_environment

#: Seconds that mpirun has to end the job after each signal.
_GRACE: Final = 10.0
#: The signals that stop the job and prevent a restart.
_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)


def add_parser(commands: Any) -> None:
    """Declare the command."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "run",
        help="start a job on this machine, and restart it after a failure",
        description="Starts mpirun with the options that the MPI of this environment needs. The "
        "first rank that fails ends the job with its exit code. With --restarts, a failed job is "
        "restarted; its script resumes from the last checkpoint with "
        "mv.load(DIRECTORY, missing_ok=True).",
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
    parser.add_argument("--mpirun", metavar="PATH", help="the launcher, if not that of this Python")
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
    command = mpirun_command(program, options.np, mpirun=options.mpirun, survive=options.survive)
    environ = mpirun_environment(options.np)
    for restart in range(1, options.restarts + 2):
        code, stopped = _run_once(command, environ)
        if code == 0 or stopped or restart > options.restarts:
            break
        sys.stderr.write(
            f"multiverso run: the job exited with {code}; restart {restart} of {options.restarts}\n"
        )
    return code


def _run_once(command: list[str], environ: dict[str, str]) -> tuple[int, bool]:
    """Return the exit code of one job, and whether a signal stopped it."""
    received: list[int] = []
    handlers = {
        number: signal.signal(number, lambda number, _frame: received.append(number))
        for number in _SIGNALS
    }
    try:
        # mpirun has a process group of its own, so that Ctrl-C reaches only this process directly.
        process = subprocess.Popen(command, env=environ, start_new_session=True)
        while process.poll() is None and not received:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(0.2)  # A signal does not end the wait.
        if received:
            process.send_signal(received[0])
        _await_end(process)
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
    # Like a shell, report an end by signal N as 128 + N; Popen reports it as -N.
    code = 128 + received[0] if received else process.returncode
    return (code if code >= 0 else 128 - code), bool(received)


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
