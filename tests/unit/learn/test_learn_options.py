"""The options of a training, and the errors for invalid ones, without Keras."""

import argparse
import contextlib
import dataclasses
import importlib.util
import io
import os
import unittest
from pathlib import Path
from unittest import mock

import pytest
from folders import FolderTestCase

pytestmark = pytest.mark.frameworks

MISSING = [name for name in ("h5py", "tqdm") if importlib.util.find_spec(name) is None]

if not MISSING:
    from multiverso.errors import OperationTimeout
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
    from multiverso.learn import _messages as messages
    from multiverso.learn import _options as options
    from multiverso.learn._layout import layout_of
    from multiverso.learn._mpi import LocalChannel
    from multiverso.learn._roles import files_of_worker

needs_extra = unittest.skipIf(MISSING, f"needs {' and '.join(MISSING)}")


@needs_extra
class TestAlgo(unittest.TestCase):
    def test_algo_takes_names_and_options_of_keras(self):
        for name, given, updater, wanted in (
            ("sgd", {}, "sgd", {"learning_rate": 0.05}),
            ("SGD", {"lr": 1}, "sgd", {"learning_rate": 1.0}),
            ("sgd", {"momentum": 0.5}, "momentum", {"learning_rate": 0.01, "momentum": 0.5}),
            ("sgd", {"momentum": 0}, "sgd", {"learning_rate": 0.05}),
            ("sgd", {"momentum": 0.5, "nesterov": True}, "nesterov", None),
            ("adam", {"beta_1": 0.5}, "adam", {"learning_rate": 0.001, "beta_1": 0.5}),
            ("Adadelta", {}, "adadelta", {"learning_rate": 1.0}),
            ("dcasgda", {"rho": 0.5}, "dcasgda", {"learning_rate": 0.05, "rho": 0.5}),
        ):
            with self.subTest(name, given=given):
                chosen = Algo(name, **given).optimizer
                self.assertEqual(chosen.updater, updater)
                if wanted is not None:
                    self.assertEqual(chosen.options, wanted)

    def test_algo_names_the_invalid_argument(self):
        for given, words in (
            ({"optimizer": "none"}, "expected one of sgd, .*'none'"),
            ({"optimizer": None}, "optimizer"),
            ({"optimizer": "adam", "rho": 1}, "adam: expected options among .*rho=1"),
            ({"optimizer": "adam", "learning_rate": "fast"}, "learning_rate: .*'fast'"),
            ({"optimizer": "adam", "learning_rate": float("nan")}, "finite"),
            ({"optimizer": "adam", "mode": "other"}, "mode: .*'other'"),
            ({"optimizer": "adam", "validate_every": -1}, "validate_every: .*-1"),
            ({"optimizer": None, "mode": "easgd", "elastic_force": 2}, "elastic_force: .*2"),
            ({"optimizer": None, "mode": "easgd", "elastic_lr": -1}, "elastic_lr: .*-1"),
            ({"optimizer": None, "mode": "easgd", "learning_rate": 1}, "optimizer"),
            ({"optimizer": None, "mode": "easgd", "worker_optimizer": 3}, "worker_optimizer"),
            ({"optimizer": "sgd", "sync_every": 4, "fragments": 2}, "fragments: .*diloco.*'sgd'"),
            ({"optimizer": "sgd", "weight": "samples"}, "weight: expected mode 'diloco'"),
            ({"optimizer": "sgd", "mode": "diloco", "weight": 2}, "weight: expected 'samples'.*2"),
            (
                {"optimizer": "sgd", "mode": "diloco", "sync_every": 2, "fragments": 3},
                "fragments: expected at most sync_every, 2, received 3",
            ),
        ):
            with self.subTest(**given), self.assertRaisesRegex(InputError, words):
                Algo(**given)

    def test_elastic_force_is_divided_among_workers_by_default(self):
        self.assertEqual(Algo(None, mode="easgd").force(3), 0.9 / 3)
        self.assertEqual(Algo(None, mode="easgd", elastic_force=0.5).force(3), 0.5)


@needs_extra
class TestManager(unittest.TestCase):
    def test_manager_reads_nothing_before_train(self):
        builder = mock.Mock(spec=ModelBuilder)
        manager = MPIManager(None, Data(1), Algo("sgd"), builder, 2, ["no such file"])
        builder.build_model.assert_not_called()
        self.assertIsNone(manager.model)

    def manager(self, num_epochs=1, **given):
        return MPIManager(None, Data(1), Algo("sgd"), ModelBuilder(), num_epochs, [], **given)

    def test_rejects_arguments_that_are_not_positive_integers(self):
        for name, make in (
            ("batch_size", Data),
            ("sync_every", lambda value: Algo("sgd", sync_every=value)),
            ("num_epochs", self.manager),
            ("num_masters", lambda value: self.manager(num_masters=value, synchronous=True)),
            ("checkpoint_interval", lambda value: self.manager(checkpoint_interval=value)),
        ):
            for wrong in (0, -1, 2.5, "3", True, None):
                words = f"^{name}: expected an integer >= 1, received {wrong!r}$"
                with self.subTest(name, wrong=wrong), self.assertRaisesRegex(InputError, words):
                    make(wrong)

    def test_workers_get_contiguous_shares_of_files_that_differ_by_one_at_most(self):
        for files in range(1, 12):
            for workers in range(1, files + 1):
                names = [str(number) for number in range(files)]
                shares = [files_of_worker(names, worker, workers) for worker in range(workers)]
                self.assertEqual([name for part in shares for name in part], names)
                self.assertLessEqual(max(map(len, shares)) - min(map(len, shares)), 1)

    def test_manager_rejects_groups_in_lock_step(self):
        for timeout in (0, -1, float("inf"), "1"):
            with self.assertRaisesRegex(InputError, "timeout: expected a number"):
                self.manager(timeout=timeout)
        with self.assertRaisesRegex(InputError, "num_masters: .*lock-step"):
            self.manager(num_masters=2, synchronous=True)

    def test_model_needs_either_a_file_or_a_json_string(self):
        self.assertEqual(ModelFromJson("a.json").filename, "a.json")
        for given in ({}, {"filename": "a.json", "json_str": "{}"}):
            with self.subTest(**given), self.assertRaisesRegex(InputError, "both or neither"):
                ModelFromJson(None, **given)


@needs_extra
class TestLayout(unittest.TestCase):
    def groups_and_rows(self, size, masters, nodes):
        """Return the ranks of each group, the sub-master first, and the row of each group."""
        groups = layout_of(size, masters, nodes).groups
        ranks = [[group.submaster, *group.workers] for group in groups]
        return ranks, [group.row for group in groups]

    def test_all_ranks_except_the_master_are_workers_without_groups(self):
        for size, workers in ((1, (0,)), (2, (1,)), (4, (1, 2, 3))):
            layout = layout_of(size, 1, [0] * size)
            self.assertEqual((layout.workers, layout.groups), (workers, ()))
            self.assertEqual({layout.session_role(rank) for rank in range(size)}, {"all"})

    def test_groups_on_one_node_are_contiguous_and_differ_by_one_at_most(self):
        for size in range(3, 14):
            for masters in range(2, (size - 1) // 2 + 2):
                with self.subTest(size=size, masters=masters):
                    groups, rows = self.groups_and_rows(size, masters, [0] * size)
                    sizes = list(map(len, groups))
                    self.assertEqual(sum(groups, []), list(range(1, size)))
                    self.assertLessEqual(max(sizes) - min(sizes), 1)
                    self.assertGreaterEqual(min(sizes), 2)
                    self.assertEqual(rows, list(range(1, masters)))

    def test_groups_are_the_nodes_if_their_numbers_agree(self):
        nodes = [0, 1, 0, 1, 0, 1, 1]
        self.assertEqual(self.groups_and_rows(7, 3, nodes), ([[2, 4], [1, 3, 5, 6]], [1, 2]))
        # With another number of groups, at most one group spans two nodes.
        self.assertEqual(self.groups_and_rows(7, 4, nodes)[0], [[2, 4], [1, 3], [5, 6]])
        # A node with only one rank besides the master cannot form a group.
        self.assertEqual(self.groups_and_rows(5, 3, [0, 0, 1, 1, 1])[0], [[1, 2], [3, 4]])

    def test_row_of_a_group_is_the_part_that_its_sub_master_holds(self):
        # Table parts are ordered by node, then by rank.
        groups, rows = self.groups_and_rows(5, 3, [1, 0, 0, 1, 1])
        self.assertEqual((groups, rows), ([[1, 2], [3, 4]], [0, 2]))

    def test_layout_tells_group_and_session_role_of_ranks(self):
        layout = layout_of(6, 3, [0] * 6)
        self.assertEqual(layout.workers, (2, 4, 5))
        roles = [layout.session_role(rank) for rank in range(6)]
        self.assertEqual(roles, ["all", "all", "worker", "all", "worker", "worker"])
        self.assertIsNone(layout.group_of(0))
        self.assertEqual(layout.group_of(5), layout.group_of(3))

    def test_layout_error_tells_how_many_ranks_are_needed(self):
        for size in range(1, 5):
            with self.assertRaisesRegex(InputError, f"expected 5 ranks or more .*received {size}"):
                layout_of(size, 3, [0] * size)


@needs_extra
class TestMessages(unittest.TestCase):
    def test_messages_survive_encoding(self):
        for kind in messages.Message.__subclasses__():
            # Any JSON values may be fields.
            message = kind(*([number, "a"] for number, _ in enumerate(dataclasses.fields(kind))))
            with self.subTest(kind.__name__):
                self.assertEqual(messages.decode(messages.encode(message)), message)

    def test_local_channel_connects_master_and_worker_in_one_process(self):
        channel, reports = LocalChannel(1.0), []
        channel.deliver = reports.append
        channel.send(messages.Value(3), 0)
        self.assertEqual(reports, [messages.Value(3)])
        self.assertIsNone(channel.poll())
        channel.broadcast(messages.StartEpoch())
        self.assertEqual(channel.wait("an order"), (0, messages.StartEpoch()))
        with self.assertRaisesRegex(OperationTimeout, "rank 0 waited 0.01 s for an order"):
            LocalChannel(0.01).wait("an order")


@needs_extra
class TestCommand(FolderTestCase):
    def test_parses_options_of_the_optimizer(self):
        for words in (["learning_rate=0.1", "nesterov=true"], ["learning_rate=0.1,nesterov=True"]):
            self.assertEqual(options.options_of(words), {"learning_rate": 0.1, "nesterov": True})
        for wrong in ("learning_rate", "learning_rate=fast", "=", "a=1 2"):
            with self.subTest(wrong), self.assertRaisesRegex(InputError, "NAME=NUMBER"):
                options.options_of([wrong])

    def test_parses_conditions_that_stop_a_training(self):
        self.assertEqual(options.patience("4"), ("val_loss", "<", 4))
        self.assertEqual(options.patience("val_acc,~>,2"), ("val_accuracy", ">", 2))
        self.assertEqual(options.target("val_acc,>,0.97"), ("val_accuracy", ">", 0.97))
        for wrong in ("", "a,b", "a,=,3", "a,<,b", "a,<,1.5"):
            with self.subTest(wrong), self.assertRaisesRegex(InputError, "early-stopping"):
                options.patience(wrong)
        for wrong in ("", "1", "a,=,3", "a,<,b"):
            with self.subTest(wrong), self.assertRaisesRegex(InputError, "target-metric"):
                options.target(wrong)

    def run_command(self, *arguments, **environ):
        """Run ``multiverso-learn``; return the exit code and the printed text."""
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

    def test_invalid_options_give_one_line_on_the_master_and_exit_code_2(self):
        files = [f"{self.folder}/{name}.list" for name in ("empty", "binary", "good", "names")]
        empty, binary, good, names = files
        contents = (b"", b"\xff\xfe", empty.encode(), b"none.h5\n")
        for path, content in zip(files, contents, strict=True):
            Path(path).write_bytes(content)
        for given, words in (
            (["m", "none.list", "none.list"], "cannot read none.list: No such file"),
            (["m", empty, "none.list"], "expected names of files, found none"),
            (["m", binary, "none.list"], "not a text file"),
            (["m", names, "none.list"], "line 1 of .*: no such file: none.h5"),
            (["m", good, good, "--batch", "0"], "--batch"),
            (["m", good, good, "--masters", "0"], "--masters"),
            (["m", good, good, "--masters", "2"], "expected 3 ranks or more"),
            (["m", good, good, "--epochs", "x"], "--epochs"),
            (["m", good, good, "--timeout", "0"], "--timeout: .*above 0, received 0"),
            (["m", good, good, "--timeout", "nan"], "--timeout: .*received nan"),
            (["m", good, good, "--optimizer", "x"], "expected one of .*'x'"),
            (["m", good, good, "--early-stopping", "x"], "--early-stopping"),
            (["m", good, good, "--mode", "easgd", "--elastic-force", "9"], "force"),
            (["m", good, good, "--mode", "gem"], "--mode: gem .*use .*dcasgd"),
            (["--model_weights", "x.h5", "m", good, good], "--model_weights: .*a .keras file"),
            (["m", "--worker-optimizer-params={}", good, good], "use --elastic-lr"),
            *(
                (["m", good, good, name], f"{name}: it does not exist here; ")
                for name in options._REFUSED
            ),
            (["m"], "required"),
        ):
            with self.subTest(given=given):
                code, printed = self.run_command("train", *given)
                self.assertEqual(code, 2)
                self.assertRegex(printed, words)
                self.assertEqual(printed.count("\n"), 1, printed)
                self.assertEqual(self.run_command("train", *given, PMI_RANK="1"), (2, ""))

    def test_accepts_the_spellings_of_mpi_learn(self):
        parser = argparse.ArgumentParser()
        options.add_options(parser)
        for spelling, name, value in (
            (["--tf"], "backend", "tensorflow"),
            (["--easgd"], "mode", "easgd"),
            (["--log-level", "warn"], "log_level", "warning"),
            (["--log-level", "DEBUG"], "log_level", "debug"),
        ):
            with self.subTest(spelling):
                parsed = vars(parser.parse_args(["m", "train", "val", *spelling]))
                self.assertEqual(parsed[name], value)

    def test_help_describes_every_option(self):
        code, printed = self.run_command("train", "--help")
        self.assertEqual(code, 0)
        parser = argparse.ArgumentParser()
        options.add_options(parser)
        for action in parser._actions:
            if action.help == argparse.SUPPRESS:
                continue
            for name in action.option_strings:
                self.assertIn(name, printed)
            self.assertTrue(action.help)


@needs_extra
class TestEnvironment(FolderTestCase):
    def test_rejects_backend_that_is_not_installed(self):
        with (
            mock.patch.dict(os.environ, {"KERAS_BACKEND": "none"}),
            self.assertRaisesRegex(InputError, "expected none, found"),
        ):
            environment.choose_backend()

    def test_cores_are_divided_among_workers_unless_the_user_has_chosen(self):
        with mock.patch.dict(os.environ, {"OMP_NUM_THREADS": "7"}):
            os.environ.pop("NPROC", None)
            environment.choose_threads(10**6)
            self.assertEqual(os.environ["OMP_NUM_THREADS"], "7")
            self.assertGreaterEqual(int(os.environ["NPROC"]), 1)

    def test_chooses_a_free_gpu_among_those_allowed(self):
        program = self.folder / "nvidia-smi"
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
                os.environ["PATH"] = f"{self.folder}{os.pathsep}{os.environ['PATH']}"
                os.environ.pop("CUDA_VISIBLE_DEVICES", None)
                if visible is not None:
                    os.environ["CUDA_VISIBLE_DEVICES"] = visible
                self.assertEqual(
                    environment.choose_gpu(environment.free_gpus(), most), wanted or None
                )
                self.assertEqual(os.environ["CUDA_VISIBLE_DEVICES"], wanted)
        # Without the list of processes, every GPU may be busy.
        program.write_text(
            "#!/bin/sh\ncase $1 in *compute-apps*) exit 1;; esac\necho '0, GPU-a'\n", "utf-8"
        )
        with mock.patch.dict(os.environ):
            os.environ["PATH"] = f"{self.folder}{os.pathsep}{os.environ['PATH']}"
            with self.assertLogs("multiverso", "WARNING"):
                self.assertIsNone(environment.choose_gpu(environment.free_gpus(), -1))
            self.assertEqual(os.environ["CUDA_VISIBLE_DEVICES"], "")
