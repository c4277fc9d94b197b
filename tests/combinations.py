"""Sessions, tables and calls with given features, for the tests of what goes with what.

A feature is a name of the table of the library (`multiverso._native.supported`).
"""

import contextlib
import importlib.util
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Collection
from ctypes import addressof, byref, c_int64, c_void_p, sizeof
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

import multiverso as mv
from multiverso import initializers
from multiverso._native import capi
from multiverso._native.library import checked
from multiverso._native.supported import features
from multiverso.api import current_session
from multiverso.learn._messages import training_session
from multiverso.sync._row_gradients import RowGradients
from multiverso.tables._array_table import ExchangeTable

#: The name of the sessions, the same on all ranks of a job and different in each.
NAME = "combination-" + Path(os.environ.get("MULTIVERSO_TEST_JOB", str(os.getpid()))).name


def group_of(feature: str) -> str:
    return next(each.group for each in features() if each.name == feature)


#: The options of `multiverso.init` with each feature of a session. Ranks have different roles.
SESSIONS: dict[str, dict[str, Any]] = {
    "async": {},
    "sync": {"sync": True},
    "staleness": {"staleness": 1},
    "fail": {},
    "continue": {"on_peer_lost": "continue"},
    "elastic": {"elastic": True},
    "end on SIGTERM": {},
    "leave on SIGTERM": {"on_term": "leave"},
}

#: The kinds of tables, and the constructor of each.
KINDS: dict[str, Callable[..., Any]] = {
    # A smaller one is on one of several nodes.
    "array": lambda **options: mv.ArrayTable(5000, **options),
    "matrix": lambda **options: mv.MatrixTable(4, 4, np.zeros((4, 4), int), **options),
    "dense": lambda **options: mv.MatrixTable(4, 4, np.zeros((4, 4), int), **options),
    "lazy": lambda init, **options: mv.ArrayTable(4, init, **options),
    "lazy rows": lambda init, **options: mv.MatrixTable(4, 4, init, **options),
    "keys": lambda init, keys=1000, **options: mv.HashTable(4, keys, init, **options),
    "wire": lambda **options: ExchangeTable(4, **options),
}

#: The options of a table with each feature.
OPTIONS: dict[str, dict[str, Any]] = {
    "max_bytes": {"max_bytes": 2**24},
    "evict": {"evict": "lru", "keys": 1000},
    "integers": {"dtype": "int64"},
    "float64": {"dtype": "float64"},
    "16 bit": {"dtype": "float16"},
    "random": {"init": initializers.RandomNormal()},
    "wire": {"wire": "bfloat16"},
    "wire of calls": {"wire": "bfloat16"},
    "add": {},
    "updater": {"updater": "momentum"},
    "counting updater": {"updater": "adam"},
    "row-wise updater": {"updater": "rowwise_adagrad"},
    "dcasgd": {"updater": "dcasgd"},
    "easgd": {"updater": "easgd"},
    "clipnorm": {"updater": "sgd", "clipnorm": 1.0},
}

#: The kind of a table that must have a feature, if no other feature is a kind.
KIND_OF = {
    **dict.fromkeys(("max_bytes", "random"), "lazy rows"),
    "evict": "keys",
    **dict.fromkeys(("row-wise updater", "add to a part of rows", "fresh", "layers"), "dense"),
    "wire": "wire",
}


def session_options(used: Collection[str], folder: Path, rank: int) -> dict[str, Any]:
    """Return the arguments of `multiverso.init` for a session with these features."""
    whole = completed(used) if "checkpoints" in used else used
    options = {key: value for name in whole for key, value in SESSIONS.get(name, {}).items()}
    if "roles" in used:
        options["role"] = "server" if rank else "worker"
    if "checkpoints" in used:
        options["checkpoints"] = str(folder / "saved")
    return options


def kind_of(used: Collection[str]) -> str:
    """Return the kind of the table with these features."""
    kinds = [name for name in used if name in KINDS and name != "wire"]
    return [*kinds, *(KIND_OF[name] for name in used if name in KIND_OF), "array"][0]


def make_table(used: Collection[str], folder: Path) -> Any:
    """Create the table with these features."""
    kind = kind_of(used)
    options = {key: value for name in used for key, value in OPTIONS.get(name, {}).items()}
    if kind in ("lazy", "lazy rows", "keys"):
        options.setdefault("init", initializers.Zeros())
    if "on disk" in used:
        options["backing"] = str(folder / "rows")
    return KINDS[kind](name="w", **options)


def _attach(_table: Any, _folder: Path) -> None:
    """Read the table as it is now in another process; raise the error that this process gets."""
    code = f"import multiverso as mv; mv.attach({os.getpid()}).tables['w'].get()"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    if done.returncode:
        raise mv.errors.StateError(done.stderr)


def _send(_table: Any, _folder: Path) -> None:
    """Send an array of the first worker to the others."""
    array, count = np.zeros(1, np.float32), c_int64(1)
    arrays = (c_void_p * 1)(array.ctypes.data)
    call = capi.MV_CollectiveCall(
        struct_size=sizeof(capi.MV_CollectiveCall),
        kind=capi.MV_CALL_BROADCAST,
        dtype=capi.MV_FLOAT32,
        received=addressof(arrays),
        received_counts=addressof(count),
    )
    checked.MV_SessionRun(current_session().handle, byref(call))


def _learn(_table: Any, _folder: Path) -> None:
    mv.shutdown()
    with mock.patch.dict(os.environ, {"MULTIVERSO_ELASTIC": "1:4"}):
        with training_session(False, None, 60.0, 60.0):
            pass


def _prefetch(_table: Any, _folder: Path) -> None:
    import torch

    from multiverso.torch_ext import Embedding

    Embedding(mv.MatrixTable(4, 4, updater="sgd")).prefetch(torch.tensor([0]))


def _train_view(_table: Any, folder: Path) -> None:
    table = mv.MatrixTable(4, 4, name="rows")
    mv.publish(to=folder)
    with mv.follow(folder, timeout=60) as view:
        layer = RowGradients(view.tables[table.name])
        layer.collect(np.array([0]), layer.rows_of(np.array([0]), insert=True))


def _export(_table: Any, _folder: Path) -> None:
    import torch

    from multiverso.torch_ext import Embedding

    layer = Embedding(mv.MatrixTable(4, 4, updater="sgd"))
    torch.export.export(layer, (torch.tensor([0]),), strict=False)


def _shard(_table: Any, _folder: Path) -> None:
    from multiverso.keras_ext import shard

    shard(np.zeros(4))


#: The calls that are features, of a table and a folder.
CALLS: dict[str, Callable[[Any, Path], Any]] = {
    "add to a part of rows": lambda table, _: table.add(np.ones((4, 2)), index=np.s_[:, 1:3]),
    "add to a part of an array": lambda table, _: table.add(np.ones(2), index=np.s_[1:3]),
    "fetch_add": lambda table, _: table.fetch_add(0, 1),
    "live view": lambda table, _: table.view(live=True),
    "fresh": lambda table, _: table.get_async([0], fresh=True).result(),
    "current values": _attach,
    "publish": lambda _, __: mv.publish(1),
    "publish to a folder": lambda _, folder: mv.publish(1, to=folder / "published"),
    "checkpoints at an address": lambda _, __: mv.save("memory://combinations"),
    "Work": lambda _, __: mv.Work([1, 2]),
    "membership": lambda _, __: current_session().membership(),
    "leave": lambda _, __: current_session().leave(),
    "sent arrays": _send,
    "layers": lambda table, _: RowGradients(table),
    "layers of a view": _train_view,
    "training rows": _train_view,
    "export": _export,
    "prefetch": _prefetch,
    "shard": _shard,
    "learn": _learn,
}

#: The calls of a table, which need one.
OF_TABLES = {
    *("add to a part of rows", "add to a part of an array", "fetch_add", "live view", "fresh"),
    *("current values", "layers"),
}

#: The options of `ParamSync` with each feature.
SYNCS: dict[str, dict[str, Any]] = {
    "ParamSync": {},
    "average": {"average": True},
    "weight": {"weight": 1.0},
    "fragment_sync_delay": {"fragments": 2, "sync_every": 8, "fragment_sync_delay": 1},
    "overlap": {"overlap": True},
}

UPDATERS = {name for name, options in OPTIONS.items() if "updater" in options}

#: Features of which a session or a table has one.
CHOICES = (
    {"async", "sync", "staleness"},
    {"fail", "continue", "elastic"},
    {"end on SIGTERM", "leave on SIGTERM"},
    {"integers", "float64", "16 bit"},
    {"add", *UPDATERS},
)

#: Features that a session or a table has unless it has one of the others.
DEFAULTS = {
    "async": {"sync", "staleness"},
    "fail": {"continue", "elastic"},
    "end on SIGTERM": {"leave on SIGTERM"},
    "add": UPDATERS,
}

#: What a feature is besides.
IMPLIED = {
    **{name: {"updater"} for name in UPDATERS},
    "wire of calls": {"wire"},
    "lazy": {"array"},
    "lazy rows": {"lazy", "matrix"},
    "dense": {"matrix"},
    "matrix": {"dense"},
}

#: The features that need several ranks: nodes, and servers beside workers.
OF_SEVERAL_RANKS = frozenset(("several nodes", "roles"))

#: The features that `use` knows.
KNOWN = frozenset(
    (*OF_SEVERAL_RANKS, *SESSIONS, "checkpoints", *KINDS, *OPTIONS, "on disk", *CALLS, *SYNCS)
)

#: What a feature needs besides Multiverso.
NEEDS = {"prefetch": "torch", "export": "torch", "shard": "keras"}


def completed(used: Collection[str]) -> set[str]:
    """Return the features of a session and a table that `use` makes with these features."""
    whole = set(used)
    if "checkpoints" in whole and "end on SIGTERM" not in whole:
        whole.add("leave on SIGTERM")
    for default, others in DEFAULTS.items():
        if not whole & {default, *others}:
            whole.add(default)
    kind = kind_of(used)
    whole |= {"array", "dense"} if kind in ("array", "wire") else {kind}
    return whole.union(*(IMPLIED.get(name, ()) for name in whole))


def is_choice(pair: Collection[str]) -> bool:
    """Return whether a session, or a table, can only have one of these features."""
    kinds = {name if name in KINDS else KIND_OF.get(name, "") for name in pair} - {""}
    return len(kinds) > 1 or any(set(pair) <= choice for choice in CHOICES)


def is_possible(used: Collection[str]) -> bool:
    """Return whether the frameworks are installed that these features need."""
    return all(importlib.util.find_spec(NEEDS[name]) for name in used if name in NEEDS)


def use(used: Collection[str], rank: int = 0) -> None:
    """Open a session, and create a table and make a call with these features, if they are any.

    A table without another call gets an add and a get. All ranks call this together.
    """
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(dir="/var/tmp")))
        mv.init(timeout=60, name=NAME, **session_options(used, folder, rank))
        stack.callback(_end)
        if any(name in SYNCS for name in used):
            _sync(used)
            return
        table = None
        # A call that is a feature of layers comes after the call that makes them.
        call = next((CALLS[name] for name in reversed(CALLS) if name in used), None)
        if any(group_of(name) == "table" or name in OF_TABLES for name in used):
            table = make_table(used, folder)
        if call is not None:
            call(table, folder)
        elif table is not None and mv.worker_id() >= 0:
            _add_and_get(table, kind_of(used))


def _end() -> None:
    if mv.is_initialized():
        mv.shutdown()


def _sync(used: Collection[str]) -> None:
    options = {key: value for name in used for key, value in SYNCS.get(name, {}).items()}
    options |= {key: value for name in used for key, value in OPTIONS.get(name, {}).items()}
    dtype = options.pop("dtype", "float32")
    mv.sync.ParamSync([np.zeros(4, dtype), np.zeros(4, dtype)], **options).sync()


def _add_and_get(table: Any, kind: str) -> None:
    is_array = kind in ("array", "wire", "lazy")
    delta = np.ones(table.shape if is_array else (2, 4), table.value_dtype)
    if is_array:
        table.add(delta)
        table.get()
    else:
        table.add(delta, [0, 1])
        table.get([0, 1])
