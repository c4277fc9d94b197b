"""Runs Python code in a separate process."""

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import multiverso

#: Seconds after which a program is killed; far more than any needs.
WALL_LIMIT = 120

#: Prefixes of variables of launchers and MPIs, which the program must not inherit.
LAUNCHER_PREFIXES = ("OMPI_", "PMI", "PMIX_", "MPI_LOCAL", "SLURM_", "MPI4PY_", "HYDI_")


def run_program(code, *, first_on_path=(), **environ):
    """Run `code`, which may be indented; return (exit code, stdout, stderr)."""
    package = Path(multiverso.__file__).parents[1]
    kept = {k: v for k, v in os.environ.items() if not k.startswith(LAUNCHER_PREFIXES)}
    path = [*map(str, first_on_path), str(package), kept.get("PYTHONPATH", "")]
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        env={**kept, "PYTHONPATH": os.pathsep.join(filter(None, path)), **environ},
        capture_output=True,
        text=True,
        timeout=WALL_LIMIT,
        check=False,
    )
    return done.returncode, done.stdout, done.stderr
