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
EDGES = (0, 1, 2, 0xFF, 0xFFFF, 0x10000, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF)


def changed(data, draw):
    """Return the bytes with one to three changes."""
    data = bytearray(data)
    for _ in range(draw.randint(1, 3)):
        at = draw.randrange(len(data)) if data else 0
        what = draw.randrange(5)
        if what == 0 and data:
            data[at] ^= 1 << draw.randrange(8)
        elif what == 1:
            del data[at:]
        elif what == 2:
            data[at:at] = draw.randbytes(draw.randint(1, 9))
        elif what == 3:
            del data[at : at + draw.randint(1, 9)]
        elif len(data) >= 8:
            at -= at % 4
            struct.pack_into("<I", data, at if at + 4 <= len(data) else 0, draw.choice(EDGES))
    return bytes(data)


class TestLoad(FolderTestCase):
    def setUp(self):
        super().setUp()
        mv.init()
        self.addCleanup(mv.shutdown)
        self.array = mv.ArrayTableHandler(50, np.arange(50), updater="momentum", name="w")
        self.matrix = mv.MatrixTableHandler(4, 5, np.arange(20), name="m", updater="adam")
        self.array.add(np.ones(50))
        self.matrix.add(np.ones((2, 5)), [1, 3])
        mv.save(self.folder, step=1)
        self.files = sorted((self.folder / "000001-step-1").iterdir())
        self.originals = [path.read_bytes() for path in self.files]
        # Values that differ from those in the checkpoint reveal a load.
        self.array.add(np.ones(50))
        self.matrix.add(np.ones((4, 5)))
        self.now = self.state()
        self.draw = random.Random(SEED)

    def state(self):
        return self.array.get(), self.matrix.get(), [self.array.options, self.matrix.options]

    def check_unchanged(self, why):
        for value, before in zip(self.state(), self.now, strict=True):
            np.testing.assert_equal(value, before, why)

    def test_detects_every_change(self):
        self.assertEqual([path.name for path in self.files], ["manifest.mv", "shard-00000.mv"])
        for number in range(COUNT):
            which = number % 2
            data = changed(self.originals[which], self.draw)
            if data == self.originals[which]:
                continue
            self.files[which].write_bytes(data)
            why = f"MULTIVERSO seed {SEED}, change {number}"
            with self.assertRaises(mv.CheckpointCorruptError, msg=why) as caught:
                mv.load(self.folder)
            self.assertIn(str(self.files[which]), str(caught.exception))
            self.files[which].write_bytes(self.originals[which])
            if number % 10 == 0:
                self.check_unchanged(why)
        self.check_unchanged(f"seed {SEED}")
        self.assertEqual(mv.load(self.folder), 1)
        self.assertFalse((self.array.get() == self.now[0]).all())

    def test_change_with_valid_checksums_is_loaded_or_rejected(self):
        loaded = 0
        for number in range(COUNT // 2):
            data = changed(self.originals[0], self.draw)
            if len(data) < 8:
                continue
            data = checkpoint_bytes.with_crc(data)
            self.files[0].write_bytes(data)
            why = f"seed {SEED}, change {number}"
            try:
                mv.load(self.folder)
            except (mv.CheckpointCorruptError, mv.MismatchError):
                self.check_unchanged(why)
            else:
                loaded += 1
                self.now = self.state()
        self.assertGreater(loaded, 0)  # for example with another step or other options
