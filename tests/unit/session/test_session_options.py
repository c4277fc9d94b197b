"""The options of a session: accepted values, rejected values and effects on one rank."""

import tempfile

import numpy as np
from sessions import SessionCleanupTestCase

import multiverso as mv
from multiverso.api import current_session


class TestOptions(SessionCleanupTestCase):
    def test_accepts_positive_timeouts(self):
        for name in ("timeout", "start_timeout"):
            for right in (1, 0.001, 1e-9, 1e300, np.float32(3), np.int64(3), None):
                with mv.init(**{name: right}):
                    mv.barrier()

    def test_timeout_is_also_that_of_the_start_if_only_it_is_given(self):
        for given, expected in (
            ({}, (1800, 120)),
            ({"timeout": 1800}, (1800, 1800)),
            ({"timeout": None}, (None, None)),
            ({"timeout": None, "start_timeout": 5}, (None, 5)),
            ({"start_timeout": None}, (1800, None)),
        ):
            with mv.init(**given) as session, self.subTest(**given):
                options = session.options
                self.assertEqual((options.timeout, options.start_timeout), expected)
                table = mv.ArrayTable(2)
                table.add_async([1, 2]).result()
                table.flush()
                with tempfile.TemporaryDirectory() as folder:
                    mv.save(folder)
                    mv.load(folder)

    def test_on_peer_lost_continue_on_one_rank(self):
        with mv.session(on_peer_lost="continue"):
            self.assertEqual(current_session().lost_ranks(), ())
            self.assertTrue(mv.is_master_worker())
            self.assertEqual(mv.ArrayTableHandler(2, 7).get().tolist(), [7, 7])
            self.assertEqual(mv.aggregate(np.ones(100_000)).sum(), 100_000)

    def test_staleness_zero_is_sync_mode(self):
        with mv.session(staleness=0) as session:
            self.assertIs(mv.init(sync=True), session)

    def test_finish_is_a_no_op_in_async_mode(self):
        with mv.session():
            mv.finish()
            self.assertEqual(mv.ArrayTableHandler(1).add_get([1]).tolist(), [1])
