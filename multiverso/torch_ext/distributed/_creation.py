"""Makes the group that PyTorch asks the backend for."""

import functools
import logging
import sys
from datetime import timedelta
from types import FrameType
from typing import Any

from torch import distributed

from multiverso.torch_ext.distributed._group import MultiversoGroup
from multiverso.torch_ext.distributed._operators import group_of_operators
from multiverso.torch_ext.distributed._rendezvous import meet_ranks

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
        msg = (
            f"backend: expected 'multiverso' alone, received '{listed}': PyTorch replaces the "
            "others of such a list by this one. Make a second group with new_group(backend=...)"
        )
        raise ValueError(msg)
