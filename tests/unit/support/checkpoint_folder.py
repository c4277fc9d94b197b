"""A folder of its own for each test of checkpoints."""

import tempfile
import unittest
from pathlib import Path


class Folder(unittest.TestCase):
    """A test with a folder of its own, and a session if it opens one."""

    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.folder = Path(temporary.name)

    def names(self):
        return sorted(path.name for path in self.folder.iterdir())
