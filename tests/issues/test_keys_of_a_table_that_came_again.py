"""A follower that passed over the version without a table was not told which keys have gone."""

import numpy as np
from publications import FolderTestCase

import multiverso as mv


class TestKeysOfATableThatCameAgain(FolderTestCase):
    def test_removed_tells_the_keys_of_the_table_before(self):
        view = None
        with mv.session(name="job"):
            for step, key in enumerate((5, None, 6)):
                if key is not None:
                    table = mv.HashTable(1, 9, name="keys")
                    table.add([[1]], keys=[key])
                mv.publish(step, to=self.folder)
                view = view or mv.follow(self.folder, timeout=60)
                table = None
            del table
        with view:
            while view.step < 2:
                view.wait(timeout=60)
            np.testing.assert_array_equal(view.changed("keys")[0], [6])
            np.testing.assert_array_equal(view.removed("keys"), [5])
