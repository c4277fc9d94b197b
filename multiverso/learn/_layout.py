"""Which rank does what: the master, the workers, and sub-masters if there are groups of workers."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from multiverso.learn._errors import InputError

__all__ = ["Group", "Layout", "find_layout", "layout_of"]


@dataclass(frozen=True)
class Group:
    """Workers that exchange with a sub-master's parameters.

    Attributes
    ----------
    submaster : int
        The rank that passes on what they have learned together.
    workers : tuple of int
        The ranks that train.
    row : int
        Where the group's parameters are in the tables of the groups. It is the sub-master's own
        part of these tables, so that the workers of its node exchange through memory.

    """

    submaster: int
    workers: tuple[int, ...]
    row: int


@dataclass(frozen=True)
class Layout:
    """What each rank is. Rank 0 is the master, and the worker too if it is alone.

    Attributes
    ----------
    size : int
        How many ranks there are.
    groups : tuple of Group
        Empty where all workers exchange with the master's parameters.

    """

    size: int
    groups: tuple[Group, ...] = ()

    @property
    def workers(self) -> tuple[int, ...]:
        """The ranks that train, in rank order."""
        if self.groups:
            return tuple(sorted(rank for group in self.groups for rank in group.workers))
        return tuple(range(1, self.size)) or (0,)

    def number(self, rank: int) -> int:
        """Return the number of a worker, from 0 in rank order."""
        return self.workers.index(rank)

    def group_of(self, rank: int) -> Group | None:
        """Return the group that a rank is the sub-master or a worker of, if there are groups."""
        for group in self.groups:
            if rank == group.submaster or rank in group.workers:
                return group
        return None

    def is_submaster(self, rank: int) -> bool:
        """Return whether a rank is the sub-master of a group."""
        return any(rank == group.submaster for group in self.groups)

    def role(self, rank: int) -> str:
        """Return a rank's role in the session: where there are groups, masters keep the tables."""
        return "worker" if self.groups and rank in self.workers else "all"


def layout_of(size: int, masters: int, nodes: Sequence[Any]) -> Layout:
    """Return who does what among so many ranks.

    With `masters` above 1 rank 0 is the master over ``masters - 1`` groups. If the other ranks are
    on as many nodes, two or more on each, a group is a node. Else the groups are stretches of the
    ranks in the order of their nodes, as equal as can be. The first of a group is its sub-master.

    Parameters
    ----------
    size, masters : int
        How many ranks there are, and how many of them do not train.
    nodes : sequence
        On which node each rank is; anything that can be compared.

    Raises
    ------
    InputError
        If there are too few ranks for so many masters.

    """
    if masters == 1:
        return Layout(size)
    groups = masters - 1
    least = 1 + 2 * groups
    if size < least:
        msg = (
            f"num_masters: expected {least} ranks or more for {masters} masters (the master, and a "
            f"sub-master and a worker in each of {groups} group{'s' if groups > 1 else ''}), "
            f"received {size}"
        )
        raise InputError(msg)
    ranks = sorted(range(1, size), key=lambda rank: (nodes[rank], rank))
    by_node: dict[Any, list[int]] = {}
    for rank in ranks:
        by_node.setdefault(nodes[rank], []).append(rank)
    members = list(by_node.values())
    if len(members) != groups or min(map(len, members)) < 2:
        cuts = [number * len(ranks) // groups for number in range(groups + 1)]
        members = [ranks[begin:end] for begin, end in zip(cuts, cuts[1:], strict=False)]
    # The parts of a table are in this order: a row for each of the ranks that keep one.
    keepers = sorted([0, *(each[0] for each in members)], key=lambda rank: (nodes[rank], rank))
    return Layout(
        size,
        tuple(Group(each[0], tuple(each[1:]), keepers.index(each[0])) for each in members),
    )


def find_layout(comm: Any, masters: int) -> Layout:
    """Return who does what among the ranks of a communicator, None for this process alone.

    Collective if there are several masters. Raises what `layout_of` does, on all ranks.
    """
    size = 1 if comm is None else int(comm.Get_size())
    if masters == 1 or size == 1:
        return layout_of(size, masters, range(size))
    from mpi4py import MPI

    host = comm.Split_type(MPI.COMM_TYPE_SHARED)
    first = host.bcast(comm.Get_rank())  # names the node
    host.Free()
    return layout_of(size, masters, comm.allgather(first))
