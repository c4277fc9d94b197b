"""Batches from files for multiverso.learn: sizes, reading ahead, caching, and invalid files."""

import importlib.util
import threading
import unittest
from pathlib import Path

import numpy as np
import pytest
from folders import FolderTestCase

pytestmark = pytest.mark.frameworks

HAS_H5PY = importlib.util.find_spec("h5py") is not None

if HAS_H5PY:
    import h5py

    from multiverso.learn import Data, H5Data, InputError


def features_of(batches):
    """Return the features of each batch as a list."""
    return [features.tolist() for features, _ in batches]


@unittest.skipUnless(HAS_H5PY, "needs h5py")
class TestBatches(unittest.TestCase):
    def batches(self, batch_size, *sizes):
        """Return the batches of the numbers from 0, which are in files of these sizes."""

        class Numbers(Data):
            def load_data(self, file_name):
                start, size = map(int, file_name.split())
                numbers = np.arange(start, start + size)
                return numbers, -numbers

        data = Numbers(batch_size)
        starts = np.cumsum([0, *sizes])
        data.set_file_names([f"{a} {b}" for a, b in zip(starts, sizes, strict=False)])
        return list(data.generate_data())

    def test_all_batches_except_the_last_are_full_and_no_sample_is_lost(self):
        for batch_size in (1, 2, 3, 7, 100):
            for sizes in ((5, 4, 1, 6), (3, 3), (1,), (2, 9)):
                with self.subTest(batch_size=batch_size, sizes=sizes):
                    batches = self.batches(batch_size, *sizes)
                    lengths = [len(features) for features, _ in batches]
                    self.assertEqual(set(lengths[:-1]) - {batch_size}, set())
                    everything = np.concatenate([features for features, _ in batches])
                    np.testing.assert_array_equal(everything, np.arange(sum(sizes)))
                    for features, labels in batches:
                        np.testing.assert_array_equal(features, -labels)

    def test_data_without_load_data_raises_not_implemented(self):
        data = Data(1)
        data.set_file_names(["a"])
        with self.assertRaisesRegex(NotImplementedError, "load_data"):
            next(data.generate_data())


@unittest.skipUnless(HAS_H5PY, "needs h5py")
class TestFiles(FolderTestCase):
    def write(self, name, features, labels):
        path = self.folder / name
        with h5py.File(path, "w") as file:
            for key, value in (("features", features), ("labels", labels)):
                if isinstance(value, dict):
                    for part, array in value.items():
                        file[f"{key}/{part}"] = array
                elif value is not None:
                    file[key] = value
        return str(path)

    def three_files(self):
        return [self.write(f"{i}.h5", np.arange(4.0) + 4 * i, np.zeros((4, 2))) for i in range(3)]

    def test_preloading_gives_the_same_batches_and_leaves_no_thread(self):
        plain, preloading = H5Data(5), H5Data(5, preloading=2)
        for data in (plain, preloading):
            data.set_file_names(self.three_files())
        self.assertEqual(
            features_of(plain.generate_data()), features_of(preloading.generate_data())
        )
        self.assertEqual(plain.count_data(), 12)
        batches = preloading.generate_data()
        next(batches)
        batches.close()  # before the end
        names = [thread.name for thread in threading.enumerate()]
        self.assertFalse([name for name in names if name.startswith("multiverso-preloading")])

    def test_error_in_the_preloading_thread_reaches_the_reader(self):
        data = H5Data(5, preloading=1)
        data.set_file_names([*self.three_files(), str(self.folder / "none.h5")])
        with self.assertRaisesRegex(InputError, "no such file"):
            list(data.generate_data())

    def test_cache_copies_each_file_once_and_again_after_a_change(self):
        cache = self.folder / "cache"
        name = self.write("a.h5", np.ones(3), np.ones(3))
        data = H5Data(3, cache=cache)
        data.set_file_names([name])
        self.assertEqual(features_of(data.generate_data()), [[1, 1, 1]])
        self.assertEqual(features_of(data.generate_data()), [[1, 1, 1]])
        self.assertEqual(len(list(cache.iterdir())), 1)
        self.write("a.h5", np.full(5, 2.0), np.ones(5))
        self.assertEqual(features_of(data.generate_data()), [[2, 2, 2], [2, 2]])

    def test_hdf5_groups_become_lists_in_alphabetical_order(self):
        parts = {"b": np.ones((2, 3)), "a": np.zeros((2, 1)), "c/y": np.full(2, 2.0)}
        data = H5Data(2)
        data.set_file_names([self.write("a.h5", parts, np.ones(2))])
        ((features, _),) = data.generate_data()
        self.assertEqual([np.shape(part) for part in features[:2]], [(2, 1), (2, 3)])
        self.assertEqual(features[2][0].tolist(), [2, 2])

    def test_names_of_datasets_can_be_chosen(self):
        path = self.folder / "a.h5"
        with h5py.File(path, "w") as file:
            file["x"], file["y"] = np.ones(2), np.ones(2)
        data = H5Data(2, features_name="x", labels_name="y")
        data.set_file_names([str(path)])
        data.check([str(path)])
        self.assertEqual(features_of(data.generate_data()), [[1, 1]])

    def test_invalid_files_are_rejected_in_one_line_with_their_name(self):
        good = self.write("good.h5", np.ones((3, 2)), np.ones(3))
        broken = self.folder / "broken.h5"
        broken.write_bytes(Path(good).read_bytes()[:-400])
        text = self.folder / "text.h5"
        text.write_text("no HDF5", "utf-8")
        for name, words in (
            (self.write("a.h5", np.ones((3, 2)), None), "expected a dataset or group 'labels'"),
            (self.write("b.h5", np.ones((3, 2)), np.ones(2)), "found 3 in 'features', 2 in 'lab"),
            (self.write("c.h5", np.ones((0, 2)), np.ones(0)), "expected samples, found 0"),
            (self.write("d.h5", np.ones((3, 4)), np.ones(3)), "expected samples of the shapes"),
            (self.write("e.h5", b"words", np.ones(3)), "expected numbers"),
            (str(broken), "as HDF5"),
            (str(text), "as HDF5"),
            (str(self.folder / "none.h5"), "no such file"),
        ):
            with self.subTest(name), self.assertRaisesRegex(InputError, words) as caught:
                H5Data(2).check([good, name])
            self.assertNotIn("\n", str(caught.exception))
            self.assertIn(Path(name).name, str(caught.exception))
