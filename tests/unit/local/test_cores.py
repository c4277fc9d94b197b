import os
import unittest

from folders import FolderTestCase

from multiverso._local import cores
from multiverso._local.cores import Cores, Share


class TestCores(FolderTestCase):
    """The machine has two NUMA nodes of two cores. Core 0 has the hardware threads 0 and 4."""

    def setUp(self):
        super().setUp()
        for cpu in range(8):
            self.write(f"cpu/cpu{cpu}/topology/thread_siblings_list", f"{cpu % 4},{cpu % 4 + 4}")
        self.write("node/node0/cpulist", "0,2,4,6")
        self.write("node/node1/cpulist", "1,3,5,7")

    def write(self, name, text):
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n")

    def cores(self, allowed=range(8), quota=None, slurm=""):
        return Cores.of(allowed, quota, slurm, self.folder)

    def test_a_core_has_the_threads_that_this_process_may_use(self):
        self.assertEqual(self.cores().cpus, ({0, 4}, {2, 6}, {1, 5}, {3, 7}))
        self.assertEqual(self.cores().nodes, (0, 0, 1, 1))
        self.assertEqual(self.cores({5, 2, 6}).cpus, ({2, 6}, {5}))

    def test_the_least_limit_counts(self):
        self.assertEqual(self.cores().number, 4)
        self.assertEqual(self.cores({0, 4}).number, 1)
        self.assertEqual(self.cores(quota=2.5).number, 2)
        self.assertEqual(self.cores(quota=0.5).number, 1)
        self.assertEqual(self.cores(slurm="3").number, 3)
        self.assertEqual(self.cores(slurm="3(x2)").number, 4)

    def test_without_files_each_cpu_is_a_core(self):
        found = Cores.of({1, 3}, None, system=self.folder / "none")
        self.assertEqual(found, Cores(({1}, {3}), (0, 0), 2))

    def test_ranks_divide_the_cores(self):
        self.assertEqual([self.cores().threads(ranks) for ranks in (1, 2, 3, 9)], [4, 2, 1, 1])
        found = self.cores()
        self.assertEqual(found.bind(2, "core"), [{0, 4, 2, 6}, {1, 5, 3, 7}])
        self.assertEqual(found.bind(3, "core"), [{0, 4}, {2, 6}, {1, 5, 3, 7}])
        self.assertEqual(found.bind(4, "numa"), [{0, 2, 4, 6}] * 2 + [{1, 3, 5, 7}] * 2)
        self.assertEqual(found.bind(1, "numa"), [set(range(8))])
        self.assertEqual(len(found.bind(9, "numa")), 9)
        self.assertEqual(found.bind(2, "none"), [None, None])

    def test_binding_needs_a_core_for_each_thread(self):
        self.assertTrue(self.cores().can_bind(4, 1))
        self.assertTrue(self.cores().can_bind(2, 2))
        self.assertFalse(self.cores().can_bind(2, 3))
        self.assertFalse(self.cores().can_bind(5, 1))
        self.assertFalse(self.cores(quota=2).can_bind(2, 1))


class TestThreads(unittest.TestCase):
    def test_variables_of_the_user_stay(self):
        self.assertEqual(set(cores.thread_variables(3, {}).values()), {"3"})
        found = cores.thread_variables(3, {"OMP_NUM_THREADS": "2", "NPROC": "5"})
        self.assertNotIn("OMP_NUM_THREADS", found)
        self.assertNotIn("NPROC", found)
        self.assertEqual(set(found.values()), {"2"})

    def test_crowding_is_told_only_if_it_exists(self):
        number = Cores.find().number
        one = {"OMP_NUM_THREADS": "1"}
        self.assertIsNone(cores.crowding(number, one))
        self.assertIn(f"start {number} rank", cores.crowding(number + 1, one))
        many = {"OMP_NUM_THREADS": str(number + 1)}
        self.assertIn("OMP_NUM_THREADS=1 ", cores.crowding(number, many))

    @unittest.skipUnless(hasattr(os, "sched_getaffinity"), "needs an affinity")
    def test_a_share_without_cpus_binds_nothing(self):
        before = os.sched_getaffinity(0)
        Share().bind()
        self.assertEqual(os.sched_getaffinity(0), before)
