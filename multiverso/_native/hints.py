"""What to write here in place of the names of NumPy, MPI, Horovod, torch and other libraries."""

from collections.abc import Iterable
from typing import Any, Final

from multiverso._native.arguments import suggestion

_CHANGE: Final = "t.add(delta) changes a table: for new values, one worker adds new - t.get()"
_READ: Final = "t.get() returns the values as an array"
_GATHER: Final = (
    "each worker adds its row to mv.MatrixTable(mv.num_workers(), n), then mv.barrier()"
)

#: Names of functions of other libraries, and what has their purpose in this package.
_OF_MODULE: Final = {
    "allreduce all_reduce Allreduce reduce Reduce reduce_scatter": "mv.aggregate(array) sums over "
    "the workers in place, and op='mean' averages",
    "bcast Bcast broadcast broadcast_parameters broadcast_object": "a new table has the values of "
    "worker 0 on all: mv.ArrayTable(n, values).get()",
    "allgather all_gather Allgather gather Gather all_gather_object scatter": _GATHER,
    "send recv Send Recv isend irecv put get push pull rpc rpc_sync rpc_async remote": "workers "
    "exchange through tables: t.add and t.get",
    "Barrier": "mv.barrier() waits for all ranks",
    "get_rank Get_rank": "mv.rank() is the number of this process",
    "get_world_size Get_size world_size": "mv.size() is the number of processes",
    "local_size": "mv.init() returns the session, which has local_size",
    "init_process_group Init initialize": "with mv.session(): opens a session",
    "destroy_process_group Finalize finalize": "the end of mv.session() or mv.shutdown() ends it",
    "COMM_WORLD comm": "with mv.session(): has all ranks, and mv.init(comm=) those of a comm",
    "Table": "mv.ArrayTable, mv.MatrixTable or mv.HashTable makes a table",
    "DistributedDataParallel DDP": "from multiverso.torch_ext import DistributedOptimizer",
}

#: Names of this package by the modules that have them.
_OF_MODULES: Final = {
    "jax_ext": "PytreeSync lookup",
    "keras_ext": "KerasParamManager MVCallback shard",
    "lasagne_ext.param_manager": "LasagneParamManager MVNetParamManager",
    "learn": "Algo Data H5Data MPIManager ModelBuilder",
    "sync": "ParamSync sync_all",
    "theano_ext.param_manager": "MVModelParamManager",
    "theano_ext.sharedvar": "MVSharedVariable mv_shared sync_all_mv_shared_vars",
    "torch_ext": "DistributedOptimizer Embedding EmbeddingBag EmbeddingBagCollection "
    "TorchParamManager load_live prefetch",
}

#: Names of methods of other libraries' arrays, tables and clients.
_OF_TABLE: Final = {
    "set put assign update copy_ fill fill_ zero_ write store": _CHANGE,
    "push add_ iadd increment": "t.add(delta) adds to all workers' table",
    "pull numpy tolist detach data value values read fetch": _READ,
    "allreduce all_reduce sum mean": "mv.aggregate(array) sums arrays of the workers",
    "max min maximum minimum": "t.get() returns the values; t.compare_swap(i, old, new) stores one",
    "state_dict": "t.get() returns the values; mv.save(folder) saves all tables",
    "size": "t.shape is the shape",
}


def of_module(name: str, names: Iterable[str]) -> str:
    """Return "; " and a sentence about a name that the package does not have, or ""."""
    hint = next((text for known, text in _OF_MODULE.items() if name in known.split()), None)
    for module, known in _OF_MODULES.items():
        if name in known.split():
            hint = f"from multiverso.{module} import {name}"
        elif name == module.partition(".")[0]:
            hint = f"import multiverso.{name}"
    return f"; {hint}" if hint else suggestion(name, names)


class Hint:
    """A name that a class lacks, since one with __getattr__ finds its other names more slowly."""

    def __init__(self, text: str) -> None:
        self._text = text

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    @classmethod
    def add_to(cls, table: type) -> None:
        """Let a class of tables say what to write in place of these names."""
        for names, text in _OF_TABLE.items():
            for name in names.split():
                hint = cls(text)
                hint.__set_name__(table, name)
                setattr(table, name, hint)

    def __get__(self, table: object, owner: type) -> Any:
        msg = f"{owner.__name__!r} object has no attribute {self._name!r}: {self._text}"
        raise AttributeError(msg, name=self._name, obj=table)
