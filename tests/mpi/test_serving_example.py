"""The serving example: servers go with a trainer that is killed, started again and rolled back."""

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

pytestmark = [
    pytest.mark.slow,
    pytest.mark.one_mpi,
    pytest.mark.frameworks,
    needs_found_sessions,
]

#: The longest that a process runs, and that a wait takes.
WALL, TIMEOUT = 400, 150

TRAINER, SERVER = EXAMPLES / "serving" / "trainer.py", EXAMPLES / "serving" / "server.py"
USERS = range(100, 200, 9)


@needs("torch")
class TestServing(FolderTestCase):
    def start(self, *command):
        """Start Python in a process group of its own, which is killed at the wall limit."""
        process = subprocess.Popen(
            [sys.executable, *map(str, command)],
            cwd=self.folder,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        limit = threading.Timer(WALL, self.kill, (process,))
        limit.start()
        self.addCleanup(limit.cancel)
        self.addCleanup(self.kill, process)
        return process

    def kill(self, process):
        """Kill a process group, and wait until all who print there have ended."""
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        if not process.stdout.closed:
            process.communicate()

    def train(self, *options, ranks=2):
        job = ("-m", "multiverso", "run", "--no-mpi", "-np", str(ranks), TRAINER)
        options = ("--folder", self.folder / "shop", "--name", f"shop-{os.getpid()}", *options)
        return self.start(*job, *options)

    def serve(self, *source):
        server = self.start(SERVER, "--port", "0", *source)
        address = server.stdout.readline().split()[-1]

        def ask(question):
            """Return the status and the answer."""
            try:
                with urllib.request.urlopen(f"{address}/{question}", timeout=TIMEOUT) as answer:
                    return answer.status, json.load(answer)
            except urllib.error.HTTPError as error:
                return error.code, json.load(error)

        return ask

    def await_answer(self, ask, is_there):
        deadline = time.monotonic() + TIMEOUT
        while not is_there(*(found := ask("items?user=user-99"))):
            self.assertLess(time.monotonic(), deadline, found)
            time.sleep(0.1)
        return found[1]

    def check_likes(self, ask):
        """Check that users get items of their group."""
        answers = [ask(f"items?user=user-{user}&count=10")[1]["items"] for user in USERS]
        likes = [
            int(item["id"].removeprefix("item-")) % 4 == user % 4
            for user, items in zip(USERS, answers, strict=True)
            for item in items
        ]
        self.assertGreater(sum(likes) / len(likes), 0.6)

    def test_servers_go_with_a_trainer_that_is_killed_and_goes_back(self):
        trainer = self.train("--steps", "100000", "--every", "100", "--keep", "1000")
        for step in range(100, 700, 100):
            self.assertEqual(trainer.stdout.readline(), f"released step {step}\n")
        attached = self.serve("--attach", f"shop-{os.getpid()}")
        following = self.serve("--follow", self.folder / "shop" / "published")
        for ask in (attached, following):
            self.await_answer(ask, lambda status, answer: status == 200 and answer["step"] >= 600)
            self.check_likes(ask)
            self.assertEqual(ask("items?user=nobody&count=3")[0], 200)
            self.assertEqual(ask("users")[0], 404)

        self.kill(trainer)
        self.await_answer(attached, lambda status, answer: status == 503)
        last = self.await_answer(following, lambda status, answer: status == 200)
        self.check_likes(following)

        trainer = self.train("--steps", "100000", "--every", "100", "--keep", "1000")
        first = int(trainer.stdout.readline().split()[-1])
        self.assertIn(first, (last["step"], last["step"] + 100))  # a kill between the two calls
        for ask in (attached, following):
            self.await_answer(ask, lambda status, answer: status == 200 and answer["step"] > first)
            self.check_likes(ask)

        self.kill(trainer)
        trainer = self.train("--back-to", "100", "--steps", "100", ranks=1)
        self.assertEqual(trainer.communicate()[0], "released step 100\n")
        back = self.await_answer(following, lambda status, answer: answer["step"] == 100)
        self.assertGreater(back["version"], last["version"])
        trainer = self.train("--steps", "100", ranks=1)
        self.assertEqual(trainer.communicate()[0], "released step 100\n")


if __name__ == "__main__":
    import unittest

    unittest.main()
