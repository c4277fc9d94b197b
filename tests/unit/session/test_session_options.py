"""The options of a session: accepted values, rejected values and effects on one rank."""

import tempfile

import numpy as np
from sessions import SessionCleanupTestCase

import multiverso as mv
from multiverso.api import current_session


class TestOptions(SessionCleanupTestCase):
    def refused(self, error, text, *arguments, **options):
        """Check that init raises this error and opens no session."""
        with self.assertRaisesRegex(error, text):
            mv.init(*arguments, **options)
        self.assertFalse(mv.is_initialized())

    def test_rejects_invalid_roles(self):
        self.refused(ValueError, "'all', 'worker', 'server', received 'master'$", role="master")
        self.refused(ValueError, "received 'default'; write 'all'$", role="default")
        self.refused(ValueError, "received 'none'; start fewer ranks$", role="none")
        self.refused(TypeError, "received 1", role=1)
        self.refused(TypeError, "received None", role=None)

    def test_accepts_positive_timeouts_and_rejects_others(self):
        for name in ("timeout", "start_timeout"):
            for wrong in (0, -1, -0.0, float("nan"), float("inf"), np.float64("inf")):
                self.refused(ValueError, f"^{name}: .*seconds above 0", **{name: wrong})
            for wrong in ("1", True, np.bool_(True), 1j, [1]):
                text = f"^{name}: .*seconds above 0, or None for no limit, received"
                self.refused(TypeError, text, **{name: wrong})
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
        self.refused(ValueError, "'fail', 'continue', received 'go'", on_peer_lost="go")
        self.refused(TypeError, "received True", on_peer_lost=True)
        with mv.session(on_peer_lost="continue"):
            self.assertEqual(current_session().lost_ranks(), ())
            self.assertTrue(mv.is_master_worker())
            self.assertEqual(mv.ArrayTableHandler(2, 7).get().tolist(), [7, 7])
            self.assertEqual(mv.aggregate(np.ones(100_000)).sum(), 100_000)

    def test_rejects_invalid_peer_timeouts(self):
        for wrong in (0, -1, float("nan")):
            self.refused(ValueError, "peer_timeout: .* above 0", peer_timeout=wrong)
        self.refused(TypeError, "peer_timeout: ", peer_timeout="1")

    def test_rejects_invalid_staleness(self):
        self.refused(ValueError, "0 to", staleness=-1)
        for wrong in (1.0, "1", True, np.bool_(False)):
            self.refused(TypeError, "int", staleness=wrong)

    def test_staleness_zero_is_sync_mode(self):
        with mv.session(staleness=0) as session:
            self.assertIs(mv.init(sync=True), session)

    def test_finish_is_a_no_op_in_async_mode(self):
        with mv.session():
            mv.finish()
            self.assertEqual(mv.ArrayTableHandler(1).add_get([1]).tolist(), [1])
