"""fetch_add, contains and stats raised StateError while another thread trained with rounds."""

import threading
import unittest

import numpy as np

import multiverso as mv

CALLS = 100


def _call_beside_training(train, *calls):
    """Make each of `calls` while another thread runs `train` again and again."""
    has_begun, ends = threading.Event(), threading.Event()
    errors = []

    def loop():
        try:
            while not ends.is_set():
                train()
                has_begun.set()
        except Exception as error:
            errors.append(error)
        has_begun.set()

    thread = threading.Thread(target=loop)
    thread.start()
    try:
        has_begun.wait()
        for _ in range(CALLS):
            for call in calls:
                call()
    finally:
        ends.set()
        thread.join()
    if errors:
        raise errors[0]


class TestCallsBesideTraining(unittest.TestCase):
    def test_calls_on_keys_are_in_no_round(self):
        for mode in ({"staleness": 1}, {"sync": True}):
            with self.subTest(mode), mv.session(**mode):
                table = mv.HashTable(2, 20_000)
                keys = np.arange(10_000)
                delta = np.ones((10_000, 2), np.float32)
                _call_beside_training(
                    lambda table=table, keys=keys, delta=delta: table.add(delta, keys),
                    table.stats,
                    lambda table=table, keys=keys: table.contains(keys[:10]),
                )

    def test_elements_are_changed_in_no_round(self):
        with mv.session(staleness=1):
            weights = mv.ArrayTable(1_000_000)
            delta = np.ones(1_000_000, np.float32)
            _call_beside_training(
                lambda: weights.add(delta), lambda: weights.fetch_add(0, 1), weights.peek
            )
