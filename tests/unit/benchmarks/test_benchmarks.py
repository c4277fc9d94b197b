"""The parts that benchmarks share: samples, bars and C threads; the reports of two benchmarks."""

import json
import sys
import unittest
from pathlib import Path

import numpy as np
from folders import FolderTestCase
from programs import run_python

FOLDER = Path(__file__).resolve().parents[3] / "benchmarks"
# Python puts the folder of a program first on the path, so these tests do the same.
sys.path.insert(0, str(FOLDER))

import bars  # noqa: E402
import c_threads  # noqa: E402
import comparisons  # noqa: E402
import ranks  # noqa: E402
import samples  # noqa: E402


def series(name, seconds, workers=1):
    return samples.Series(name, "", workers, 1, list(seconds))


class TestSeries(unittest.TestCase):
    def test_speed_pairs_samples_of_the_same_round(self):
        # The machine gets ten times slower, but the reference always takes twice as long.
        ours = series("ours", [1, 1, 10, 10])
        theirs = series("theirs", [2, 2, 20, 20])
        self.assertEqual(ours.speed_against(theirs), 2.0)
        self.assertEqual(theirs.speed_against(ours), 0.5)

    def test_speed_is_that_of_all_workers_together(self):
        self.assertEqual(series("ours", [2], workers=4).speed_against(series("x", [1])), 2.0)

    def test_speed_at_best_compares_the_shortest_samples(self):
        ours = series("ours", [9, 1, 10], workers=2)
        self.assertEqual(ours.speed_at_best(series("x", [30, 40, 3], workers=2)), 3.0)
        self.assertEqual(ours.speed_at_best(series("x", [3])), 6.0)

    def test_confidence_interval_of_a_speed_has_ratios_as_bounds(self):
        ours = series("ours", [1] * 100)
        theirs = series("theirs", np.random.default_rng(3).permutation(np.arange(1.0, 101.0)))
        low, high = ours.interval_against(theirs)
        # Of 100 coin tosses, 41 to 59 are heads with a probability of 94 %.
        self.assertEqual((low, high), (41.0, 60.0))
        self.assertEqual(series("x", [2, 3]).interval_against(series("y", [4, 3])), (1.0, 2.0))

    def test_verdict_has_the_speed_and_its_interval(self):
        case = comparisons.Case("get", 10, [series("ours", [1, 2]), series("theirs", [2, 3])])
        (verdict,) = bars.judge([case], 1, (bars.Bar("get", 10, "theirs", 1, 1.6),))
        self.assertEqual((verdict.speed, verdict.interval), (1.75, (1.5, 2.0)))
        self.assertTrue(verdict.passed)
        self.assertEqual(bars.judge([case], 1, (bars.Bar("get", 10, "others", 1, 1.6),)), [])

    def test_p99_is_near_the_slowest_sample(self):
        self.assertEqual(series("x", range(201)).p99, 198)
        self.assertEqual(series("x", [3.0]).p99, 3.0)


class Recorder:
    """Records its calls, and advances a simulated clock by `seconds` per call."""

    statement = ""
    workers = 1

    def __init__(self, name, seconds, log):
        self.name, self.seconds, self.log = name, seconds, log

    def run(self, calls):
        self.log.append((self.name, calls))
        return ranks.Span(0.0, self.seconds * calls)


class TestAlternate(unittest.TestCase):
    effort = samples.Effort(sample_seconds=0.5, case_seconds=0.0, min_rounds=3, max_rounds=9)

    def test_samples_are_long_enough_and_their_order_rotates(self):
        log = []
        candidates = [Recorder("a", 1.0, log), Recorder("b", 0.001, log)]
        measured = samples.alternate(candidates, ranks.Ranks(None), self.effort)
        self.assertEqual([len(s.seconds) for s in measured], [3, 3])
        for found, candidate in zip(measured, candidates, strict=True):
            self.assertGreaterEqual(found.calls * candidate.seconds, 0.5)
            np.testing.assert_allclose(found.seconds, candidate.seconds)
        # In each of 3 rounds, each candidate has an untimed call and a sample.
        self.assertEqual("".join(name for name, _ in log[-12:]), "aabb" + "bbaa" + "aabb")

    def test_samples_without_untimed_calls(self):
        log = []
        candidates = [Recorder("a", 1.0, log), Recorder("b", 1.0, log)]
        samples.alternate(candidates, ranks.Ranks(None), self.effort, warms=False)
        self.assertEqual("".join(name for name, _ in log[-6:]), "ab" + "ba" + "ab")


class TestBars(unittest.TestCase):
    def case(self, seconds, reference="np.copyto", size=10_000_000):
        measured = [series("Multiverso", [seconds]), series(reference, [1.0])]
        return comparisons.Case("get", size, measured)

    def test_bar_passes_at_its_speed_and_above(self):
        for seconds, passed in ((1.1, True), (1 / 0.85, True), (1.2, False)):
            with self.subTest(seconds):
                (verdict,) = bars.judge([self.case(seconds)], 1)
                self.assertEqual(verdict.passed, passed)

    def test_skips_bars_for_other_ranks_sizes_or_references(self):
        self.assertEqual(bars.judge([self.case(1.0)], 4), [])
        for changes in ({"size": 5}, {"reference": "np.take"}):
            self.assertEqual(bars.judge([self.case(1.0, **changes)], 1), [])


class TestCThreads(unittest.TestCase):
    def setUp(self):
        self.library = c_threads.compile_c_threads()
        if self.library is None:
            self.skipTest("no C compiler")

    def test_c_threads_compute_the_same_as_the_table(self):
        id_sets = [np.array([4, 0, 4]), np.array([1, 1, 1])]
        d = np.float32(1e-3)  # the delta of CThreads
        for operation in ("get", "add", "add_get"):
            with self.subTest(operation):
                threads = c_threads.CThreads(self.library, operation, 1, (1001,), True)
                threads._outs[0][:] = 0
                threads.run(2)
                sum_of_two = np.float32(1) + d + d if operation != "get" else np.float32(1)
                np.testing.assert_array_equal(threads._table, sum_of_two)
                expected = 0 if operation == "add" else sum_of_two
                np.testing.assert_array_equal(threads._outs[0], expected)
        threads = c_threads.CThreads(self.library, "get rows", 1, (5, 16), True, id_sets)
        threads._table[:] = np.arange(5)[:, None]
        threads.run(1)
        np.testing.assert_array_equal(threads._outs[0], threads._table[id_sets[0]])
        threads = c_threads.CThreads(self.library, "add rows", 1, (5, 16), True, id_sets)
        threads._table[:] = 0
        threads.run(1)
        threads.run(1)  # goes on with the second set
        expected = np.array([1, 3, 0, 0, 2], np.float32) * d
        np.testing.assert_allclose(threads._table[:, 7], expected, rtol=1e-6)

    def test_the_library_leaves_floating_point_as_it_was(self):
        self.assertGreater(float(np.finfo(np.float64).tiny) / 2, 0)

    def test_several_threads_reach_every_element(self):
        threads = c_threads.CThreads(self.library, "get", 3, (1000,), True)
        for out in threads._outs:
            out[:] = 0
        span = threads.run(1)
        self.assertGreaterEqual(span.end, span.begin)
        for out in threads._outs:
            np.testing.assert_array_equal(out, 1)


class TestThePrograms(FolderTestCase):
    def report_of(self, program, *arguments):
        target = self.folder / "report.json"
        command = [FOLDER / program, "--quick", "--silent", *arguments, "--json", target]
        status, out, err = run_python(*command)
        self.assertEqual(status, 0, out + err)
        report = json.loads(target.read_text("utf-8"))
        self.assertEqual(report["environment"]["numpy"], np.__version__)
        return report

    def test_tables_benchmark_reports_all_cases(self):
        report = self.report_of("tables.py", "--sizes", "3", "1000", "--num-row", "7")
        (run,) = report["runs"]
        self.assertEqual(run["ranks"], 1)
        measured = [(case["operation"], case["size"]) for case in run["cases"]]
        arrays = [(name, size) for name in ("get", "add", "add_get") for size in (3, 1000)]
        rows = [("get rows", 640_000), ("add rows", 640_000)]
        self.assertEqual(measured, [*arrays, *rows, ("barrier", 0)])
        for case in run["cases"]:
            for found in case["series"]:
                with self.subTest(f"{case['operation']} {case['size']} {found['name']}"):
                    self.assertGreater(min(found["seconds"]), 0)
                    self.assertGreaterEqual(found["p99"], found["median"])
                    self.assertGreater(found["speed"], 0)
            self.assertEqual(case["series"][0]["name"], "Multiverso")
            self.assertEqual(case["series"][0]["speed"], 1.0)
        self.assertEqual(len(run["bars"]), 4)
