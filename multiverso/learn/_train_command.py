"""``multiverso-learn train``: from the options to a training, and its results to files."""

import argparse
import logging
import sys
from pathlib import Path
from typing import Any

from multiverso._mpi import communicator
from multiverso.learn import _options
from multiverso.learn._environment import choose_backend, choose_gpu, choose_threads
from multiverso.learn._errors import InputError
from multiverso.learn._history import write_json
from multiverso.learn._layout import Layout, find_layout
from multiverso.learn._options import add_options
from multiverso.learn.algo import Algo
from multiverso.learn.h5data import H5Data
from multiverso.learn.manager import MPIManager
from multiverso.learn.model import ModelFromJson, ModelFromKeras

__all__ = ["add_options", "run"]


def run(given: argparse.Namespace) -> None:
    """Train with these options. Collective over the ranks of the job.

    Raises
    ------
    InputError
        On all ranks, if something given cannot be used.

    """
    logging.basicConfig(level=given.log_level.upper(), format="%(name)s: %(message)s")
    files = _files_of(given.train_data)
    validation = _files_of(given.val_data)
    found = communicator.find_communicator()
    comm: Any = None if found is None else found.handle
    rank, ranks = (0, 1) if comm is None else (comm.Get_rank(), comm.Get_size())
    layout = find_layout(comm, given.masters)
    workers, trains = len(layout.workers), rank in layout.workers
    algo = _algo(given, layout)
    callbacks = _stopping(given)
    choose_backend(given.backend)
    choose_gpu(comm, given.max_gpus, trains)
    choose_threads(_local_workers(comm, trains))
    builder = (
        ModelFromKeras(given.model)
        if Path(given.model).suffix == ".keras"
        else ModelFromJson(comm, given.model)
    )
    data = H5Data(
        given.batch,
        cache=given.cache_data,
        preloading=given.preload_data,
        features_name=given.features_name,
        labels_name=given.labels_name,
    )
    stem = f"{Path(given.model).stem}_{given.trial_name}"
    trace = Path(f"{stem}_trace.json")
    manager = MPIManager(
        comm,
        data,
        algo,
        builder,
        given.epochs,
        files,
        validation,
        callbacks=_made(callbacks) if rank == 0 else None,
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
    arguments = {**vars(given), "ranks": ranks, "workers": workers, "mode": algo.mode}
    outcome = manager.outcome.as_dict(arguments)
    history, model = Path(f"{stem}_history.json"), Path(f"{stem}_model.keras")
    write_json(history, outcome)
    manager.model.save(model)
    sys.stdout.write(_summary(outcome, workers))
    written = [str(history), str(model), *([str(trace)] if given.profile else [])]
    sys.stdout.write(f"wrote {', '.join(written)}\n")


def _algo(given: argparse.Namespace, layout: Layout) -> Algo:
    # So many share the elastic force of a centre at most: that of all, or that of a group.
    workers = max(
        len(layout.groups) or len(layout.workers), *(len(each.workers) for each in layout.groups), 1
    )
    options = _options.options_of(given.optimizer_params)
    if given.learning_rate is not None:
        options["learning_rate"] = given.learning_rate
    elastic = given.mode == "easgd"
    if given.optimizer is None:
        given.optimizer = "adam"
        if given.mode == "diloco":  # as in the paper
            given.optimizer = "nesterov"
            options.setdefault("learning_rate", 0.7)
    if not 0 <= given.elastic_force <= workers:
        msg = f"--elastic-force: expected a number from 0 to {workers}, the number of workers"
        if layout.groups:
            msg += " in a group, or of groups"
        raise InputError(f"{msg}, received {given.elastic_force:g}")
    return Algo(
        None if elastic else given.optimizer,
        loss=given.loss,
        metrics=given.metrics,
        validate_every=given.validate_every,
        sync_every=given.sync_every,
        mode="sgd" if given.mode == "downpour" else given.mode,
        worker_optimizer=given.worker_optimizer,
        # The option is the paper's beta, which the workers share.
        elastic_force=given.elastic_force / workers,
        elastic_lr=given.elastic_lr,
        elastic_momentum=given.elastic_momentum,
        **({} if elastic else options),
    )


def _stopping(given: argparse.Namespace) -> dict[str, tuple[str, str, float]]:
    """Return when to stop, as far as the options can be understood without Keras."""
    stopping: dict[str, tuple[str, str, float]] = {}
    if given.early_stopping is not None:
        stopping["early_stopping"] = _options.patience(given.early_stopping)
    if given.target_metric is not None:
        stopping["target_metric"] = _options.limit(given.target_metric)
    return stopping


def _made(stopping: dict[str, tuple[str, str, float]]) -> list[Any]:
    from multiverso.learn._callbacks import TargetMetric, early_stopping

    callbacks: list[Any] = []
    if "early_stopping" in stopping:
        metric, relation, epochs = stopping["early_stopping"]
        callbacks.append(early_stopping(metric, relation, int(epochs)))
    if "target_metric" in stopping:
        callbacks.append(TargetMetric(*stopping["target_metric"]))
    return callbacks


def _files_of(path: str) -> list[str]:
    """Return the names in a list of files; those that are not here are looked for beside the list.

    Raises
    ------
    InputError
        If the list cannot be read or is empty, or a file that it names is missing.

    """
    try:
        lines = Path(path).read_text("utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is no text"
        msg = f"cannot read the list {path}: {reason}"
        raise InputError(msg) from error
    names = []
    for number, line in enumerate(lines, start=1):
        if not (name := line.strip()):
            continue
        beside = Path(path).parent / name
        if not Path(name).is_file():
            if not beside.is_file():
                msg = f"line {number} of {path}: there is no file {name}"
                raise InputError(msg)
            name = str(beside)
        names.append(name)
    if not names:
        msg = f"the list {path}: expected names of files, found none"
        raise InputError(msg)
    return names


def _local_workers(comm: Any, trains: bool) -> int:
    """Return how many workers there are on this host, if this one is or not; collective."""
    if comm is None or comm.Get_size() == 1:
        return 1
    from mpi4py import MPI

    host = comm.Split_type(MPI.COMM_TYPE_SHARED)
    workers = int(host.allreduce(int(trains)))
    host.Free()
    return workers


def _summary(outcome: dict[str, Any], workers: int) -> str:
    last = [
        f"{name} {values[-1]:.4f}"
        for name, values in outcome["history"].items()
        if values and values[-1] is not None
    ]
    epochs = len(outcome["epochs"])
    return (
        f"{epochs} epoch{'s' if epochs != 1 else ''} on {workers} worker"
        f"{'s' if workers != 1 else ''} in {outcome['train_time']:.1f} s: {', '.join(last)}\n"
    )
