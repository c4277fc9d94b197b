"""A process that opens and closes sessions, or adds, needs no more and more resources.

The counts are small here. MULTIVERSO_SOAK=full makes them 1 000 sessions and 1e6 adds.
"""

import mmap
import os
import re
import sys
import threading
import unittest
from pathlib import Path
from typing import NamedTuple

import pytest
from programs import run_program

pytestmark = pytest.mark.slow

FULL = os.environ.get("MULTIVERSO_SOAK") == "full"
SESSIONS, ADDS = (1_000, 1_000_000) if FULL else (60, 30_000)

#: This program runs in its own process: memory that other tests have freed would hide growth.
PROGRAM = """
import gc, sys
from test_soak import Usage
import numpy as np
import multiverso as mv
sessions, adds = map(int, sys.argv[1:])
delta, rows = np.ones(5000, np.float32), np.ones((7, 10), np.float32)

def use(calls):
    with mv.session():
        table = mv.ArrayTableHandler(5000)
        matrix = mv.MatrixTableHandler(50, 10, updater="adam")
        for call in range(calls):
            table.add(delta, sync=call % 100 == 0)
            if call % 10 == 0:
                matrix.add(rows, [1, 2, 3, 4, 5, 6, 49])
                table.get(out=delta)
                delta[:] = 1
        assert (table.get() == calls).all()

def usages(warm_up):
    # Yields the usage after the warm-up, whose one-time allocations do not count, and a later one.
    warm_up(); warm_up(); gc.collect()
    yield Usage.now()
    gc.collect()
    yield Usage.now()

for name, warm_up, work in (
    ("sessions", lambda: [use(3) for _ in range(20)], lambda: [use(3) for _ in range(sessions)]),
    ("adds", lambda: use(2000), lambda: use(adds)),
):
    measured = usages(warm_up)
    before = next(measured)
    work()
    after = next(measured)
    print(name, before, after, flush=True)
    after.check_has_not_grown(before)
"""


class Usage(NamedTuple):
    """The bytes of memory, descriptors, mapped segments and threads of a process."""

    memory: int
    descriptors: int
    segments: int
    threads: int

    @classmethod
    def now(cls):
        status = Path("/proc/self/status").read_text("ascii")
        memory = int(re.search(r"VmRSS:\s+(\d+) kB", status).group(1)) * 1024
        threads = int(re.search(r"Threads:\s+(\d+)", status).group(1))
        maps = Path("/proc/self/maps").read_text("utf-8").splitlines()
        segments = sum("memfd:" in line or "/dev/shm" in line for line in maps)
        return cls(memory, len(os.listdir("/proc/self/fd")), segments, threads)

    def check_has_not_grown(self, before):
        for name in ("descriptors", "segments", "threads"):
            assert getattr(self, name) <= getattr(before, name), f"{name}: {before}, {self}"
        # The allocators of C and Python may keep this much memory, whatever the counts are.
        assert self.memory <= before.memory + (3 << 20), f"memory: {before}, {self}"


class TestSoak(unittest.TestCase):
    def test_sessions_and_adds_leak_nothing(self):
        status, printed, errors = run_program(
            PROGRAM, SESSIONS, ADDS, first_on_path=[Path(__file__).parent, *sys.path]
        )
        self.assertEqual(status, 0, printed + errors)
        self.assertEqual(printed.count("segments"), 4)

    def test_growth_is_detected(self):
        before = Usage.now()
        descriptor = os.open("/dev/null", os.O_RDONLY)
        self.addCleanup(os.close, descriptor)
        with self.assertRaisesRegex(AssertionError, "descriptors"):
            Usage.now().check_has_not_grown(before)
        before = Usage.now()
        finished = threading.Event()
        thread = threading.Thread(target=finished.wait)
        thread.start()
        with self.assertRaisesRegex(AssertionError, "threads"):
            Usage.now().check_has_not_grown(before)
        finished.set()
        thread.join()
        before = Usage.now()
        # An allocator may have free memory, so the test maps new memory and touches each page.
        with mmap.mmap(-1, 64 << 20) as memory:
            for page in range(0, len(memory), mmap.PAGESIZE):
                memory[page] = 1
            with self.assertRaisesRegex(AssertionError, "memory"):
                Usage.now().check_has_not_grown(before)
