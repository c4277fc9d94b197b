"""Runs programs in separate processes."""

import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import multiverso

#: Seconds after which a program is killed, far more than any program needs. A test has 600 s, so
#: that a program that hangs is named with its output, and not only its test.
WALL_TIMEOUT = 300

#: Prefixes of variables of launchers and MPIs. A program that inherited them would join a job.
LAUNCHER_PREFIXES = ("OMPI_COMM_", "PMI", "PMIX_", "MPI_LOCAL", "SLURM_", "MPI4PY_", "HYDI_")


def run_program(code, *arguments, **options):
    """Run Python code, which may be indented; return (exit code, stdout, stderr)."""
    return run_python("-c", textwrap.dedent(code), *arguments, **options)


def run_python(*arguments, first_on_path=(), **options):
    """Run Python, which imports this package; return (exit code, stdout, stderr)."""
    paths = [*map(str, first_on_path), str(Path(multiverso.__file__).parents[1])]
    paths += filter(None, [os.environ.get("PYTHONPATH")])
    return run_command(sys.executable, *arguments, PYTHONPATH=os.pathsep.join(paths), **options)


def run_command(*command, cwd=None, timeout=WALL_TIMEOUT, **environ):
    """Run a command with these environment variables; return (exit code, stdout, stderr).

    The program and its children are killed after `timeout` seconds.
    """
    inherited = {k: v for k, v in os.environ.items() if not k.startswith(LAUNCHER_PREFIXES)}
    process = subprocess.Popen(
        list(map(str, command)),
        cwd=cwd,
        env={**inherited, **environ},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        out, err = process.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        out, err = process.communicate()
        err += f"\nkilled after {timeout} s"
    return process.returncode, out, err


def output_of(*command, **options):
    """Run a command and return its output; raise AssertionError with the output on failure."""
    status, out, err = run_command(*command, **options)
    if status != 0:
        raise AssertionError(f"{command} exited with {status}\n{out}{err}")
    return out
