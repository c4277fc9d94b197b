"""Serves the state of the jobs on this node in the text format of Prometheus, version 0.0.4.

The format is described at https://prometheus.io/docs/instrumenting/exposition_formats/.
"""

import contextlib
import http.server
import queue
import socket
import sys
import threading
from collections.abc import Callable, Iterable
from typing import Any, Final, NamedTuple

from multiverso._commands import _node_jobs
from multiverso.errors import MultiversoError

_CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"

#: Seconds for which a client may be silent in the middle of a request.
_TIMEOUT: Final = 10.0

#: The most clients that are answered at the same time, each by one of so many threads. With the
#: thread that listens, and one of NumPy on a small machine, there are 8. Further clients wait.
_MAX_CLIENTS: Final = 6

#: The characters that have another meaning in the value of a label.
_ESCAPES: Final = str.maketrans({"\\": "\\\\", '"': '\\"', "\n": "\\n"})


class _Metric(NamedTuple):
    """A metric: its name, its type, what it is, and its value in a member or in a table."""

    name: str
    kind: str
    text: str
    value: Callable[[dict[str, Any]], float | None]


def _sum(field: str, factor: float = 1) -> Callable[[dict[str, Any]], float]:
    return lambda table: sum(table[field]) * factor


_OF_RANKS: Final = (
    _Metric(
        "up",
        "gauge",
        "1 if the rank takes part in its session",
        lambda member: int(member["alive"] and member["state"] == "here"),
    ),
    _Metric("calls_total", "counter", "calls that the rank has made", lambda m: m["calls"]),
    _Metric(
        "adds_behind",
        "gauge",
        "adds by which the worker is behind the fastest one",
        lambda member: member["behind"] if member["worker_id"] >= 0 else None,
    ),
    _Metric(
        "silent_seconds",
        "gauge",
        "time since the last sign of life of the rank",
        lambda member: member["silent_for"],
    ),
)

_OF_TABLES: Final = (
    _Metric("gets_total", "counter", "gets of the ranks here", _sum("gets")),
    _Metric("adds_total", "counter", "adds of the ranks here", _sum("adds")),
    _Metric("got_bytes_total", "counter", "bytes that gets have copied", _sum("bytes_got")),
    _Metric("added_bytes_total", "counter", "bytes of the deltas of adds", _sum("bytes_added")),
    _Metric("sent_bytes_total", "counter", "bytes sent to other nodes", _sum("bytes_sent")),
    _Metric(
        "received_bytes_total", "counter", "bytes received from other nodes", _sum("bytes_received")
    ),
    _Metric(
        "waiting_seconds_total", "counter", "time that ranks have waited", _sum("waiting", 1e-9)
    ),
    _Metric(
        "keys",
        "gauge",
        "keys of a hash table on this node",
        lambda table: table["keys"][0] if table["keys"] else None,
    ),
)


def metrics(jobs: Iterable[_node_jobs.JobState]) -> str:
    """Return the metrics of jobs, in the text format of Prometheus."""
    ranks, tables = [], []
    for job in jobs:
        content = job.content
        labels = {
            "job_name": content["name"],
            "session": str(content["session"]),
            "node": str(content["node"]),
        }
        members = _node_jobs.summarize(job, None)["members"]
        ranks += [({**labels, "rank": str(member["rank"])}, member) for member in members]
        tables += [
            ({**labels, "table": table["name"], "table_id": str(table["id"])}, table)
            for table in content["tables"]
        ]
    lines = [*_lines("rank", _OF_RANKS, ranks), *_lines("table", _OF_TABLES, tables)]
    return "".join(f"{line}\n" for line in lines)


def _lines(
    what: str,
    found: Iterable[_Metric],
    objects: Iterable[tuple[dict[str, str], dict[str, Any]]],
) -> Iterable[str]:
    for metric in found:
        name = f"multiverso_{what}_{metric.name}"
        yield f"# HELP {name} {metric.text}"
        yield f"# TYPE {name} {metric.kind}"
        for labels, content in objects:
            value = metric.value(content)
            if value is not None:
                pairs = ",".join(f'{key}="{label(text)}"' for key, text in labels.items())
                yield f"{name}{{{pairs}}} {value}"


def label(text: str) -> str:
    """Return a text as the value of a label."""
    return text.translate(_ESCAPES)


class _Handler(http.server.BaseHTTPRequestHandler):
    server: "_Server"
    timeout = _TIMEOUT

    def do_GET(self) -> None:  # noqa: N802 (a name of http.server)
        """Answer with the metrics."""
        self.server.asking.pop(self.connection, None)
        if self.path.partition("?")[0] != "/metrics":
            self.send_error(404, "expected /metrics")
            return
        try:
            body = metrics(_node_jobs.find_jobs()).encode(errors="replace")
        except (MultiversoError, OSError) as error:
            self.send_error(500, "the jobs cannot be read", str(error))
            return
        self.send_response(200)
        self.send_header("Content-Type", _CONTENT_TYPE)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *arguments: Any) -> None:
        """Print nothing for each request."""


class _Server(http.server.ThreadingHTTPServer):
    def __init__(self, host: str, port: int) -> None:
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._free = threading.BoundedSemaphore(_MAX_CLIENTS)
        #: The clients whose requests are not complete yet, in the order in which they have come.
        self.asking: dict[Any, None] = {}
        self._accepted: queue.SimpleQueue[tuple[Any, Any]] = queue.SimpleQueue()
        super().__init__((host, port), _Handler)
        # With a thread for each client, one that is just ending would be one too many.
        for _ in range(_MAX_CLIENTS):
            threading.Thread(target=self._answer_clients, daemon=True).start()

    def _answer_clients(self) -> None:
        while True:
            self.process_request_thread(*self._accepted.get())

    def process_request(self, request: Any, client_address: Any) -> None:
        """Hand the client to a thread; of too many, end the one that has asked for longest."""
        if not self._free.acquire(blocking=False):
            # Clients that send no request must not keep others waiting.
            for client in list(self.asking)[:1]:
                with contextlib.suppress(OSError):  # It may have gone meanwhile.
                    client.shutdown(socket.SHUT_RDWR)
            self._free.acquire()
        self.asking[request] = None
        self._accepted.put((request, client_address))

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Answer the client."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self.asking.pop(request, None)
            self._free.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Print the traceback of an error, unless the client has gone, which is no fault here."""
        if not isinstance(sys.exc_info()[1], OSError):
            super().handle_error(request, client_address)


def serve(host: str, port: int, announce: Callable[[str], object]) -> None:
    """Serve the metrics until an exception ends it; `announce` gets the address, also of port 0."""
    shown = f"[{host}]" if ":" in host else host
    try:
        server = _Server(host, port)
    except OSError as error:
        raise OSError(f"cannot serve at {shown}:{port}: {error.strerror}") from error
    with server:
        announce(f"http://{shown}:{server.server_address[1]}/metrics")
        server.serve_forever()
