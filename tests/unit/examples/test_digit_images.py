"""The loader of digit images: bundled digits, MNIST in two formats, damaged files."""

import gzip
import pickle
import sys
import unittest
import zipfile
from pathlib import Path

import numpy as np
import pytest
from folders import FolderTestCase

sys.path.append(str(Path(__file__).parents[3] / "examples" / "common"))
from digit_images import BUNDLED, IDX_NAMES, DataError, load_digit_images  # noqa: E402

pytestmark = pytest.mark.slow

TRAIN, TEST, SIDE = 60, 7, 28


def small_mnist():
    """Return random images and labels in arrays like those of MNIST."""
    random = np.random.default_rng(1)
    arrays = {}
    for part, count in (("train", TRAIN), ("test", TEST)):
        arrays[f"x_{part}"] = random.integers(0, 256, (count, SIDE, SIDE)).astype(np.uint8)
        arrays[f"y_{part}"] = (np.arange(count) % 10).astype(np.uint8)
    return arrays


def idx_bytes(array):
    header = bytes([0, 0, 8, array.ndim]) + np.array(array.shape, ">u4").tobytes()
    return header + array.tobytes()


class ImageFilesTestCase(FolderTestCase):
    def npz(self, **changes):
        """Write mnist.npz with some arrays replaced, or omitted if None; return the path."""
        arrays = {**small_mnist(), **changes}
        path = self.folder / "mnist.npz"
        np.savez(path, **{k: v for k, v in arrays.items() if v is not None})
        return path

    def idx(self):
        """Write the four IDX files; return their folder."""
        for name, array in small_mnist().items():
            (self.folder / IDX_NAMES[name][0]).write_bytes(idx_bytes(array))
        return self.folder

    def refused(self, path, text):
        with self.assertRaisesRegex(DataError, text) as caught:
            load_digit_images(path)
        message = str(caught.exception)
        self.assertIn(str(path), message)
        self.assertNotIn("\n", message)


class TestBundledDigits(unittest.TestCase):
    def setUp(self):
        self.data = load_digit_images()

    def test_three_parts_contain_every_image_once(self):
        parts = (self.data.train, self.data.valid, self.data.test)
        self.assertEqual([len(part) for part in parts], [998, 200, 599])
        everything = np.concatenate([part.images for part in parts]) * 16
        expected = np.load(BUNDLED)["images"]
        np.testing.assert_array_equal(np.sort(everything, axis=0), np.sort(expected, axis=0))

    def test_images_are_those_of_scikit_learn(self):
        datasets = pytest.importorskip("sklearn.datasets")
        digits = datasets.load_digits()
        with np.load(BUNDLED) as bundled:
            np.testing.assert_array_equal(bundled["images"], digits.data)
            np.testing.assert_array_equal(bundled["labels"], digits.target)

    def test_images_and_labels_have_expected_types_and_range(self):
        for part in (self.data.train, self.data.valid, self.data.test):
            self.assertEqual((part.images.dtype, part.labels.dtype), (np.float32, np.int64))
            self.assertEqual(part.images.shape[1], 64)
            self.assertEqual((part.images.min(), part.images.max()), (0, 1))
            self.assertEqual(set(part.labels), set(range(self.data.classes)))

    def test_split_is_deterministic(self):
        again = load_digit_images()
        for name in ("train", "valid", "test"):
            one, other = getattr(self.data, name), getattr(again, name)
            np.testing.assert_array_equal(one.images, other.images)
            np.testing.assert_array_equal(one.labels, other.labels)
        self.assertEqual(self.data.test.labels[:12].tolist(), [0, 3, 6, 9, 2, 5, 8, 1, 4, 7, 0, 5])


class TestMnist(ImageFilesTestCase):
    def check(self, data):
        arrays = small_mnist()
        self.assertEqual([len(data.train), len(data.valid), len(data.test)], [50, 10, TEST])
        self.assertEqual(data.classes, 10)
        expected = arrays["x_train"].reshape(TRAIN, -1).astype(np.float32) / np.float32(255)
        np.testing.assert_array_equal(data.train.images, expected[:50])
        np.testing.assert_array_equal(data.valid.images, expected[50:])
        np.testing.assert_array_equal(data.valid.labels, arrays["y_train"][50:])
        np.testing.assert_array_equal(data.test.labels, arrays["y_test"])
        self.assertEqual((data.train.images.dtype, data.train.labels.dtype), (np.float32, np.int64))

    def test_reads_npz(self):
        path = self.npz()
        self.check(load_digit_images(path))
        self.check(load_digit_images(str(path)))
        path = self.folder / "other name"
        with path.open("wb") as file:
            np.savez_compressed(file, more=np.zeros(2), **small_mnist())
        self.check(load_digit_images(path))

    def test_reads_a_mixture_of_idx_files(self):
        self.idx()
        labels = self.folder / IDX_NAMES["y_test"][0]
        labels.with_name(labels.name + ".gz").write_bytes(gzip.compress(labels.read_bytes()))
        labels.unlink()
        images = self.folder / IDX_NAMES["x_test"][0]
        images.rename(images.with_name(images.name + ".gz"))  # uncompressed, but still named .gz
        self.check(load_digit_images(self.folder))

    def test_reads_floats_and_flat_images(self):
        arrays = small_mnist()
        scaled = {
            name: (arrays[name].reshape(-1, SIDE * SIDE) / 255).astype(np.float64)
            for name in ("x_train", "x_test")
        }
        self.check(load_digit_images(self.npz(**scaled, y_test=arrays["y_test"].astype(">i8"))))


class TestBrokenNpz(ImageFilesTestCase):
    def test_rejects_missing_truncated_and_damaged_npz(self):
        self.refused(self.folder / "nothing.npz", "no such file or folder")
        path = self.npz()
        whole = path.read_bytes()
        for size in (0, 1, 100, len(whole) // 2, len(whole) - 1):
            path.write_bytes(whole[:size])
            self.refused(path, "not an .npz archive|cannot be read")
        damaged = bytearray(whole)
        damaged[damaged.find(b"x_train.npy") + 5000] ^= 0xFF
        path.write_bytes(damaged)
        self.refused(path, "x_train cannot be read, the archive is corrupt")

    def test_does_not_unpickle(self):
        class Payload:
            def __reduce__(self):
                return (sys.exit, ("unpickled",))

        path = self.folder / "mnist.npz"
        path.write_bytes(pickle.dumps(Payload()))
        self.refused(path, "not an .npz archive")
        self.refused(self.npz(x_train=np.array([Payload()] * 3, object)), "x_train cannot be read")

    def test_rejects_other_files(self):
        path = self.folder / "array.npy"
        np.save(path, np.zeros(3))
        self.refused(path, "found a single array")
        path.write_text("images,labels\n", "utf-8")
        self.refused(path, "not an .npz archive")
        huge = {"descr": "|u1", "fortran_order": False, "shape": (1 << 50, 28, 28)}
        for suffix, text in (("", "member x_train is not an array"), (".npy", "x_train cannot be")):
            with zipfile.ZipFile(path, "w") as archive:
                for name in IDX_NAMES:
                    with archive.open(f"{name}{suffix}", "w") as file:
                        if suffix:  # a header with too many elements
                            np.lib.format.write_array_header_1_0(file, huge)
                        file.write(b"text")
            self.refused(path, text)

    def test_rejects_wrong_arrays(self):
        arrays = small_mnist()
        images, tested = arrays["x_train"], arrays["x_test"]
        labels, pixels = "labels from 0 to 255 in y_test", "bytes or floats from 0 to 1 in x_test"
        for text, changes in (
            (r"no array y_test \(found: x_train, y_train, x_test\)", {"y_test": None}),
            ("as many images in x_train as labels in y_train", {"x_train": images[1:]}),
            ("as many images", {"x_train": images[:, 0, 0]}),
            ("y_test", {"y_test": np.zeros((TEST, 10), np.uint8)}),
            ("of one size, found 392 and 784", {"x_train": images[:, :14]}),
            ("x_train", {"x_train": images[:0], "y_train": arrays["y_train"][:0]}),
            (
                "two or more training images, found 1",
                {"x_train": images[:1], "y_train": arrays["y_train"][:1]},
            ),
            *((labels, {"y_test": np.full(TEST, wrong)}) for wrong in (-1, 256, 10**12, 0.0)),
            *((pixels, {"x_test": wrong}) for wrong in (tested / 10, tested - 0.5)),
            *((pixels, {"x_test": wrong}) for wrong in (tested * np.nan, tested.astype(int))),
        ):
            with self.subTest(text):
                self.refused(self.npz(**changes), text)


class TestBrokenIdx(ImageFilesTestCase):
    def test_names_a_missing_file(self):
        self.refused(self.folder, "neither train-images-idx3-ubyte nor")
        path = self.idx() / IDX_NAMES["y_train"][0]
        path.unlink()
        self.refused(self.folder, f"neither {path.name} nor {path.name}.gz")

    def test_rejects_files_that_are_no_idx_files_of_their_name(self):
        self.idx()
        images, labels = (self.folder / IDX_NAMES[name][0] for name in ("x_test", "y_train"))
        whole, others = images.read_bytes(), labels.read_bytes()
        packed = gzip.compress(whole)
        damaged = bytearray(packed)
        damaged[len(packed) // 2] ^= 0xFF
        huge = bytes([0, 0, 8, 3]) + np.array([2**32 - 1] * 3, ">u4").tobytes() + b"data"
        for path, text, contents in (
            (images, "(truncated|not an IDX file)", [whole[:n] for n in (0, 3, 4, 15, 16, -1)]),
            (images, "corrupt or truncated", [*(packed[:n] for n in (5, 200, -1)), damaged]),
            (images, "(truncated|corrupt)", [huge, gzip.compress(huge)]),
            (images, "not an IDX file of bytes in 3 dimensions", [others]),
        ):
            for content in contents:
                path.write_bytes(content)
                self.refused(self.folder, f"{path.name} is {text}")
        images.write_bytes(whole)
        labels.write_bytes(others + b"\0")
        self.refused(self.folder, f"{labels.name} has more data than its header says")
