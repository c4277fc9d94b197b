"""The role of each rank: the master, the workers, and sub-masters if workers form groups."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from multiverso.learn._agreement import agreement, host_name
from multiverso.learn._input import InputError
from multiverso.learn._mpi import Channel


@dataclass(frozen=True)
class Group:
    """Workers that exchange with the parameters of one sub-master."""

    #: The rank that exchanges the group's parameters with those of all workers.
    submaster: int
    #: The ranks that train.
    workers: tuple[int, ...]
    #: The group's row in the tables of the groups. The sub-master's node stores the row, so the
    #: workers on that node exchange through shared memory.
    row: int


@dataclass(frozen=True)
class Layout:
    """The roles of all ranks. Rank 0 is the master, and if it is the only rank also the worker."""

    size: int
    #: The groups, empty if all workers exchange with the same parameters.
    groups: tuple[Group, ...] = ()

    @property
    def workers(self) -> tuple[int, ...]:
        """The ranks that train, in rank order."""
        if self.groups:
            return tuple(sorted(rank for group in self.groups for rank in group.workers))
        return tuple(range(1, self.size)) or (0,)

    def group_of(self, rank: int) -> Group | None:
        """Return the group of a sub-master or a worker; None for the master or without groups."""
        for group in self.groups:
            if rank == group.submaster or rank in group.workers:
                return group
        return None

    def session_role(self, rank: int) -> str:
        """Return the role of `rank` in the session. With groups, workers store no rows."""
        return "worker" if self.groups and rank in self.workers else "all"


def layout_of(size: int, masters: int, nodes: Sequence[Any]) -> Layout:
    """Return the roles of `size` ranks.

    With `masters` above 1 rank 0 is the master of ``masters - 1`` groups. If the other ranks are on
    exactly that many nodes, two or more on each, the ranks of a node form a group. Otherwise the
    ranks, in the order of their nodes, are divided into contiguous groups of nearly equal size. The
    first rank of a group is its sub-master.

    Parameters
    ----------
    size, masters : int
        The number of ranks, and the number of masters: rank 0 and the sub-masters.
    nodes : sequence
        The node of each rank, of any type that can be sorted and hashed.

    Raises
    ------
    InputError
        If `size` is too small for the number of masters.

    """
    if masters == 1:
        return Layout(size)
    groups = masters - 1
    minimum = 1 + 2 * groups
    if size < minimum:
        raise InputError(
            f"num_masters: expected {minimum} ranks or more for {masters} masters (the master, and "
            f"a sub-master and a worker in each of {groups} group{'s' if groups > 1 else ''}), "
            f"received {size}"
        )
    ranks = sorted(range(1, size), key=lambda rank: (nodes[rank], rank))
    by_node: dict[Any, list[int]] = {}
    for rank in ranks:
        by_node.setdefault(nodes[rank], []).append(rank)
    members_of_groups = list(by_node.values())
    if len(members_of_groups) != groups or min(map(len, members_of_groups)) < 2:
        bounds = [index * len(ranks) // groups for index in range(groups + 1)]
        members_of_groups = [ranks[begin:end] for begin, end in pairwise(bounds)]
    # The tables of the groups have a row for each server. Tables are divided among the servers in
    # the order of nodes and ranks, so with this order each server's node stores its row.
    submasters = [members[0] for members in members_of_groups]
    servers = sorted([0, *submasters], key=lambda rank: (nodes[rank], rank))
    return Layout(
        size,
        tuple(
            Group(submaster, tuple(workers), servers.index(submaster))
            for submaster, *workers in members_of_groups
        ),
    )


def find_layout(channel: Channel, masters: int) -> Layout:
    """Return the roles of the ranks of a channel.

    Collective with several masters. Raises the errors of `layout_of` on all ranks.
    """
    if masters == 1:
        return layout_of(channel.size, masters, ())
    with agreement(channel, "call train()") as hosts:
        hosts.value = host_name()
    return layout_of(channel.size, masters, hosts.values)
