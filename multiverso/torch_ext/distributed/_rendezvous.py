"""Finds out which ranks of a group can share memory, through the store of the group."""

import os
import secrets
from datetime import timedelta
from pathlib import Path
from typing import NamedTuple

from torch import distributed


class Host(NamedTuple):
    """The ranks of a group that share memory with this one.

    Attributes
    ----------
    job : str
        A name for the session of these ranks, which no other group has.
    ranks : list of int
        Their ranks in the group, in order.

    """

    job: str
    ranks: list[int]


def find_hosts(store: distributed.Store, rank: int, size: int, timeout: timedelta) -> list[Host]:
    """Return the hosts of a group, in the order of their first ranks. Waits for all ranks.

    Raises
    ------
    DistBackendError
        If a rank does not come in time.

    """
    keys = [f"multiverso/{other}" for other in range(size)]
    store.set(keys[rank], f"torch-{secrets.token_hex(16)} {_place()}")
    try:
        store.wait(keys, timeout)
    except RuntimeError as error:
        late = [other for other, key in enumerate(keys) if not store.check([key])]
        seconds = timeout.total_seconds()
        msg = f"multiverso: waited {seconds:g} s for ranks {late} of {size} to make the group"
        raise distributed.DistBackendError(msg) from error
    hosts: dict[str, Host] = {}
    for other, key in enumerate(keys):
        job, _, place = store.get(key).decode().partition(" ")
        hosts.setdefault(place, Host(job, [])).ranks.append(other)
    return list(hosts.values())


def _place() -> str:
    """Return a text that is equal for two ranks if they can share memory.

    Ranks find each other's memory by process ids, and meet at a socket. Each of both has a
    namespace, which containers on one machine need not share. A boot of a machine has an id.
    """
    process = Path("/proc/self/ns")
    names = [os.readlink(process / name) for name in ("pid", "net")]
    names.append(Path("/proc/sys/kernel/random/boot_id").read_text().strip())
    per_host = os.environ.get("MULTIVERSO_RANKS_PER_NODE")
    if per_host is not None and distributed.is_initialized():
        names.append(str(distributed.get_rank() // int(per_host)))
    elif per_host is not None:
        names.append(str(int(os.environ["RANK"]) // int(per_host)))
    return "/".join([*names, str(os.geteuid())])
