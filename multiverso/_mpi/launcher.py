"""Detects the launcher that started this process as a rank of a job, from the environment alone."""

import os
from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Launcher:
    """A program that started this process as one rank of several.

    Attributes
    ----------
    name : str
        The name of the launcher in messages.
    variable : str
        The environment variable by which the launcher was found.
    size : int or None
        The number of processes in the job, if the launcher provides the number.

    """

    name: str
    variable: str
    size: int | None


def find_launcher(environ: Mapping[str, str] = os.environ) -> Launcher | None:
    """Return the launcher of this process, or None if it is not a rank of an MPI job."""
    # mpirun passes on Slurm's variables, and srun can set PMI_SIZE, so the order matters.
    if "OMPI_COMM_WORLD_SIZE" in environ:
        return _launcher(environ, "the mpirun of Open MPI", "OMPI_COMM_WORLD_SIZE")
    if "SLURM_STEP_ID" in environ and (_int_in(environ, "SLURM_STEP_NUM_TASKS") or 0) > 1:
        return _launcher(environ, "srun", "SLURM_STEP_NUM_TASKS")
    if "MPI_LOCALNRANKS" in environ and "PMI_SIZE" in environ:
        return _launcher(environ, "the mpirun of MPICH", "PMI_SIZE")
    for variable in ("PMI_SIZE", "PMI_RANK", "PMIX_RANK", "MPI_LOCALNRANKS"):
        if variable in environ:
            return _launcher(environ, "an MPI launcher", variable)
    return None


def _launcher(environ: Mapping[str, str], name: str, variable: str) -> Launcher:
    size = None if variable.endswith(("_RANK", "_LOCALNRANKS")) else _int_in(environ, variable)
    return Launcher(name, variable, size)


def _int_in(environ: Mapping[str, str], variable: str) -> int | None:
    try:
        return int(environ.get(variable, ""))
    except ValueError:
        return None


def started_by(launcher: Launcher | None) -> str:
    """Return how this process was started, as the beginning of a message."""
    if launcher is None:
        return "this process is to join an MPI job"
    value = os.environ.get(launcher.variable, "")
    return f"{launcher.name} started this process ({launcher.variable}={value})"
