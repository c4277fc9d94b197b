"""The base class of tests that write files."""

import tempfile
import unittest
from pathlib import Path


class FolderTestCase(unittest.TestCase):
    """Gives each test a temporary folder."""

    def setUp(self):
        super().setUp()
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.folder = Path(temporary.name)

    def names(self):
        return sorted(path.name for path in self.folder.iterdir())
