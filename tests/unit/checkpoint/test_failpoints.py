"""Saves that fail, or whose folder vanishes; stories of the simulation kill them at each step."""

import unittest

import failpoints
import pytest
from folders import FolderTestCase
from programs import run_program
from requirements import needs

from multiverso import checkpoint as checkpoints
from multiverso._native import library

pytestmark = pytest.mark.slow

SAVES = """
import sys
import numpy as np
import multiverso as mv
with mv.session():
    table = mv.ArrayTableHandler(300_000, name="w")
    step = mv.load(sys.argv[1], missing_ok=True) or 0
    table.add(np.full(300_000, step + 1) - table.get())
    try:
        mv.save(sys.argv[1], step=step + 1, keep=1, background=len(sys.argv) > 2)
        mv.wait_for_save()
    except mv.errors.CheckpointIOError as error:
        print(error.errno, (table.get() == step + 1).all())
"""

VANISH = """
import os, pathlib, shutil, sys, time
import multiverso as mv
folder, what = sys.argv[1:]

def remove(path):
    while os.path.exists(path):  # The save may create a file meanwhile.
        shutil.rmtree(path, ignore_errors=True)

with mv.session():
    table = mv.ArrayTable(300_000, name="w")
    mv.save(folder, step=1, background=True)
    while what == "finished" and not mv.checkpoint.saved_in(folder):
        time.sleep(0.01)
    if what == "moved":
        os.rename(folder, folder + "-elsewhere")
    elif what in ("removed", "replaced"):
        remove(folder)
    else:
        remove(next(pathlib.Path(folder).glob("*000001*")))
    if what == "replaced":
        os.mkdir(folder)
    try:
        mv.wait_for_save()
    except mv.errors.CheckpointIOError as error:
        print(error)
"""

IMPORT = """
import os, signal, sys, threading
import numpy as np
import safetensors.numpy
from multiverso import checkpoint
safetensors.numpy.save_file({"w": np.ones(5, np.float32)}, sys.argv[1] + "/w.safetensors")
# A shell script that runs the tests in the background lets them ignore this signal.
signal.signal(signal.SIGINT, signal.default_int_handler)
threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
try:
    checkpoint.import_safetensors(sys.argv[1] + "/w.safetensors", sys.argv[1] + "/saved")
except KeyboardInterrupt:
    print(checkpoint.latest(sys.argv[1] + "/saved"), os.listdir(sys.argv[1] + "/saved"))
"""


@failpoints.needs_failpoints
class TestInterruptedSaves(FolderTestCase):
    def save(self, points, *arguments):
        return run_program(SAVES, self.folder, *arguments, **failpoints.environment(points))

    def step(self):
        """Verify that the last checkpoint is complete, and return its step."""
        with checkpoints.Checkpoint(self.folder) as opened:
            opened.verify()
            self.assertTrue((opened.read("w") == opened.step).all())
            return opened.step

    def test_failed_save_leaves_checkpoint_and_tables_intact(self):
        self.assertEqual(self.save("")[0], 0)
        for point in ("file.write@2", "file.sync@1", "file.rename@2"):
            for background in ((), ("background",)):
                with self.subTest(point, background=background):
                    status, printed, errors = self.save(f"{point}=error", *background)
                    self.assertEqual((status, printed), (0, "5 True\n"), errors)
                    self.assertEqual(self.step(), 1)

    def test_a_folder_that_vanishes_during_a_save_in_the_background_is_named(self):
        for what in ("removed", "replaced", "moved", "unfinished", "finished"):
            with self.subTest(what):
                points = "" if what == "finished" else "file.write@1=sleep"
                variables = failpoints.environment(points)
                status, printed, errors = run_program(VANISH, self.folder / what, what, **variables)
                self.assertEqual(status, 0, errors)
                self.assertIn("000001-step-1", errors if what == "finished" else printed)

    @needs("safetensors")
    def test_ctrl_c_ends_the_writing_of_a_checkpoint_without_a_session(self):
        points = ",".join(f"file.write@{number}=sleep" for number in (1, 2, 3))
        status, printed, errors = run_program(IMPORT, self.folder, **failpoints.environment(points))
        self.assertEqual((status, printed), (0, "None []\n"), errors)


class TestReleaseLibrary(unittest.TestCase):
    def test_release_library_has_no_failpoints(self):
        self.assertNotIn(b"shard.write", library.library_path().read_bytes())
        if failpoints.LIBRARY.exists():
            self.assertIn(b"shard.write", failpoints.LIBRARY.read_bytes())
