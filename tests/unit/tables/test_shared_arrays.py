"""The delta buffer and the view of a table on one rank, and arrays that outlive the table."""

import gc

from sessions import SessionCleanupTestCase

import multiverso as mv


class TestSharedArrays(SessionCleanupTestCase):
    def test_sync_mode_on_one_node_copies_nothing(self):
        with mv.session(sync=True):
            table = mv.ArrayTableHandler(1000)
            self.assertIs(table.delta_buffer(), table.delta_buffer())
            self.assertIs(table.view(), table.view())
            view = table.view()
            delta = table.delta_buffer()
            delta[:] = 1
            table.add(delta)
            table.view()
            self.assertTrue((view == 1).all())  # the array is the table's memory

    def test_arrays_outlive_the_table_and_the_session(self):
        for options in ({}, {"sync": True}):
            with self.subTest(options):
                with mv.session(**options):
                    table = mv.ArrayTableHandler(100_000)
                    delta, view = table.delta_buffer(), table.view()
                    live = table.view(live=not options)
                    part = delta[5:10]
                    del table
                    gc.collect()
                    delta[:] = 7
                del delta
                gc.collect()
                self.assertTrue((part == 7).all())
                self.assertFalse(view.any() or live.any())
                with self.assertRaisesRegex(ValueError, "read-only"):
                    live[...] = 0
