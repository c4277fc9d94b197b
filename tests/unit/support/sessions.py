"""Base classes of tests that open sessions."""

import unittest
from unittest import mock

import multiverso as mv
from multiverso._native import library


class SessionCleanupTestCase(unittest.TestCase):
    """Closes the session after each test, if one is open."""

    def tearDown(self):
        if mv.is_initialized():
            mv.shutdown()


class SessionTestCase(SessionCleanupTestCase):
    """Opens a session before each test, and closes it afterwards."""

    def setUp(self):
        mv.init()

    def interrupt(self, sync, *arguments):
        """Call a function that syncs, with Ctrl-C during its exchange."""
        exchange = mock.patch.object(
            library.checked, "MV_ParamSyncRun", side_effect=KeyboardInterrupt
        )
        with exchange, self.assertRaises(KeyboardInterrupt):
            sync(*arguments)
