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

from multiverso import checkpoint, errors, initializers, updaters
from multiverso._session.spawn import spawn
from multiverso._version import __version__
from multiverso.api import (
    Session,
    aggregate,
    barrier,
    check_leaving,
    finish,
    init,
    is_initialized,
    is_leaving,
    is_master_worker,
    load,
    num_workers,
    rank,
    save,
    session,
    shutdown,
    size,
    stats,
    wait_for_save,
    worker_id,
)
from multiverso.devices import assign_device, local_rank
from multiverso.errors import MultiversoError, OperationTimeout, PeerLostError
from multiverso.publishing import follow, publish
from multiverso.tables import ArrayTable, HashTable, MatrixTable, attach, hash_keys
from multiverso.work import Work

__all__ = [
    "ArrayTable",
    "HashTable",
    "MatrixTable",
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
    "session",
    "shutdown",
    "size",
    "spawn",
    "stats",
    "updaters",
    "wait_for_save",
    "worker_id",
]

#: The modules of the names of Multiverso 2016 and of those that go with them.
_STAYING: Final = {
    **dict.fromkeys(("ArrayTableHandler", "HashTableHandler", "MatrixTableHandler"), "tables"),
    **dict.fromkeys(("server_id", "servers_num", "workers_num"), "api"),
}

#: The modules of other former names, and what to write instead.
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
    from multiverso.api import (
        Membership as Membership,
    )
    from multiverso.api import (
        leave as leave,
    )
    from multiverso.api import (
        lost_ranks as lost_ranks,
    )
    from multiverso.api import (
        membership as membership,
    )
    from multiverso.api import (
        num_servers as num_servers,
    )
    from multiverso.api import (
        on_membership as on_membership,
    )
    from multiverso.api import (
        server_id as server_id,
    )
    from multiverso.api import (
        servers_num as servers_num,
    )
    from multiverso.api import (
        workers_num as workers_num,
    )
    from multiverso.checkpoint import latest as latest
    from multiverso.errors import (
        AbortedError as AbortedError,
    )
    from multiverso.errors import (
        CheckpointCorruptError as CheckpointCorruptError,
    )
    from multiverso.errors import (
        CheckpointIOError as CheckpointIOError,
    )
    from multiverso.errors import (
        ForkedError as ForkedError,
    )
    from multiverso.errors import (
        InternalError as InternalError,
    )
    from multiverso.errors import (
        LauncherError as LauncherError,
    )
    from multiverso.errors import (
        MismatchError as MismatchError,
    )
    from multiverso.errors import (
        PeerError as PeerError,
    )
    from multiverso.errors import (
        RankError as RankError,
    )
    from multiverso.errors import (
        StateError as StateError,
    )
    from multiverso.errors import (
        TransportError as TransportError,
    )
    from multiverso.errors import (
        UnsupportedError as UnsupportedError,
    )
    from multiverso.tables import (
        ArrayTableHandler as ArrayTableHandler,
    )
    from multiverso.tables import (
        Cut as Cut,
    )
    from multiverso.tables import (
        HashTableHandler as HashTableHandler,
    )
    from multiverso.tables import (
        MatrixTableHandler as MatrixTableHandler,
    )
    from multiverso.tables import (
        View as View,
    )
else:

    def __getattr__(name: str) -> Any:
        """Return what has a former name."""
        module = _STAYING.get(name)
        if module is None:
            if name not in _FORMER:
                msg = f"module 'multiverso' has no attribute {name!r}"
                raise AttributeError(msg, name=name)
            module, instead = _FORMER[name]
            msg = f"mv.{name} is the former name of {instead}"
            warnings.warn(msg, DeprecationWarning, stacklevel=2)
        return getattr(importlib.import_module(f"multiverso.{module}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
