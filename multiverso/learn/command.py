"""The command ``multiverso-learn``: train a Keras model on all ranks, and plot histories."""

import argparse
import logging
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final, NoReturn

from multiverso._extras import EXIT_CODE, LEARN, MissingExtraError, require
from multiverso._local.cores import amount
from multiverso._local.job import find_local_job
from multiverso._mpi.launcher import find_launcher
from multiverso._native import places
from multiverso._native.arguments import between, seconds
from multiverso._version import __version__
from multiverso.devices import idle_gpus
from multiverso.errors import LauncherError, MultiversoError
from multiverso.learn import _options
from multiverso.learn._environment import choose_backend, choose_gpu, choose_threads
from multiverso.learn._history import plot, write_json
from multiverso.learn._input import InputError, as_input_error, read_text
from multiverso.learn._messages import StoppedError, agreement, training_session
from multiverso.learn.algo import Algo
from multiverso.learn.h5data import H5Data
from multiverso.learn.manager import MPIManager
from multiverso.learn.model import ModelFromJson, ModelFromKeras

__all__ = ["Parser", "is_master", "main", "train"]

_log = logging.getLogger("multiverso")

_TRAIN: Final = "Train a Keras model on all ranks of a job."
_PLOT: Final = "Draw the histories of trainings as PNG files."
#: The ends of the names of the files with the history and the model.
_RESULTS: Final = ("history.json", "model.keras")
#: The options that are arguments of `MPIManager`, and of `Algo`, of the same names.
_OF_MANAGER: Final = (
    *("synchronous", "seed", "checkpoint", "checkpoint_interval", "restore", "timeout"),
    *("start_timeout", "early_stopping", "target_metric"),
    *("verbose", "monitor", "thread_validation"),
)
_OF_ALGO: Final = (
    *("loss", "metrics", "validate_every", "sync_every", "elastic_lr", "elastic_momentum"),
    *("wire", "fragments", "weight"),
)


class Parser(argparse.ArgumentParser):
    """A parser that prints messages on the master only.

    Examples
    --------
    >>> from multiverso.learn.command import Parser
    >>> parser = Parser(prog="train")
    >>> _ = parser.add_argument("--epochs", type=int)
    >>> parser.parse_args(["--epochs", "3"]).epochs
    3

    """

    def _print_message(self, message: str, file: Any = None) -> None:
        if is_master():
            super()._print_message(message, file)

    def error(self, message: str) -> NoReturn:
        """Print the error in one line, and exit with the code of the rank."""
        self.exit(_code_of_error(), f"{self.prog}: error: {message}\n")


def is_master() -> bool:
    """Return whether this process is rank 0, or was started without a launcher.

    Examples
    --------
    >>> from multiverso.learn.command import is_master
    >>> is_master()
    True

    """
    if (launcher := find_launcher()) is not None:
        return launcher.rank_in(os.environ) in (0, None)
    try:
        job = find_local_job()
    except LauncherError:  # The session will raise it on each rank.
        return True
    return job is None or job.rank == 0


def _code_of_error() -> int:
    """Return the exit code of a rank after an error that all ranks have, and the master prints.

    A launcher ends all ranks when one fails. So only the master fails, after it has printed.
    """
    return EXIT_CODE if is_master() else 0


def main(arguments: Sequence[str] | None = None) -> int:
    """Run ``multiverso-learn`` with `arguments`, or with those of the command line.

    Returns
    -------
    int
        The exit code: 0, 1 if a rank fails or does not come, or, on the master, 2 if the input
        cannot be used or a package is missing.

    Examples
    --------
    >>> from multiverso.learn.command import main
    >>> main(["train", "model.json", "train.txt", "valid.txt", "--epochs", "5"])  # doctest: +SKIP
    0

    """
    parser = Parser(prog="multiverso-learn", description=__doc__)
    parser.add_argument("--version", action="version", version=f"multiverso {__version__}")
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")
    _options.add_options(commands.add_parser("train", help=_TRAIN, description=_TRAIN))
    commands.choices["train"].set_defaults(run=_train)
    plot = commands.add_parser("plot", help=_PLOT, description=_PLOT)
    plot.add_argument(
        "histories", nargs="+", metavar="HISTORY.json", help="written by `multiverso-learn train`"
    )
    plot.add_argument(
        "--output", default=".", metavar="FOLDER", help="folder for the PNG files (default: .)"
    )
    plot.set_defaults(run=_plot)
    parsed = parser.parse_args(arguments)
    return _run(parser.prog, vars(parsed).pop("run"), parsed)


def train(arguments: Sequence[str] | None = None) -> int:
    """Run ``multiverso-learn train`` under the name of the calling program.

    Examples
    --------
    >>> from multiverso.learn.command import train
    >>> train(["model.json", "train.txt", "valid.txt", "--epochs", "5"])  # doctest: +SKIP
    0

    """
    parser = Parser(description=_TRAIN)
    _options.add_options(parser)
    return _run(parser.prog, _train, parser.parse_args(arguments))


def _run(
    program: str, function: Callable[[argparse.Namespace], None], parsed: argparse.Namespace
) -> int:
    try:
        function(parsed)
    except (InputError, MissingExtraError) as error:
        if is_master():
            sys.stderr.write(f"{program}: error: {error}\n")
        return _code_of_error()
    except (MultiversoError, StoppedError) as error:
        # The master may be the rank that fails, so every rank prints its error.
        sys.stderr.write(f"{program}: error: {error}\n")
        return 1
    return 0


def _plot(parsed: argparse.Namespace) -> None:
    for path in plot(parsed.histories, parsed.output):
        sys.stdout.write(f"wrote {path}\n")


def _train(parsed: argparse.Namespace) -> None:
    """Train with the given options, and write the results. Collective over the ranks of the job."""
    logging.basicConfig(level=parsed.log_level.upper(), format="%(name)s: %(message)s")
    with as_input_error():
        seconds(parsed.timeout, "--timeout")
        seconds(parsed.start_timeout, "--start-timeout")
    # The manager uses the same session, because it has the same options.
    limits = parsed.timeout, parsed.start_timeout
    with training_session(parsed.synchronous, None, *limits) as session:
        with agreement():
            require("multiverso-learn train", **LEARN)
            with as_input_error():
                for name in _RESULTS if session.rank == 0 else ():
                    result = _result(parsed.model, parsed.trial_name, name)
                    places.writable_file(result, "the results (--trial-name)")
            train_files, val_files = _files_in(parsed.train_data), _files_in(parsed.val_data)
            _options.condition("--early-stopping", parsed.early_stopping, int)
            _options.condition("--target-metric", parsed.target_metric, float)
            num_workers = max(session.size - 1, 1)
            algo = _make_algo(parsed, num_workers)
            choose_backend(parsed.backend)
            gpus = idle_gpus()
        # The master, the first rank of its node, trains only if it is alone.
        masters = int(session.node == 0 and session.size > 1)
        choose_gpu(gpus, parsed.max_gpus, session.local_rank - masters)
        choose_threads(session.local_size - masters)
        manager = _make_manager(parsed, algo, train_files, val_files)
        if session.rank == 0:
            of_the_command = ("log_file", "master_gpu", "trace")
            _options.warn_of_effects({name: getattr(parsed, name) for name in of_the_command})
        manager.train()
        if manager.outcome is not None:
            counts = {"ranks": session.size, "workers": num_workers, "mode": algo.mode}
            _write_results(manager, manager.outcome.as_dict({**vars(parsed), **counts}))


def _make_manager(
    parsed: argparse.Namespace, algo: Algo, train_files: list[str], val_files: list[str]
) -> MPIManager:
    is_keras_file = Path(parsed.model).suffix == ".keras"
    return MPIManager(
        None,
        H5Data(
            parsed.batch,
            parsed.cache_data,
            parsed.preload_data,
            parsed.features_name,
            parsed.labels_name,
        ),
        algo,
        ModelFromKeras(parsed.model) if is_keras_file else ModelFromJson(filename=parsed.model),
        parsed.epochs,
        train_files,
        val_files,
        num_masters=parsed.masters,
        profile=_result(parsed.model, parsed.trial_name, "trace.json") if parsed.profile else None,
        num_processes=parsed.processes,
        **{name: getattr(parsed, name) for name in _OF_MANAGER},
    )


def _result(model: str, trial: str, name: str) -> Path:
    """Return the path of a file with results."""
    return Path(f"{Path(model).stem}_{trial}_{name}")


def _write_results(manager: MPIManager, outcome: dict[str, Any]) -> None:
    """Write the history and the model, and print a summary."""
    arguments = outcome["args"]
    history, model = (
        _result(arguments["model"], arguments["trial_name"], name) for name in _RESULTS
    )
    write_json(history, outcome)
    manager.model.save(model)
    written = [str(path) for path in (history, model, manager.profile) if path is not None]
    sys.stdout.write(f"{_summary(outcome)}\nwrote {', '.join(written)}\n")


def _make_algo(parsed: argparse.Namespace, num_workers: int) -> Algo:
    options: dict[str, Any] = {**_options.options_of(parsed.optimizer_params)}
    if parsed.learning_rate is not None:
        options["learning_rate"] = parsed.learning_rate
    elastic = parsed.mode == "easgd"
    for name in _options.UNUSED.get(parsed.mode, ()):
        if getattr(parsed, name) and is_master():
            _log.warning("--%s has no effect with --mode %s", name.replace("_", "-"), parsed.mode)
    if parsed.optimizer is None:
        parsed.optimizer = "adam"
        if parsed.mode == "diloco":  # The paper uses these optimizers.
            parsed.optimizer = "nesterov"
            options.setdefault("learning_rate", 0.7)
    with as_input_error():
        force = f"--elastic-force of {amount(num_workers, 'worker')}"
        between(parsed.elastic_force, force, 0, num_workers)
    return Algo(
        None if elastic else parsed.optimizer,
        mode="sgd" if parsed.mode == "downpour" else parsed.mode,
        worker_optimizer=parsed.worker_optimizer or "sgd",
        # The option is the paper's beta, the force of all workers together.
        elastic_force=parsed.elastic_force / num_workers,
        **{name: getattr(parsed, name) for name in _OF_ALGO},
        **({} if elastic else options),
    )


def _files_in(path: str) -> list[str]:
    """Return the files that a list names, in the current folder or beside the list."""
    names = []
    lines = read_text(path).splitlines()
    folder = Path(places.path(path, "file")).parent
    for number, line in enumerate(lines, start=1):
        if not (name := line.strip()):
            continue
        files = (Path(name), folder / name)
        found = next((str(file) for file in files if file.is_file()), None)
        if found is None:
            raise InputError(f"line {number} of {path}: no such file: {name}")
        names.append(found)
    if not names:
        raise InputError(f"the list {path}: expected names of files, found none")
    return names


def _summary(outcome: dict[str, Any]) -> str:
    last = [
        f"{name} {values[-1]:.4f}"
        for name, values in outcome["history"].items()
        if values and values[-1] is not None
    ]
    epochs = amount(len(outcome["epochs"]), "epoch")
    workers = amount(outcome["args"]["workers"], "worker")
    return f"{epochs} on {workers} in {outcome['train_time']:.1f} s: {', '.join(last)}"
