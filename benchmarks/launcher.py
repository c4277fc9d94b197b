"""Starts a benchmark under the mpirun of this Python environment."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from multiverso._mpi.mpirun import ONE_MACHINE, mpirun_command, mpirun_environment


def job_environment() -> dict[str, str]:
    """Return the environment for a job on this machine."""
    return {**ONE_MACHINE, **mpirun_environment()}


def progress(steps: list[Any], is_master: bool) -> Any:
    """Return the steps, with a progress bar on the master if it writes to a terminal."""
    if not (is_master and sys.stderr.isatty()):
        return steps
    from tqdm import tqdm

    return tqdm(steps, unit="case", leave=False)


def launch_all(
    script: Path, numbers: list[int], arguments: list[str], limit: float
) -> dict[str, Any]:
    """Run the script with each of these numbers of ranks and merge the reports.

    The other parameters and the errors are those of `launch`.
    """
    merged: dict[str, Any] = {}
    for num_ranks in progress(numbers, is_master=True):
        received = launch(script, num_ranks, arguments, limit)
        if not merged:
            merged = {"environment": received["environment"], "notes": [], "runs": []}
        merged["runs"] += received["runs"]
        merged["notes"] += [note for note in received["notes"] if note not in merged["notes"]]
    return merged


def launch(
    script: Path,
    num_ranks: int,
    arguments: list[str],
    limit: float,
    more: tuple[str, ...] = ("--silent",),
) -> dict[str, Any]:
    """Run the script under mpirun and return its report.

    Parameters
    ----------
    script : Path
        A benchmark, or any program with an option --json.
    num_ranks : int
        Number of processes.
    arguments : list of str
        Arguments of the script.
    limit : float
        Seconds after which the run and all its processes are killed.
    more : tuple of str
        Further arguments; by default the one that suppresses output.

    Raises
    ------
    SystemExit
        If the run fails or takes longer than the limit.
    """
    with tempfile.TemporaryDirectory(prefix="multiverso-benchmark-") as folder:
        target = Path(folder, "report.json")
        program = [sys.executable, str(script), *arguments, *more, "--json", str(target)]
        process = subprocess.Popen(
            mpirun_command(program, num_ranks),
            env=job_environment(),
            start_new_session=True,
        )
        try:
            code = process.wait(limit)
        except subprocess.TimeoutExpired:
            raise SystemExit(
                f"expected the run with {num_ranks} ranks to end within {limit:.0f} s: killed it"
            ) from None
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        if code != 0:
            raise SystemExit(f"the run with {num_ranks} ranks failed with exit code {code}")
        report: dict[str, Any] = json.loads(target.read_text())
        return report
