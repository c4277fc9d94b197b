"""Runs a benchmark as jobs of the mpirun of this environment, and reads the jobs' reports."""

from __future__ import annotations

import contextlib
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
    """Return this process's environment with the variables of a job on one machine."""
    return {**ONE_MACHINE, **mpirun_environment()}


def progress(steps: list[Any], is_master: bool) -> Any:
    """Return the steps, with a progress bar on the master if it writes to a terminal."""
    if is_master and sys.stderr.isatty():
        with contextlib.suppress(ImportError):
            from tqdm import tqdm

            return tqdm(steps, unit="case", leave=False)
    return steps


def launch_all(
    script: Path, rank_counts: list[int], arguments: list[str], timeout: float
) -> dict[str, Any]:
    """Run the script with each of these numbers of ranks and merge the reports.

    The environment is that of the first report. The other parameters and the errors are those of
    `launch`.
    """
    merged: dict[str, Any] = {}
    for num_ranks in progress(rank_counts, is_master=True):
        report = launch(script, num_ranks, arguments, timeout)
        if not merged:
            merged = {"environment": report["environment"], "notes": [], "runs": []}
        merged["runs"] += report["runs"]
        merged["notes"] += [note for note in report["notes"] if note not in merged["notes"]]
    return merged


def launch(
    script: Path,
    num_ranks: int,
    arguments: list[str],
    timeout: float,
    extra_arguments: tuple[str, ...] = ("--silent",),
) -> dict[str, Any]:
    """Run the script under mpirun and return the report that its option --json writes.

    Parameters
    ----------
    script : Path
        A program with the option --json and those in `extra_arguments`.
    num_ranks : int
        Number of processes.
    arguments : list of str
        Arguments of the script.
    timeout : float
        Seconds after which the job is killed.
    extra_arguments : tuple of str
        Options that follow; by default the one of benchmarks that suppresses output.

    Raises
    ------
    SystemExit
        If the job fails or takes longer than the timeout.
    """
    with tempfile.TemporaryDirectory(prefix="multiverso-benchmark-") as folder:
        target = Path(folder, "report.json")
        options = [*arguments, *extra_arguments, "--json", str(target)]
        program = [sys.executable, str(script), *options]
        process = subprocess.Popen(
            mpirun_command(program, num_ranks),
            env=job_environment(),
            start_new_session=True,
        )
        try:
            code = process.wait(timeout)
        except subprocess.TimeoutExpired:
            raise SystemExit(
                f"expected the run with {num_ranks} ranks to end within {timeout:.0f} s: killed it"
            ) from None
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        if code != 0:
            raise SystemExit(f"the run with {num_ranks} ranks failed with exit code {code}")
        report: dict[str, Any] = json.loads(target.read_text())
        return report
