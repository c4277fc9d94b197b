"""Multiverso: a parameter server for training on one machine or a cluster.

Tables hold the parameters of a model. Every worker of a job can add to them and get them:

    import multiverso as mv

    mv.init()
    table = mv.ArrayTableHandler(1000)
    table.add(delta)
    parameters = table.get()
    mv.shutdown()

``python train.py`` runs this as one worker, ``mpirun -np 4 python train.py`` as four, and so does
``multiverso run -np 4 train.py`` on a machine without MPI.
"""

from multiverso import initializers, updaters
from multiverso._live import Cut, View, attach
from multiverso._spawn import spawn
from multiverso._version import __version__
from multiverso.api import (
    Membership,
    Session,
    aggregate,
    barrier,
    finish,
    init,
    is_initialized,
    is_master_worker,
    leave,
    load,
    lost_ranks,
    membership,
    num_servers,
    num_workers,
    on_membership,
    publish,
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
from multiverso.checkpoint import latest
from multiverso.devices import assign_device, local_rank
from multiverso.errors import (
    AbortedError,
    CheckpointCorruptError,
    CheckpointIOError,
    ForkedError,
    InternalError,
    LauncherError,
    MismatchError,
    MultiversoError,
    OperationTimeout,
    PeerError,
    PeerLostError,
    RankError,
    StateError,
    TransportError,
    UnsupportedError,
)
from multiverso.tables import (
    ArrayTableHandler,
    HashTableHandler,
    MatrixTableHandler,
    hash_keys,
)
from multiverso.work import Work

__all__ = [
    "AbortedError",
    "ArrayTableHandler",
    "CheckpointCorruptError",
    "CheckpointIOError",
    "ForkedError",
    "HashTableHandler",
    "InternalError",
    "LauncherError",
    "MatrixTableHandler",
    "Membership",
    "MismatchError",
    "MultiversoError",
    "OperationTimeout",
    "PeerError",
    "PeerLostError",
    "RankError",
    "Session",
    "StateError",
    "TransportError",
    "UnsupportedError",
    "__version__",
    "Cut",
    "View",
    "Work",
    "aggregate",
    "attach",
    "assign_device",
    "barrier",
    "finish",
    "hash_keys",
    "init",
    "initializers",
    "is_initialized",
    "is_master_worker",
    "latest",
    "leave",
    "load",
    "lost_ranks",
    "local_rank",
    "membership",
    "num_servers",
    "num_workers",
    "on_membership",
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
