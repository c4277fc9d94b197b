"""The library for Windows, compiled with MinGW-w64 and used by a C program under Wine."""

import os
import shutil
import sys
import tempfile
import unittest
from pathlib import Path

import pytest
from programs import output_of, run_command

from multiverso import checkpoint

pytestmark = [pytest.mark.slow, pytest.mark.release]

ROOT = Path(__file__).resolve().parents[2]
BUILD = ROOT / "build" / "windows"  # kept, so that the next run compiles changes only
CMAKE = shutil.which("cmake", path=str(Path(sys.executable).parent)) or shutil.which("cmake")
COMPILER = shutil.which("x86_64-w64-mingw32-gcc-posix")
CXX_COMPILER = shutil.which("x86_64-w64-mingw32-g++-posix")
# Debian installs the program without the usual start script.
WINE = shutil.which("wine64") or shutil.which("wine") or shutil.which("/usr/lib/wine/wine64")


@unittest.skipUnless(
    CMAKE and COMPILER and CXX_COMPILER, "needs MinGW-w64: apt install g++-mingw-w64-x86-64"
)
class TestLibrary(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory(prefix="multiverso-windows-")
        cls.addClassCleanup(folder.cleanup)
        cls.top = Path(folder.name)
        toolchain = ROOT / "cmake" / "mingw-w64.cmake"
        output_of(CMAKE, "-S", ROOT, "-B", BUILD, f"-DCMAKE_TOOLCHAIN_FILE={toolchain}",
            "-DBUILD_TESTING=OFF", "-DMULTIVERSO_PRECOMPILE=ON", "-DCMAKE_UNITY_BUILD=ON",
            "-DCMAKE_BUILD_TYPE=None", "-DCMAKE_COMPILE_WARNING_AS_ERROR=ON")  # fmt: skip
        output_of(CMAKE, "--build", BUILD, "--parallel", os.cpu_count() or 1)
        output_of(CMAKE, "--install", BUILD, "--prefix", cls.top / "installed")

    def test_needs_no_library_of_the_compiler(self):
        objdump = str(Path(COMPILER).with_name("x86_64-w64-mingw32-objdump"))
        library = self.top / "installed" / "bin" / "Multiverso.dll"
        headers = output_of(objdump, "-p", library)
        needed = {line.split()[-1].lower() for line in headers.splitlines() if "DLL Name" in line}
        prefixes = ("libgcc", "libstdc", "libwinpthread")
        self.assertEqual([name for name in needed if name.startswith(prefixes)], [])

    @unittest.skipUnless(WINE, "needs Wine: apt install wine64")
    def test_one_rank_works_as_on_linux(self):
        installed = self.top / "installed"
        program = installed / "bin" / "one_rank.exe"
        output_of(COMPILER, "-std=c99", "-Wall", "-Wextra", "-Werror", "-o", program,
            f"-I{installed / 'include'}", Path(__file__).with_name("one_rank.c"),
            installed / "lib" / "libMultiverso.dll.a")  # fmt: skip
        wine = {"WINEPREFIX": str(self.top / "wine"), "WINEDEBUG": "-all", "DISPLAY": ""}
        try:
            printed = output_of(WINE, program, "checkpoints", cwd=self.top, **wine)
        finally:
            # Wine's server would otherwise keep running for some seconds.
            server = shutil.which("wineserver") or shutil.which("/usr/lib/wine/wineserver")
            if server:
                run_command(server, "-k", **wine)
        self.assertIn("works here", printed)
        # Linux reads the checkpoint that Windows has written.
        with checkpoint.Checkpoint(self.top / "checkpoints") as saved:
            saved.verify()
            self.assertEqual(saved.step, 1)
