"""Trainings of Keras models on several ranks: their outcomes, and errors for invalid input."""

import importlib.util
import json
import shutil
import sys
import unittest
from pathlib import Path

import pytest
from folders import FolderTestCase
from programs import output_of

from launch import WITHOUT_MPI, Job, run

EXAMPLES = Path(__file__).parents[2] / "examples"
PROGRAM = "learn.py"
MISSING = [name for name in ("keras", "h5py", "tqdm") if importlib.util.find_spec(name) is None]
BACKENDS = [
    name for name in ("torch", "jax", "tensorflow") if importlib.util.find_spec(name) is not None
]
TIMEOUT = 300.0  # seconds, because Keras and its backends are slow to import

pytestmark = [pytest.mark.frameworks, pytest.mark.slow]


def trained(*scenarios, ranks, backend="torch", **options):
    """Run scenarios in one job; return the report of each rank."""
    job = run(PROGRAM, *scenarios, np=ranks, timeout=TIMEOUT, KERAS_BACKEND=backend, **options)
    return job.check().reports


class OutcomeTestCase(unittest.TestCase):
    """Checks of the outcome of trainings."""

    def check_outcome(self, name, outcome, workers):
        """Check a training of four epochs."""
        history = outcome["history"]
        self.assertEqual(set(map(len, history.values())), {4})
        self.assertLess(history["loss"][-1], history["loss"][0])
        # The validation after the first epoch is no reference: an asynchronous epoch may end late,
        # with parameters of later epochs. The loss of random guessing is ln 3 = 1.1.
        self.assertLess(history["val_loss"][-1], 1.0)
        self.assertGreater(history["val_accuracy"][-1], 0.9)
        self.assertEqual(sum(samples for _, samples in outcome["workers"]), 4 * 300)
        self.assertEqual(sum(outcome["samples"]), 4 * 300)
        self.assertEqual(sum(outcome["staleness"].values()), outcome["updates"])
        ranks = [0] if workers == 0 else list(range(1, workers + 1))
        self.assertEqual([rank for rank, _ in outcome["workers"]], ranks)
        if name.endswith(" synchronous") or workers < 2:
            self.assertEqual(list(outcome["staleness"]), ["0"])

    def check_equal(self, pairs):
        """Check that the two trainings of each pair had the same outcome."""
        for name, (first, second) in pairs.items():
            with self.subTest(name):
                if name == "diloco":  # the order of roundings differs
                    for pair in zip(first["weights"], second["weights"], strict=True):
                        self.assertAlmostEqual(*pair, delta=1e-3)
                else:
                    self.assertEqual(first, second)


@unittest.skipIf(MISSING or "torch" not in BACKENDS, "needs h5py, Keras, PyTorch and tqdm")
class TestTrainings(OutcomeTestCase):
    @classmethod
    def setUpClass(cls):
        # The scenarios share a job, because Keras and its backends start slowly.
        job = run(
            PROGRAM,
            *("modes", "masters", "twice", "callbacks", "restored", "invalid"),
            *("combinations_on_two_nodes", "like_keras"),
            np=3,
            timeout=TIMEOUT,
            KERAS_BACKEND="torch",
        ).check()
        cls.reports, cls.output = job.reports, job.output

    def reports_of(self, scenario):
        """Return the reports of a scenario, by rank."""
        return [self.reports[rank][scenario] for rank in range(3)]

    def test_every_kind_of_optimizer_and_mode_reduces_the_loss(self):
        master, *workers = self.reports_of("modes")
        self.assertEqual(len(master), 11)
        for name, outcome in master.items():
            with self.subTest(name):
                self.check_outcome(name, outcome, workers=2)
        for outcomes in workers:
            self.assertEqual(set(outcomes.values()), {None})

    def test_number_of_masters_has_no_effect_but_a_warning(self):
        one, three = self.reports_of("masters")[0]
        self.assertEqual(one, three)
        for name in (
            "num_masters (--masters)",
            "num_processes (--processes)",
            "verbose (--verbose)",
        ):
            self.assertEqual(self.output.count(f"{name} has no effect"), 1)

    def test_two_runs_in_lock_step_are_bitwise_identical(self):
        self.check_equal(self.reports_of("twice")[0])

    @pytest.mark.release
    def test_callbacks_get_the_shared_model_and_can_stop_or_change_the_learning_rate(self):
        reports = self.reports_of("callbacks")
        report = reports[0]
        history = report["history"]
        # EarlyStopping stops the training because it expects a rising loss.
        self.assertEqual(list(map(len, history.values())), [3] * 4)
        self.assertEqual([epoch for epoch, _, _ in report["seen"]], [0, 1, 2])
        self.assertEqual(report["seen"][0][1], ["accuracy", "loss", "val_accuracy", "val_loss"])
        # The learning rate was 0 after the first epoch.
        self.assertEqual(len({weights for _, _, weights in report["seen"]}), 1)
        self.assertEqual(len(set(history["val_loss"])), 1)
        self.assertEqual((report["rows"], report["best"]), (4, 83))
        self.assertEqual(reports[1:], [None, None])

    def test_training_resumes_from_a_checkpoint(self):
        found, *others = self.reports_of("restored")
        for name in ("adam synchronous", "adam asynchronous", "easgd synchronous"):
            with self.subTest(name):
                whole, resumed, first_epoch = found[name]
                self.assertEqual(first_epoch, 2)
                for metric, values in resumed["history"].items():
                    self.assertEqual(len(values), 2)
                    if name == "adam synchronous":
                        self.assertEqual(values, whole["history"][metric][2:])
                    self.assertLess(resumed["history"]["loss"][0], whole["history"]["loss"][0])
        self.assertEqual(len(self.reports[0]["kept"]), 2)
        for outcome in (found, *others):
            self.assertRegex(outcome["nothing"], "cannot restore .*/no such folder: ")
            self.assertIn("sgd", outcome["another optimizer"])
            self.assertIn("received one after epoch 4", outcome["all epochs"])

    def test_failure_ends_the_training_on_all_ranks_which_can_train_again(self):
        reports = self.reports_of("invalid")
        wanted = {
            "files": ("InputError", "2 workers, received 1 file"),
            "missing": ("InputError", "cannot read file 3: no such file"),
            "loss": ("InputError", "'no loss'"),
            "metrics": ("InputError", "'no metric'"),
            "optimizer": ("InputError", "expected async mode with 'dcasgd'"),
            "worker's optimizer": ("InputError", "'none'"),
            "shapes": ("InputError", "the data do not fit the model"),
            "model": ("NotImplementedError", "expected build_model() to be overridden"),
            "data": ("PeerLostError", "OSError: the disk is gone"),
            "data in lock-step": ("PeerLostError", "OSError: the disk is gone"),
            "callback": ("PeerLostError", "ArithmeticError: no such score"),
        }
        # The rank that failed raises its original error.
        original_errors = {
            ("data", 2): ("OSError", "the disk is gone"),
            ("data in lock-step", 2): ("OSError", "the disk is gone"),
            ("callback", 0): ("ArithmeticError", "no such score"),
        }
        for name, expected in wanted.items():
            for rank, report in enumerate(reports):
                with self.subTest(name, rank=rank):
                    kind, text = original_errors.get((name, rank), expected)
                    self.assertEqual(report[name][0], kind, report[name])
                    self.assertIn(text, report[name][1])
        self.assertEqual([report["end"] for report in reports], [True, False, False])

    def test_one_worker_makes_the_same_steps_as_keras(self):
        found = self.reports_of("like_keras")[0]
        self.assertEqual(len(found), 11)
        for name, difference in found.items():
            with self.subTest(name):
                self.assertLess(difference, 1e-4)

    def test_worker_on_another_node_trains_with_the_others(self):
        found = self.reports_of("combinations_on_two_nodes")[0]
        self.assertEqual(found["nodes"], 2)
        self.assertEqual(len(found["outcomes"]), 3)
        for name, outcome in found["outcomes"].items():
            with self.subTest(name):
                self.check_outcome(name, outcome, workers=2)


@unittest.skipIf(MISSING or "torch" not in BACKENDS, "needs h5py, Keras, PyTorch and tqdm")
class TestJobs(OutcomeTestCase):
    def test_single_rank_is_master_and_worker(self):
        reports = trained("combinations", "single", ranks=1)
        for name, outcome in reports[0]["combinations"].items():
            with self.subTest(name):
                self.check_outcome(name, outcome, workers=0)
        self.assertEqual(reports[0]["single"]["size"], 1)

    def test_killed_worker_is_named_on_all_other_ranks(self):
        # In lock-step the rounds of the tables notice the loss, which other tests cover.
        given = {"np": 3, "timeout": TIMEOUT, "KERAS_BACKEND": "torch"}
        result = run(PROGRAM, "shielded", "asynchronous", **given).check_clean()
        result.check_errors("PeerLostError", "rank 2", "died", ranks=range(2))


@unittest.skipIf(MISSING or "torch" not in BACKENDS, "needs h5py, Keras, PyTorch and tqdm")
class TestJobsWithoutMpi(unittest.TestCase):
    def test_ranks_of_multiverso_run_train_together(self):
        reports = trained("single", ranks=2, mpirun=WITHOUT_MPI)
        found = [report["single"] for _, report in sorted(reports.items())]
        self.assertEqual([report["size"] for report in found], [2, 2])
        self.assertEqual([report["is_master"] for report in found], [True, False])
        self.assertEqual(found[0]["workers"], [[1, 300]])
        self.assertEqual([report["has_mpi"] for report in found], [False, False])


@unittest.skipIf(MISSING, f"needs {', '.join(MISSING)}")
class TestOtherBackends(OutcomeTestCase):
    @pytest.mark.release
    def test_other_backends_learn_and_are_reproducible(self):
        for backend in {*BACKENDS} - {"torch"}:
            report = trained("combinations", "twice", ranks=3, backend=backend)[0]
            for name, outcome in report["combinations"].items():
                with self.subTest(name, backend=backend):
                    self.check_outcome(name, outcome, workers=2)
            self.check_equal(report["twice"])


@unittest.skipIf(MISSING or "torch" not in BACKENDS, "needs h5py, Keras, PyTorch and tqdm")
class TestExamplePrograms(FolderTestCase):
    def setUp(self):
        super().setUp()
        for name in ("mpi_learn", "common"):
            shutil.copytree(EXAMPLES / name, self.folder / name)
        self.folder /= "mpi_learn"

    def run_driver(self, *arguments, ranks):
        """Run MPIDriver.py; return its result."""
        options = {"np": ranks, "timeout": TIMEOUT, "cwd": self.folder}
        with Job(self.folder / "MPIDriver.py", *arguments, **options) as job:
            return job.finish().check_clean()

    def run_program(self, *arguments):
        """Run another program of the example without MPI."""
        output_of(sys.executable, *arguments, cwd=self.folder, timeout=TIMEOUT)

    def test_learns_digits_in_three_epochs_and_rejects_a_corrupt_file(self):
        self.run_program("BuildModel.py", "mnist")
        self.run_program("models/get_mnist.py")
        files = ("mnist_arch.json", "train_mnist.list", "test_mnist.list")
        loss = ("--loss", "categorical_crossentropy")
        result = self.run_driver(*files, *loss, "--epochs", "3", "--profile", ranks=3).check()
        history = json.loads((self.folder / "mnist_arch_train_history.json").read_text("utf-8"))
        self.assertGreaterEqual(history["history"]["val_accuracy"][-1], 0.95, result.output)
        arguments = history["args"]
        self.assertEqual((arguments["epochs"], arguments["optimizer"]), (3, "adam"))
        for worker in history["workers"]:
            for kind in ("computing", "waiting", "communicating"):
                self.assertGreater(worker[kind], 0)
        trace = json.loads((self.folder / "mnist_arch_train_trace.json").read_text("utf-8"))
        self.assertEqual({event["pid"] for event in trace["traceEvents"]}, {1, 2})
        self.assertTrue((self.folder / "mnist_arch_train_model.keras").exists())

        broken = self.folder / "broken.h5"
        broken.write_bytes((self.folder / "mnist_train_0.h5").read_bytes()[:5000])
        (self.folder / "broken.list").write_text("mnist_test_0.h5\nbroken.h5\n", "utf-8")
        result = self.run_driver("mnist_arch.json", "broken.list", files[2], *loss, ranks=2)
        self.assertEqual(result.returncode, 2, result.output)
        self.assertEqual(result.output.count("error:"), 1, result.output)
        self.assertIn("cannot read broken.h5 as HDF5", result.output)
