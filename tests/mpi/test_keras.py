"""Keras models on several ranks, on the backends that this environment has."""

import functools
import importlib.util
import unittest

import pytest

from launch import JOB_TIMEOUT, ONE_THREAD, run

pytestmark = pytest.mark.frameworks

HAS_KERAS = importlib.util.find_spec("keras") is not None
BACKENDS = [
    name for name in ("jax", "tensorflow", "torch") if HAS_KERAS and importlib.util.find_spec(name)
]
RANKS = 3

#: Seconds, because frameworks start and compile slowly.
TIMEOUT = 2 * JOB_TIMEOUT


@functools.cache
def reports_on(backend):
    """Return the report of each rank. One job serves all tests, because frameworks start slowly."""
    result = run("keras_params.py", np=RANKS, timeout=TIMEOUT, KERAS_BACKEND=backend, **ONE_THREAD)
    return result.check().reports


@unittest.skipUnless(BACKENDS, "needs Keras")
class TestModels(unittest.TestCase):
    def on_each_backend(self):
        for backend in BACKENDS:
            with self.subTest(backend):
                reports = reports_on(backend)
                self.assertEqual(sorted(reports), list(range(RANKS)))
                yield reports

    def test_fit_ends_with_all_deltas_on_every_worker(self):
        for reports in self.on_each_backend():
            for mode in ("async", "stale", "sync"):
                for report in reports.values():
                    result, master_result = report[mode], reports[0][mode]
                    self.assertTrue(result["equals_tables"])
                    self.assertEqual(result["weights"], master_result["weights"])
                    self.assertEqual(result["history"], master_result["history"])
                    losses = result["history"]["loss"]
                    self.assertLess(losses[-1], losses[0])

    def test_sync_fits_are_bitwise_identical(self):
        for reports in self.on_each_backend():
            for report in reports.values():
                self.assertEqual(report["sync again"], report["sync"])

    def test_weights_restored_on_other_workers_are_not_added(self):
        for reports in self.on_each_backend():
            for report in reports.values():
                self.assertTrue(report["tables_unchanged"])

    def test_error_on_one_rank_reaches_every_rank(self):
        for reports in self.on_each_backend():
            self.assertEqual(reports[0]["freq"][0], "ValueError")
            for rank in range(1, RANKS):
                self.assertEqual(reports[rank]["freq"][0], "MismatchError")
