"""A changed checkpoint is loaded completely, or rejected before a table changes.

MULTIVERSO_EXAMPLES=10000 tries more changes, which differ in each run; messages have the seed.
"""

import os
import random
import struct

import checkpoint_bytes
import numpy as np
from folders import FolderTestCase

import multiverso as mv

MANY = os.environ.get("MULTIVERSO_EXAMPLES")
COUNT = int(MANY or 600)
SEED = random.SystemRandom().getrandbits(32) if MANY else 20261121
#: Numbers that a field may not expect.
EDGES = (0, 1, 2, 0xFF, 0xFFFF, 0x10000, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF)


def changed(data, rng):
    """Return the bytes with one to three random changes."""
    data = bytearray(data)
    for _ in range(rng.randint(1, 3)):
        offset = rng.randrange(len(data)) if data else 0
        match rng.randrange(5):
            case 0 if data:
                data[offset] ^= 1 << rng.randrange(8)
            case 1:
                del data[offset:]
            case 2:
                data[offset:offset] = rng.randbytes(rng.randint(1, 9))
            case 3:
                del data[offset : offset + rng.randint(1, 9)]
            case _ if len(data) >= 8:
                offset -= offset % 4
                offset = offset if offset + 4 <= len(data) else 0
                struct.pack_into("<I", data, offset, rng.choice(EDGES))
    return bytes(data)


def sorted_items(table):
    """Return the keys of a hash table with their rows, as a list of pairs."""
    return sorted(
        (int(key), row.tolist()) for part in table.items() for key, row in zip(*part, strict=True)
    )


class TestLoad(FolderTestCase):
    def setUp(self):
        super().setUp()
        mv.init()
        self.addCleanup(mv.shutdown)
        self.array = mv.ArrayTableHandler(50, np.arange(50), updater="momentum", name="w")
        self.matrix = mv.MatrixTableHandler(4, 5, np.arange(20), name="m", updater="adam")
        initial = mv.initializers.RandomUniform(seed=1)
        self.lazy = mv.MatrixTableHandler(90, 2, initial, name="lazy", updater="adam")
        self.array.add(np.ones(50))
        self.matrix.add(np.ones((2, 5)), [1, 3])
        self.lazy.add(np.ones((3, 2)), [4, 5, 88])
        self.keys = mv.HashTableHandler(2, 90, initial, name="keys", updater="adam")
        self.keys.add(np.ones((3, 2)), [-5, 2**60, 7])
        mv.save(self.folder, step=1)
        self.files = sorted((self.folder / "000001-step-1").iterdir())
        self.originals = [path.read_bytes() for path in self.files]
        # The tables now differ from the checkpoint, so a load would be noticed.
        self.array.add(np.ones(50))
        self.matrix.add(np.ones((4, 5)))
        self.lazy.add(np.ones((3, 2)), [3, 5, 80])
        self.keys.add(np.ones((2, 2)), [7, 8])
        self.values = self.state()
        self.rng = random.Random(SEED)

    def state(self):
        tables = (self.array, self.matrix, self.lazy)
        options = [table.options for table in (*tables, self.keys)]
        return [*(table.get() for table in tables), sorted_items(self.keys), options]

    def check_unchanged(self, message):
        for value, before in zip(self.state(), self.values, strict=True):
            np.testing.assert_equal(value, before, message)

    def test_detects_every_change(self):
        self.assertEqual([path.name for path in self.files], ["manifest.mv", "shard-00000.mv"])
        for number in range(COUNT):
            index = number % 2
            data = changed(self.originals[index], self.rng)
            if data == self.originals[index]:
                continue
            self.files[index].write_bytes(data)
            message = f"MULTIVERSO seed {SEED}, change {number}"
            with self.assertRaises(mv.errors.CheckpointCorruptError, msg=message) as caught:
                mv.load(self.folder)
            self.assertIn(str(self.files[index]), str(caught.exception))
            self.files[index].write_bytes(self.originals[index])
            if number % 10 == 0:
                self.check_unchanged(message)
        self.check_unchanged(f"seed {SEED}")
        self.assertEqual(mv.load(self.folder), 1)
        self.assertFalse((self.array.get() == self.values[0]).all())

    def test_change_with_valid_checksums_is_loaded_or_rejected(self):
        loaded = 0
        for number in range(COUNT // 2):
            data = changed(self.originals[0], self.rng)
            if len(data) < 8:
                continue
            data = checkpoint_bytes.with_crc(data)
            self.files[0].write_bytes(data)
            message = f"seed {SEED}, change {number}"
            try:
                mv.load(self.folder)
            except (mv.errors.CheckpointCorruptError, mv.errors.MismatchError):
                self.check_unchanged(message)
            else:
                loaded += 1
                self.values = self.state()
        self.assertGreater(loaded, 0)  # for example, another step or other options are valid
