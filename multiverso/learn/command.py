"""The command ``multiverso-learn``: train a Keras model on all ranks, and plot histories."""

import argparse
import logging
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final, NoReturn

from multiverso._extras import EXIT_CODE, LEARN, MissingExtraError, require
from multiverso._version import __version__
from multiverso.errors import MultiversoError
from multiverso.learn import _options
from multiverso.learn._agreement import agreement, host_name
from multiverso.learn._environment import choose_backend, choose_gpu, choose_threads, free_gpus
from multiverso.learn._history import write_json
from multiverso.learn._input import InputError, read_text
from multiverso.learn._layout import Layout, layout_of
from multiverso.learn._messages import StoppedError
from multiverso.learn._mpi import job_communicator, open_channel
from multiverso.learn.algo import Algo
from multiverso.learn.h5data import H5Data
from multiverso.learn.manager import MPIManager
from multiverso.learn.model import ModelFromJson, ModelFromKeras

__all__ = ["Parser", "is_master", "main", "train"]

#: Environment variables in which launchers pass the rank; the first variable that is set counts.
_RANK_VARIABLES: Final = ("OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK", "SLURM_PROCID")

_TRAIN: Final = "Train a Keras model on all ranks of an MPI job."
_PLOT: Final = "Draw the histories of trainings as PNG files."


class Parser(argparse.ArgumentParser):
    """A parser that prints messages on the master only; the other ranks exit with the same code."""

    def _print_message(self, message: str, file: Any = None) -> None:
        if is_master():
            super()._print_message(message, file)

    def error(self, message: str) -> NoReturn:
        """Print the error in one line, and exit with code 2."""
        self.exit(2, f"{self.prog}: error: {message}\n")


def is_master() -> bool:
    """Return whether this process is rank 0, or was started without a launcher."""
    return next((os.environ[name] for name in _RANK_VARIABLES if name in os.environ), "0") == "0"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run ``multiverso-learn`` with `arguments`, or with those of the command line.

    Returns
    -------
    int
        The exit code: 0, 1 if a rank fails or does not come, or 2 if the input cannot be used or a
        package is missing.

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
    """Run ``multiverso-learn train`` under the name of the calling program."""
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
        return EXIT_CODE
    except (MultiversoError, StoppedError) as error:
        # The master may be the rank that fails, so every rank prints its error.
        sys.stderr.write(f"{program}: error: {error}\n")
        return 1
    return 0


def _plot(parsed: argparse.Namespace) -> None:
    from multiverso.learn._plot import plot

    for path in plot(parsed.histories, parsed.output):
        sys.stdout.write(f"wrote {path}\n")


def _train(parsed: argparse.Namespace) -> None:
    """Train with the given options, and write the results. Collective over the ranks of the job."""
    logging.basicConfig(level=parsed.log_level.upper(), format="%(name)s: %(message)s")
    comm = job_communicator(parsed.timeout)
    channel = open_channel(comm, parsed.timeout)
    rank, num_ranks = channel.rank, channel.size
    try:
        with agreement(channel, "read its input") as hosts:
            require("multiverso-learn train", **LEARN)
            train_files, val_files = _files_in(parsed.train_data), _files_in(parsed.val_data)
            make_callbacks = _stopping_callbacks(parsed)
            choose_backend(parsed.backend)
            gpus = free_gpus()
            hosts.value = host_name()
    finally:
        channel.close()
    layout = layout_of(num_ranks, parsed.masters, hosts.values)
    algo = _make_algo(parsed, layout)
    host_workers = [worker for worker in layout.workers if hosts.values[worker] == hosts.value]
    choose_gpu(gpus, parsed.max_gpus, host_workers.index(rank) if rank in host_workers else None)
    choose_threads(len(host_workers))
    is_keras_file = Path(parsed.model).suffix == ".keras"
    stem = f"{Path(parsed.model).stem}_{parsed.trial_name}"
    trace = Path(f"{stem}_trace.json")
    manager = MPIManager(
        comm,
        H5Data(
            parsed.batch,
            cache=parsed.cache_data,
            preloading=parsed.preload_data,
            features_name=parsed.features_name,
            labels_name=parsed.labels_name,
        ),
        algo,
        ModelFromKeras(parsed.model) if is_keras_file else ModelFromJson(comm, parsed.model),
        parsed.epochs,
        train_files,
        val_files,
        callbacks=make_callbacks() if rank == 0 else None,
        num_masters=parsed.masters,
        synchronous=parsed.synchronous,
        seed=parsed.seed,
        profile=trace if parsed.profile else None,
        checkpoint=parsed.checkpoint,
        checkpoint_interval=parsed.checkpoint_interval,
        restore=parsed.restore,
        timeout=parsed.timeout,
    )
    manager.train()
    if manager.outcome is None:
        return
    num_workers = len(layout.workers)
    arguments = {**vars(parsed), "ranks": num_ranks, "workers": num_workers, "mode": algo.mode}
    outcome = manager.outcome.as_dict(arguments)
    history, model = Path(f"{stem}_history.json"), Path(f"{stem}_model.keras")
    write_json(history, outcome)
    manager.model.save(model)
    written = [str(history), str(model), *([str(trace)] if parsed.profile else [])]
    sys.stdout.write(f"{_summary(outcome, num_workers)}\nwrote {', '.join(written)}\n")


def _make_algo(parsed: argparse.Namespace, layout: Layout) -> Algo:
    # The largest number of workers, or of groups, that share the force of one elastic center.
    num_sharing = max(
        len(layout.groups) or len(layout.workers),
        *(len(group.workers) for group in layout.groups),
        1,
    )
    options = _options.options_of(parsed.optimizer_params)
    if parsed.learning_rate is not None:
        options["learning_rate"] = parsed.learning_rate
    elastic = parsed.mode == "easgd"
    if parsed.optimizer is None:
        parsed.optimizer = "adam"
        if parsed.mode == "diloco":  # The paper uses these optimizers.
            parsed.optimizer = "nesterov"
            options.setdefault("learning_rate", 0.7)
    if not 0 <= parsed.elastic_force <= num_sharing:
        kind = "workers in a group, or of groups" if layout.groups else "workers"
        raise InputError(
            f"--elastic-force: expected a number from 0 to {num_sharing}, the number of {kind}, "
            f"received {parsed.elastic_force:g}"
        )
    return Algo(
        None if elastic else parsed.optimizer,
        loss=parsed.loss,
        metrics=parsed.metrics,
        validate_every=parsed.validate_every,
        sync_every=parsed.sync_every,
        mode="sgd" if parsed.mode == "downpour" else parsed.mode,
        worker_optimizer=parsed.worker_optimizer,
        # The option is the paper's beta, the force of all workers together.
        elastic_force=parsed.elastic_force / num_sharing,
        elastic_lr=parsed.elastic_lr,
        elastic_momentum=parsed.elastic_momentum,
        wire=parsed.wire,
        fragments=parsed.fragments,
        weight=parsed.weight,
        **({} if elastic else options),
    )


def _stopping_callbacks(parsed: argparse.Namespace) -> Callable[[], list[Any]]:
    """Check the options that stop a training; return a function that makes their callbacks."""
    patience = (
        _options.patience(parsed.early_stopping) if parsed.early_stopping is not None else None
    )
    target = _options.target(parsed.target_metric) if parsed.target_metric is not None else None

    def make() -> list[Any]:
        import keras

        callbacks = []
        if patience is not None:
            metric, relation, epochs = patience
            mode = "min" if relation == "<" else "max"
            callbacks.append(keras.callbacks.EarlyStopping(metric, mode=mode, patience=epochs))
        if target is not None:
            callbacks.append(_target_callback(*target))
        return callbacks

    return make


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
    """Return the files that a list names, in the current folder or beside the list.

    Raises
    ------
    InputError
        If the list cannot be read or is empty, or a file that it names is missing.

    """
    names = []
    for number, line in enumerate(read_text(path).splitlines(), start=1):
        if not (name := line.strip()):
            continue
        beside_list = Path(path).parent / name
        if not Path(name).is_file():
            if not beside_list.is_file():
                raise InputError(f"line {number} of {path}: no such file: {name}")
            name = str(beside_list)
        names.append(name)
    if not names:
        raise InputError(f"the list {path}: expected names of files, found none")
    return names


def _summary(outcome: dict[str, Any], num_workers: int) -> str:
    last = [
        f"{name} {values[-1]:.4f}"
        for name, values in outcome["history"].items()
        if values and values[-1] is not None
    ]
    epochs = len(outcome["epochs"])
    return (
        f"{epochs} epoch{'s' if epochs != 1 else ''} on {num_workers} worker"
        f"{'s' if num_workers != 1 else ''} in {outcome['train_time']:.1f} s: {', '.join(last)}"
    )
