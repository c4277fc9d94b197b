"""The files of MPI in /dev/shm: those of a job are removed, and nothing of others."""

import mmap
import os
import unittest
from pathlib import Path

from multiverso._mpi.shared_files import SharedFiles, remove_mapped

FOLDER = Path("/dev/shm")


@unittest.skipUnless(FOLDER.is_dir(), "needs /dev/shm")
class TestSharedFiles(unittest.TestCase):
    def create(self, name):
        path = FOLDER / f"{name}-test-{os.getpid()}"
        path.write_bytes(bytes(4096))
        self.addCleanup(path.unlink, missing_ok=True)
        return path

    def map(self, path):
        with path.open("r+b") as file:
            memory = mmap.mmap(file.fileno(), 4096)
        self.addCleanup(memory.close)

    def test_removes_files_that_processes_of_the_job_have_mapped(self):
        earlier = self.create("mpich_shm_earlier")
        files = SharedFiles(lambda: [os.getpid()])
        paths = {name: self.create(name) for name in ("mpich_shm_a", "sm_segment.b", "torch_c")}
        for path in (earlier, *paths.values()):
            self.map(path)
        of_others = self.create("mpich_shm_others")
        for _ in range(20):
            files.look()
        replaced = self.create("mpich_shm_replaced")
        self.map(replaced)
        files.look()
        replaced.unlink()
        replaced.write_bytes(b"another job's")
        files.remove()
        self.assertFalse(paths["mpich_shm_a"].exists())
        self.assertFalse(paths["sm_segment.b"].exists())
        for path in (earlier, paths["torch_c"], of_others, replaced):
            self.assertTrue(path.exists(), path)

    def test_process_removes_what_it_has_mapped_itself(self):
        mapped, of_others, of_user = map(self.create, ("mpich_shm_a", "mpich_shm_b", "torch_c"))
        for path in (mapped, of_user):
            self.map(path)
        remove_mapped()
        self.assertEqual([p.exists() for p in (mapped, of_others, of_user)], [False, True, True])

    def test_process_that_has_ended_is_skipped(self):
        self.create("mpich_shm_a")
        files = SharedFiles(lambda: [2**22 + 1])
        path = self.create("mpich_shm_b")
        files.look()
        files.remove()
        self.assertTrue(path.exists())
