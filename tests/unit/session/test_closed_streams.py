"""No descriptor of the library is a standard stream of a program that was started without it."""

import os
import sys
from pathlib import Path

import pytest
from folders import FolderTestCase
from programs import run_command
from requirements import PLATFORM

import multiverso

#: Imported by both programs. What they find is written to a file, since they may have no output.
COMMON = """
import ctypes, os, subprocess, sys, threading
import multiverso as mv

role, closed, report, name = sys.argv[1:]
libc, found, ended = ctypes.CDLL(None), set(), threading.Event()

def look():
    for stream in range(3):
        try:
            target = os.readlink(f"/proc/self/fd/{stream}")
        except OSError:
            continue
        # Python gives the numbers to its own files and pipes.
        ours = ("memfd:multiverso", "multiverso-segment", f"{report}-folder", "socket:")
        if any(text in target for text in ours):
            found.add(f"{role}: descriptor {stream} is {target}")

def watch():
    while not ended.is_set():
        look()

def finish(error=None):
    ended.set()
    look()
    with open(report, "a") as file:
        file.write("".join(f"{line}\\n" for line in (*sorted(found), *filter(None, [error]))))
    os._exit(0)
"""

PROGRAM = """
def attach():
    with mv.attach(name, timeout=60) as view:
        look()
        assert view.cut()["w"].sum() == 5000
        libc.perror(b"a C library")
        libc.puts(b"a C library")
        assert view.tables["w"].get().sum() == 5000

def train():
    with mv.session(name=name):
        table = mv.ArrayTableHandler(1000, 5.0, name="w")
        watcher = threading.Thread(target=watch)
        watcher.start()
        for number in range(200):
            libc.perror(b"a C library")
            libc.puts(b"a C library")
        mv.publish(1)
        for background in (False, True):
            mv.save(report + "-folder", background=background)
        mv.wait_for_save()
        closings = " ".join(f"{stream}>&-" for stream in closed)
        reader = ["sh", "-c", f'exec "$@" {closings}', "sh", sys.executable, __file__, "reader"]
        subprocess.run([*reader, *sys.argv[2:]], timeout=60)
        mv.barrier()
        assert table.get().sum() == 5000
        assert mv.load(report + "-folder") is not None

try:
    attach() if role == "reader" else train()
except BaseException as error:
    finish(f"{role}: {error!r}")
finish()
"""


@pytest.mark.skipif(PLATFORM != "linux", reason="needs /proc")
class TestClosedStreams(FolderTestCase):
    def test_nothing_of_the_library_takes_the_place_of_a_stream(self):
        program = self.folder / "program.py"
        program.write_text(COMMON + PROGRAM)
        for closed in ("0", "1", "2", "012"):
            with self.subTest(closed):
                report = self.folder / f"report-{closed}"
                closings = " ".join(f"{stream}>&-" for stream in closed)
                run_command(
                    *("sh", "-c", f'exec "$@" {closings}', "sh", sys.executable, program),
                    *("job", closed, report, f"streams-{os.getpid()}"),
                    PYTHONPATH=str(Path(multiverso.__file__).parents[1]),
                )
                self.assertEqual(report.read_text(), "")
