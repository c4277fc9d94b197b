"""The cores that a job may use on this machine, and the share of each rank.

A rank with more threads than cores, beside others that have as many, is slower than a rank alone.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Final, NamedTuple

from multiverso._local.control_groups import cpu_quota

#: What libraries read to know how many threads to start: OpenMP (PyTorch, too), MKL, OpenBLAS
#: (NumPy), TensorFlow, and JAX.
THREAD_VARIABLES: Final = (
    "OMP_NUM_THREADS",
    "MKL_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "TF_NUM_INTRAOP_THREADS",
    "TF_NUM_INTEROP_THREADS",
    "NPROC",
)

#: How the ranks of a job can be bound to cores.
BINDINGS: Final = ("core", "numa", "none")

_SYSTEM: Final = Path("/sys/devices/system")


class Cores(NamedTuple):
    """The cores that this process may use."""

    #: The logical CPUs of each physical core, those of a NUMA node one after the other.
    cpus: tuple[frozenset[int], ...]
    #: The NUMA node of each physical core.
    nodes: tuple[int, ...]
    #: How many cores' worth of time the process may use: not more than there are physical cores.
    number: int

    @classmethod
    def find(cls, environ: Mapping[str, str] = os.environ) -> Cores:
        """Return the cores of this process, by its affinity, its control group and Slurm."""
        if not hasattr(os, "sched_getaffinity"):  # This system cannot bind a process.
            number = os.cpu_count() or 1
            return cls((), (), number)
        return cls.of(os.sched_getaffinity(0), cpu_quota(), environ.get("SLURM_CPUS_ON_NODE", ""))

    @classmethod
    def of(
        cls, allowed: Iterable[int], quota: float | None, slurm: str = "", system: Path = _SYSTEM
    ) -> Cores:
        """Return the cores with the `allowed` CPUs, of which `quota` and Slurm allow so many."""
        allowed = frozenset(allowed)
        node_of = {
            cpu: int(folder.name.removeprefix("node"))
            for folder in (system / "node").glob("node[0-9]*")
            for cpu in _cpu_list(folder / "cpulist")
        }
        found = {}
        for cpu in allowed:
            siblings = _cpu_list(system / f"cpu/cpu{cpu}/topology/thread_siblings_list")
            core = (siblings & allowed) | {cpu}
            found[core] = (node_of.get(cpu, 0), min(core))
        cpus = tuple(sorted(found, key=found.__getitem__))
        limits = [len(cpus)]
        if quota is not None:
            limits.append(int(quota))
        if slurm.isdecimal():
            limits.append(int(slurm))
        return cls(cpus, tuple(found[core][0] for core in cpus), max(1, min(limits)))

    def threads(self, ranks: int) -> int:
        """Return how many threads each of so many ranks should have."""
        return max(1, self.number // ranks)

    def can_bind(self, ranks: int, threads: int) -> bool:
        """Return whether each of so many ranks can have a core of its own for each thread."""
        return ranks * threads <= len(self.cpus) == self.number

    def bind(self, ranks: int, how: str) -> list[frozenset[int] | None]:
        """Return the CPUs of each rank, in equal blocks; None for those of this process."""
        if how == "none":
            return [None] * ranks
        bounds = [rank * len(self.cpus) // ranks for rank in range(ranks + 1)]
        blocks = [range(a, max(b, a + 1)) for a, b in itertools.pairwise(bounds)]
        if how == "numa":
            nodes = [{self.nodes[core] for core in block} for block in blocks]
            places = range(len(self.cpus))
            return [_union(self.cpus[i] for i in places if self.nodes[i] in own) for own in nodes]
        return [_union(self.cpus[core] for core in block) for block in blocks]

    def shares(self, ranks: int, how: str) -> list[Share]:
        """Return the share of each of so many ranks, bound as `how` says."""
        variables = thread_variables(self.threads(ranks))
        return [Share(variables, cpus) for cpus in self.bind(ranks, how)]


class Share(NamedTuple):
    """What a rank gets of the cores."""

    #: The variables that limit its threads.
    variables: Mapping[str, str] = MappingProxyType({})
    #: The CPUs to which it is bound, if it is bound.
    cpus: frozenset[int] | None = None

    def bind(self) -> None:
        """Bind this process."""
        if self.cpus is not None:
            os.sched_setaffinity(0, self.cpus)


def thread_variables(threads: int, environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return the variables that limit the threads of a rank, but those that the user has set."""
    number = str(threads_of(environ) or threads)
    return {name: number for name in THREAD_VARIABLES if not environ.get(name)}


def all_thread_variables(threads: int, environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return all variables that limit the threads of a rank, also those that the user has set."""
    own = {name: environ[name] for name in THREAD_VARIABLES if environ.get(name)}
    return {**own, **thread_variables(threads, environ)}


def threads_of(environ: Mapping[str, str]) -> int | None:
    """Return the number of threads that the user wants each process to have, or None."""
    value = environ.get("OMP_NUM_THREADS", "")
    return int(value) if value.isdecimal() and int(value) > 0 else None


def crowding(ranks: int, environ: Mapping[str, str] = os.environ) -> str | None:
    """Return advice for so many ranks on this machine if they have more threads than it cores."""
    cores = Cores.find(environ)
    wanted = threads_of(environ)
    threads = wanted or len(cores.cpus) or cores.number
    number = 1 if _is_bound() else ranks
    if number * threads <= cores.number:
        return None
    if threads > 1:
        advice = f"set OMP_NUM_THREADS={cores.threads(number)} for the launcher"
    else:
        advice = f"start {amount(cores.number, 'rank')}"
    most = "" if wanted else "up to "
    return (
        f"{amount(number, 'rank')} with {most}{amount(threads, 'thread')} each are slow on "
        f"{amount(cores.number, 'core')}: {advice}"
    )


def amount(number: int, what: str) -> str:
    """Return a number and the noun that it counts."""
    return f"{number} {what}{'s' * (number != 1)}"


def _is_bound() -> bool:
    """Return whether the launcher, which is the parent, has more CPUs than this process."""
    try:
        return os.sched_getaffinity(0) < os.sched_getaffinity(os.getppid())
    except (AttributeError, OSError):
        return False


def _cpu_list(path: Path) -> frozenset[int]:
    """Return the numbers in a file such as "0-3,8", or none if it does not exist."""
    try:
        parts = path.read_text("ascii").strip().split(",")
        bounds = [part.partition("-") for part in parts if part]
        return _union(range(int(a), int(b or a) + 1) for a, _, b in bounds)
    except (OSError, ValueError):
        return frozenset()


def _union(sets: Iterable[Iterable[int]]) -> frozenset[int]:
    return frozenset(number for each in sets for number in each)
