"""The serving example: servers go with a trainer that is killed, started again and goes back."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request

import pytest
from folders import FolderTestCase
from requirements import needs, needs_found_sessions

from example_programs import EXAMPLES

pytestmark = [pytest.mark.slow, pytest.mark.one_mpi, pytest.mark.frameworks, needs_found_sessions]

WALL, TIMEOUT = 400, 150  # seconds of a process, and for an answer
FOLDER, NAME = EXAMPLES / "serving", f"shop-{os.getpid()}"
USERS = range(100, 200, 9)


@needs("torch")
class TestServing(FolderTestCase):
    def start(self, *command):
        """Start Python in a process group of its own, which is killed at the wall limit."""
        options = {"stdout": subprocess.PIPE, "text": True, "start_new_session": True}
        process = subprocess.Popen([sys.executable, *map(str, command)], **options)
        limit = threading.Timer(WALL, self.kill, (process,))
        limit.start()
        self.addCleanup(self.kill, process)
        self.addCleanup(limit.cancel)
        return process

    def kill(self, process):
        """Kill a process group, and wait until all who print there have ended."""
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        if not process.stdout.closed:
            process.communicate()

    def train(self, *options, ranks="2"):
        job = ("-m", "multiverso", "run", "--no-mpi", "-np", ranks, FOLDER / "trainer.py")
        shop = ("--folder", self.folder, "--name", NAME, "--every", "100", "--keep", "1000")
        return self.start(*job, *shop, *options)

    def serve(self, *source):
        """Start a server, and return what asks it: the status and the answer to a question."""
        server = self.start(FOLDER / "server.py", "--port", "0", *source)
        address = server.stdout.readline().split()[-1]

        def ask(question):
            try:
                with urllib.request.urlopen(f"{address}/{question}", timeout=TIMEOUT) as answer:
                    return answer.status, json.load(answer)
            except urllib.error.HTTPError as error:
                return error.code, json.load(error)

        return ask

    def check_likes(self, ask, is_there=bool, least=0.6):
        """Wait for answers of such a step, with items of each user's group; return the step."""
        deadline = time.monotonic() + TIMEOUT
        while (found := ask("version"))[0] != 200 or not is_there(found[1]["step"]):
            self.assertLess(time.monotonic(), deadline, found)
            ask("items?user=user-99")  # An attached server looks for the next trainer.
            time.sleep(0.1)
        likes = [
            (int(item["id"].removeprefix("item-")) - user) % 4 == 0
            for user in USERS
            for item in ask(f"items?user=user-{user}&count=10")[1]["items"]
        ]
        self.assertGreaterEqual(sum(likes) / len(likes), least)
        return found[1]["step"]

    def test_servers_go_with_a_trainer_that_is_killed_and_goes_back(self):
        trainer = self.train("--steps", "100000")
        for step in range(100, 700, 100):
            self.assertEqual(trainer.stdout.readline(), f"released step {step}\n")
        attached = self.serve("--attach", NAME)
        following = self.serve("--follow", self.folder / "published")
        for ask in (attached, following):
            self.check_likes(ask, lambda step: step >= 600)
            self.assertEqual(ask("items?user=nobody&count=3")[0], 200)
            self.assertEqual(ask("users")[0], 404)

        self.kill(trainer)
        self.assertEqual(attached("items?user=user-99")[0], 503)
        last = self.check_likes(following)
        trainer = self.train("--steps", "100000")
        first = int(trainer.stdout.readline().split()[-1])
        self.assertGreaterEqual(first, last - 100)  # A kill may come between the two calls.
        for ask in (attached, following):
            self.check_likes(ask, lambda step: step > first)

        self.kill(trainer)
        for options in (("--back-to", "100"), ()):
            trainer = self.train("--steps", "100", *options, ranks="1")
            self.assertEqual(trainer.communicate()[0], "released step 100\n")
        self.check_likes(following, lambda step: step == 100, least=0)
