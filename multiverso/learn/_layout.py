"""The role of each rank: the master, the workers, and sub-masters if workers form groups."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from multiverso.learn._input import InputError
from multiverso.learn._mpi import host_of_each_rank, rank_and_size


@dataclass(frozen=True)
class Group:
    """Workers that exchange with the parameters of one sub-master.

    Attributes
    ----------
    submaster : int
        The rank that exchanges the group's parameters with those of all.
    workers : tuple of int
        The ranks that train.
    row : int
        The group's row in the tables of the groups. The sub-master's own part of the tables holds
        the row, so the workers on its node exchange through shared memory.

    """

    submaster: int
    workers: tuple[int, ...]
    row: int


@dataclass(frozen=True)
class Layout:
    """The roles of all ranks. Rank 0 is the master, and also the worker of a single rank.

    Attributes
    ----------
    size : int
        Number of ranks.
    groups : tuple of Group
        The groups, empty if all workers exchange with the same parameters.

    """

    size: int
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
        """Return the role of `rank` in the session. With groups, workers hold no part of tables."""
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
        The number of ranks, and the number of ranks that do not train.
    nodes : sequence
        The node of each rank, of any type that can be compared.

    Raises
    ------
    InputError
        If `size` is too small for the number of masters.

    """
    if masters == 1:
        return Layout(size)
    groups = masters - 1
    least = 1 + 2 * groups
    if size < least:
        raise InputError(
            f"num_masters: expected {least} ranks or more for {masters} masters (the master, and a "
            f"sub-master and a worker in each of {groups} group{'s' if groups > 1 else ''}), "
            f"received {size}"
        )
    ranks = sorted(range(1, size), key=lambda rank: (nodes[rank], rank))
    by_node: dict[Any, list[int]] = {}
    for rank in ranks:
        by_node.setdefault(nodes[rank], []).append(rank)
    members = list(by_node.values())
    if len(members) != groups or min(map(len, members)) < 2:
        cuts = [number * len(ranks) // groups for number in range(groups + 1)]
        members = [ranks[begin:end] for begin, end in zip(cuts, cuts[1:], strict=False)]
    # A table has a row for each rank that holds a part, in the order of nodes and ranks.
    holders = sorted([0, *(each[0] for each in members)], key=lambda rank: (nodes[rank], rank))
    return Layout(
        size,
        tuple(Group(each[0], tuple(each[1:]), holders.index(each[0])) for each in members),
    )


def find_layout(comm: Any, masters: int) -> Layout:
    """Return the roles of the ranks of a communicator, or of this process alone for None.

    Collective with several masters. Raises the errors of `layout_of` on all ranks.
    """
    nodes = host_of_each_rank(comm) if masters > 1 else ()
    return layout_of(rank_and_size(comm)[1], masters, nodes)
