"""Checkpoints of tables with an initializer contain only the rows that have been changed."""

import checkpoint_bytes
import numpy as np
from folders import FolderTestCase

import multiverso as mv
from multiverso import checkpoint as checkpoints

INITIAL = mv.initializers.RandomNormal(1, 2, seed=3)
ROWS, COLUMNS = 400_000, 7
CHANGED = np.array([0, 1, 2, 7, 150_000, 150_001, 399_999])


def table_with(initial, name="w"):
    return mv.MatrixTableHandler(ROWS, COLUMNS, initial, updater="adam", name=name)


class TestLazyCheckpoints(FolderTestCase):
    def save(self, changed=CHANGED):
        """Save a table of which some rows have been changed; return its values then and later."""
        with mv.session():
            table = table_with(INITIAL)
            for delta in (1.0, -3.0):
                table.add(np.full((len(changed), COLUMNS), delta), changed)
            values = table.get()
            mv.save(self.folder, step=1)
            self.change(table)
            return values, table.get()

    def change(self, table):
        table.add(np.ones((4, COLUMNS)), [1, 2, 3, 399_998])

    def check_loads(self, table, expected):
        self.assertEqual(mv.load(self.folder), 1)
        np.testing.assert_array_equal(table.get(), expected[0])
        self.change(table)  # the state is that of the saved table, too
        np.testing.assert_array_equal(table.get(), expected[1])

    def test_bytes_match_the_documented_format(self):
        values, _ = self.save()
        path = checkpoints.latest(self.folder)
        manifest, arrays = checkpoint_bytes.read(path)
        self.assertEqual(manifest["version"], 2)
        self.assertEqual(manifest["tables"][0]["initializer"], (4, 0, 3, 1.0, 2.0))
        np.testing.assert_array_equal(arrays[0, 0][CHANGED], values[CHANGED])
        steps = arrays[0, checkpoint_bytes.STEPS].ravel()
        np.testing.assert_array_equal(np.flatnonzero(steps), CHANGED)
        self.assertLess(sum(file.stat().st_size for file in path.iterdir()), 40_000)
        with checkpoints.Checkpoint(path) as opened:
            opened.verify()
            np.testing.assert_array_equal(opened.read("w"), values)
            np.testing.assert_array_equal(opened.read_steps("w"), steps)
            np.testing.assert_array_equal(np.flatnonzero(opened.read("w", 0)[:, 0]), CHANGED)

    def test_many_rows_take_several_blocks(self):
        expected = self.save(np.arange(0, ROWS, 2))
        checkpoint_bytes.read(checkpoints.latest(self.folder))
        with mv.session():
            self.check_loads(table_with(INITIAL), expected)

    def test_rows_for_which_there_is_no_room_are_not_loaded(self):
        self.save()
        with mv.session():
            table = mv.MatrixTableHandler(
                ROWS, COLUMNS, INITIAL, updater="adam", name="w", max_bytes=300
            )
            with self.assertRaisesRegex(MemoryError, "max_bytes"):
                mv.load(self.folder)
            self.assertEqual(table.get(row_ids=[5]).shape, (1, COLUMNS))
