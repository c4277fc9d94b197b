"""The scale model counts the bytes of a round and predicts its time from given costs."""

import json
import sys
import unittest
from pathlib import Path

from folders import FolderTestCase
from programs import run_python

FOLDER = Path(__file__).resolve().parents[3] / "benchmarks"
# Python puts the folder of a program first on the path, so these tests do the same.
sys.path.insert(0, str(FOLDER))

import scale_layouts as model  # noqa: E402

COSTS = model.Costs(latency=1e-5, bandwidth=1e9, server_bandwidth=5e8, message=1e-6, memory=1e10)
TABLE_BYTES = 8 << 20


def job(nodes, workers=1, cores=None):
    return model.Job(nodes, workers, TABLE_BYTES, cores)


class TestLayouts(unittest.TestCase):
    def test_one_node_sends_nothing(self):
        for layout in (model.spread, model.summed(model.spread), model.chain):
            load = layout(job(1, 4))
            self.assertEqual((load.sent, load.messages, load.sequential_messages), (0, 0, 0))

    def test_two_nodes_send_half_a_delta_and_half_of_the_parameters_each(self):
        load = model.spread(job(2))
        self.assertEqual(load.sent, TABLE_BYTES)
        self.assertEqual(load.total_sent, 2 * TABLE_BYTES)

    def test_bytes_grow_with_the_workers_unless_their_node_sums_first(self):
        for layout in (model.spread, model.dedicated):
            one = layout(job(16, 1)).sent
            self.assertEqual(layout(job(16, 4)).sent, 4 * one)
            self.assertEqual(model.summed(layout)(job(16, 4)).sent, one)
        self.assertEqual(model.chain(job(16, 4)).sent, model.chain(job(16, 1)).sent)

    def test_summing_node_sends_at_most_twice_the_table(self):
        for nodes in (2, 3, 64, 4096):
            self.assertLessEqual(model.summed(model.spread)(job(nodes, 4)).sent, 2 * TABLE_BYTES)
            self.assertLessEqual(model.chain(job(nodes, 4)).sent, 2 * TABLE_BYTES)

    def test_dedicated_server_answers_all_workers_of_eight_nodes(self):
        self.assertEqual(model.dedicated(job(8, 2)).sent, 16 * TABLE_BYTES)
        self.assertEqual(model.dedicated(job(64, 2)).sent, 16 * TABLE_BYTES)

    def test_chain_waits_for_every_node_in_both_directions(self):
        self.assertEqual(model.chain(job(5)).sequential_messages, 8)

    def test_pair_of_nodes_takes_the_measured_time(self):
        for cores in (None, 2):
            seconds = model.seconds_of(model.dedicated(job(1, 1, cores)), COSTS, job(1, 1, cores))
            transfer = TABLE_BYTES / COSTS.server_bandwidth
            self.assertAlmostEqual(seconds, 2 * COSTS.latency + transfer)

    def test_nodes_of_one_machine_share_its_time(self):
        apart, together = (
            model.seconds_of(model.spread(job(4, 1, cores)), COSTS, job(4, 1, cores))
            for cores in (None, 2)
        )
        self.assertGreater(together, 1.9 * apart)

    def test_slower_components_make_slower_rounds(self):
        for layout in model.LAYOUTS.values():
            load = layout(job(64, 2))
            usual = model.seconds_of(load, COSTS, job(64, 2))
            worse = model.Costs(2e-5, 0.5e9, 2.5e8, 2e-6, 0.5e10)
            self.assertGreater(model.seconds_of(load, worse, job(64, 2)), 1.5 * usual)


class TestTheProgram(FolderTestCase):
    def test_predicts_without_measuring_if_all_costs_are_given(self):
        target = self.folder / "report.json"
        given = ["--latency=1e-5", "--bandwidth=1e9", "--message=1e-6", "--memory=1e10"]
        given += ["--json", target, "--workers", "2", "--size", "1000"]
        status, printed, errors = run_python(FOLDER / "scale_model.py", *given)
        self.assertEqual(status, 0, errors)
        report = json.loads(target.read_text("utf-8"))
        self.assertEqual(report["checks"], [])
        predicted = report["predicted"]
        self.assertEqual((predicted["nodes"][0], predicted["nodes"][-1]), (1, 4096))
        self.assertEqual(set(predicted["layouts"]), set(model.LAYOUTS))
        for name in model.LAYOUTS:
            self.assertIn(name, printed)

    def test_rejects_negative_costs(self):
        status, _, errors = run_python(FOLDER / "scale_model.py", "--latency=-1")
        self.assertEqual(status, 2)
        self.assertIn("expected more than 0, received -1.0", errors)
