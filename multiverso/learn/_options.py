"""The options of ``multiverso-learn train``, and the parsers of their values."""

import argparse
import contextlib
import logging
from collections.abc import Mapping
from functools import partial
from typing import Any, Final, NoReturn

from multiverso._commands._argument_types import integer
from multiverso._extras import BACKENDS
from multiverso._session.options import START_TIMEOUT
from multiverso.learn._input import InputError, as_input_error
from multiverso.learn._messages import TIMEOUT
from multiverso.learn.algo import WEIGHTS, WIRES

_log = logging.getLogger("multiverso")

#: A metric, "<" or ">", and a number.
Condition = tuple[str, str, float]

#: Options that have no effect with a mode.
_OF_WORKERS: Final = ("worker_optimizer", "elastic_lr", "elastic_momentum")
UNUSED: Final = {
    "easgd": ("optimizer", "optimizer_params", "learning_rate"),
    "sgd": _OF_WORKERS,
    "downpour": _OF_WORKERS,
}
#: Metrics that Keras 3 has renamed.
_METRICS: Final = {"acc": "accuracy", "val_acc": "val_accuracy"}

_NO_GEM: Final = "use --mode downpour with --optimizer dcasgd, which compensates for staleness too"

#: What mpi_learn's MPIManager and MPIDriver.py have, and has no effect on the results here: the
#: name, the option if it has another name, what asks for nothing, and why.
_WITHOUT_EFFECT: Final = (
    ("log_file", "log-file", None, "redirect standard error with 2> FILE"),
    ("master_gpu", "master-gpu", False, "the master only validates, on the CPU"),
    ("monitor", "", False, "the history has the seconds of computing and waiting"),
    ("num_masters", "masters", 1, "all ranks serve the parameters, without groups of workers"),
    ("num_processes", "processes", None, "each worker is one process, so start more ranks"),
    ("thread_validation", "", False, "workers go on while the master validates"),
    ("trace", "", False, "use --profile, which writes a trace of all workers"),
    ("verbose", "", False, "the master shows a progress bar on a terminal"),
    ("worker_callbacks", "", (), "the master calls the callbacks"),
)

#: The options of mpi_learn's MPIDriver.py that do not exist here, and what to do instead.
_REFUSED: Final = {
    "--gem-kappa": _NO_GEM,
    "--gem-lr": _NO_GEM,
    "--gem-momentum": _NO_GEM,
    "--master-only": "start one rank, which is both master and worker",
    "--model_weights": "pass a .keras file, which contains the model with its weights",
    "--timeline": "use --profile, which writes a trace of all workers",
    "--torch": "use --backend torch for a Keras model, multiverso.torch_ext for one of PyTorch",
    "--validate-fraction-every": "use --validate-every, which counts updates",
    "--worker-optimizer-params": "use --elastic-lr and --elastic-momentum",
}


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the arguments and options of a training."""
    add = parser.add_argument
    add("model", help="the model: a JSON file from model.to_json(), or a .keras file")
    add("train_data", help="text file with the names of the HDF5 files for training, one per line")
    add("val_data", help="text file with the names of the HDF5 files for validation")
    count, positive = integer(0), integer(1)
    _add(parser, "--trial-name NAME", "part of the names of the results", "train")

    add_option = partial(_add, parser.add_argument_group("data"))
    add_option("--features-name NAME", "dataset or group with the inputs", "features")
    add_option("--labels-name NAME", "dataset or group with the outputs", "labels")
    add_option("--batch N", "samples per batch", 100, type=positive)
    add_option("--preload-data N", "files to read ahead", 0, type=count)
    add_option("--cache-data FOLDER", "copy the files to this local folder first")

    add_option = partial(_add, parser.add_argument_group("training"))
    add_option("--epochs N", "passes over the training files", 1, type=positive)
    text = "the master's optimizer (default: adam; diloco: nesterov with learning_rate=0.7)"
    add_option("--optimizer NAME", text)
    text = "its options as in Keras, such as learning_rate=0.01 momentum=0.9"
    add_option("--optimizer-params NAME=VALUE", text, [], nargs="+")
    add_option("--learning-rate X", "short for --optimizer-params learning_rate=X", type=float)
    add_option("--loss NAME", "the loss", "binary_crossentropy")
    add_option("--metrics NAME", "other metrics", ["accuracy"], nargs="+")
    text = "updates between validations; 0: none (default: once an epoch)"
    add_option("--validate-every N", text, type=count)
    text = "stop when METRIC (val_loss) has not decreased (<) or increased (>) for N epochs"
    add_option("--early-stopping [METRIC,<|>,]N", text)
    add_option("--target-metric METRIC,<|>,X", "stop when METRIC is below (<) or above (>) X")
    add_option("--timeout SECONDS", "longest wait for other ranks", TIMEOUT, type=float)
    text = "the same for ranks of which nothing has been heard, unless only --timeout is given"
    add_option("--start-timeout SECONDS", text, START_TIMEOUT, type=float)
    text = "seed of random numbers; with --synchronous runs of one seed are bitwise identical"
    add_option("--seed N", text, type=count)
    add_option("--checkpoint FOLDER", "save the parameters and the optimizer's state here")
    add_option("--checkpoint-interval N", "epochs between two checkpoints", 1, type=positive)
    add_option("--restore FOLDER", "resume from the last checkpoint in this folder")

    add_option = partial(_add, parser.add_argument_group("how workers exchange"))
    text = (
        "Downpour SGD (sgd, downpour), Elastic Averaging SGD (easgd), or local steps, whose sum is "
        "a gradient for the master's optimizer (diloco)"
    )
    add_option("--mode", text, "sgd", choices=("sgd", "downpour", "easgd", "diloco"), type=_mode)
    add_option("--easgd", "like --mode easgd", action="store_const", const="easgd", dest="mode")
    add_option("--sync-every N", "batches between two exchanges", 1, type=positive)
    text = "run workers in lock-step instead of each at its own speed"
    add_option("--synchronous", text, False, action="store_true")
    text = "accepted for scripts of mpi_learn; there is one master, and no groups of workers"
    add_option("--masters N", text, 1, type=positive)
    add_option("--worker-optimizer NAME", "easgd, diloco: the workers' optimizer (default: sgd)")
    text = "easgd: the elastic force of all workers together"
    add_option("--elastic-force X", text, 0.9, type=float)
    add_option("--elastic-lr X", "easgd, diloco: the workers' learning rate", type=float)
    add_option("--elastic-momentum X", "easgd, diloco: the workers' momentum", 0.0, type=float)

    text = "how parameters travel between nodes: bfloat16 sends half of the bytes, int8 a quarter"
    add_option("--wire FORMAT", text, choices=WIRES)
    text = "diloco: parts of the parameters that take turns, each once in --sync-every batches"
    add_option("--fragments N", text, 1, type=positive)
    text = "diloco: let workers count as much as they train"
    add_option("--weight WHAT", text, choices=WEIGHTS)

    add_option = partial(_add, parser.add_argument_group("machine and output"))
    add_option("--backend", "the backend of Keras", choices=sorted(BACKENDS))
    text = "like --backend tensorflow"
    add_option("--tf", text, action="store_const", const="tensorflow", dest="backend")
    text = "NVIDIA GPUs to use on each host at most, one per worker; -1: all free GPUs"
    add_option("--max-gpus N", text, -1, type=int)
    text = "lowest level of messages on standard error"
    levels = ("debug", "info", "warn", "warning", "error")
    add_option("--log-level", text, "warning", choices=levels, type=str.lower)
    text = "write a trace of computing, waiting and communicating for Chrome or Perfetto"
    add_option("--profile", text, False, action="store_true")
    hidden = argparse.SUPPRESS
    for name in ("master-gpu", "monitor", "thread_validation", "trace", "verbose"):
        add(f"--{name}", action="store_true", help=hidden)
    add("--log-file", help=hidden)
    add("--processes", type=positive, help=hidden)
    for name, advice in _REFUSED.items():
        add(name, nargs="?", const="", type=partial(_refuse, advice), help=hidden, default=hidden)


def _add(group: Any, syntax: str, text: str, default: Any = None, **settings: Any) -> None:
    """Add an option such as ``--batch N``, with `text` and the default, if any, as its help."""
    name, _, metavar = syntax.partition(" ")
    if metavar:
        settings["metavar"] = metavar
    if default is not None:
        settings["default"] = default
        default_text = " ".join(default) if isinstance(default, list) else default
        if default_text is not False and default_text != "":
            text += f" (default: {default_text})"
    group.add_argument(name, help=text, **settings)


def _refuse(advice: str, value: str) -> NoReturn:
    """End the program with an error that says what to use instead of an option of mpi_learn."""
    raise argparse.ArgumentTypeError(f"it does not exist here; {advice}")


def warn_of_effects(given: Mapping[str, Any]) -> None:
    """Log a line for each option or argument of mpi_learn that is given and has no effect."""
    for name, option, nothing, why in _WITHOUT_EFFECT:
        value = given.get(name)
        if value is not None and value != nothing:
            _log.warning("%s (--%s) has no effect: %s", name, option or name, why)


def options_of(arguments: list[str]) -> dict[str, float | bool]:
    """Return the options in arguments such as ``momentum=0.9,nesterov=true``."""
    options: dict[str, float | bool] = {}
    for assignment in filter(None, map(str.strip, ",".join(arguments).split(","))):
        name, _, value = assignment.partition("=")
        is_flag = value.lower() in ("true", "false")
        wanted = "--optimizer-params: expected NAME=NUMBER"
        with as_input_error(f"{wanted}, received {assignment!r}", ValueError):
            options[name] = value.lower() == "true" if is_flag else float(value)
    return options


def condition(option: str, given: Any, number: type[int | float]) -> Condition | None:
    """Return the condition in ``val_accuracy,>,0.97``; ``4`` is short for ``val_loss,<,4``.

    It may be the tuple that mpi_learn's MPIDriver.py makes of the text, too.
    """
    if given is None:
        return None
    items = given if isinstance(given, tuple) else (given,)
    text = ",".join(f"{item:g}" if isinstance(item, float) else str(item) for item in items)
    parts = [part.strip() for part in text.split(",")]
    if len(parts) == 1 and number is int:
        parts = ["val_loss", "<", parts[0]]
    # In mpi_learn ~< means "less than before, on average"; here it means the same as <.
    if len(parts) == 3 and parts[1].lstrip("~") in ("<", ">"):
        with contextlib.suppress(ValueError):
            value = number(parts[2])
            if number is float or value >= 0:
                return _METRICS.get(parts[0], parts[0]), parts[1].lstrip("~"), value
    wanted = "N or METRIC,<,N or METRIC,>,N" if number is int else "METRIC,<,X or METRIC,>,X"
    raise InputError(f"{option}: expected {wanted}, received {given!r}")


def stopping_callbacks(patience: Condition | None, target: Condition | None) -> list[Any]:
    """Return callbacks that stop a training when a condition holds."""
    import keras

    callbacks = []
    if patience is not None:
        metric, relation, epochs = patience
        mode = "min" if relation == "<" else "max"
        callbacks.append(keras.callbacks.EarlyStopping(metric, mode=mode, patience=epochs))
    if target is not None:
        stop_metric, direction, bound = target

        def stop_if_reached(epoch: int, logs: dict[str, Any] | None = None) -> None:
            value = (logs or {}).get(stop_metric)
            names.update(logs or {})
            if value is not None and (value > bound if direction == ">" else value < bound):
                stopper.model.stop_training = True

        def warn_if_unknown(logs: dict[str, Any] | None = None) -> None:
            if stop_metric not in names:
                _log.warning("--target-metric: no %s in %s", stop_metric, ", ".join(names))

        names: dict[str, Any] = {}  # of the metrics, not all of which are in each epoch
        stopper = keras.callbacks.LambdaCallback(
            on_epoch_end=stop_if_reached, on_train_end=warn_if_unknown
        )
        callbacks.append(stopper)
    return callbacks


def _mode(text: str) -> str:
    if text == "gem":
        raise argparse.ArgumentTypeError(f"gem does not exist here; {_NO_GEM}")
    return text
