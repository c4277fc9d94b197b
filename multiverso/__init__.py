"""Multiverso: a parameter server for training on one machine or a cluster.

Tables hold the parameters of a model. Every worker of a job can add to them and get them:

    import multiverso as mv

    with mv.session():
        table = mv.ArrayTable(1000)
        table.add(delta)
        parameters = table.get()

``python train.py`` runs this as one worker, ``mpirun -np 4 python train.py`` as four, and so does
``multiverso run -np 4 train.py`` on a machine without MPI.
"""

import importlib
import warnings
from typing import TYPE_CHECKING, Any, Final

from multiverso._native.launchers import own_environ as _own_environ
from multiverso._native.reports import claim as _claim_reports
from multiverso._version import __version__

__all__ = [
    "ArrayTable",
    "ArrayTableHandler",
    "HashTable",
    "HashTableHandler",
    "MatrixTable",
    "MatrixTableHandler",
    "MultiversoError",
    "OperationTimeout",
    "PeerLostError",
    "Session",
    "Work",
    "__version__",
    "aggregate",
    "assign_device",
    "attach",
    "barrier",
    "check_leaving",
    "checkpoint",
    "errors",
    "finish",
    "follow",
    "hash_keys",
    "ignore_notice",
    "init",
    "initializers",
    "is_initialized",
    "is_leaving",
    "is_master_worker",
    "load",
    "local_rank",
    "num_workers",
    "publish",
    "rank",
    "save",
    "server_id",
    "servers_num",
    "session",
    "shutdown",
    "size",
    "spawn",
    "stats",
    "updaters",
    "wait_for_save",
    "worker_id",
    "workers_num",
]

# The first process that imports the package is the rank. Those that it starts are not.
_own_environ()
_claim_reports()

#: The modules of the names above, in the order in which a name is searched in them. They are
#: imported then, because a launcher needs neither NumPy nor most of the package.
_MODULES: Final = ("api", "errors", "tables", "devices", "work", "publishing", "_session.spawn")

#: The modules that need no import of their own.
_SUBMODULES: Final = (
    *("api", "checkpoint", "devices", "errors", "initializers"),
    *("publishing", "tables", "updaters", "work"),
)

#: The modules of former names but those of errors, and what to write instead.
_FORMER: Final = {
    **{
        name: ("api", f"{name}() of the session that mv.init() and mv.session() return")
        for name in ("leave", "lost_ranks", "membership", "on_membership")
    },
    "Cut": ("tables", "mv.tables.Cut"),
    "Membership": ("api", "mv.api.Membership"),
    "View": ("tables", "mv.tables.View"),
    "latest": ("checkpoint", "mv.checkpoint.latest"),
    "num_servers": ("api", "num_servers of the session that mv.init() and mv.session() return"),
}


if TYPE_CHECKING:
    # A module with __getattr__ has all names for a type checker, and it would find no wrong one.
    from multiverso import checkpoint, errors, initializers, updaters
    from multiverso._session.spawn import spawn
    from multiverso.api import *
    from multiverso.checkpoint import latest as latest
    from multiverso.devices import *
    from multiverso.errors import *
    from multiverso.publishing import *
    from multiverso.tables import *
    from multiverso.work import *
else:

    def __getattr__(name: str) -> Any:
        """Import a public name when it is first used; return what has a former name."""
        if name in _SUBMODULES:
            return importlib.import_module(f"multiverso.{name}")
        if name in __all__:
            modules = (importlib.import_module(f"multiverso.{module}") for module in _MODULES)
            found = next(getattr(module, name) for module in modules if hasattr(module, name))
            globals()[name] = found
            return found
        errors = importlib.import_module("multiverso.errors")
        if name in errors.__all__:
            module, instead = "errors", f"mv.errors.{name}"
        elif name in _FORMER:
            module, instead = _FORMER[name]
        else:
            hints = importlib.import_module("multiverso._native.hints")
            hint = "" if name.startswith("_") else hints.of_module(name, __all__)
            raise AttributeError(f"module 'multiverso' has no attribute {name!r}{hint}", name=name)
        msg = f"mv.{name} is the former name of {instead}"
        warnings.warn(msg, DeprecationWarning, stacklevel=2)
        return getattr(importlib.import_module(f"multiverso.{module}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
