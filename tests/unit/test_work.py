"""`multiverso.Work` on one rank; several are in programs/working.py and fault_programs.py."""

from unittest import mock

import numpy as np
from folders import FolderTestCase
from sessions import SessionCleanupTestCase

import multiverso as mv


class TestWork(SessionCleanupTestCase, FolderTestCase):
    def test_hands_out_each_item_once_and_in_order(self):
        with mv.session():
            work = mv.Work("abc", name="letters")
            self.assertEqual(len(work), 3)
            self.assertEqual(list(work), ["a", "b", "c"])
            self.assertEqual(list(work), [])
            self.assertEqual(list(mv.Work(np.arange(2))), [0, 1])
            self.assertEqual(list(mv.Work([])), [])
            self.assertIn("letters", mv.stats())

    def test_exception_in_the_loop_gives_the_item_back(self):
        with mv.session():
            work = mv.Work(range(3))
            done = []
            with self.assertRaisesRegex(ValueError, "bad item"):
                for item in work:
                    if item == 1:
                        raise ValueError("bad item")
                    done.append(item)
            self.assertEqual(done, [0])
            self.assertEqual(list(work), [2, 1])

    def test_item_that_cannot_be_read_is_given_back(self):
        with mv.session():
            items = mock.MagicMock()
            items.__len__.return_value = 2
            items.__getitem__.side_effect = [OSError("no such file"), "second", "first"]
            work = mv.Work(items)
            with self.assertRaisesRegex(OSError, "no such file"):
                list(work)
            self.assertEqual(list(work), ["second", "first"])

    def test_item_in_another_loop_is_not_handed_out_until_its_lease_ends(self):
        with mv.session(), mock.patch("multiverso.work.time") as clock:
            clock.time.return_value = 1000.0
            clock.sleep.side_effect = lambda _: setattr(
                clock.time, "return_value", clock.time.return_value + 1
            )
            work = mv.Work(range(2), lease=10)
            slow = iter(work)
            self.assertEqual(next(slow), 0)
            received = [(item, clock.time.return_value) for item in work]
            self.assertEqual(received, [(1, 1000.0), (0, 1010.0)])
            self.assertEqual(list(slow), [])

    def test_item_done_after_its_lease_ended_is_done(self):
        with mv.session(), mock.patch("multiverso.work.time") as clock:
            clock.time.return_value = 1000.0
            work = mv.Work(range(1), lease=10)
            slow, quick = iter(work), iter(work)
            self.assertEqual(next(slow), 0)
            clock.time.return_value = 1011.0
            self.assertEqual(next(quick), 0)
            self.assertEqual(list(slow), [])
            self.assertEqual(list(work), [])

    def test_load_hands_out_what_was_not_done(self):
        with mv.session():
            work = mv.Work(range(6), lease=3600, name="shards")
            loop = iter(work)
            self.assertEqual([next(loop), next(loop), next(loop)], [0, 1, 2])
            # A rank that the next job does not have holds item 3.
            work._states.compare_swap(3, 0, (7 + 1) << 42 | 2**42 - 1)
            mv.save(self.folder)
            loop.close()
        with mv.session():
            work = mv.Work(range(6), name="shards")
            mv.load(self.folder)
            self.assertEqual(list(work), [4, 5, 2, 3])

    def test_load_in_the_loop_hands_out_what_was_done_since_the_save(self):
        with mv.session():
            work = mv.Work(range(4))
            mv.save(self.folder)
            received = []
            for item in work:
                received.append(item)
                if received == [0, 1, 2, 3]:
                    mv.load(self.folder)
            self.assertEqual(received, [0, 1, 2, 3, 0, 1, 2, 3])

    def test_closing_the_loop_after_the_session_raises_nothing(self):
        with mv.session():
            loop = iter(mv.Work(range(2)))
            next(loop)
        loop.close()
