"""Multiverso: a parameter server for training on one machine or a cluster.

Tables hold the parameters of a model. Every worker of a job can add to them and get them:

    import multiverso as mv

    mv.init()
    table = mv.ArrayTable(1000)
    table.add(delta)
    parameters = table.get()
    mv.shutdown()

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

#: The modules of the names above that are not in the module api. They are imported when they are
#: first used, because a launcher needs neither NumPy nor most of the package.
_MODULES: Final = {
    **dict.fromkeys(("ArrayTable", "HashTable", "MatrixTable", "attach", "hash_keys"), "tables"),
    # The names of Multiverso 2016.
    **dict.fromkeys(("ArrayTableHandler", "HashTableHandler", "MatrixTableHandler"), "tables"),
    **dict.fromkeys(("MultiversoError", "OperationTimeout", "PeerLostError"), "errors"),
    **dict.fromkeys(("assign_device", "local_rank"), "devices"),
    **dict.fromkeys(("follow", "publish"), "publishing"),
    "Work": "work",
    "spawn": "_session.spawn",
}

#: The modules that need no import of their own.
_SUBMODULES: Final = (
    *("api", "checkpoint", "devices", "errors", "initializers"),
    *("publishing", "tables", "updaters", "work"),
)

#: The modules of former names, and what to write instead.
_FORMER: Final = {
    **{
        name: ("errors", f"mv.errors.{name}")
        for name in (
            "AbortedError",
            "CheckpointCorruptError",
            "CheckpointIOError",
            "ForkedError",
            "InternalError",
            "LauncherError",
            "MismatchError",
            "PeerError",
            "RankError",
            "StateError",
            "TransportError",
            "UnsupportedError",
        )
    },
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
    from multiverso.api import (
        Membership as Membership,
        Session,
        aggregate,
        barrier,
        check_leaving,
        finish,
        ignore_notice,
        init,
        is_initialized,
        is_leaving,
        is_master_worker,
        leave as leave,
        load,
        lost_ranks as lost_ranks,
        membership as membership,
        num_servers as num_servers,
        num_workers,
        on_membership as on_membership,
        rank,
        save,
        server_id,
        servers_num,
        session,
        shutdown,
        size,
        stats,
        wait_for_save,
        worker_id,
        workers_num,
    )
    from multiverso.checkpoint import latest as latest
    from multiverso.devices import assign_device, local_rank
    from multiverso.errors import (
        AbortedError as AbortedError,
        CheckpointCorruptError as CheckpointCorruptError,
        CheckpointIOError as CheckpointIOError,
        ForkedError as ForkedError,
        InternalError as InternalError,
        LauncherError as LauncherError,
        MismatchError as MismatchError,
        MultiversoError,
        OperationTimeout,
        PeerError as PeerError,
        PeerLostError,
        RankError as RankError,
        StateError as StateError,
        TransportError as TransportError,
        UnsupportedError as UnsupportedError,
    )
    from multiverso.publishing import follow, publish
    from multiverso.tables import (
        ArrayTable,
        ArrayTableHandler,
        Cut as Cut,
        HashTable,
        HashTableHandler,
        MatrixTable,
        MatrixTableHandler,
        View as View,
        attach,
        hash_keys,
    )
    from multiverso.work import Work
else:

    def __getattr__(name: str) -> Any:
        """Import a public name when it is first used; return what has a former name."""
        if name in _SUBMODULES:
            return importlib.import_module(f"multiverso.{name}")
        if name in __all__:
            module = _MODULES.get(name, "api")
        elif name in _FORMER:
            module, instead = _FORMER[name]
            msg = f"mv.{name} is the former name of {instead}"
            warnings.warn(msg, DeprecationWarning, stacklevel=2)
        else:
            msg = f"module 'multiverso' has no attribute {name!r}"
            raise AttributeError(msg, name=name)
        found = getattr(importlib.import_module(f"multiverso.{module}"), name)
        if name in __all__:
            globals()[name] = found
        return found


def __dir__() -> list[str]:
    return sorted(__all__)
