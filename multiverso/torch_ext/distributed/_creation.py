"""Makes the group that PyTorch asks the backend for."""

import sys
from types import FrameType
from typing import Any

from multiverso.torch_ext.distributed._group import MultiversoGroup
from multiverso.torch_ext.distributed._rendezvous import find_hosts


def create(options: Any) -> MultiversoGroup:
    """Return the group that PyTorch asks a backend for. Waits for all ranks of the group.

    Parameters
    ----------
    options : torch.distributed.distributed_c10d._DistributedBackendOptions
        The store, the rank, the size and the timeout of the group.

    Raises
    ------
    ValueError
        If the program combines this backend with others.
    DistBackendError
        If a rank does not come in time.

    """
    _require_only_backend()
    ranks = list(options.global_ranks_in_group) or list(range(options.group_size))
    store, rank, timeout = options.store, options.group_rank, options.timeout
    hosts = find_hosts(store, rank, len(ranks), ranks[rank], timeout)
    return MultiversoGroup(store, rank, ranks, hosts, timeout)


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
