"""Publications in folders: followers get what was published, bit for bit, or a named error."""

import contextlib
import random
from unittest import mock

import numpy as np
from publications import FolderTestCase
from requirements import is_installed

import multiverso as mv
from multiverso.errors import PublicationError, StateError
from multiverso.initializers import Constant, RandomNormal
from multiverso.publishing import _folder
from multiverso.publishing._encoding import DenseEncoder
from multiverso.publishing._publisher import Publisher


def rounded(values):
    """Return float32 values rounded to bfloat16, ties to even; no NaN."""
    bits = values.view(np.uint32).astype(np.uint64)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16 << 16).astype(np.uint32).view(np.float32)


class Followed:
    """A folder of publications: what was published by step, and its followers."""

    def __init__(self, path):
        self.path, self.states, self.views, self.failures = path, {}, [], 0

    def publish(self, step, state, dtype, full_every):
        """Publish a state, again after each failure; return the version."""
        self.states[step] = {name: stored(*found, dtype) for name, found in state.items()}
        while True:
            try:
                return mv.publish(step, to=self.path, dtype=dtype, full_every=full_every, keep=1)
            except (OSError, PublicationError, StateError):  # of this publication, or one before
                self.failures += 1


def stored(dtype, values, stored_dtype):
    """Return values, or rows by id, as a publication with a dtype has them."""
    if isinstance(values, dict):
        return {key: stored(dtype, row, stored_dtype) for key, row in values.items()}
    return rounded(values) if stored_dtype and dtype == np.float32 else values


def made(name, rng):
    """Return a table with a random shape, dtype and initial value."""
    dtype = str(rng.choice(["float32", "float64", "int64", "float16", "bfloat16"]))
    start = {"int64": 2**53 + 1, "bfloat16": 0.1}.get(dtype, rng.integers(1, 9) / 2)
    if name == "array":
        return mv.ArrayTable(int(rng.choice([1, 100, 200_000])), name=name, dtype=dtype)
    if name == "matrix":
        return mv.MatrixTable(*rng.integers(1, 70, 2).tolist(), name=name, dtype=dtype)
    if name == "keys":
        return mv.HashTable(4, capacity=200, name=name, dtype=dtype, init_value=start)
    initial = RandomNormal(seed=1) if rng.random() < 0.5 else Constant(0.5)
    return mv.MatrixTable(10**7, 4, initial, name=name, dtype=("float32", "float64")[dtype > "g"])


class TestRandomChains(FolderTestCase):
    """Tables that come, change and go at random, in several jobs that publish to two folders."""

    def change(self, name, rng):
        """Change a table at random, or create it first; note the ids that have rows."""
        if rng.random() < 0.2:
            self.tables.pop(name, None)
        if name not in self.tables:
            self.tables[name], self.ids[name] = made(name, rng), set()
        table = self.tables[name]

        def scaled(delta):
            return delta if table.dtype.kind == "i" else delta / 3

        if name in ("array", "matrix"):
            table.add(scaled(rng.integers(-9, 9, table.shape) * (rng.random(table.shape) < 0.05)))
            return
        ids = rng.integers(0, 40, 6) * (1 if name == "keys" else 250_000)
        table.add(scaled(rng.integers(1, 9, (6, 4))), ids)
        self.ids[name] |= {*ids.tolist()}
        if name == "keys" and rng.random() < 0.3:
            table.remove(ids[:4])
            self.ids[name] -= {*ids[:4].tolist()}

    def state(self):
        """Return the dtype of each table, and its values or its rows by id."""
        state = {}
        for name, table in self.tables.items():
            if name in ("array", "matrix"):
                state[name] = table.dtype, table.get()
                continue
            ids = sorted(self.ids[name])
            state[name] = table.dtype, dict(zip(ids, table.get(ids), strict=True))
        return state

    def check_follows(self, view, states, step=None):
        """Check that a view has the state of its step, after a wait for a step or for none."""
        while view.step != step:
            try:
                view.wait(timeout=0 if step is None else 60)
            except mv.OperationTimeout:
                break
        self.assertIn(step, (None, view.step))
        cut, state = view.cut(), states[view.step]
        self.assertEqual(set(cut), set(state))
        for name, expected in state.items():
            if not isinstance(expected, dict):
                self.check_same_bits(cut[name], expected)
                continue
            ids, rows = cut[name]
            # A page of a lazy table may have rows that nobody has changed.
            is_expected = np.isin(ids, [*expected])
            self.assertTrue(name == "lazy" or is_expected.all())
            self.assertEqual(ids[is_expected].tolist(), sorted(expected))
            for row, values in zip(rows[is_expected], sorted(expected.items()), strict=True):
                self.check_same_bits(row, values[1])

    def run_jobs(self, seed, fails=False):
        rng = np.random.default_rng(seed)
        full_every = int(rng.integers(1, 6))
        has_store = is_installed("fsspec") and not fails
        other = f"memory://published{seed}" if has_store else f"{self.folder} {seed}"
        folders = [Followed(self.folder), Followed(other)]
        for first in (1, 7, 13):
            with mv.session(name="followed"):
                self.tables, self.ids, self.fails = {}, {}, fails
                for step in range(first, first + 6):
                    for name in rng.choice(["array", "matrix", "keys", "lazy"], 2, replace=False):
                        self.change(name, rng)
                    if rng.random() < 0.2:
                        mv.publish()  # on this machine only
                    state = self.state()
                    for followed in folders:
                        is_last = step == first + 5
                        self.fails = fails and not is_last
                        if is_last or rng.random() < 0.7:
                            dtype = (None, "bfloat16")[rng.integers(2)]
                            for _ in range(1 + self.fails):  # again before a failure is known
                                followed.publish(step, state, dtype, full_every)
                            if is_last or rng.random() < 0.2:
                                followed.views.append(mv.follow(followed.path, timeout=60))
                            while fails and is_last and followed.views[-1].step != step:
                                # What the disk did before may have failed this one, too.
                                with contextlib.suppress(mv.OperationTimeout):
                                    followed.views[-1].wait(timeout=1)
                                    continue
                                followed.publish(step, state, dtype, full_every)
                            for view in followed.views:
                                waits = is_last or (not fails and rng.random() < 0.5)
                                self.check_follows(view, followed.states, step if waits else None)
                    if rng.random() < 0.5:  # What is being written needs its table still.
                        self.tables.pop("array", None)
                self.tables.clear()
        return folders

    def check_all(self, folders):
        """Check that each follower, and a new one, gets what was published last."""
        for followed in folders:
            for view in (mv.follow(followed.path), *followed.views):
                with view:
                    self.check_follows(view, followed.states)
                    self.assertEqual(view.step, max(followed.states))

    def test_followers_get_each_version_bit_for_bit(self):
        for seed in range(4):
            with self.subTest(seed=seed):
                self.folder = self.folder.with_name(f"published{seed}")
                folders = self.run_jobs(seed)
                self.check_all(folders)
                for followed in folders:
                    self.assertLessEqual(len(_folder.folder_of(followed.path).names()), 8)

    def test_a_disk_that_fails_at_times_loses_no_version(self):
        draw, names = random.Random(5), []
        write, remove = _folder.LocalFolder.write, _folder.LocalFolder.remove

        def fail(chance):
            if self.fails and draw.random() < chance:
                raise OSError("it fails at times")

        def failing_write(folder, name, parts):
            names.append((folder.name, name))
            fail(0.1)
            write(folder, name, parts)
            fail(0.1)

        def failing_remove(folder, name):
            fail(0.5)
            remove(folder, name)

        with (
            mock.patch.object(_folder.LocalFolder, "write", failing_write),
            mock.patch.object(_folder.LocalFolder, "remove", failing_remove),
        ):
            folders = self.run_jobs(8, fails=True)
        self.check_all(folders)
        self.assertGreater(sum(followed.failures for followed in folders), 2)
        names = [name for name in names if name[1] != "latest.json"]
        self.assertEqual(len(set(names)), len(names))  # A number is not used again.


class TestFolders(FolderTestCase):
    def test_a_version_that_fails_has_a_number_too(self):
        # The other nodes count it, so this one must, wherever it fails.
        with mv.session(name="followed"):
            table = mv.ArrayTable(3, name="w")
            mv.publish(to=self.folder)
            fails = RuntimeError("no memory")
            with (
                mock.patch.object(DenseEncoder, "encode", side_effect=fails),
                self.assertRaises(RuntimeError),
            ):
                for _ in range(1000):  # It raises when the thread has failed.
                    mv.publish(to=self.folder)
            with (
                mock.patch.object(Publisher, "_encoder", side_effect=fails),
                self.assertRaises(RuntimeError),
            ):
                mv.publish(to=self.folder)
            table.add([1, 2, 3])
            version = mv.publish(to=self.folder)
        with mv.follow(self.folder) as view:
            self.assertEqual(view.version, version)
            self.assertEqual(view.tables["w"].get().tolist(), [1, 2, 3])

    def test_late_reader_needs_one_full_file_and_differences_of_those_kept(self):
        kept = self.folder.with_name("kept")
        with mv.session(name="followed"):
            table = mv.ArrayTable(100_000, name="w")
            table.add(np.ones(100_000))
            for step in range(7):
                table.add([1.0], index=np.s_[step : step + 1])
                mv.publish(step, to=self.folder, full_every=5, keep=1)
                mv.publish(step, to=kept, full_every=2, keep=4)
        self.assertEqual({int(path.name[:8]) for path in kept.glob("0*")}, {3, 4, 5, 6, 7})
        sizes = {name: (self.folder / name).stat().st_size for name in self.files()}
        versions = {int(name[:8]): size for name, size in sizes.items()}
        self.assertEqual(set(versions), {6, 7})  # the second full one, and what differs from it
        self.assertGreater(versions[6], 400_000)
        self.assertLess(versions[7], 2_000)
        with mv.follow(self.folder) as view:
            self.assertEqual((view.version, view.step), (7, 6))
            np.testing.assert_array_equal(view.tables["w"].get()[:8], [2] * 7 + [1])
