"""The base class of tests that publish to a folder."""

import os

import folders
import sessions

import multiverso as mv


def live_cut(names=None):
    """Return what a reader on this machine gets of the last version."""
    with mv.attach(os.getpid()) as view:
        return view.cut(names)


class FolderTestCase(folders.FolderTestCase, sessions.SessionCleanupTestCase):
    def setUp(self):
        super().setUp()
        self.folder = self.folder / "published"

    def files(self):
        """Return the names of the publications' files."""
        return sorted(path.name for path in self.folder.glob("*.safetensors"))

    def check_same_bits(self, received, expected):
        self.assertEqual(received.dtype, expected.dtype)
        self.assertEqual(received.tobytes(), expected.tobytes())
