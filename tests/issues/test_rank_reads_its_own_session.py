"""A rank that read its own session counted as dead, since closing the segment ended its lock."""

import os
import unittest

import multiverso as mv


def read_own_session(name):
    with mv.session(name=name):
        table = mv.ArrayTableHandler(4)
        mv.barrier()
        if mv.rank() == 0:
            with mv.attach(name) as view:
                view.tables["table 0"].get()
        mv.barrier()
        table.add([1] * 4)
        mv.barrier()
        return float(table.get().sum())


class TestRankReadsItsOwnSession(unittest.TestCase):
    def test_rank_that_attaches_stays_a_member(self):
        sums = mv.spawn(read_own_session, 2, (f"own-{os.getpid()}",), method="fork")
        self.assertEqual(sums, [8, 8])
