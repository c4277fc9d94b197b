"""The application LogisticRegression of Multiverso 2016, with its configuration files and inputs.

    python examples/applications/logistic_regression.py mnist.config
    mpirun -np 4 python examples/applications/logistic_regression.py mnist.config

A configuration file has lines `key=value`; `OPTIONS` has the keys and their defaults, which are
those of 2016. Inputs are text, one sample on a line: `label value value ...`, or with `sparse=true`
`label index:value ...` with indices from 0. With `reader_type=weight` a line begins with
`label:weight`, and the weight multiplies the values of the sample. The workers share the samples of
each epoch: each takes every num_workers-th minibatch. The lines that make it parallel are marked
`MULTIVERSO`.
"""

import argparse
import itertools
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

import multiverso as mv

sys.path.append(str(Path(__file__).resolve().parents[1] / "common"))
from command_line import write_json  # noqa: E402

#: The keys of a configuration file. A key without a default is required.
OPTIONS = {
    "input_size": None,
    "output_size": None,
    "sparse": False,
    "train_epoch": 1,
    "minibatch_size": 1,
    "regular_coef": 0.0001,
    "learning_rate": 0.8,
    "alpha": 0.005,
    "beta": 1.0,
    "lambda1": 5.0,
    "lambda2": 0.002,
    "init_model_file": "",
    "train_file": "train.data",
    "reader_type": "default",
    "test_file": "",
    "output_model_file": "logreg.model",
    "output_file": "logreg.output",
    "sync_frequency": 1,
    "updater_type": "default",
    "objective_type": "default",
    "regular_type": "default",
}
#: Keys that say how the program of 2016 read and sent; they have no effect here.
WITHOUT_EFFECT = ("use_ps", "pipeline", "read_buffer_size", "show_time_per_sample")
CHOICES = {
    "reader_type": ("default", "weight"),
    "updater_type": ("default", "sgd", "ftrl"),
    "objective_type": ("default", "sigmoid", "softmax", "ftrl"),
    "regular_type": ("default", "L1", "L2"),
}


class DataError(Exception):
    """An input cannot be used; the text says why."""


@dataclass
class Batch:
    """Samples, with the distinct indices of their inputs and a matrix of the values of these."""

    labels: np.ndarray  # int64, (samples,)
    indices: np.ndarray  # int64, (columns,)
    values: np.ndarray  # float32, (samples, columns)


def number_of(key: str, text: str, default: object) -> object:
    """Return the value of a key of a configuration file, of the type of its default."""
    try:
        if isinstance(default, bool):
            return {"true": True, "false": False}[text]
        if isinstance(default, float):
            return float(text)
        if isinstance(default, str):
            return text
        return int(text)
    except (KeyError, ValueError):
        kinds = {bool: "true or false", float: "a number"}
        msg = f"{key}: expected {kinds.get(type(default), 'an integer')}, received {text!r}"
        raise DataError(msg) from None


def read_config(path: Path) -> argparse.Namespace:
    """Return the options of a configuration file."""
    given = {}
    for number, line in enumerate(path.read_text("utf-8").splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        key, separator, value = (part.strip() for part in line.partition("="))
        if not separator or key not in (*OPTIONS, *WITHOUT_EFFECT):
            msg = f"{path}:{number}: expected one of {', '.join(OPTIONS)} and =, received {line!r}"
            raise DataError(msg)
        if key in OPTIONS:
            given[key] = number_of(key, value, OPTIONS[key])
    config = argparse.Namespace(**(OPTIONS | given))
    for key, choices in CHOICES.items():
        if getattr(config, key) not in choices:
            found = getattr(config, key)
            msg = f"{key}: expected one of {', '.join(choices)}, received {found!r}"
            raise DataError(msg)
    for key in ("input_size", "output_size", "train_epoch", "minibatch_size", "sync_frequency"):
        if not (value := getattr(config, key)) or value < 1:
            raise DataError(f"{key}: expected a positive integer, received {value}")
    if config.objective_type == "sigmoid" and config.output_size != 1:
        raise DataError(f"output_size: expected 1 for sigmoid, received {config.output_size}")
    if config.objective_type == "softmax" and config.output_size < 2:
        raise DataError("output_size: expected 2 or more for softmax, received 1")
    return config


def parse_sample(line: str, config: argparse.Namespace) -> tuple[int, list[int], list[float]]:
    """Return the label, the indices and the values of a line; the last index is the bias."""
    label, *fields = line.split()
    weight = 1.0
    try:
        if config.reader_type == "weight":
            label, weight = label.split(":")
            weight = float(weight)
        if config.sparse:
            pairs = [field.split(":") for field in fields]
            indices = [int(index) for index, _ in pairs]
            values = [float(value) * weight for _, value in pairs]
        else:
            indices = list(range(len(fields)))
            values = [float(value) * weight for value in fields]
        number = int(label)
    except ValueError:
        form = "label:weight" if config.reader_type == "weight" else "label"
        form += " index:value ..." if config.sparse else " value ..."
        raise DataError(f"expected '{form}', received {line.strip()[:60]!r}") from None
    if not config.sparse and len(values) != config.input_size:
        raise DataError(f"expected {config.input_size} values, received {len(values)}")
    if any(not 0 <= index < config.input_size for index in indices):
        raise DataError(f"expected indices of 0 to {config.input_size - 1}, received {indices}")
    if not np.isfinite(values).all():
        raise DataError(f"expected finite numbers, received {line.strip()[:60]!r}")
    return number, [*indices, config.input_size], [*values, 1.0]


def samples_of(files: str, config: argparse.Namespace) -> Iterator[tuple]:
    """Yield the samples of files, whose names are separated by semicolons."""
    for file in files.split(";"):
        with Path(file).open(encoding="utf-8") as lines:
            for number, line in enumerate(lines, 1):
                if line.strip():
                    try:
                        yield parse_sample(line, config)
                    except DataError as problem:
                        raise DataError(f"{file}:{number}: {problem}") from None


def batches_of(files: str, config: argparse.Namespace, size: int) -> Iterator[Batch]:
    """Yield batches of `size` samples; the last one may be smaller."""
    samples = samples_of(files, config)
    while part := list(itertools.islice(samples, size)):
        flat = np.fromiter(itertools.chain(*(indices for _, indices, _ in part)), np.int64)
        indices, places = np.unique(flat, return_inverse=True)
        owners = np.repeat(np.arange(len(part)), [len(indices) for _, indices, _ in part])
        values = np.zeros((len(part), len(indices)), np.float32)
        flat_values = np.fromiter(itertools.chain(*(v for _, _, v in part)), np.float32)
        np.add.at(values, (owners, places), flat_values)
        yield Batch(np.array([label for label, _, _ in part]), indices, values)


def predictions(batch: Batch, weights: np.ndarray, config: argparse.Namespace) -> np.ndarray:
    """Return the outputs of the samples, (samples, outputs); `weights` are those of the indices."""
    scores = batch.values @ weights
    if config.objective_type == "default":
        return scores
    if config.output_size == 1:
        return 1 / (1 + np.exp(-np.clip(scores, -35, 35)))
    scores = np.exp(scores - scores.max(axis=1, keepdims=True))
    return scores / scores.sum(axis=1, keepdims=True)


def gradient(batch: Batch, weights: np.ndarray, config: argparse.Namespace) -> np.ndarray:
    """Return the mean gradient of the samples with respect to the weights of the indices."""
    errors = predictions(batch, weights, config)
    classes = np.array([1]) if config.output_size == 1 else np.arange(config.output_size)
    errors -= batch.labels[:, None] == classes
    total = batch.values.T @ errors / len(batch.labels)
    if config.regular_type != "default":
        # The penalty counts once for each sample that has the input.
        share = (batch.values != 0).mean(axis=0)[:, None]
        slope = np.sign(weights) if config.regular_type == "L1" else weights
        total += config.regular_coef * share * slope
    return total.astype(np.float32)


def make_table(config: argparse.Namespace) -> mv.MatrixTable:
    """Return the table of the weights: a row for each input and the bias, a column per output."""
    if config.objective_type == "ftrl" or config.updater_type == "ftrl":
        options = {
            "updater": "ftrl",
            "learning_rate": config.alpha,
            "beta": config.beta,
            "l1_regularization_strength": config.lambda1,
            "l2_regularization_strength": config.lambda2 / 2,
            "initial_accumulator_value": 0.0,
        }
    else:
        # The workers multiply by their own rates, which depend on their numbers of updates.
        options = {"updater": "sgd", "learning_rate": 1.0}
    shape = config.input_size + 1, config.output_size
    # MULTIVERSO: all workers share the weights. A row takes memory when it is first changed.
    initial = mv.initializers.Zeros()
    table = mv.MatrixTable(*shape, initial, name="weights", **options)
    if config.init_model_file and mv.is_master_worker():
        weights = np.load(config.init_model_file)
        if weights.shape != shape:
            msg = f"{config.init_model_file}: expected shape {shape}, received {weights.shape}"
            raise DataError(msg)
        if options["updater"] == "ftrl":
            raise DataError("init_model_file: expected none with ftrl, whose weights have a state")
        table.add(-weights)
    mv.barrier()
    return table


def train(table: mv.MatrixTable, config: argparse.Namespace) -> int:
    """Train this worker's share of all epochs; return its number of samples."""
    count, updates, weights = 0, 0, {}
    for _ in range(config.train_epoch):
        batches = batches_of(config.train_file, config, config.minibatch_size)
        # MULTIVERSO: the workers take turns at the batches.
        for batch in itertools.islice(batches, mv.worker_id(), None, mv.num_workers()):
            if updates % config.sync_frequency == 0:
                weights = {}
            missing = [index for index in batch.indices.tolist() if index not in weights]
            # MULTIVERSO: get the weights of the inputs that occur in the batch.
            weights |= zip(missing, table.get(missing), strict=True)
            current = np.stack([weights[index] for index in batch.indices.tolist()])
            delta = gradient(batch, current, config)
            if config.updater_type == "sgd" and config.objective_type != "ftrl":
                decay = updates / (1e5 * config.minibatch_size)
                delta *= np.float32(max(1e-5, config.learning_rate - decay))
            # MULTIVERSO: add the gradients; the updater makes the step.
            table.add(delta, batch.indices)
            updates += 1
            count += len(batch.labels)
    return count


def test(table: mv.MatrixTable, config: argparse.Namespace) -> float:
    """Write the predictions of the test samples to a file; return the share of wrong ones."""
    wrong = count = 0
    with Path(config.output_file).open("w", encoding="utf-8") as output:
        for batch in batches_of(config.test_file, config, 1024):
            results = predictions(batch, table.get(batch.indices), config)
            if config.output_size == 1:
                results = np.round(results)
                wrong += int(((results[:, 0] == 1) != (batch.labels == 1)).sum())
            else:
                wrong += int((results.argmax(axis=1) != batch.labels).sum())
            count += len(batch.labels)
            output.writelines(" ".join(f"{x:.6g}" for x in line) + "\n" for line in results)
    return wrong / max(count, 1)


def main() -> int:
    """Train, test and save as the configuration says."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("config", type=Path, help="the configuration file")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the result to FILE")
    args = parser.parse_args()
    try:
        config = read_config(args.config)
        # MULTIVERSO: the processes of the job join one session for this block.
        with mv.session():
            table = make_table(config)
            samples = np.array([train(table, config)])
            # MULTIVERSO: all workers have trained; the master tests and saves.
            mv.barrier()
            mv.aggregate(samples)
            if mv.is_master_worker():
                result = {"workers": mv.num_workers(), "samples": int(samples[0])}
                if config.test_file:
                    result["error"] = test(table, config)
                    print(f"test error: {result['error']:.6f}")
                with Path(config.output_model_file).open("wb") as file:
                    np.save(file, table.get())
                print("{workers} workers have trained {samples:,} samples".format(**result))
                write_json(result, args.json)
            mv.barrier()
    except (DataError, OSError, UnicodeDecodeError) as problem:
        print(f"error: {problem}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
