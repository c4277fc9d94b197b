"""Elastic sessions of one rank: options, membership, leaving; others: tests/mpi/test_elastic.py."""

import os
import threading
from unittest import mock

from sessions import SessionCleanupTestCase

import multiverso as mv
from multiverso._local.processes import has_session, join_targets
from multiverso._session import membership
from multiverso.api import current_session
from multiverso.sync._shares import Shares, share_of_parameter


class TestElasticSession(SessionCleanupTestCase):
    def test_one_rank_is_the_only_worker(self):
        for options in ({}, {"staleness": 2}, {"on_peer_lost": "continue"}):
            with mv.session(elastic=True, **options) as session:
                self.assertEqual(current_session().membership(), (1, (0,), ()))
                self.assertEqual(current_session().membership().workers, (0,))
                self.assertEqual(
                    (mv.num_workers(), mv.size(), current_session().num_servers), (1, 1, 1)
                )
                self.assertTrue(mv.is_master_worker())
            self.assertEqual((session.num_workers, session.size), (1, 1))

    def test_launcher_makes_the_session_elastic(self):
        with mock.patch.dict(os.environ, {"MULTIVERSO_ELASTIC": "1:3"}), mv.session() as session:
            self.assertTrue(session.options.elastic)
            self.assertEqual(session.options.max_workers, 3)

    def test_missing_session_cannot_be_joined(self):
        for target, text in (
            ("no such session", "no such session"),
            (str(2**22 + 1), "process 4194305 .*no session"),
        ):
            with (
                mock.patch.dict(os.environ, {"MULTIVERSO_JOIN": target}),
                self.assertRaisesRegex(mv.errors.StateError, text),
            ):
                mv.init(timeout=20)
            self.assertFalse(mv.is_initialized())

    def test_own_session_is_no_target(self):
        with mv.session(elastic=True):
            self.assertFalse(has_session(os.getpid()))
            self.assertRaisesRegex(mv.errors.StateError, "no session", join_targets, os.getpid())

    def test_leave_ends_sessions_that_continue(self):
        for options in ({"elastic": True}, {"on_peer_lost": "continue"}):
            mv.init(**options)
            table = mv.ArrayTableHandler(3)
            table.add_async([1, 2, 3])
            current_session().leave()
            self.assertFalse(mv.is_initialized())
            self.assertRaises(mv.errors.StateError, table.get)
            self.assertRaises(mv.errors.StateError, mv.leave)

    def test_shares_of_statistics_follow_the_workers(self):
        with mv.session(elastic=True) as session:
            mean = Shares("average", "x", False).of("float32")
            scaled = Shares("average", "x", True).of("float32")
            master = Shares("master", "x", True).of("float32")
            count = Shares("average", "x", False).of("int64")
            with mock.patch.object(type(session), "num_workers", 4):
                self.assertEqual([mean(), scaled(), master(), count()], [0.25, 1, 4, 1])
                with mock.patch.object(type(session), "is_master_worker", return_value=False):
                    self.assertEqual([mean(), scaled(), master(), count()], [0.25, 1, 0, 0])
            step = share_of_parameter("int64", average=True)
            self.assertEqual(step(), 1)
            with mock.patch.object(type(session), "is_master_worker", return_value=False):
                self.assertEqual(step(), 0)
            self.assertEqual(share_of_parameter("int64", average=False), 1)
        with mv.session():
            self.assertEqual(Shares("master", "x", True).of("float32"), 1)

    def test_shares_follow_the_master_of_a_session_that_continues(self):
        with mv.session(on_peer_lost="continue") as session:
            for share in (
                Shares("master", "x", False).of("float32"),
                Shares("average", "x", False).of("int64"),
                share_of_parameter("int64", average=True),
            ):
                self.assertEqual(share(), 1)
                with mock.patch.object(type(session), "is_master_worker", return_value=False):
                    self.assertEqual(share(), 0)


class TestOnMembership(SessionCleanupTestCase):
    def test_calls_after_changes_until_the_session_ends(self):
        first, second = membership.Membership(1, (0,), ()), membership.Membership(2, (0, 1), ())
        third = membership.Membership(3, (0, 1), (1,))
        looks = iter([first, first, second, second, third])
        called, received = threading.Event(), []

        def callback(membership):
            received.append(membership)
            if membership == second:
                raise ValueError("is logged")
            called.set()

        with (
            mv.session(elastic=True) as session,
            mock.patch.object(session, "membership", side_effect=lambda: next(looks, third)),
            self.assertLogs("multiverso", "ERROR") as logs,
        ):
            current_session().on_membership(callback)
            self.assertTrue(called.wait(60))
            (thread,) = (t for t in threading.enumerate() if t.name == "multiverso: membership")
            mv.shutdown()
            thread.join(60)
            self.assertFalse(thread.is_alive())
        self.assertEqual(received, [second, third])
        self.assertIn("is logged", logs.output[0])
