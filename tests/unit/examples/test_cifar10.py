"""The reader of the binary version of CIFAR-10."""

import importlib.util
from pathlib import Path

import numpy as np
from folders import FolderTestCase

PATH = Path(__file__).parents[3] / "examples" / "common" / "cifar10.py"
spec = importlib.util.spec_from_file_location("cifar10", PATH)
cifar10 = importlib.util.module_from_spec(spec)
spec.loader.exec_module(cifar10)


def write_files(folder, records=2, seed=0):
    """Write the six files and return their records, shape (6, records, 3073)."""
    rng = np.random.default_rng(seed)
    content = rng.integers(0, 256, (6, records, cifar10.RECORD_BYTES)).astype(np.uint8)
    content[:, :, 0] %= 10
    for name, part in zip((*cifar10.TRAIN_FILES, cifar10.TEST_FILE), content, strict=True):
        (folder / name).write_bytes(part.tobytes())
    return content


class TestFiles(FolderTestCase):
    def test_reads_pixels_and_labels_of_the_records(self):
        content = write_files(self.folder)
        images = cifar10.load_cifar10(self.folder)
        self.assertEqual((images.name, images.train.shape), ("CIFAR-10", (10, 3, 32, 32)))
        self.assertEqual(images.test.shape, (2, 3, 32, 32))
        self.assertEqual((images.train.dtype, images.train_labels.dtype), (np.float32, np.int32))
        train = content[:5].reshape(10, -1)
        np.testing.assert_array_equal(images.train_labels, train[:, 0])
        np.testing.assert_array_equal(images.test_labels, content[5, :, 0])
        pixels, tested = train[:, 1:] / 255, content[5, :, 1:] / 255
        mean = pixels.mean(axis=0)
        np.testing.assert_allclose(images.train.reshape(10, -1), pixels - mean, atol=1e-6)
        np.testing.assert_allclose(images.test.reshape(2, -1), tested - mean, atol=1e-6)
        # The planes are red, green and blue, so byte 1 + 1024 + 32 is green, row 1, column 0.
        green = images.test[0, 1, 1, 0] + mean[1024 + 32]
        self.assertAlmostEqual(green, content[5, 0, 1 + 1024 + 32] / 255, places=5)

    def test_finds_the_folder_of_the_archive(self):
        inner = self.folder / cifar10.FOLDER
        inner.mkdir()
        write_files(inner)
        self.assertEqual(len(cifar10.load_cifar10(self.folder).train), 10)

    def refused(self, text):
        with self.assertRaisesRegex(cifar10.DataError, text):
            cifar10.load_cifar10(self.folder)

    def test_names_missing_files(self):
        self.refused("data_batch_1.bin: no such file")
        write_files(self.folder)
        (self.folder / cifar10.TEST_FILE).unlink()
        self.refused("test_batch.bin: no such file")

    def test_rejects_truncated_and_empty_files_and_labels_above_nine(self):
        write_files(self.folder)
        path = self.folder / "data_batch_3.bin"
        content = path.read_bytes()
        for wrong, text in (
            (content[:-1], "expected records of 3073 bytes each, found 6145 bytes"),
            (b"", ".*found 0 bytes"),
            (bytes([10]) + content[1:], "expected labels from 0 to 9, found 10"),
        ):
            path.write_bytes(wrong)
            self.refused(f"data_batch_3.bin: {text}")
