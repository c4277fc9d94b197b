from folders import FolderTestCase

from multiverso._local.control_groups import cpu_quota, memory_limit


class TestLimits(FolderTestCase):
    def setUp(self):
        super().setUp()
        self.groups = self.folder / "groups"

    def write(self, name, text):
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n")

    def check(self, limit_of, cases):
        for text, expected in cases.items():
            with self.subTest(text):
                self.groups.write_text(text + "\n")
                self.assertEqual(limit_of(self.folder, self.groups), expected)
        self.assertIsNone(limit_of(self.folder, self.folder / "no groups"))

    def test_quota_is_the_least_of_all_control_groups(self):
        self.write("cpu.max", "max 100000")
        self.write("a/cpu.max", "150000 100000")
        self.write("a/b/cpu.max", "300000 100000")
        self.write("cpu/c/cpu.cfs_quota_us", "-1")
        self.write("cpu/c/cpu.cfs_period_us", "100000")
        self.write("cpu/d/cpu.cfs_quota_us", "50000")
        self.write("cpu/d/cpu.cfs_period_us", "100000")
        cases = {"0::/a/b": 1.5, "0::/": None, "0::/none": None, "4:cpu,cpuacct:/c": None}
        self.check(cpu_quota, cases | {"3:memory:/a": None, "4:cpu,cpuacct:/d\n0::/a": 0.5})

    def test_memory_is_limited_by_a_group_that_contains_the_own_one(self):
        self.write("job/memory.max", str(1 << 30))
        self.write("job/step/memory.max", "max")
        self.write("other/memory.max", "4096")
        self.write("memory/memory.limit_in_bytes", str(2**63 - 4096))
        self.write("memory/c/memory.limit_in_bytes", "8192")
        cases = {"0::/job/step": 1 << 30, "0::/": None, "5:memory:/": None, "5:memory:/c": 8192}
        self.check(memory_limit, cases | {"4:cpu:/c": None, "5:memory:/c\n0::/job": 8192})
