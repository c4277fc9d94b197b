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

#: Largest message of the library, in bytes of values.
CHUNK_BYTES = 256 * 1024
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
        Bytes per second of a worker's add_get in its node's memory.
    """

    latency: float
    bandwidth: float
    server_bandwidth: float
    message: float
    memory: float


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
        Bytes that a node processes in its own memory.
    to_servers : bool
        Whether some nodes only send and the others only serve requests.
    """

    sequential_messages: int
    sent: float
    total_sent: float
    messages: float
    total_messages: float
    local_bytes: float
    fill_bytes: float = 0.0
    to_servers: bool = False


def seconds_of(load: Load, costs: Costs, job: Job) -> float:
    """Return the time from the first worker's call to the last worker's return."""
    bandwidth = costs.server_bandwidth if load.to_servers else costs.bandwidth
    if job.cores is None:
        contention, sent, messages = 1.0, load.sent, load.messages
    else:
        contention = max(1.0, job.nodes * job.workers / job.cores)
        # The bandwidth was measured with traffic in both directions on this machine.
        sent, messages = load.total_sent / 2, load.total_messages / job.cores
    waiting = load.sequential_messages * costs.latency + load.fill_bytes / bandwidth
    transfer = contention * waiting + sent / bandwidth
    # Processing messages overlaps with the transfer.
    return max(transfer, messages * costs.message) + contention * load.local_bytes / costs.memory


def _num_chunks(part_bytes: float) -> int:
    return math.ceil(max(part_bytes, 1.0) / CHUNK_BYTES)


def spread(job: Job) -> Load:
    """Return the load if every node serves a part of the table, which is the default."""
    part = job.table_bytes / job.nodes
    others = job.nodes - 1
    # A node sends deltas in its requests and parameters in its responses.
    sent = 2.0 * job.workers * others * part
    messages = 2.0 * job.workers * others * _num_chunks(part)
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


def summed(layout: Callable[[Job], Load]) -> Callable[[Job], Load]:
    """Return the layout in which the workers of a node sum their deltas before sending."""

    def load_of_sums(job: Job) -> Load:
        load = layout(Job(job.nodes, 1, job.table_bytes, job.cores))
        # Each worker stages its delta and sums a share; then all copy the result.
        summing_bytes = 2.0 * job.table_bytes if job.workers > 1 else 0.0
        return replace(load, local_bytes=load.local_bytes + summing_bytes)

    return load_of_sums


def chain(job: Job) -> Load:
    """Return the load if chunks of sums pass from node to node and the total returns.

    The workers of a node sum first, and every node stores the whole table. The order of a sum does
    not depend on the number of nodes.
    """
    links = job.nodes - 1
    directions = 2.0 if links > 1 else float(links)  # a middle node sends in both directions
    messages = directions * _num_chunks(job.table_bytes)
    return Load(
        sequential_messages=2 * links,
        sent=directions * job.table_bytes,
        total_sent=2.0 * links * job.table_bytes,
        messages=messages,
        total_messages=job.nodes * messages,
        local_bytes=2.0 * job.table_bytes,
        fill_bytes=max(0.0, 2.0 * links - 1.0) * min(job.table_bytes, CHUNK_BYTES),
    )


LAYOUTS: dict[str, Callable[[Job], Load]] = {
    "server on every node": spread,
    "server on every node, nodes sum first": summed(spread),
    "one server for eight nodes": dedicated,
    "one server for eight, nodes sum first": summed(dedicated),
    "chain of sums": chain,
}
