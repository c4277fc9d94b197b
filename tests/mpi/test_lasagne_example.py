"""The residual network of the examples runs on files of CIFAR-10 and on generated images."""

import numpy as np
import pytest
from requirements import needs

from example_programs import ExampleProgramTestCase

EXAMPLE = "theano/lasagne/Deep_Residual_Learning_CIFAR-10.py"
#: The same in both tests, so that the second one finds most of its code compiled.
SMALL = ("--batch-size", "6", "--depth", "8")
RECORD_BYTES = 1 + 3 * 32 * 32  # a label, and an image of 32 x 32 pixels in three colors
COMPILE_TIMEOUT = 500.0  # seconds for a job that compiles the network first

pytestmark = [pytest.mark.frameworks, pytest.mark.slow]


@needs("lasagne", "tqdm")
class TestResidualNetwork(ExampleProgramTestCase):
    @pytest.fixture(autouse=True, scope="class")
    @classmethod
    def compile_once(cls, request):
        """Let all ranks and later runs share the compiled code, which needs no optimization.

        The first test has one rank, so that the ranks of the other wait less for each other.
        """
        folder = request.config.cache.mkdir("theano")
        with pytest.MonkeyPatch.context() as patch:
            flags = f"base_compiledir={folder},compile.wait=1,gcc.cxxflags=-O0"
            flags += ",optimizer=fast_compile"
            patch.setenv("THEANO_FLAGS", flags)
            yield

    def test_generated_images_are_announced(self):
        options = ("--samples", "20", "--epochs", "1", "--freq", "3", *SMALL)
        result, plain = (
            self.result(EXAMPLE, *options, *extra, ranks=1, timeout=COMPILE_TIMEOUT)
            for extra in ([], ["--plain"])
        )
        self.assertEqual((result["data"], result["updates"]), ("generated", 4))
        self.assertEqual(plain["updates"], 4)
        # A sync may round: last + (current - last) does not always equal current.
        self.assertAlmostEqual(plain["history"][0]["cost"], result["history"][0]["cost"], places=4)

    @pytest.mark.release
    def test_files_of_cifar10_in_lock_step_twice(self):
        rng = np.random.default_rng(0)
        for name in (*(f"data_batch_{number}" for number in range(1, 6)), "test_batch"):
            records = rng.integers(0, 256, (6, RECORD_BYTES)).astype(np.uint8)
            records[:, 0] %= 10
            (self.folder / f"{name}.bin").write_bytes(records.tobytes())
        options = ("--data", str(self.folder), "--epochs", "2", "--sync", "--test-each", *SMALL)
        result = self.result_of_equal_runs(EXAMPLE, *options, ranks=2, timeout=COMPILE_TIMEOUT)
        self.assertEqual(result["data"], "CIFAR-10")
        self.assertEqual((result["depth"], result["updates"]), (8, 2 * 5))
        self.assertEqual(len(result["history"]), 2)
