"""The recommender example: a hash table that evicts is better than hashed rows."""

import numpy as np
import pytest
from requirements import needs

from example_programs import ExampleProgramTestCase, run_alone

pytestmark = [pytest.mark.slow, pytest.mark.one_mpi, pytest.mark.frameworks]

PROGRAM = "torch/recommender.py"
CAPACITY = 2500
SMALL = ["--windows", "6", "--window", "15000", "--active", "3000", "--capacity", str(CAPACITY)]
TINY = ["--windows", "2", "--window", "500", "--active", "100", "--capacity", "50"]
LATE = slice(2, None)  # the windows in which the table is full


@needs("torch", "tqdm")
class TestRecommender(ExampleProgramTestCase):
    def assert_limited(self, result):
        """Check that keys had to wait for a row and made room for others."""
        stats = result["stats"]["hash table"]
        self.assertGreater(result["ids"], 3 * CAPACITY)
        self.assertLessEqual(stats["keys"], CAPACITY)
        self.assertEqual(stats["keys"], stats["admissions"] - stats["evictions"])
        self.assertEqual(stats["hits"] + stats["misses"], 2 * 6 * 15_000)
        self.assertGreater(stats["evictions"], 0)
        self.assertGreater(stats["rejections"], 0)

    @pytest.mark.release
    def test_drifting_keys_are_learned_better_than_hashed_rows(self):
        result = self.result(PROGRAM, *SMALL, "--unlimited", ranks=1)
        areas = {name: np.mean(values[LATE]) for name, values in result["areas"].items()}
        self.assertEqual(list(areas), ["hash table", "hashed rows", "unlimited"])
        self.assertEqual([len(values) for values in result["areas"].values()], [6, 6, 6])
        self.assertGreater(areas["hashed rows"], 0.55)
        self.assertGreater(areas["hash table"], areas["hashed rows"])
        self.assertGreater(areas["unlimited"], areas["hash table"])
        self.assertEqual((result["capacity"], result["rows"]), (CAPACITY, int(1.45 * CAPACITY)))
        self.assert_limited(result)
        unlimited = result["stats"]["unlimited"]
        self.assertEqual((unlimited["keys"], unlimited["evictions"]), (result["ids"], 0))

    def test_workers_share_the_keys(self):
        for evict in ("lru", "lfu"):
            with self.subTest(evict=evict):
                result, output = self.result_and_output(PROGRAM, *SMALL, "--evict", evict, ranks=2)
                self.assertEqual(output.count("area under the curve"), 1)
                self.assertEqual(output.count("  window "), 6)
                self.assertGreater(np.mean(result["areas"]["hash table"][LATE]), 0.55)
                self.assert_limited(result)

    @pytest.mark.release
    def test_options_determine_the_tables_and_a_plot(self):
        pytest.importorskip("matplotlib")
        target = self.folder / "areas.png"
        arguments = ["--rows", "70", "--admit", "1", "--plot", str(target)]
        result = self.result(PROGRAM, *TINY, *arguments, ranks=1)
        self.assertEqual((result["capacity"], result["rows"]), (50, 70))
        self.assertEqual(result["stats"]["hash table"]["rejections"], 0)
        self.assertNotIn("unlimited", result["areas"])
        self.assertEqual(target.read_bytes()[:4], b"\x89PNG")

    def test_a_second_run_continues_with_the_keys_of_the_first(self):
        arguments = [*SMALL, "--windows", "2", "--backing", str(self.folder / "keys")]
        results = [self.result(PROGRAM, *arguments, ranks=ranks) for ranks in (2, 1)]
        self.assertEqual([result["reopened"] for result in results], [False, True])
        first, second = (result["areas"]["hash table"][0] for result in results)
        self.assertGreater(second, first + 0.02)

    @pytest.mark.release
    def test_invalid_input_prints_one_sentence(self):
        self.assert_rejects("--admit: expected at most 255", PROGRAM, "--admit", "256")
        self.assert_rejects("cannot write", PROGRAM, *TINY, "--json", self.folder / "none" / "json")
        returncode, _, errors = run_alone(PROGRAM, "--drift", "1.5")
        self.assertEqual(returncode, 2, errors)
        self.assertIn("error: argument --drift: invalid fraction value: '1.5'", errors)
