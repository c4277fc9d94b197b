"""The scale model: the time of a round and the bytes that cross a node's link, by formulas.

In a round every worker sends a delta of the whole table and receives parameters that include its
own and other workers' deltas. A layout says which nodes store the table and how deltas reach them.
The model adds

- the latency of sequential messages and the bytes over the busiest node's link, or the work of its
  messages if that is more, and
- the work in the node's own memory.

It ignores slow nodes, oversubscribed switches, and overlap with the training.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

#: Largest messages of the library, in bytes of values: of a request, and of a sum in sync mode.
CHUNK_BYTES, PIECE_BYTES = 512 * 1024, 1024 * 1024
#: One node owns a table of at most SMALL_BYTES, or in sync mode SMALL_BYTES_PER_NODE for each node.
SMALL_BYTES, SMALL_BYTES_PER_NODE = 16 * 1024, 512
#: The sums of such a table travel along a tree of at least that many nodes.
TREE_NODES = 32
#: Nodes with workers for each dedicated server.
NODES_PER_SERVER = 8


@dataclass(frozen=True)
class Costs:
    """The measured costs of a network and its nodes.

    Attributes
    ----------
    latency : float
        Half of the seconds between a small request and its response.
    bandwidth : float
        Bytes per second over a node's link in each direction, including the work at both ends, if
        every node sends and serves requests.
    server_bandwidth : float
        The bandwidth between nodes that only send and nodes that only serve requests.
    message : float
        Seconds of work for a request and its response at either end.
    memory : float
        Bytes per second of a worker's add_get in its node's memory, which others use too.
    handover : float
        Seconds in which a node's last worker wakes the leader for a round, and the leader the
        workers after it.
    """

    latency: float
    bandwidth: float
    server_bandwidth: float
    message: float
    memory: float
    handover: float


@dataclass(frozen=True)
class Job:
    """The nodes, workers and table of a job.

    Attributes
    ----------
    nodes : int
        Number of nodes with workers.
    workers : int
        Workers per node.
    table_bytes : int
        Size of the table.
    cores : int or None
        Cores of the one machine that simulates all nodes, which then share its memory and cores;
        None if each node is a machine with its own link.
    """

    nodes: int
    workers: int
    table_bytes: int
    cores: int | None = None


@dataclass(frozen=True)
class Load:
    """The work of the nodes of a job in one round of a layout.

    Attributes
    ----------
    sequential_messages : int
        Messages of which each waits for the one before.
    sent : float
        Bytes that the busiest node sends; it receives as many.
    total_sent : float
        Bytes that all nodes send.
    messages : float
        Requests that the busiest node sends or serves.
    total_messages : float
        Requests that all nodes send or serve.
    fill_bytes : float
        Bytes that pass the links one after another before all links are busy.
    local_bytes : float
        Bytes that a worker processes in its node's memory, as an add_get does.
    leader_bytes : float
        The same for a node's leader, which works for all workers of its node.
    handovers : int
        Rounds that a leader runs for its node's workers.
    to_servers : bool
        Whether some nodes only send and the others only serve requests.
    """

    sequential_messages: int
    sent: float
    total_sent: float
    messages: float
    total_messages: float
    local_bytes: float
    leader_bytes: float = 0.0
    handovers: int = 0
    fill_bytes: float = 0.0
    to_servers: bool = False


def seconds_of(load: Load, costs: Costs, job: Job) -> float:
    """Return the time from the first worker's call to the last worker's return."""
    bandwidth = costs.server_bandwidth if load.to_servers else costs.bandwidth
    if job.cores is None:
        contention, crowding, sent, messages = 1.0, 1.0, load.sent, load.messages
    else:
        contention = max(1.0, job.nodes * job.workers / job.cores)
        crowding = max(1.0, job.nodes / job.cores)
        # The bandwidth was measured with traffic in both directions on this machine.
        sent, messages = load.total_sent / 2, load.total_messages / job.cores
    waiting = load.sequential_messages * costs.latency + load.handovers * costs.handover
    waiting += load.fill_bytes / bandwidth
    transfer = contention * waiting + sent / bandwidth
    # Processing messages overlaps with the transfer.
    local_bytes = contention * load.local_bytes + crowding * load.leader_bytes
    return max(transfer, messages * costs.message) + local_bytes / costs.memory


def _num_chunks(part_bytes: float, chunk_bytes: int = CHUNK_BYTES) -> int:
    return math.ceil(max(part_bytes, 1.0) / chunk_bytes)


def spread(job: Job, chunk_bytes: int = CHUNK_BYTES) -> Load:
    """Return the load if every node serves a part of the table, which is the default.

    One node has a small table.
    """
    others = job.nodes - 1
    if others and job.table_bytes <= SMALL_BYTES:
        requests = job.workers * others
        return Load(
            sequential_messages=2,
            sent=requests * job.table_bytes,
            total_sent=2.0 * requests * job.table_bytes,
            messages=requests,
            total_messages=2.0 * requests,
            local_bytes=job.workers * job.table_bytes,
        )
    part = job.table_bytes / job.nodes
    # A node sends deltas in its requests and parameters in its responses.
    sent = 2.0 * job.workers * others * part
    messages = 2.0 * job.workers * others * _num_chunks(part, chunk_bytes)
    return Load(
        sequential_messages=2 if others else 0,
        sent=sent,
        total_sent=job.nodes * sent,
        messages=messages,
        total_messages=job.nodes * messages,
        local_bytes=job.workers * part,
    )


def dedicated(job: Job) -> Load:
    """Return the load if one more node, for every eight nodes with workers, stores the table."""
    servers = math.ceil(job.nodes / NODES_PER_SERVER)
    part = job.table_bytes / servers
    clients = job.nodes * job.workers
    requests = clients * servers * _num_chunks(part)
    return Load(
        sequential_messages=2,
        sent=max(job.workers * job.table_bytes, clients * part),
        total_sent=2.0 * clients * job.table_bytes,
        messages=max(requests / servers, requests / job.nodes),
        total_messages=2.0 * requests,
        local_bytes=0.0,  # the bandwidth includes the servers' work
        to_servers=True,
    )


def rounds(job: Job) -> Load:
    """Return the load of a round in sync mode.

    The workers of a node stage their deltas, and its leader sends each node the sum of these deltas
    in that node's part. The node of the part applies the total and returns the new values.
    """
    if job.nodes > 1 and job.table_bytes <= max(SMALL_BYTES, SMALL_BYTES_PER_NODE * job.nodes):
        return _with_leaders(_rounds_of_one_owner(job), job)
    load = spread(Job(job.nodes, 1, job.table_bytes, job.cores), PIECE_BYTES)
    return _with_leaders(load, job)


def _rounds_of_one_owner(job: Job) -> Load:
    # The owner receives sums, and sends values, from all nodes or once for each level of the tree.
    levels = math.ceil(math.log2(job.nodes)) if job.nodes >= TREE_NODES else 1
    messages = levels if job.nodes >= TREE_NODES else job.nodes - 1
    sent = float(messages * job.table_bytes)
    return Load(
        sequential_messages=2 * levels,
        sent=sent,
        total_sent=2.0 * (job.nodes - 1) * job.table_bytes,
        messages=messages,
        total_messages=2.0 * (job.nodes - 1),
        fill_bytes=sent,
        local_bytes=0.0,
    )


def _with_leaders(load: Load, job: Job) -> Load:
    if job.nodes == 1:
        return replace(load, local_bytes=job.table_bytes)
    # An add_get reads a delta, reads and writes parameters, and writes its result. A worker copies
    # its delta to the staging memory and later its result. The leader reads the workers' deltas,
    # writes their sum, and writes the new values into the copy.
    leader_bytes = (job.workers + 2) / 4 * job.table_bytes
    return replace(load, local_bytes=job.table_bytes, leader_bytes=leader_bytes, handovers=1)


LAYOUTS: dict[str, Callable[[Job], Load]] = {
    "server on every node": spread,
    "one server for eight nodes": dedicated,
    "sync mode": rounds,
}
