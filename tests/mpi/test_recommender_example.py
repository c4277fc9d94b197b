"""The recommender example: a hash table that evicts is better than hashed rows."""

import numpy as np
import pytest
from requirements import needs

from example_programs import ExampleProgramTestCase

pytestmark = [pytest.mark.slow, pytest.mark.one_mpi, pytest.mark.frameworks]

PROGRAM = "torch/recommender.py"
SMALL = ["--windows", "6", "--window", "15000", "--active", "3000", "--capacity", "2500"]


@needs("torch", "tqdm")
class TestRecommender(ExampleProgramTestCase):
    def test_drifting_keys_are_learned_better_than_hashed_rows(self):
        result = self.result(PROGRAM, *SMALL, ranks=1)
        ours, theirs = (np.mean(result[name][2:]) for name in ("hash_table", "hashed_rows"))
        self.assertGreater(theirs, 0.55)
        self.assertGreater(ours, theirs)
        stats = result["stats"]
        self.assertEqual(stats["keys"], 2500)
        self.assertGreater(stats["evictions"], 0)
        self.assertGreater(stats["rejections"], 0)

    def test_workers_share_the_keys(self):
        result, output = self.result_and_output(PROGRAM, *SMALL, "--evict", "lfu", ranks=2)
        self.assertEqual(output.count("area under the curve"), 1)
        self.assertGreater(np.mean(result["hash_table"][2:]), 0.55)
        self.assertLessEqual(result["stats"]["keys"], 2500)

    def test_plots(self):
        pytest.importorskip("matplotlib")
        target = self.folder / "auc.png"
        arguments = ["--windows", "2", "--window", "500", "--active", "100", "--plot", str(target)]
        self.result(PROGRAM, *arguments, ranks=1)
        self.assertEqual(target.read_bytes()[:4], b"\x89PNG")
