"""The library for Windows, compiled with MinGW-w64 and used by a C program under Wine."""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

import pytest

from multiverso import checkpoint

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]
BUILD = ROOT / "build" / "windows"  # kept, so that the next run compiles changes only
CMAKE = shutil.which("cmake", path=str(Path(sys.executable).parent)) or shutil.which("cmake")
COMPILER = shutil.which("x86_64-w64-mingw32-gcc-posix")
CXX_COMPILER = shutil.which("x86_64-w64-mingw32-g++-posix")
# Debian installs the program without the usual start script.
WINE = shutil.which("wine64") or shutil.which("wine") or shutil.which("/usr/lib/wine/wine64")
LIMIT = 600  # seconds


def run(*command, cwd=None, **environ):
    """Run a command in its own process group and return its output."""
    process = subprocess.Popen(
        [str(word) for word in command],
        cwd=cwd,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, **environ},
        start_new_session=True,
    )
    try:
        printed, _ = process.communicate(timeout=LIMIT)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    if process.returncode != 0:
        raise AssertionError(f"{command} exited with {process.returncode}\n{printed}")
    return printed


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
        # Every warning is an error.
        run(CMAKE, "-S", ROOT, "-B", BUILD, f"-DCMAKE_TOOLCHAIN_FILE={toolchain}",
            "-DBUILD_TESTING=OFF", "-DCMAKE_COMPILE_WARNING_AS_ERROR=ON")  # fmt: skip
        run(CMAKE, "--build", BUILD, "--parallel", os.cpu_count() or 1)
        run(CMAKE, "--install", BUILD, "--prefix", cls.top / "installed")

    def test_depends_on_libraries_of_windows_only(self):
        objdump = str(Path(COMPILER).with_name("x86_64-w64-mingw32-objdump"))
        library = self.top / "installed" / "bin" / "Multiverso.dll"
        headers = run(objdump, "-p", library)
        needed = {line.split()[-1].lower() for line in headers.splitlines() if "DLL Name" in line}
        theirs = {
            name for name in needed if name.startswith(("libgcc", "libstdc", "libwinpthread"))
        }
        self.assertEqual(theirs, set())

    @unittest.skipUnless(WINE, "needs Wine: apt install wine64")
    def test_one_rank_works_as_on_linux(self):
        installed = self.top / "installed"
        program = installed / "bin" / "one_rank.exe"
        run(COMPILER, "-std=c99", "-Wall", "-Wextra", "-Werror", "-o", program,
            f"-I{installed / 'include'}", Path(__file__).with_name("one_rank.c"),
            installed / "lib" / "libMultiverso.dll.a")  # fmt: skip
        wine = {"WINEPREFIX": str(self.top / "wine"), "WINEDEBUG": "-all", "DISPLAY": ""}
        try:
            printed = run(WINE, program, "checkpoints", cwd=self.top, **wine)
        finally:
            # The server would wait some seconds for another program.
            server = shutil.which("wineserver") or shutil.which("/usr/lib/wine/wineserver")
            if server:
                subprocess.run([server, "-k"], env={**os.environ, **wine}, timeout=60, check=False)
        self.assertIn("works here", printed)
        # Linux reads the checkpoint that Windows has written.
        with checkpoint.Checkpoint(self.top / "checkpoints") as found:
            found.verify()
            self.assertEqual(found.step, 1)


if __name__ == "__main__":
    unittest.main()
