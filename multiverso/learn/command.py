"""The command ``multiverso-learn``: train a Keras model on all ranks, and plot histories."""

import argparse
import logging
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final, NoReturn

from multiverso._version import __version__
from multiverso.learn import _options
from multiverso.learn._environment import choose_backend, choose_gpu, choose_threads
from multiverso.learn._history import write_json
from multiverso.learn._input import InputError, read_text
from multiverso.learn._layout import Layout, layout_of
from multiverso.learn._mpi import host_of_each_rank, job_communicator, rank_and_size
from multiverso.learn.algo import Algo
from multiverso.learn.h5data import H5Data
from multiverso.learn.manager import MPIManager
from multiverso.learn.model import ModelFromJson, ModelFromKeras

__all__ = ["Parser", "is_master", "main", "train"]

#: Environment variables in which launchers pass the rank; the first variable that is set counts.
_RANKS: Final = ("OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK", "SLURM_PROCID")

_TRAIN: Final = "Train a Keras model on all ranks of an MPI job."
_PLOT: Final = "Draw the histories of trainings as PNG files."


class Parser(argparse.ArgumentParser):
    """Prints messages on the master only; the other ranks exit with the same code."""

    def _print_message(self, message: str, file: Any = None) -> None:
        if is_master():
            super()._print_message(message, file)

    def error(self, message: str) -> NoReturn:
        """Print the error in one line, and exit with code 2."""
        self.exit(2, f"{self.prog}: error: {message}\n")


def is_master() -> bool:
    """Return whether this process is rank 0, or was started without a launcher."""
    return next((os.environ[name] for name in _RANKS if name in os.environ), "0") == "0"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run ``multiverso-learn`` with `arguments`, or with those of the command line.

    Returns
    -------
    int
        The exit code: 0, or 2 if the input cannot be used.

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
    given = parser.parse_args(arguments)
    return _run(parser.prog, vars(given).pop("run"), given)


def train(arguments: Sequence[str] | None = None) -> int:
    """Run ``multiverso-learn train`` under the name of the calling program."""
    parser = Parser(description=_TRAIN)
    _options.add_options(parser)
    return _run(parser.prog, _train, parser.parse_args(arguments))


def _run(
    program: str, function: Callable[[argparse.Namespace], None], given: argparse.Namespace
) -> int:
    try:
        function(given)
    except InputError as error:
        if is_master():
            sys.stderr.write(f"{program}: error: {error}\n")
        return 2
    return 0


def _plot(given: argparse.Namespace) -> None:
    from multiverso.learn._plot import plot

    for path in plot(given.histories, given.output):
        sys.stdout.write(f"wrote {path}\n")


def _train(given: argparse.Namespace) -> None:
    """Train with the given options, and write the results. Collective over the ranks of the job."""
    logging.basicConfig(level=given.log_level.upper(), format="%(name)s: %(message)s")
    files, validation = _files_in(given.train_data), _files_in(given.val_data)
    comm = job_communicator()
    rank, ranks = rank_and_size(comm)
    hosts = host_of_each_rank(comm)
    layout = layout_of(ranks, given.masters, hosts)
    algo = _algo(given, layout)
    stopping = _stopping(given)
    choose_backend(given.backend)
    local = [worker for worker in layout.workers if hosts[worker] == hosts[rank]]
    choose_gpu(comm, given.max_gpus, local.index(rank) if rank in local else None)
    choose_threads(len(local))
    is_saved = Path(given.model).suffix == ".keras"
    stem = f"{Path(given.model).stem}_{given.trial_name}"
    trace = Path(f"{stem}_trace.json")
    manager = MPIManager(
        comm,
        H5Data(
            given.batch,
            cache=given.cache_data,
            preloading=given.preload_data,
            features_name=given.features_name,
            labels_name=given.labels_name,
        ),
        algo,
        ModelFromKeras(given.model) if is_saved else ModelFromJson(comm, given.model),
        given.epochs,
        files,
        validation,
        callbacks=stopping() if rank == 0 else None,
        num_masters=given.masters,
        synchronous=given.synchronous,
        seed=given.seed,
        profile=trace if given.profile else None,
        checkpoint=given.checkpoint,
        checkpoint_interval=given.checkpoint_interval,
        restore=given.restore,
    )
    manager.train()
    if manager.outcome is None:
        return
    workers = len(layout.workers)
    arguments = {**vars(given), "ranks": ranks, "workers": workers, "mode": algo.mode}
    outcome = manager.outcome.as_dict(arguments)
    history, model = Path(f"{stem}_history.json"), Path(f"{stem}_model.keras")
    write_json(history, outcome)
    manager.model.save(model)
    written = [str(history), str(model), *([str(trace)] if given.profile else [])]
    sys.stdout.write(f"{_summary(outcome, workers)}\nwrote {', '.join(written)}\n")


def _algo(given: argparse.Namespace, layout: Layout) -> Algo:
    # The largest number of workers, or of groups, that share the force of one elastic center.
    workers = max(
        len(layout.groups) or len(layout.workers), *(len(each.workers) for each in layout.groups), 1
    )
    options = _options.options_of(given.optimizer_params)
    if given.learning_rate is not None:
        options["learning_rate"] = given.learning_rate
    elastic = given.mode == "easgd"
    if given.optimizer is None:
        given.optimizer = "adam"
        if given.mode == "diloco":  # The paper uses these optimizers.
            given.optimizer = "nesterov"
            options.setdefault("learning_rate", 0.7)
    if not 0 <= given.elastic_force <= workers:
        kind = "workers in a group, or of groups" if layout.groups else "workers"
        raise InputError(
            f"--elastic-force: expected a number from 0 to {workers}, the number of {kind}, "
            f"received {given.elastic_force:g}"
        )
    return Algo(
        None if elastic else given.optimizer,
        loss=given.loss,
        metrics=given.metrics,
        validate_every=given.validate_every,
        sync_every=given.sync_every,
        mode="sgd" if given.mode == "downpour" else given.mode,
        worker_optimizer=given.worker_optimizer,
        # The option is the paper's beta, the force of all workers together.
        elastic_force=given.elastic_force / workers,
        elastic_lr=given.elastic_lr,
        elastic_momentum=given.elastic_momentum,
        **({} if elastic else options),
    )


def _stopping(given: argparse.Namespace) -> Callable[[], list[Any]]:
    """Check the options that stop a training; return a function that makes their callbacks."""
    patience = _options.patience(given.early_stopping) if given.early_stopping is not None else None
    target = _options.limit(given.target_metric) if given.target_metric is not None else None

    def callbacks() -> list[Any]:
        import keras

        made = []
        if patience is not None:
            metric, relation, epochs = patience
            mode = "min" if relation == "<" else "max"
            made.append(keras.callbacks.EarlyStopping(metric, mode=mode, patience=epochs))
        if target is not None:
            made.append(_target_callback(*target))
        return made

    return callbacks


def _target_callback(metric: str, relation: str, target: float) -> Any:
    """Return a callback that stops the training when a metric is below or above the target."""
    import keras

    def stop_if_reached(epoch: int, logs: dict[str, Any] | None = None) -> None:
        value = (logs or {}).get(metric)
        if value is not None and (value > target if relation == ">" else value < target):
            callback.model.stop_training = True

    callback = keras.callbacks.LambdaCallback(on_epoch_end=stop_if_reached)
    return callback


def _files_in(path: str) -> list[str]:
    """Return the files that a list names, in the current folder or in the folder of the list.

    Raises
    ------
    InputError
        If the list cannot be read or is empty, or a file that it names is missing.

    """
    names = []
    for number, line in enumerate(read_text(path).splitlines(), start=1):
        if not (name := line.strip()):
            continue
        beside = Path(path).parent / name
        if not Path(name).is_file():
            if not beside.is_file():
                raise InputError(f"line {number} of {path}: no such file: {name}")
            name = str(beside)
        names.append(name)
    if not names:
        raise InputError(f"the list {path}: expected names of files, found none")
    return names


def _summary(outcome: dict[str, Any], workers: int) -> str:
    last = [
        f"{name} {values[-1]:.4f}"
        for name, values in outcome["history"].items()
        if values and values[-1] is not None
    ]
    epochs = len(outcome["epochs"])
    return (
        f"{epochs} epoch{'s' if epochs != 1 else ''} on {workers} worker"
        f"{'s' if workers != 1 else ''} in {outcome['train_time']:.1f} s: {', '.join(last)}"
    )
