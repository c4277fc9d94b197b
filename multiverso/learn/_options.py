"""The options of ``multiverso-learn train``, and what a user may write for them."""

import argparse
from collections.abc import Callable

from multiverso.learn._errors import InputError

__all__ = ["add_options", "limit", "options_of", "patience"]


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the arguments and options of a training."""
    add = parser.add_argument
    add("model", help="the model: a JSON file as model.to_json() gives it, or a .keras file")
    add("train_data", help="text file with the names of the HDF5 files for training, one a line")
    add("val_data", help="the same for validation")
    add("--trial-name", default="train", metavar="NAME", help="goes into the names of the results")

    add = parser.add_argument_group("data").add_argument
    add("--features-name", default="features", metavar="NAME", help="dataset or group of inputs")
    add("--labels-name", default="labels", metavar="NAME", help="dataset or group of outputs")
    add("--batch", type=_at_least(1), default=100, metavar="N", help="samples in a batch (100)")
    add("--preload-data", type=_at_least(0), default=0, metavar="N", help="files to read ahead (0)")
    add("--cache-data", metavar="FOLDER", help="copy the files to this local folder first")

    add = parser.add_argument_group("training").add_argument
    add("--epochs", type=_at_least(1), default=1, metavar="N", help="times to go over them (1)")
    add(
        "--optimizer",
        metavar="NAME",
        help="the master's optimiser (adam; diloco: nesterov with learning_rate=0.7)",
    )
    add(
        "--optimizer-params",
        nargs="+",
        default=[],
        metavar="NAME=VALUE",
        help="its options as in Keras, such as learning_rate=0.01 momentum=0.9",
    )
    add("--learning-rate", type=float, metavar="X", help="short for learning_rate=X of the above")
    add("--loss", default="binary_crossentropy", metavar="NAME", help="(binary_crossentropy)")
    add("--metrics", nargs="+", default=["accuracy"], metavar="NAME", help="(accuracy)")
    add(
        "--validate-every",
        type=_at_least(0),
        metavar="N",
        help="updates between validations; 0: none (default: once an epoch)",
    )
    add(
        "--early-stopping",
        metavar="[METRIC,<|>,]N",
        help="stop when METRIC (val_loss) has not become less (<) or more (>) for N epochs",
    )
    add("--target-metric", metavar="METRIC,<|>,X", help="stop when METRIC is below or above X")
    add(
        "--seed",
        type=_at_least(0),
        metavar="N",
        help="of random numbers; with --synchronous two runs of one seed are equal",
    )

    add("--checkpoint", metavar="FOLDER", help="save the parameters and the optimiser's state here")
    add(
        "--checkpoint-interval",
        type=_at_least(1),
        default=1,
        metavar="N",
        help="epochs between two checkpoints (1)",
    )
    add("--restore", metavar="FOLDER", help="go on where the last checkpoint in FOLDER was saved")

    add = parser.add_argument_group("how workers exchange").add_argument
    add(
        "--mode",
        choices=("sgd", "downpour", "easgd", "diloco"),
        default="sgd",
        help="Downpour SGD (sgd, downpour), Elastic Averaging SGD (easgd), or local steps, which "
        "together are the gradient of the master's optimiser (diloco)",
    )
    add("--easgd", action="store_const", const="easgd", dest="mode", help="like --mode easgd")
    add("--sync-every", type=_at_least(1), default=1, metavar="N", help="batches in between (1)")
    add("--synchronous", action="store_true", help="in lock-step, not each at its own speed")
    add(
        "--masters",
        type=_at_least(1),
        default=1,
        metavar="N",
        help="the master and N - 1 sub-masters, each with a group of workers, whose updates it "
        "passes on together every --sync-every (1: no groups)",
    )
    add(
        "--worker-optimizer",
        default="sgd",
        metavar="NAME",
        help="easgd, diloco: the workers' (sgd)",
    )
    add(
        "--elastic-force",
        type=float,
        default=0.9,
        metavar="X",
        help="easgd: the force between centre and all workers together (0.9)",
    )
    add("--elastic-lr", type=float, metavar="X", help="easgd, diloco: the workers' learning rate")
    add(
        "--elastic-momentum",
        type=float,
        default=0.0,
        metavar="X",
        help="easgd, diloco: the workers' momentum (0)",
    )

    add = parser.add_argument_group("machine and output").add_argument
    add("--backend", choices=("jax", "tensorflow", "torch"), help="what Keras runs on")
    add(
        "--max-gpus",
        type=int,
        default=-1,
        metavar="N",
        help="NVIDIA GPUs of a host to use at most, one for each worker (-1: all that are free)",
    )
    add(
        "--log-level",
        default="warning",
        choices=("debug", "info", "warning", "error"),
        help="of messages on standard error (warning)",
    )
    add(
        "--profile",
        action="store_true",
        help="write a trace of compute, wait and transfer for Chrome or Perfetto",
    )


def options_of(words: list[str]) -> dict[str, float | bool]:
    """Return the options in words like ``learning_rate=0.1`` or ``momentum=0.9,nesterov=true``.

    Raises
    ------
    InputError
        If a word is not of this form.

    """
    options: dict[str, float | bool] = {}
    for word in ",".join(words).split(","):
        name, equals, value = word.strip().partition("=")
        if not word.strip():
            continue
        if value.lower() in ("true", "false"):
            options[name] = value.lower() == "true"
            continue
        try:
            options[name] = float(value)
        except ValueError as error:
            msg = f"--optimizer-params: expected NAME=NUMBER, received {word.strip()!r}"
            raise InputError(msg) from error
    return options


def patience(text: str) -> tuple[str, str, int]:
    """Return metric, "<" or ">", and number of epochs of ``val_loss,<,4`` or of ``4``.

    Raises
    ------
    InputError
        If it is neither.

    """
    parts = [part.strip() for part in text.split(",")]
    if len(parts) == 1:
        parts = ["val_loss", "<", parts[0]]
    # mpi_learn writes ~< for "less than before, on average".
    if len(parts) == 3 and parts[1].lstrip("~") in ("<", ">") and parts[2].isdigit():
        return _metric(parts[0]), parts[1].lstrip("~"), int(parts[2])
    msg = f"--early-stopping: expected N or METRIC,<,N or METRIC,>,N, received {text!r}"
    raise InputError(msg)


def limit(text: str) -> tuple[str, str, float]:
    """Return metric, "<" or ">", and value of ``val_accuracy,>,0.97``.

    Raises
    ------
    InputError
        If it is something else.

    """
    parts = [part.strip() for part in text.split(",")]
    if len(parts) == 3 and parts[1] in ("<", ">"):
        try:
            return _metric(parts[0]), parts[1], float(parts[2])
        except ValueError:
            pass
    msg = f"--target-metric: expected METRIC,<,X or METRIC,>,X, received {text!r}"
    raise InputError(msg)


def _metric(name: str) -> str:
    """Return the name that Keras has for it today."""
    return {"acc": "accuracy", "val_acc": "val_accuracy"}.get(name, name)


def _at_least(least: int) -> Callable[[str], int]:
    def number(text: str) -> int:
        value = int(text)
        if value < least:
            msg = f"expected an integer from {least} on, received {text}"
            raise argparse.ArgumentTypeError(msg)
        return value

    number.__name__ = "integer"
    return number
