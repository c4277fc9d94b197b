"""The formulas of benchmarks/scale_layouts.py, and the program scale_model.py with given costs."""

import json
import sys
import unittest
from pathlib import Path

from folders import FolderTestCase
from programs import run_python

BENCHMARKS = Path(__file__).resolve().parents[3] / "benchmarks"
# Benchmarks import each other as top-level modules, which works because Python puts the folder of
# the program first on sys.path. These tests do the same.
sys.path.insert(0, str(BENCHMARKS))

import scale_layouts as model  # noqa: E402

COSTS = model.Costs(
    1e-5, bandwidth=1e9, server_bandwidth=5e8, message=1e-6, memory=1e10, handover=1e-5
)
SLOWER = model.Costs(
    2e-5, bandwidth=5e8, server_bandwidth=2.5e8, message=2e-6, memory=5e9, handover=2e-5
)
TABLE_BYTES = 8 << 20


def job(nodes, workers=1, cores=None):
    return model.Job(nodes, workers, TABLE_BYTES, cores)


def seconds_of(layout, *arguments, costs=COSTS):
    return model.seconds_of(layout(job(*arguments)), costs, job(*arguments))


class TestLayouts(unittest.TestCase):
    def test_one_node_sends_nothing(self):
        for layout in (model.spread, model.rounds):
            load = layout(job(1, 4))
            self.assertEqual((load.sent, load.messages, load.sequential_messages), (0, 0, 0))

    def test_two_nodes_send_half_a_delta_and_half_of_the_parameters_each(self):
        load = model.spread(job(2))
        self.assertEqual(load.sent, TABLE_BYTES)
        self.assertEqual(load.total_sent, 2 * TABLE_BYTES)

    def test_bytes_grow_with_the_workers_unless_their_node_sums_first(self):
        for layout in (model.spread, model.dedicated):
            self.assertEqual(layout(job(16, 4)).sent, 4 * layout(job(16, 1)).sent)
        self.assertEqual(model.rounds(job(16, 4)).sent, model.rounds(job(16, 1)).sent)

    def test_a_node_sends_less_than_twice_the_table_in_a_round(self):
        for nodes in (2, 3, 64, 4096):
            load = model.rounds(job(nodes, 4))
            self.assertAlmostEqual(load.sent, 2 * TABLE_BYTES * (nodes - 1) / nodes)
            self.assertEqual(load.sequential_messages, 2)

    def test_dedicated_server_answers_all_workers_of_eight_nodes(self):
        self.assertEqual(model.dedicated(job(8, 2)).sent, 16 * TABLE_BYTES)
        self.assertEqual(model.dedicated(job(64, 2)).sent, 16 * TABLE_BYTES)

    def test_small_table_travels_along_a_tree_of_many_nodes(self):
        for nodes, messages in ((31, 2), (32, 10), (33, 12), (1024, 20)):
            load = model.rounds(model.Job(nodes, 4, model.SMALL_BYTES))
            self.assertEqual(load.sequential_messages, messages)
        for nodes in (32, 64):
            largest = model.SMALL_BYTES_PER_NODE * nodes
            load = model.rounds(model.Job(nodes, 4, largest + 4))
            self.assertEqual(load.sequential_messages, 2)
            load = model.rounds(model.Job(nodes, 4, largest))
            self.assertGreater(load.sequential_messages, 2)

    def test_small_table_of_few_nodes_has_one_owner(self):
        load = model.rounds(model.Job(4, 2, model.SMALL_BYTES))
        self.assertEqual((load.sequential_messages, load.total_messages), (2, 6))
        load = model.rounds(model.Job(4, 2, model.SMALL_BYTES + 4))
        self.assertEqual((load.sequential_messages, load.total_messages), (2, 24))

    def test_one_node_and_its_server_take_a_round_trip_and_one_transfer(self):
        for cores in (None, 2):  # one worker does not contend for the two cores of one machine
            expected = 2 * COSTS.latency + TABLE_BYTES / COSTS.server_bandwidth
            self.assertAlmostEqual(seconds_of(model.dedicated, 1, 1, cores), expected)

    def test_nodes_of_one_machine_share_its_time(self):
        # Four nodes share two cores and the bandwidth of two nodes.
        self.assertAlmostEqual(seconds_of(model.spread, 4, 1, 2), 2 * seconds_of(model.spread, 4))

    def test_doubled_costs_double_the_time(self):
        for layout in model.LAYOUTS.values():
            expected = 2 * seconds_of(layout, 64, 2)
            self.assertAlmostEqual(seconds_of(layout, 64, 2, costs=SLOWER), expected)


class TestTheProgram(FolderTestCase):
    def test_predicts_without_measuring_if_all_costs_are_given(self):
        target = self.folder / "report.json"
        given = ["--latency=1e-5", "--bandwidth=1e9", "--message=1e-6", "--memory=1e10"]
        given += ["--handover=1e-5"]
        given += ["--json", target, "--workers", "2", "--size", "1000"]
        status, printed, errors = run_python(BENCHMARKS / "scale_model.py", *given)
        self.assertEqual(status, 0, errors)
        report = json.loads(target.read_text("utf-8"))
        self.assertEqual(report["checks"], [])
        predicted = report["predicted"]
        self.assertEqual((predicted["nodes"][0], predicted["nodes"][-1]), (1, 4096))
        self.assertEqual(set(predicted["layouts"]), set(model.LAYOUTS))
        for name in model.LAYOUTS:
            self.assertIn(name, printed)

    def test_rejects_negative_costs(self):
        status, _, errors = run_python(BENCHMARKS / "scale_model.py", "--latency=-1")
        self.assertEqual(status, 2)
        self.assertIn("expected more than 0, received -1.0", errors)
