"""Sparse logistic regression with FTRL on libsvm files, by all workers of an MPI job.

    python examples/numpy/sparse_logistic_regression.py
    mpirun -np 4 python examples/numpy/sparse_logistic_regression.py train-0.svm train-1.svm

Each line of a file is a sample, ``label feature:value feature:value ...``. The label is 0, -1 or 1,
and a feature is any integer of 64 bits, or a text, which is hashed. The weight of a feature is the
row of its key in a hash table, so nobody has to count the features first, and features that never
occur take no memory. The FTRL-Proximal updater with an L1 penalty keeps most weights at exactly
zero. The weights of the next batch are fetched, and the gradients of the last one are added, in the
background. Without files, the program draws samples with Zipf-distributed features.

Source: H. B. McMahan and others, Ad Click Prediction: a View from the Trenches, 2013. The lines
that make the program parallel are marked `MULTIVERSO`.
"""

import itertools
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from tqdm import tqdm

import multiverso as mv

sys.path.append(str(Path(__file__).resolve().parents[1] / "common"))
from command_line import make_parser, natural, positive, write_json  # noqa: E402

#: Of the generated samples.
SPACE = 2**40
FEATURES_PER_SAMPLE = 12


class DataError(ValueError):
    """A file that is not in the format of libsvm; the message is for the user."""


@dataclass
class Batch:
    """Samples as a sparse matrix: element i is `values[i]` at (`samples[i]`, `keys[places[i]]`).

    `keys` are the distinct features of the batch.
    """

    labels: np.ndarray
    samples: np.ndarray
    keys: np.ndarray
    places: np.ndarray
    values: np.ndarray


def parse_sample(line: str) -> tuple[float, list[int], list[float]]:
    """Return the label of a line, its features and their values."""
    fields = line.split("#")[0].split()
    if fields[0] not in ("0", "1", "+1", "-1"):
        msg = f"expected a label of 0, -1 or 1, received {fields[0]!r}"
        raise DataError(msg)
    features, values = [], []
    for field in fields[1:]:
        name, separator, value = field.rpartition(":")
        try:
            values.append(float(value))
        except ValueError:
            separator = ""
        if not separator or not np.isfinite(values[-1]):
            msg = f"expected feature:value, received {field!r}"
            raise DataError(msg)
        try:
            features.append(int(name))
        except ValueError:
            features.append(int(mv.hash_keys([name])[0]))
        if not -(2**63) <= features[-1] < 2**63:
            msg = f"expected a feature of 64 bits, received {name}"
            raise DataError(msg)
    return float(fields[0] in ("1", "+1")), features, values


def samples_of(files: list[Path]) -> Iterator[tuple[float, list[int], list[float]]]:
    """Yield the samples of libsvm files."""
    for file in files:
        with file.open(encoding="utf-8") as lines:
            for number, line in enumerate(lines, 1):
                if not line.split("#")[0].strip():
                    continue
                try:
                    yield parse_sample(line)
                except DataError as problem:
                    msg = f"{file}:{number}: {problem}"
                    raise DataError(msg) from None


def generated(count: int, seed: int) -> Iterator[tuple[float, list[int], list[float]]]:
    """Yield samples whose labels depend on a few of the features, which follow Zipf's law."""
    rng = np.random.default_rng(seed)
    ranks = np.arange(1, 200_001)
    cumulated = np.cumsum(1 / ranks)
    names = rng.integers(0, SPACE, len(ranks))
    weights = np.where(rng.random(len(ranks)) < 0.2, rng.normal(0, 1.5, len(ranks)), 0)
    for _ in range(count):
        drawn = np.searchsorted(cumulated, rng.random(FEATURES_PER_SAMPLE) * cumulated[-1])
        drawn = np.unique(drawn)
        label = rng.random() < 1 / (1 + np.exp(-weights[drawn].sum()))
        yield float(label), names[drawn].tolist(), [1.0] * len(drawn)


def batch_of(samples: list[tuple[float, list[int], list[float]]]) -> Batch:
    """Return samples as one batch."""
    counts = [len(features) for _, features, _ in samples]
    features = np.fromiter(itertools.chain(*(sample[1] for sample in samples)), np.int64)
    keys, places = np.unique(features, return_inverse=True)
    return Batch(
        labels=np.array([label for label, _, _ in samples]),
        samples=np.repeat(np.arange(len(samples)), counts),
        keys=keys,
        places=places,
        values=np.fromiter(itertools.chain(*(sample[2] for sample in samples)), np.float64),
    )


def batches_of(samples: Iterator, size: int) -> Iterator[Batch]:
    """Yield batches of `size` samples; the last one may be smaller."""
    while part := list(itertools.islice(samples, size)):
        yield batch_of(part)


def probabilities(batch: Batch, weights: np.ndarray) -> np.ndarray:
    """Return the probability of label 1 for each sample; `weights` are those of the keys."""
    products = weights[batch.places, 0].astype(np.float64) * batch.values
    sums = np.bincount(batch.samples, products, len(batch.labels))
    return 1 / (1 + np.exp(-np.clip(sums, -35, 35)))


def gradients(batch: Batch, predicted: np.ndarray) -> np.ndarray:
    """Return the gradient of the summed loss with respect to the weight of each key."""
    errors = (predicted - batch.labels)[batch.samples] * batch.values
    return np.bincount(batch.places, errors, len(batch.keys)).astype(np.float32)[:, None]


def area_under_curve(labels: np.ndarray, scores: np.ndarray) -> float:
    """Return the probability that a sample of label 1 has a higher score than one of label 0."""
    _, places, counts = np.unique(scores, return_inverse=True, return_counts=True)
    ranks = (np.cumsum(counts) - (counts - 1) / 2)[places]  # equal scores share their mean rank
    ones = labels.sum()
    zeros = len(labels) - ones
    if ones == 0 or zeros == 0:
        return float("nan")
    return float((ranks[labels == 1].sum() - ones * (ones + 1) / 2) / (ones * zeros))


def train(table: mv.HashTable, samples: Iterator, args) -> int:
    """Train on this worker's samples; return their number."""
    # MULTIVERSO: the workers take turns at the samples.
    mine = itertools.islice(samples, mv.worker_id(), None, mv.num_workers())
    count, ahead = 0, None
    master = mv.is_master_worker()
    with tqdm(unit=" samples", disable=None if master else True) as progress:
        for batch in itertools.chain(batches_of(mine, args.batch_size), [None]):
            # MULTIVERSO: fetch the weights of the next batch in the background.
            following = (batch, table.get_async(batch.keys)) if batch is not None else None
            if ahead is not None:
                current, fetched = ahead
                predicted = probabilities(current, fetched.result())
                # MULTIVERSO: add the gradients in the background; the updater makes the step.
                table.add_async(gradients(current, predicted), current.keys)
                count += len(current.labels)
                progress.update(len(current.labels))
            ahead = following
    table.flush()
    return count


def evaluate(table: mv.HashTable, batches: list[Batch]) -> dict[str, float]:
    """Return the log loss, the AUC and the error on batches; no feature gets a weight."""
    scores = [probabilities(b, table.get(b.keys, insert=False)) for b in batches]
    labels, predicted = np.concatenate([b.labels for b in batches]), np.concatenate(scores)
    bounded = np.clip(predicted, 1e-12, 1 - 1e-12)
    loss = -np.mean(labels * np.log(bounded) + (1 - labels) * np.log(1 - bounded))
    return {
        "log_loss": float(loss),
        "auc": area_under_curve(labels, predicted),
        "error": float(np.mean((predicted > 0.5) != labels)),
    }


def parse():
    """Return the options of the command line."""
    parser = make_parser(__doc__, epochs=1, batch_size=256, learning_rate=0.3)
    option, default = parser.add_argument, "(default %(default)s)"
    option("files", type=Path, nargs="*", metavar="FILE", help="samples to train with")
    option("--test", type=Path, nargs="+", metavar="FILE", help="samples to evaluate with")
    option("--samples", type=positive(int), default=50_000, help="to generate " + default)
    option("--capacity", type=positive(int), default=1_000_000, help="features " + default)
    option("--l1", type=float, default=1.0, help="L1 penalty, for weights of zero " + default)
    option("--l2", type=float, default=1.0, help="L2 penalty " + default)
    option("--admit", type=positive(int), default=1, help="a feature's occurrences " + default)
    option("--save", type=Path, metavar="FOLDER", help="save, and begin with the last save")
    option("--held-out", type=natural, default=5_000, help="generated samples " + default)
    return parser.parse_args()


def main() -> int:
    """Train, evaluate and report."""
    args = parse()

    def training_samples() -> Iterator:
        if args.files:
            return samples_of(args.files)
        return itertools.islice(generated(args.samples + args.held_out, args.seed), args.samples)

    try:
        held_out = (
            samples_of(args.test or args.files)
            if args.files
            else itertools.islice(
                generated(args.samples + args.held_out, args.seed), args.samples, None
            )
        )
        test_batches = list(batches_of(held_out, 4096))
        with mv.session():
            # MULTIVERSO: all workers share the weights.
            table = mv.HashTable(
                1,
                args.capacity,
                updater="ftrl",
                learning_rate=args.learning_rate,
                l1_regularization_strength=args.l1,
                l2_regularization_strength=args.l2,
                admit=args.admit,
                name="weights",
            )
            if args.save is not None:
                # MULTIVERSO: continue from the last checkpoint, if there is one.
                mv.load(args.save, missing_ok=True)
            count = sum(train(table, training_samples(), args) for _ in range(args.epochs))
            # MULTIVERSO: all workers have trained; the master evaluates.
            mv.barrier()
            if args.save is not None:
                mv.save(args.save)
            total = np.array([count], np.int64)
            mv.aggregate(total)
            if mv.is_master_worker():
                nonzero = sum(int(np.count_nonzero(rows)) for _, rows in table.items())
                result = {
                    **evaluate(table, test_batches),
                    "workers": mv.num_workers(),
                    "samples": int(total[0]),
                    "features": len(table),
                    "nonzero": nonzero,
                }
                print(
                    "{workers} workers, {samples:,} samples: log loss {log_loss:.4f}, "
                    "AUC {auc:.4f}, {nonzero:,} of {features:,} weights are not zero".format(
                        **result
                    )
                )
                write_json(result, args.json)
            mv.barrier()
    except (DataError, OSError, UnicodeDecodeError) as problem:
        print(f"error: {problem}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
