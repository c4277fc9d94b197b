"""The serving example: a server follows a trainer, through real requests over loopback."""

import json
import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest
from folders import FolderTestCase
from requirements import needs

pytestmark = [pytest.mark.slow, pytest.mark.one_mpi, pytest.mark.frameworks]

FOLDER = Path(__file__).resolve().parents[2] / "examples" / "serving"
TIMEOUT = 120


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@needs("fastapi", "uvicorn")
class TestServing(FolderTestCase):
    def setUp(self):
        super().setUp()
        self.published = str(self.folder / "published")

    def train(self, *arguments):
        """Train to the end."""
        program = [str(FOLDER / "trainer.py"), "--to", self.published, *arguments]
        command = [sys.executable, "-m", "multiverso", "run", "--no-mpi", "-np", "2", *program]
        result = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT)
        self.assertEqual(result.returncode, 0, result.stderr)
        return result.stdout

    def start_server(self):
        self.port = free_port()
        command = [sys.executable, "-m", "uvicorn", "--app-dir", str(FOLDER), "server:app"]
        server = subprocess.Popen(
            [*command, "--port", str(self.port)],
            env={**os.environ, "PUBLISHED": self.published},
            stderr=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
        )

        def stop():
            server.terminate()
            server.wait(TIMEOUT)

        self.addCleanup(stop)

    def ask(self, question):
        """Return the answer of the server, which may still be starting."""
        deadline = time.monotonic() + TIMEOUT
        while True:
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/{question}") as answer:
                    return json.load(answer)
            except urllib.error.HTTPError:
                raise
            except urllib.error.URLError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.1)

    def await_version(self, version):
        deadline = time.monotonic() + TIMEOUT
        while self.ask("version")["version"] < version:
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.1)

    def test_server_follows_a_trainer_and_its_successor(self):
        self.assertIn("published 5 times", self.train("--steps", "1500", "--every", "300"))
        self.start_server()
        self.assertEqual(self.ask("version"), {"version": 5, "step": 1500})
        answer = self.ask("items?user=user-1600&count=10")
        self.assertEqual(answer["step"], 1500)
        # A user of group 0 likes items of group 0. Workers do not wait for each other, so the
        # result is another one each time.
        groups = [int(item["id"].removeprefix("item-")) % 4 for item in answer["items"]]
        self.assertGreaterEqual(groups.count(0), 7)
        with self.assertRaises(urllib.error.HTTPError) as caught:
            self.ask("items?user=user-1")  # who has lost the row to a later one
        self.assertEqual(caught.exception.code, 404)
        self.train("--steps", "300", "--every", "100")
        self.await_version(8)
        self.assertEqual(self.ask("version"), {"version": 8, "step": 300})
        self.assertTrue(self.ask("items?user=user-301")["items"])
