"""Makes the group that PyTorch asks the backend for, whose ranks find each other by a store."""

import functools
import logging
import os
import secrets
import socket
import sys
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
from torch import distributed

import multiverso as mv
from multiverso import api
from multiverso.torch_ext.distributed._group import MultiversoGroup
from multiverso.torch_ext.distributed._operators import group_of_operators

_log = logging.getLogger("multiverso")


def create(options: Any) -> Any:
    """Return the group for a backend, of gloo on several hosts. Waits for all its ranks."""
    _require_only_backend()
    ranks = list(options.global_ranks_in_group) or list(range(options.group_size))
    store, rank, timeout = options.store, options.group_rank, options.timeout
    job, hosts = meet_ranks(store, rank, len(ranks), ranks[rank], timeout)
    if hosts == 1:
        return MultiversoGroup(store, rank, ranks, job, timeout)
    if rank == 0:
        _tell_of_gloo()
    return _gloo_group(store, rank, len(ranks), timeout)


@functools.cache  # A program makes many groups over the same hosts.
def _tell_of_gloo() -> None:
    _log.warning(
        "the ranks of a process group are on several hosts, so its calls go through gloo; groups "
        "whose ranks are on one host use shared memory"
    )


def _gloo_group(store: distributed.Store, rank: int, size: int, timeout: timedelta) -> Any:
    """Return a group of PyTorch's own class, whose calls are those of gloo in every respect.

    A subclass in Python would hold Python's lock in calls of gloo, whose threads wait for it.
    """
    gloo = distributed.ProcessGroupGloo(distributed.PrefixStore("gloo", store), rank, size, timeout)
    if not hasattr(distributed.ProcessGroup, "_set_default_backend"):
        return gloo  # An older PyTorch makes the group itself, for tensors on CPUs.
    return group_of_operators(store, rank, size, gloo)


def _require_only_backend() -> None:
    """Raise ValueError if PyTorch is about to make a group of several backends.

    It would replace the others by this one, which then gets the tensors of their devices, too. Only
    a variable of PyTorch's function knows them.
    """
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and "backend_config" not in frame.f_locals:
        frame = frame.f_back
    config = None if frame is None else frame.f_locals["backend_config"]
    devices: dict[str, str] = getattr(config, "get_device_backend_map", dict)()
    others = {device: name for device, name in devices.items() if name != "multiverso"}
    if others:
        listed = ",".join(f"{device}:{name}" for device, name in devices.items())
        raise ValueError(
            f"backend: expected 'multiverso' alone, received '{listed}': PyTorch replaces the "
            "others of such a list by this one. Make a second group with new_group(backend=...)"
        )


#: The wait for a store, unless `init_process_group` names another one.
_TIMEOUT = timedelta(minutes=5)


def meet(
    url: str, timeout: timedelta | None = None, **_options: object
) -> Iterator[tuple[distributed.Store, int, int]]:
    """Yield the store, the rank and the size of a job that any launcher of Multiverso has started.

    ``init_process_group("multiverso", init_method="multiverso://")`` calls it. The ranks are those
    of the open session, or of one that exists only during this call.
    """
    if url.rstrip("/") != "multiverso:":
        raise ValueError(f"init_method: expected 'multiverso://', received {url!r}")
    timeout = timeout or _TIMEOUT
    if mv.is_initialized():
        yield _store_of_session(timeout), mv.rank(), mv.size()
    else:
        with mv.init(timeout=timeout.total_seconds()):
            found = _store_of_session(timeout), mv.rank(), mv.size()
        yield found


def _store_of_session(timeout: timedelta) -> distributed.Store:
    """Return a store that rank 0 keeps. Collective over the workers of the session."""
    is_master = mv.rank() == 0
    host = "127.0.0.1" if api.current_session().num_nodes == 1 else socket.getfqdn()
    address = np.zeros(260, np.uint8)
    if is_master:
        master = distributed.TCPStore(
            host, 0, is_master=True, wait_for_workers=False, timeout=timeout
        )
        text = f"{host} {master.port}".encode()
        address[: len(text)] = np.frombuffer(text, np.uint8)
    mv.aggregate(address)
    if is_master:
        return master
    host, found = bytes(address).rstrip(b"\0").decode().split()
    return distributed.TCPStore(host, int(found), is_master=False, timeout=timeout)


def meet_ranks(
    store: distributed.Store, rank: int, size: int, global_rank: int, timeout: timedelta
) -> tuple[str, int]:
    """Return a name that no other group has, and the number of hosts. Waits for all ranks."""
    keys = [f"multiverso/{other}" for other in range(size)]
    store.set(keys[rank], f"torch-{secrets.token_hex(16)} {_place(global_rank)}")
    try:
        store.wait(keys, timeout)
    except RuntimeError as error:
        late = [other for other, key in enumerate(keys) if not store.check([key])]
        seconds = timeout.total_seconds()
        msg = f"multiverso: waited {seconds:g} s for ranks {late} of {size} to make the group"
        raise distributed.DistBackendError(msg) from error
    names, places = zip(*[store.get(key).decode().split(" ", 1) for key in keys], strict=True)
    return names[0], len(set(places))


def _place(global_rank: int) -> str:
    """Return a text that is equal for two ranks if they can share memory.

    Ranks find each other's memory by process ids, and meet at a socket. Each of both has a
    namespace, which containers on one machine need not share. A boot of a machine has an id.
    """
    process = Path("/proc/self/ns")
    names = [os.readlink(process / name) for name in ("pid", "net")]
    names.append(Path("/proc/sys/kernel/random/boot_id").read_text().strip())
    if "MULTIVERSO_RANKS_PER_NODE" in os.environ:
        names.append(str(global_rank // int(os.environ["MULTIVERSO_RANKS_PER_NODE"])))
    return "/".join([*names, str(os.geteuid())])
