"""What a user may choose for a training, and what is said to wrong choices, without Keras."""

import argparse
import contextlib
import importlib.util
import io
import os
import tempfile
import unittest
from pathlib import Path
from unittest import mock

import pytest

pytestmark = pytest.mark.frameworks

MISSING = [name for name in ("h5py", "tqdm") if importlib.util.find_spec(name) is None]

if not MISSING:
    from multiverso.learn import (
        Algo,
        Data,
        InputError,
        ModelBuilder,
        ModelFromJson,
        MPIManager,
        command,
    )
    from multiverso.learn import _environment as environment
    from multiverso.learn import _options as options
    from multiverso.learn._layout import layout_of
    from multiverso.learn._ranks import share

needs_extra = unittest.skipIf(MISSING, f"needs {' and '.join(MISSING)}")


@needs_extra
class TestAlgo(unittest.TestCase):
    def test_names_and_options_are_those_of_keras(self):
        for name, given, updater, wanted in (
            ("sgd", {}, "sgd", {"learning_rate": 0.05}),
            ("SGD", {"lr": 1}, "sgd", {"learning_rate": 1.0}),
            ("sgd", {"momentum": 0.5}, "momentum", {"learning_rate": 0.01, "momentum": 0.5}),
            ("sgd", {"momentum": 0}, "sgd", {"learning_rate": 0.05}),
            ("sgd", {"momentum": 0.5, "nesterov": True}, "nesterov", None),
            ("adam", {"beta_1": 0.5}, "adam", {"learning_rate": 0.001, "beta_1": 0.5}),
            ("Adadelta", {}, "adadelta", {"learning_rate": 1.0}),
        ):
            with self.subTest(name, given=given):
                chosen = Algo(name, **given).optimizer
                self.assertEqual(chosen.updater, updater)
                if wanted is not None:
                    self.assertEqual(chosen.options, wanted)

    def test_what_there_is_not_is_refused_by_name(self):
        for given, words in (
            ({"optimizer": "none"}, "expected one of sgd, .*'none'"),
            ({"optimizer": None}, "optimizer"),
            ({"optimizer": "adam", "rho": 1}, "adam has the options .*rho=1"),
            ({"optimizer": "adam", "learning_rate": "fast"}, "learning_rate: .*'fast'"),
            ({"optimizer": "adam", "learning_rate": float("nan")}, "finite"),
            ({"optimizer": "adam", "mode": "other"}, "mode: .*'other'"),
            ({"optimizer": "adam", "sync_every": 0}, "sync_every: .*0"),
            ({"optimizer": "adam", "validate_every": -1}, "validate_every: .*-1"),
            ({"optimizer": None, "mode": "easgd", "elastic_force": 2}, "elastic_force: .*2"),
            ({"optimizer": None, "mode": "easgd", "elastic_lr": -1}, "elastic_lr: .*-1"),
            ({"optimizer": None, "mode": "easgd", "learning_rate": 1}, "optimizer"),
            ({"optimizer": None, "mode": "easgd", "worker_optimizer": 3}, "worker_optimizer"),
        ):
            with self.subTest(**given), self.assertRaisesRegex(InputError, words):
                Algo(**given)

    def test_the_workers_share_the_elastic_force(self):
        self.assertEqual(Algo(None, mode="easgd").force(3), 0.9 / 3)
        self.assertEqual(Algo(None, mode="easgd", elastic_force=0.5).force(3), 0.5)


@needs_extra
class TestManager(unittest.TestCase):
    def test_making_one_reads_and_makes_nothing(self):
        builder = mock.Mock(spec=ModelBuilder)
        manager = MPIManager(None, Data(1), Algo("sgd"), builder, 2, ["no such file"])
        builder.build_model.assert_not_called()
        self.assertIsNone(manager.model)

    def test_the_number_of_epochs_is_a_positive_integer(self):
        for wrong in (0, -1, 1.5, "1", True):
            with self.subTest(wrong=wrong), self.assertRaisesRegex(InputError, "num_epochs"):
                MPIManager(None, Data(1), Algo("sgd"), ModelBuilder(), wrong, [])

    def test_files_are_dealt_in_stretches_that_differ_by_one_at_most(self):
        for files in range(1, 12):
            for workers in range(1, files + 1):
                names = [str(number) for number in range(files)]
                shares = [share(names, worker, workers) for worker in range(workers)]
                self.assertEqual([name for part in shares for name in part], names)
                self.assertLessEqual(max(map(len, shares)) - min(map(len, shares)), 1)

    def test_there_are_no_groups_in_lock_step(self):
        for masters, words in ((0, "num_masters: .*from 1 on"), (2, "num_masters: .*lock-step")):
            given = {"num_masters": masters, "synchronous": True}
            with self.subTest(masters), self.assertRaisesRegex(InputError, words):
                MPIManager(None, Data(1), Algo("sgd"), ModelBuilder(), 1, [], **given)

    def test_a_model_is_of_a_file_or_of_a_text(self):
        self.assertEqual(ModelFromJson("a.json").filename, "a.json")
        for given in ({}, {"filename": "a.json", "json_str": "{}"}):
            with self.subTest(**given), self.assertRaisesRegex(InputError, "both or neither"):
                ModelFromJson(None, **given)


@needs_extra
class TestLayout(unittest.TestCase):
    def members(self, size, masters, nodes):
        """Return the groups, sub-master first, and the row of each."""
        groups = layout_of(size, masters, nodes).groups
        return [[each.submaster, *each.workers] for each in groups], [each.row for each in groups]

    def test_without_groups_all_ranks_but_the_master_are_workers(self):
        for size, workers in ((1, (0,)), (2, (1,)), (4, (1, 2, 3))):
            layout = layout_of(size, 1, [0] * size)
            self.assertEqual((layout.workers, layout.groups), (workers, ()))
            self.assertEqual({layout.role(rank) for rank in range(size)}, {"all"})

    def test_groups_on_one_node_are_stretches_as_equal_as_can_be(self):
        for size in range(3, 14):
            for masters in range(2, (size - 1) // 2 + 2):
                with self.subTest(size=size, masters=masters):
                    groups, rows = self.members(size, masters, [0] * size)
                    sizes = list(map(len, groups))
                    self.assertEqual(sum(groups, []), list(range(1, size)))
                    self.assertLessEqual(max(sizes) - min(sizes), 1)
                    self.assertGreaterEqual(min(sizes), 2)
                    self.assertEqual(rows, list(range(1, masters)))

    def test_as_many_groups_as_nodes_are_the_nodes(self):
        nodes = [0, 1, 0, 1, 0, 1, 1]  # dealt out in turns
        self.assertEqual(self.members(7, 3, nodes), ([[2, 4], [1, 3, 5, 6]], [1, 2]))
        # Other numbers of groups do not mix nodes more than they must.
        self.assertEqual(self.members(7, 4, nodes)[0], [[2, 4], [1, 3], [5, 6]])
        # A node of the master and one more rank is no group.
        self.assertEqual(self.members(5, 3, [0, 0, 1, 1, 1])[0], [[1, 2], [3, 4]])

    def test_a_row_is_where_the_sub_master_keeps_its_part(self):
        # The parts of tables are in the order of nodes, and of ranks on each.
        groups, rows = self.members(5, 3, [1, 0, 0, 1, 1])
        self.assertEqual((groups, rows), ([[1, 2], [3, 4]], [0, 2]))

    def test_workers_know_their_number_group_and_role(self):
        layout = layout_of(6, 3, [0] * 6)
        self.assertEqual(layout.workers, (2, 4, 5))
        self.assertEqual([layout.number(rank) for rank in layout.workers], [0, 1, 2])
        roles = [layout.role(rank) for rank in range(6)]
        self.assertEqual(roles, ["all", "all", "worker", "all", "worker", "worker"])
        self.assertEqual([layout.is_submaster(rank) for rank in (0, 1, 2, 3)], [0, 1, 0, 1])
        self.assertIsNone(layout.group_of(0))
        self.assertEqual(layout.group_of(5), layout.group_of(3))

    def test_too_few_ranks_are_an_error_with_the_numbers(self):
        for size in range(1, 5):
            with self.assertRaisesRegex(InputError, f"expected 5 ranks or more .*received {size}"):
                layout_of(size, 3, [0] * size)


@needs_extra
class TestWordsOfTheCommand(unittest.TestCase):
    def test_options_of_the_optimiser(self):
        for words in (["learning_rate=0.1", "nesterov=true"], ["learning_rate=0.1,nesterov=True"]):
            self.assertEqual(options.options_of(words), {"learning_rate": 0.1, "nesterov": True})
        for wrong in ("learning_rate", "learning_rate=fast", "=", "a=1 2"):
            with self.subTest(wrong), self.assertRaisesRegex(InputError, "NAME=NUMBER"):
                options.options_of([wrong])

    def test_when_to_stop(self):
        self.assertEqual(options.patience("4"), ("val_loss", "<", 4))
        self.assertEqual(options.patience("val_acc,~>,2"), ("val_accuracy", ">", 2))
        self.assertEqual(options.limit("val_acc,>,0.97"), ("val_accuracy", ">", 0.97))
        for wrong in ("", "a,b", "a,=,3", "a,<,b", "a,<,1.5"):
            with self.subTest(wrong), self.assertRaisesRegex(InputError, "early-stopping"):
                options.patience(wrong)
        for wrong in ("", "1", "a,=,3", "a,<,b"):
            with self.subTest(wrong), self.assertRaisesRegex(InputError, "target-metric"):
                options.limit(wrong)

    def ended(self, *arguments, **environ):
        """Return the exit code and what was printed."""
        printed = io.StringIO()
        with (
            mock.patch.dict(os.environ, environ),
            contextlib.redirect_stderr(printed),
            contextlib.redirect_stdout(printed),
        ):
            try:
                return command.main(arguments), printed.getvalue()
            except SystemExit as end:
                return end.code, printed.getvalue()

    def test_wrong_options_are_one_sentence_of_the_master(self):
        with tempfile.TemporaryDirectory() as folder:
            empty, binary = Path(folder, "empty.list"), Path(folder, "binary.list")
            empty.touch()
            binary.write_bytes(b"\xff\xfe")
            good = Path(folder, "good.list")
            good.write_text(f"{empty}\n", "utf-8")
            names = Path(folder, "names.list")
            names.write_text("none.h5\n", "utf-8")
            for given, words in (
                (["m", "none.list", "none.list"], "cannot read the list none.list"),
                (["m", str(empty), "none.list"], "expected names of files, found none"),
                (["m", str(binary), "none.list"], "it is no text"),
                (["m", str(names), "none.list"], "line 1 of .*: there is no file none.h5"),
                (["m", str(good), str(good), "--batch", "0"], "--batch"),
                (["m", str(good), str(good), "--masters", "0"], "--masters"),
                (["m", str(good), str(good), "--masters", "2"], "expected 3 ranks or more"),
                (["m", str(good), str(good), "--epochs", "x"], "--epochs"),
                (["m", str(good), str(good), "--optimizer", "x"], "expected one of .*'x'"),
                (["m", str(good), str(good), "--early-stopping", "x"], "--early-stopping"),
                (["m", str(good), str(good), "--mode", "easgd", "--elastic-force", "9"], "force"),
                (["m"], "required"),
            ):
                with self.subTest(given=given):
                    code, printed = self.ended("train", *given)
                    self.assertEqual(code, 2)
                    self.assertRegex(printed, words)
                    self.assertEqual(printed.count("\n"), 1, printed)
                    self.assertEqual(self.ended("train", *given, PMI_RANK="1"), (2, ""))

    def test_help_names_every_option(self):
        code, printed = self.ended("train", "--help")
        self.assertEqual(code, 0)
        parser = argparse.ArgumentParser()
        options.add_options(parser)
        for action in parser._actions:
            for name in action.option_strings:
                self.assertIn(name, printed)
            self.assertTrue(action.help)


@needs_extra
class TestTheMachine(unittest.TestCase):
    def test_a_backend_that_is_not_there_is_an_error(self):
        with (
            mock.patch.dict(os.environ, {"KERAS_BACKEND": "none"}),
            self.assertRaisesRegex(InputError, "expected none for Keras"),
        ):
            environment.choose_backend()

    def test_threads_are_shared_and_never_forced(self):
        with mock.patch.dict(os.environ, {"OMP_NUM_THREADS": "7"}):
            os.environ.pop("NPROC", None)
            environment.choose_threads(10**6)
            self.assertEqual(os.environ["OMP_NUM_THREADS"], "7")
            self.assertGreaterEqual(int(os.environ["NPROC"]), 1)

    def test_only_free_gpus_of_those_allowed_are_taken(self):
        with tempfile.TemporaryDirectory() as folder:
            program = Path(folder, "nvidia-smi")
            program.write_text(
                "#!/bin/sh\ncase $1 in\n"
                "*compute-apps*) echo GPU-b;;\n"
                "*) echo '0, GPU-a'; echo '1, GPU-b'; echo '2, GPU-c';;\nesac\n",
                "utf-8",
            )
            program.chmod(0o755)
            for visible, most, wanted in (
                (None, -1, "GPU-a"),
                ("1,2", -1, "GPU-c"),
                ("GPU-c", -1, "GPU-c"),
                (None, 0, ""),
                ("1", -1, ""),
            ):
                with self.subTest(visible=visible, most=most), mock.patch.dict(os.environ):
                    os.environ["PATH"] = f"{folder}{os.pathsep}{os.environ['PATH']}"
                    os.environ.pop("CUDA_VISIBLE_DEVICES", None)
                    if visible is not None:
                        os.environ["CUDA_VISIBLE_DEVICES"] = visible
                    self.assertEqual(environment.choose_gpu(None, most), wanted or None)
                    self.assertEqual(os.environ["CUDA_VISIBLE_DEVICES"], wanted)


if __name__ == "__main__":
    unittest.main()
