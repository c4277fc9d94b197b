"""What multiverso.learn records of a training: history files, their plots, and traces."""

import json
import unittest
from importlib.util import find_spec
from pathlib import Path

import pytest
from folders import FolderTestCase

pytestmark = pytest.mark.frameworks

MISSING = [name for name in ("h5py", "matplotlib", "tqdm") if find_spec(name) is None]

if not MISSING:
    from multiverso.learn import InputError
    from multiverso.learn._history import ActivityTimer, History, plot, write_json

SECONDS = {"computing": 1.0, "waiting": 0.5, "communicating": 0.25}
TOTALS = {"samples": 20, "seconds": SECONDS, "events": [], "staleness": []}


@unittest.skipIf(MISSING, f"needs {' and '.join(MISSING)}")
class TestHistories(FolderTestCase):
    def history(self):
        history = History()
        history.add_epoch(0, 20, 4, {"loss": 2.0, "accuracy": 0.5})
        history.add_validation(0, 4, {"loss": 2.5})
        history.add_epoch(1, 20, 4, {"loss": float("nan"), "accuracy": 0.75, "val_loss": 1.5})
        for rank, staleness in ((1, [(0, 4)]), (2, [(0, 3), (2, 1)])):
            history.add_worker(rank, {**TOTALS, "staleness": staleness})
        return history

    def write_history(self, name="a_history.json"):
        path = self.folder / name
        write_json(path, self.history().as_dict({"model": Path("m.json"), "seed": None}))
        return str(path)

    def test_history_file_contains_everything(self):
        found = json.loads(Path(self.write_history()).read_text("utf-8"))
        self.assertEqual(found["args"], {"model": "m.json", "seed": None})
        self.assertEqual(
            found["history"],
            {"loss": [2.0, None], "accuracy": [0.5, 0.75], "val_loss": [None, 1.5]},
        )
        self.assertEqual(found["staleness"], {"0": 7, "2": 1})
        self.assertEqual([worker["rank"] for worker in found["workers"]], [1, 2])
        self.assertEqual([worker["updates"] for worker in found["workers"]], [4, 4])
        self.assertEqual(found["workers"][0]["waiting"], 0.5)
        self.assertEqual([epoch["epoch"] for epoch in found["epochs"]], [1, 2])
        self.assertEqual(found["validations"][0]["loss"], 2.5)
        self.assertNotIn("groups", found)

    def test_plots_several_histories_in_four_plots(self):
        names = [self.write_history(), self.write_history("b_history.json")]
        paths = plot(names, str(self.folder / "new" / "plots"))
        self.assertEqual(len(paths), 4)
        for path in paths:
            self.assertEqual(path.read_bytes()[:8], b"\x89PNG\r\n\x1a\n")

    def test_rejects_files_that_are_not_histories(self):
        for name, text in (("a", "words"), ("b", "{}"), ("c", "[]"), ("d", '{"history": 1}')):
            path = self.folder / name
            path.write_text(text, "utf-8")
            with self.subTest(text), self.assertRaisesRegex(InputError, "cannot use"):
                plot([str(path)], str(self.folder))
        with self.assertRaisesRegex(InputError, "cannot read"):
            plot([str(self.folder / "none")], str(self.folder))

    def test_trace_contains_the_activities_of_each_rank(self):
        timer = ActivityTimer(trace=True)
        for kind in ("computing", "waiting"):
            with timer.measure(kind):
                pass
        history = History()
        for rank, recorded in ((1, timer.events), (2, [])):
            history.add_worker(rank, {**TOTALS, "events": recorded})
        events = history.trace()["traceEvents"]
        self.assertEqual(
            [(event["pid"], event["name"]) for event in events],
            [(1, "process_name"), (1, "computing"), (1, "waiting"), (2, "process_name")],
        )
        self.assertEqual(events[1]["ts"], 0)
        self.assertGreaterEqual(events[2]["ts"], events[1]["ts"] + events[1]["dur"] - 0.001)
        self.assertEqual(sum(seconds > 0 for seconds in timer.seconds.values()), 2)
