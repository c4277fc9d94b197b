"""Configurations: under which switches the same tests run, one file of tests/configs for each.

A file has these keys, all optional but the first.

about
    A sentence.
session, tables
    Options of `multiverso.init`, and what `machine.tables` may draw.
ranks, ranks_per_node
    The ranks of a job, and how many of them act as a node.
mpi
    The only MPI with which it runs.
launcher
    "without_mpi", to start the ranks without MPI.
environ
    Variables of the ranks.
roles
    The role of each rank.
checkpoint
    The folder of tests/configs with the checkpoint from which the tables start.

What the features of a configuration do not go with is left out, and only that; the sentence of
`multiverso._native.supported` says why.
"""

import dataclasses
import functools
import json
import os
from pathlib import Path
from typing import Any

import multiverso as mv

FOLDER = Path(__file__).parent / "configs"

#: The variable that names the configuration of a job.
VARIABLE = "MULTIVERSO_TEST_CONFIGURATION"


@dataclasses.dataclass(frozen=True)
class Configuration:
    """The content of a file of tests/configs."""

    name: str
    about: str
    session: dict[str, Any] = dataclasses.field(default_factory=dict)
    tables: dict[str, Any] = dataclasses.field(default_factory=dict)
    ranks: int = 1
    ranks_per_node: int | None = None
    mpi: str | None = None
    launcher: str | None = None
    environ: dict[str, str] = dataclasses.field(default_factory=dict)
    roles: tuple[str, ...] = ()
    checkpoint: str | None = None

    @property
    def needs_job(self) -> bool:
        """Whether the ranks of a job make the difference, not the options of one process."""
        return self.ranks > 1 or self.launcher is not None or self.mpi is not None

    def job(self, ranks: int = 2) -> dict[str, object]:
        """Return the options of a job (`launch.Job`); `ranks` if the file does not name them."""
        options = {"np": self.ranks if self.ranks > 1 else ranks, VARIABLE: self.name}
        if self.ranks_per_node is not None:
            options["MULTIVERSO_RANKS_PER_NODE"] = str(self.ranks_per_node)
        if self.launcher is not None:
            options["mpirun"] = Path(__file__).parent / self.launcher
        return {**options, **self.environ}


@functools.cache
def configurations() -> dict[str, Configuration]:
    """Return all configurations, by name."""
    files = sorted(FOLDER.glob("*.json"))
    return {
        path.stem: Configuration(path.stem, **json.loads(path.read_text("utf-8"))) for path in files
    }


def current() -> Configuration:
    """Return the configuration of this process."""
    return configurations()[os.environ.get(VARIABLE, "plain")]


def jobs(*names: str, ranks: int = 2) -> dict[str, dict[str, object]]:
    """Return the jobs of configurations for `case_jobs.CaseJobs`, by name."""
    return {name: configurations()[name].job(ranks) for name in names}


def open_session(**options: Any) -> Any:
    """Open a session with the options of the configuration and these, which have precedence."""
    return mv.init(**{**current().session, **options})
