"""The libraries in the wheels of `make wheels`; `make release-check` installs the wheel."""

import re
import shutil
import tempfile
import unittest
import zipfile
from pathlib import Path

import pytest
from programs import output_of

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]
WHEELS = {path.stem.partition("manylinux_2_28_")[2]: path for path in ROOT.glob("dist/*.whl")}
ARM = "aarch64-linux-gnu"


@unittest.skipUnless(WHEELS, "needs wheels in dist: make wheels")
class TestWheels(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="multiverso-wheels-")
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def unpack(self, architecture):
        """Unpack a wheel; return the folder of the package."""
        with zipfile.ZipFile(WHEELS[architecture]) as archive:
            archive.extractall(self.folder / architecture)
        return self.folder / architecture / "multiverso"

    @unittest.skipUnless(shutil.which("objdump"), "needs binutils: apt install binutils")
    def test_libraries_need_only_glibc_2_28(self):
        for architecture in WHEELS:
            with self.subTest(architecture):
                library = self.unpack(architecture) / "_lib" / "libmultiverso.so"
                needed = output_of("readelf", "--dynamic", "--version-info", "--wide", library)
                self.assertNotRegex(needed, "libstdc|libc\\+\\+|libgcc")
                versions = [int(minor) for minor in re.findall(r"GLIBC_2\.(\d+)", needed)]
                self.assertGreater(max(versions), 16)
                self.assertLessEqual(max(versions), 28)
                if architecture == "x86_64":  # It has the versions for AVX-512.
                    self.assertIn("zmm", output_of("objdump", "--disassemble", library))

    @unittest.skipUnless("aarch64" in WHEELS, "needs the wheel for aarch64")
    @unittest.skipUnless(
        shutil.which("qemu-aarch64") and shutil.which(f"{ARM}-gcc"),
        f"needs an emulator: apt install qemu-user gcc-{ARM}",
    )
    def test_c_programs_run_on_aarch64(self):
        package = self.unpack("aarch64")
        for source, printed in (
            (ROOT / "examples" / "c" / "linear_regression.c", "1 worker(s) found 1.00 -2.00 0.50"),
            (ROOT / "tests" / "windows" / "one_rank.c", "works here"),
        ):
            program = self.folder / source.stem
            output_of(f"{ARM}-gcc", "-std=c99", "-o", program, f"-I{package / 'include'}", source,
                f"-L{package / '_lib'}", "-lmultiverso", "-lm")  # fmt: skip
            emulator = ("qemu-aarch64", "-L", f"/usr/{ARM}")
            path = f"LD_LIBRARY_PATH={package / '_lib'}"
            output = output_of(*emulator, "-E", path, program, self.folder / "checkpoints")
            self.assertIn(printed, output)
