"""The arithmetic of the scale model: how long a round takes, and what crosses a node's link.

In a round every worker gives a delta of the whole table and receives parameters with its own and
others' deltas in them. The model adds up

- the latency of the messages that wait for each other and the bytes over the busiest node's link,
  or the work of its messages, if that is more,
- the work in the node's own memory.

Nothing else is in it: no switch too small for its links, no slow node, and no overlap with the
training.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

#: The most bytes of values in one message, as in the library.
CHUNK_BYTES = 256 * 1024
#: How many nodes with workers a dedicated server has.
NODES_PER_SERVER = 8


@dataclass(frozen=True)
class Costs:
    """What was measured of a network and of the nodes on it.

    Attributes
    ----------
    latency : float
        Half of the seconds from a small request to its answer.
    bandwidth : float
        Bytes per second over a node's link, each way, with the work at both ends, where every
        node asks and answers.
    server_bandwidth : float
        The same between nodes that only ask and nodes that only answer.
    message : float
        Seconds of a node's time that a request and its answer take, at either end.
    memory : float
        Bytes of a table per second that a worker's add_get goes through in its node's memory.
    """

    latency: float
    bandwidth: float
    server_bandwidth: float
    message: float
    memory: float


@dataclass(frozen=True)
class Job:
    """What is computed where.

    Attributes
    ----------
    nodes : int
        Nodes with workers.
    workers : int
        On each of them.
    table_bytes : int
        Of the table.
    cores : int or None
        Of the one machine that plays all nodes, or None if each node is a machine with a link of
        its own. On the one machine everybody's bytes and messages are everybody's burden.
    """

    nodes: int
    workers: int
    table_bytes: int
    cores: int | None = None


@dataclass(frozen=True)
class Load:
    """What a layout makes the nodes of a job do in a round.

    Attributes
    ----------
    waits : int
        Messages that wait for each other.
    sent : float
        Bytes that leave the busiest node; as many come in.
    sent_by_all : float
        Bytes that leave all nodes.
    messages : float
        Requests that the busiest node makes or answers.
    messages_of_all : float
        Of all nodes.
    filled : float
        Bytes that pass one link after the other before all links are busy.
    local : float
        Bytes that go through a node's own memory.
    to_servers : bool
        Whether some nodes only ask and the others only answer.
    """

    waits: int
    sent: float
    sent_by_all: float
    messages: float
    messages_of_all: float
    local: float
    filled: float = 0.0
    to_servers: bool = False


def seconds_of(load: Load, costs: Costs, job: Job) -> float:
    """Return the time of a round, from the first worker's call to the last one's return."""
    bandwidth = costs.server_bandwidth if load.to_servers else costs.bandwidth
    if job.cores is None:
        crowd, sent, messages = 1.0, load.sent, load.messages
    else:
        crowd = max(1.0, job.nodes * job.workers / job.cores)
        # The bandwidth was measured with bytes going both ways on this machine.
        sent, messages = load.sent_by_all / 2, load.messages_of_all / job.cores
    moving = crowd * (load.waits * costs.latency + load.filled / bandwidth) + sent / bandwidth
    # The work of messages goes on while bytes and answers are on their way.
    return max(moving, messages * costs.message) + crowd * load.local / costs.memory


def _chunks(part_bytes: float) -> int:
    return math.ceil(max(part_bytes, 1.0) / CHUNK_BYTES)


def spread(job: Job) -> Load:
    """Every node serves a part of the table; every worker exchanges all parts. The default."""
    part = job.table_bytes / job.nodes
    others = job.nodes - 1
    # A node's requests carry deltas, and its answers to the others' requests parameters.
    sent = 2.0 * job.workers * others * part
    messages = 2.0 * job.workers * others * _chunks(part)
    return Load(
        waits=2 if others else 0,
        sent=sent,
        sent_by_all=job.nodes * sent,
        messages=messages,
        messages_of_all=job.nodes * messages,
        local=job.workers * part,
    )


def dedicated(job: Job) -> Load:
    """Further nodes, one for every eight, keep the parameters; those with workers keep none."""
    servers = math.ceil(job.nodes / NODES_PER_SERVER)
    part = job.table_bytes / servers
    clients = job.nodes * job.workers
    requests = clients * servers * _chunks(part)
    return Load(
        waits=2,
        sent=max(job.workers * job.table_bytes, clients * part),
        sent_by_all=2.0 * clients * job.table_bytes,
        messages=max(requests / servers, requests / job.nodes),
        messages_of_all=2.0 * requests,
        local=0.0,  # the servers' work is in the bandwidth
        to_servers=True,
    )


def summed(layout: Callable[[Job], Load]) -> Callable[[Job], Load]:
    """Return the layout in which the workers of a node sum their deltas before they leave it."""

    def reduced(job: Job) -> Load:
        one = layout(Job(job.nodes, 1, job.table_bytes, job.cores))
        # Each worker stages its delta and sums a share of all; then all copy the result.
        own = 2.0 * job.table_bytes if job.workers > 1 else 0.0
        return replace(one, local=one.local + own)

    return reduced


def chain(job: Job) -> Load:
    """Send sums from node to node in pieces, and the total back the same way.

    Each element is summed in worker order, whatever the number of nodes. Workers of a node
    sum first, and every node keeps all parameters.
    """
    links = job.nodes - 1
    both_ways = 2.0 * links * job.table_bytes
    ways = 2.0 if links > 1 else float(links)  # a node in the middle sends to either side
    messages = ways * _chunks(job.table_bytes)
    return Load(
        waits=2 * links,
        sent=ways * job.table_bytes,
        sent_by_all=both_ways,
        messages=messages,
        messages_of_all=job.nodes * messages,
        local=2.0 * job.table_bytes,
        filled=max(0.0, 2.0 * links - 1.0) * min(job.table_bytes, CHUNK_BYTES),
    )


LAYOUTS: dict[str, Callable[[Job], Load]] = {
    "server on every node": spread,
    "server on every node, nodes sum first": summed(spread),
    "one server for eight nodes": dedicated,
    "one server for eight, nodes sum first": summed(dedicated),
    "chain of sums": chain,
}
