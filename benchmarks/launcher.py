"""The launcher: starts the benchmark under the mpirun of this Python's own environment."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any


def find_mpirun() -> str:
    """Return the path of the mpirun beside this Python, else of the first one on the PATH.

    Raises
    ------
    SystemExit
        If there is none.
    """
    beside = Path(sys.executable).parent / "mpirun"
    found = str(beside) if beside.exists() else shutil.which("mpirun")
    if found is None:
        raise SystemExit(
            "expected mpirun beside this Python or on the PATH, found none: "
            "install an MPI, for example with `pip install mpich`"
        )
    return found


def mpi_environment(mpirun: str) -> dict[str, str]:
    """Return the environment for mpirun: Open MPI refuses root and more ranks than cores."""
    environment = dict(os.environ)
    version = subprocess.run(
        [mpirun, "--version"], capture_output=True, text=True, check=False
    ).stdout
    if "Open MPI" in version or "PRRTE" in version:
        environment.setdefault("PRTE_MCA_rmaps_default_mapping_policy", ":oversubscribe")
        environment.setdefault("OMPI_MCA_osc", "^ucx")
        if os.geteuid() == 0:
            environment.setdefault("OMPI_ALLOW_RUN_AS_ROOT", "1")
            environment.setdefault("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1")
    return environment


def progress(steps: list[Any], is_master: bool) -> Any:
    """Return the steps, with a progress bar on the master if it writes to a terminal."""
    if not (is_master and sys.stderr.isatty()):
        return steps
    from tqdm import tqdm

    return tqdm(steps, unit="case", leave=False)


def launch_all(
    script: Path, numbers: list[int], arguments: list[str], limit: float
) -> dict[str, Any]:
    """Run the script with each of these numbers of ranks and return one report of all.

    Parameters and errors are those of `launch`.
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
    """Run the script under mpirun and return the report it wrote.

    Parameters
    ----------
    script : Path
        The benchmark, or any program with an option --json.
    num_ranks : int
        How many processes.
    arguments : list of str
        Of the script.
    limit : float
        Seconds after which the run and all its processes are killed.
    more : tuple of str
        What every script started here gets besides; by default the order to print nothing.

    Raises
    ------
    SystemExit
        If the run fails or takes longer than the limit.
    """
    mpirun = find_mpirun()
    with tempfile.TemporaryDirectory(prefix="multiverso-benchmark-") as folder:
        target = Path(folder, "report.json")
        command = [mpirun, "-np", str(num_ranks), sys.executable, str(script)]
        command += [*arguments, *more, "--json", str(target)]
        process = subprocess.Popen(command, env=mpi_environment(mpirun), start_new_session=True)
        try:
            code = process.wait(limit)
        except subprocess.TimeoutExpired:
            raise SystemExit(
                f"expected the run with {num_ranks} ranks to end within {limit:.0f} s, "
                "it did not and was killed"
            ) from None
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        if code != 0:
            raise SystemExit(f"the run with {num_ranks} ranks failed with exit code {code}")
        report: dict[str, Any] = json.loads(target.read_text())
        return report
