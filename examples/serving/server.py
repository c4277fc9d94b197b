"""Serves the recommender that trainer.py trains, over HTTP and without a framework for it.

    python examples/serving/server.py --attach shop                # on the trainer's machine
    python examples/serving/server.py --follow shop/published      # on any machine
    curl 'http://127.0.0.1:8000/items?user=user-123&count=3'

The server needs no MPI and no session. Attached, it answers with the rows of the users as they are
at this moment, and with the towers of the last release; without a trainer it has no answer. When it
follows the folder, all is of the last release, also if no trainer runs. The lines for Multiverso
are marked `MULTIVERSO`.
"""

import argparse
import contextlib
import json
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

import torch
from towers import ITEMS, TwoTowers

import multiverso as mv
from multiverso.torch_ext import load_live


class Service:
    """The model over the tables of a view."""

    def __init__(self, args):
        self.args, self.version, self.view = args, 0, None
        self.lock = threading.RLock()
        self.open(timeout=60)

    def open(self, timeout):
        """Attach to the trainer, or follow its folder."""
        if self.view is not None:
            self.view.close()
        # MULTIVERSO: the towers and the rows of another process, which trains them.
        if self.args.follow is not None:
            # A user whom nobody knows has a row of zeros.
            self.view = mv.follow(self.args.follow, timeout=timeout, default=0.0)
            self.lock = self.view.lock  # A new version comes while nobody holds it.
            threading.Thread(target=self.keep_following, daemon=True).start()
        else:
            self.view = mv.attach(self.args.attach, timeout=timeout)
            self.view.wait(1, timeout=timeout)
        tables = self.view.tables
        self.model, self.version = TwoTowers(tables["users"], tables["items"]).eval(), 0

    def keep_following(self):
        """Bring the tables to each new version."""
        while True:
            try:
                self.view.wait(timeout=60)
            except mv.OperationTimeout:
                pass
            except mv.errors.PublicationError as error:  # The tables are as before.
                print(error, file=sys.stderr, flush=True)

    def answer(self, path, query):
        """Return the answer to a request, or None if there is no such page."""
        with self.lock, torch.inference_mode():
            version = self.view.version
            if self.version != version:
                # MULTIVERSO: the towers of that version.
                self.step, self.version = load_live(self.model, self.view), version
            answer = {"version": self.version, "step": self.step}
            if path == "/version":
                return answer
            if path != "/items" or "user" not in query:
                return None
            scores = self.model(query["user"][:1], ITEMS)
            best = scores.topk(min(int(query.get("count", "5")[0]), len(ITEMS)))
            pairs = zip(best.values.tolist(), best.indices.tolist(), strict=True)
            return {**answer, "items": [{"id": ITEMS[i], "score": score} for score, i in pairs]}

    def respond(self, url):
        """Return the status of HTTP and the answer to a request."""
        parts = urlsplit(url)
        try:
            answer = self.answer(parts.path, parse_qs(parts.query))
        except mv.errors.StateError as error:  # The trainer has ended. Another one may run already.
            with self.lock, contextlib.suppress(mv.errors.StateError, mv.OperationTimeout):
                self.open(timeout=0)
            return 503, {"error": str(error)}
        return (404, {"error": "no such page"}) if answer is None else (200, answer)


def handler_of(service):
    """Return the class of a handler of requests."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            status, answer = service.respond(self.path)
            body = json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *arguments):
            """Print no line for each request."""

    return Handler


def main():
    """Serve until the process is ended."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--attach", metavar="NAME", help="of the trainer's session")
    source.add_argument("--follow", metavar="FOLDER", help="of the publications")
    parser.add_argument("--port", type=int, default=8000, help="(default 8000; 0 for any)")
    args = parser.parse_args()
    torch.set_num_threads(1)
    server = ThreadingHTTPServer(("127.0.0.1", args.port), handler_of(Service(args)))
    print(f"serves http://127.0.0.1:{server.server_port}", flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
