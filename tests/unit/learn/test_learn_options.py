"""The options of a training, and the errors for invalid ones, without Keras."""

import argparse
import contextlib
import importlib.util
import io
import os
import unittest
from unittest import mock

import pytest
from folders import FolderTestCase

pytestmark = pytest.mark.frameworks

MISSING = [name for name in ("h5py", "tqdm") if importlib.util.find_spec(name) is None]

if not MISSING:
    import multiverso as mv
    from multiverso._local import job
    from multiverso.devices import idle_gpus
    from multiverso.errors import OperationTimeout
    from multiverso.learn import (
        Algo,
        Data,
        InputError,
        ModelBuilder,
        MPIManager,
        _environment as environment,
        _options as options,
        command,
    )
    from multiverso.learn._messages import Orders, Report, Reports, training_session
    from multiverso.learn.manager import files_of_worker, require_optimizer

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

    def test_workers_get_contiguous_shares_of_files_that_differ_by_one_at_most(self):
        for files in range(1, 12):
            for workers in range(1, files + 1):
                names = [str(number) for number in range(files)]
                shares = [files_of_worker(names, worker, workers) for worker in range(workers)]
                self.assertEqual([name for part in shares for name in part], names)
                self.assertLessEqual(max(map(len, shares)) - min(map(len, shares)), 1)


@needs_extra
class TestReports(unittest.TestCase):
    def test_single_rank_gets_orders_with_each_report(self):
        taken = []

        def take_turn(reports):
            taken.extend(reports)
            return Orders(ended_epochs=len(taken))

        with mv.session():
            reports = Reports(take_turn, in_background=False)
            reports.report(Report(samples=3, metrics={"loss": 0.5}))
            self.assertEqual(reports.orders.ended_epochs, 1)
        self.assertEqual(taken, [Report(samples=3, metrics={"loss": 0.5})])

    def test_thread_takes_turns_and_its_error_reaches_the_worker(self):
        turns = []

        def take_turn(reports):
            turns.append(reports)
            if len(turns) == 2:
                raise OperationTimeout("rank 0 did not come")
            return Orders()

        with mv.session():
            reports = Reports(take_turn, in_background=True)
            reports.report(Report(samples=3, ended_epoch=True))
            with self.assertRaisesRegex(OperationTimeout, "rank 0 did not come"):
                reports.wait_for(lambda orders: orders.end)
        self.assertEqual([len(reports) for reports in turns], [0, 1])

    def test_worker_that_hangs_leaves_the_session(self):
        with mv.session(timeout=0.1):
            reports = Reports(lambda reports: Orders(), in_background=True)
            reports._thread.join(60)
            with self.assertRaisesRegex(OperationTimeout, "rank 0 has trained no batch for"):
                reports.check()
            self.assertFalse(mv.is_initialized())


@needs_extra
class TestSession(unittest.TestCase):
    def test_elastic_session_is_refused(self):
        with mock.patch.dict(os.environ, {job.ELASTIC: "1:4"}):
            with self.assertRaisesRegex(InputError, "received an elastic one"):
                with training_session(False, None, 120.0, 120.0):
                    self.fail("the training began")
        self.assertFalse(mv.is_initialized())

    def test_optimizers_that_note_what_workers_receive_need_one_node_and_no_rounds(self):
        algo = Algo("dcasgda")
        for features, expected in (
            (["sync"], "async mode"),
            (["async", "several nodes"], "one node"),
        ):
            with self.assertRaisesRegex(InputError, f"expected {expected} with 'dcasgd'"):
                require_optimizer(algo, features)
        require_optimizer(algo, ["async"])
        # This does not use the optimizer.
        require_optimizer(Algo("dcasgda", mode="easgd"), ["sync", "several nodes"])


@needs_extra
class TestCommand(FolderTestCase):
    def test_parses_options_of_the_optimizer(self):
        for words in (["learning_rate=0.1", "nesterov=true"], ["learning_rate=0.1,nesterov=True"]):
            self.assertEqual(options.options_of(words), {"learning_rate": 0.1, "nesterov": True})

    def test_parses_conditions_that_stop_a_training(self):
        early, target = "--early-stopping", "--target-metric"
        for option, text, number, wanted in (
            (early, "4", int, ("val_loss", "<", 4)),
            (early, "val_acc,~>,2", int, ("val_accuracy", ">", 2)),
            (target, "val_acc,>,0.97", float, ("val_accuracy", ">", 0.97)),
            (target, "loss,<,-1", float, ("loss", "<", -1.0)),
            (early, ("val_loss", "~<", 4.0), int, ("val_loss", "<", 4)),  # as MPIDriver.py has it
        ):
            with self.subTest(text):
                self.assertEqual(options.condition(option, text, number), wanted)

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
        for given, words in (
            (["m", "none.list", "none.list"], "cannot read none.list .*: No such file"),
            *((["m", name], f"{name}: it does not exist here; ") for name in options._REFUSED),
            (["m"], "required"),
        ):
            with self.subTest(given=given):
                code, printed = self.run_command("train", *given)
                self.assertEqual(code, 2)
                self.assertRegex(printed, words)
                self.assertEqual(printed.count("\n"), 1, printed)
                self.assertEqual(self.run_command("train", *given, PMI_RANK="1"), (0, ""))

    def test_only_rank_0_of_any_launcher_is_the_master(self):
        launchers = (
            {"OMPI_COMM_WORLD_SIZE": "2", "OMPI_COMM_WORLD_RANK": "RANK"},
            {"PMI_SIZE": "2", "PMI_RANK": "RANK"},
            {"SLURM_STEP_ID": "0", "SLURM_STEP_NUM_TASKS": "2", "SLURM_PROCID": "RANK"},
            {"MULTIVERSO_JOB": "j", "MULTIVERSO_SIZE": "2", "MULTIVERSO_RANK": "RANK"},
            {
                **{"TORCHELASTIC_RUN_ID": "x", "RANK": "RANK"},
                **{"WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2"},
                **{"SLURM_JOB_ID": "7", "SLURM_PROCID": "0"},  # of the script of the job
            },
        )
        for variables in launchers:
            for rank in (0, 1):
                environ = {
                    name: value.replace("RANK", str(rank)) for name, value in variables.items()
                }
                with self.subTest(environ), mock.patch.dict(os.environ, environ):
                    self.assertEqual(command.is_master(), rank == 0)

    def test_accepts_the_spellings_of_mpi_learn(self):
        parser = argparse.ArgumentParser()
        options.add_options(parser)
        for spelling, name, value in (
            (["--tf"], "backend", "tensorflow"),
            (["--easgd"], "mode", "easgd"),
            (["--log-level", "warn"], "log_level", "warn"),
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
                self.assertEqual(environment.choose_gpu(idle_gpus(), most), wanted or None)
                self.assertEqual(os.environ["CUDA_VISIBLE_DEVICES"], wanted)
        # Without the list of processes, every GPU may be busy.
        program.write_text(
            "#!/bin/sh\ncase $1 in *compute-apps*) exit 1;; esac\necho '0, GPU-a'\n", "utf-8"
        )
        with mock.patch.dict(os.environ):
            os.environ["PATH"] = f"{self.folder}{os.pathsep}{os.environ['PATH']}"
            with self.assertLogs("multiverso", "WARNING"):
                self.assertIsNone(environment.choose_gpu(idle_gpus(), -1))
            self.assertEqual(os.environ["CUDA_VISIBLE_DEVICES"], "")
