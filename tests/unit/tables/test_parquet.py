"""Parquet files of tables with keys."""

import tempfile
import unittest
from pathlib import Path

import numpy as np
import pytest
import sessions
from requirements import is_installed

import multiverso as mv

pytestmark = pytest.mark.frameworks


@unittest.skipUnless(is_installed("pyarrow"), "needs pyarrow")
class TestParquet(sessions.SessionTestCase):
    def setUp(self):
        super().setUp()
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.file = Path(folder.name, "rows.parquet")

    def read(self):
        """Return the rows of the file by key."""
        import pyarrow.parquet

        columns = pyarrow.parquet.read_table(self.file).to_pydict()
        self.assertEqual(list(columns), ["key", "row"])
        return dict(zip(columns["key"], columns["row"], strict=True))

    def test_has_the_keys_with_their_rows(self):
        table = mv.HashTable(2, capacity=1000, dtype="float64")
        rng = np.random.default_rng(0)
        for _ in range(5):
            keys = rng.integers(-50, 50, 20)
            table.add(rng.normal(size=(20, 2)), keys=keys)
            table.remove(keys[:5])
            expected = {
                int(k): row.tolist()
                for ks, rows in table.items()
                for k, row in zip(ks, rows, strict=True)
            }
            table.to_parquet(self.file)
            self.assertEqual(self.read(), expected)

    def test_empty_table_is_an_empty_file(self):
        mv.HashTable(2, capacity=10).to_parquet(self.file)
        self.assertEqual(self.read(), {})

    def test_failure_keeps_the_file(self):
        self.file.write_text("before")
        with self.assertRaises(OSError):
            mv.HashTable(2, capacity=10).to_parquet(self.file / "below")
        self.assertEqual([path.name for path in self.file.parent.iterdir()], ["rows.parquet"])


if __name__ == "__main__":
    unittest.main()
