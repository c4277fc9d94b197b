"""The base class of tests that write checkpoints."""

import tempfile
import unittest
from pathlib import Path


class Folder(unittest.TestCase):
    """Gives each test a temporary folder."""

    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.folder = Path(temporary.name)

    def names(self):
        return sorted(path.name for path in self.folder.iterdir())
