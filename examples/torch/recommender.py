"""A recommender whose users and items come and go, with embeddings in a hash table.

    python examples/torch/recommender.py --plot auc.png
    mpirun -np 2 python examples/torch/recommender.py

The program generates clicks: popularity follows Zipf's law, and in every window of the stream some
users and items disappear and new ones take their places. A factorization machine predicts whether
a user clicks on an item. Its rows are in a hash table that has room for a small part of all ids:
an id gets a row when it occurs for the second time, and takes it from one that has not occurred for
long. For comparison, the program trains with a table of fixed rows that takes the same memory, in
which ids that have the same hash share a row. Each prediction is made before its click is learned,
and the area under the ROC curve is reported for each window. The lines that make the program
parallel are marked `MULTIVERSO`.

Source of the model: S. Rendle, Factorization Machines, 2010.
"""

import argparse
import json
import sys
from pathlib import Path

import numpy as np
import torch
from tqdm import tqdm

import multiverso as mv
from multiverso.torch_ext import DistributedOptimizer, Embedding

sys.path.append(str(Path(__file__).resolve().parents[1] / "common"))
from command_line import natural, positive  # noqa: E402

FACTORS = 16
TASTES = 4  # dimensions of the tastes that generate the clicks
#: A row with its optimizer's state and its key takes so many times the memory of one without a key.
MEMORY_OF_KEYS = 1.45


class Crowd:
    """The users or the items that are active; the first ones are the most popular."""

    def __init__(self, size, rng):
        self.rng = rng
        self.popularity = np.cumsum(1 / np.arange(1, size + 1) ** 1.05)
        self.ids = np.empty(size, np.int64)
        self.tastes = np.empty((size, TASTES))
        self.biases = np.empty(size)
        self.replace(np.arange(size))

    def replace(self, places):
        """Let new ones appear in the places of others."""
        self.ids[places] = self.rng.integers(-(2**63), 2**63, len(places))
        self.tastes[places] = self.rng.standard_normal((len(places), TASTES))
        self.biases[places] = self.rng.normal(0, 0.7, len(places))

    def draw(self, count):
        """Return the places of random ones."""
        return np.searchsorted(self.popularity, self.rng.random(count) * self.popularity[-1])


def windows_of(args):
    """Yield for each window the ids (n, 2) of users and items, and whether they clicked."""
    rng = np.random.default_rng(args.seed)
    crowds = [Crowd(args.active, rng) for _ in range(2)]
    for _ in range(args.windows):
        users, items = (crowd.draw(args.window) for crowd in crowds)
        scores = (crowds[0].tastes[users] * crowds[1].tastes[items]).sum(1)
        scores += crowds[0].biases[users] + crowds[1].biases[items]
        clicks = rng.random(args.window) < 1 / (1 + np.exp(-scores))
        yield np.stack([crowds[0].ids[users], crowds[1].ids[items]], 1), clicks
        for crowd in crowds:
            crowd.replace(np.flatnonzero(rng.random(args.active) < args.drift))


class FactorizationMachine(torch.nn.Module):
    """Scores pairs of ids by the biases and the product of the factors in their rows."""

    def __init__(self, table):
        super().__init__()
        self.rows = Embedding(table)
        self.bias = torch.nn.Parameter(torch.zeros(()))

    def forward(self, ids):
        """Return a score for each pair."""
        rows = self.rows(ids)
        products = (rows[:, 0, 1:] * rows[:, 1, 1:]).sum(1)
        return self.bias + rows[:, :, 0].sum(1) + products


def area_under_curve(clicks, scores):
    """Return the probability that a click has a higher score than a pair without a click."""
    order = np.argsort(scores)
    ranks = np.empty(len(scores))
    ranks[order] = np.arange(1, len(scores) + 1)
    ones = int(clicks.sum())
    zeros = len(clicks) - ones
    if ones == 0 or zeros == 0:
        return float("nan")
    return float((ranks[clicks].sum() - ones * (ones + 1) / 2) / (ones * zeros))


def train(args, table, ids_of, name):
    """Train a new model on the stream; return the area under the curve in each window."""
    torch.manual_seed(args.seed)
    model = FactorizationMachine(table)
    # MULTIVERSO: each step also syncs the bias, and sends the gradients of the rows.
    optimizer = DistributedOptimizer(
        torch.optim.SGD(model.parameters(), lr=0.01), model, average=True
    )
    areas = []
    master = mv.is_master_worker()
    progress = tqdm(
        windows_of(args), total=args.windows, desc=name, disable=None if master else True
    )
    for ids, clicks in progress:
        # MULTIVERSO: the workers take turns at the clicks.
        mine = slice(mv.worker_id(), None, mv.num_workers())
        ids, clicks = ids[mine], clicks[mine]
        scores = np.empty(len(ids))
        for first in range(0, len(ids), args.batch_size):
            part = slice(first, first + args.batch_size)
            optimizer.zero_grad()
            predicted = model(torch.from_numpy(ids_of(ids[part])))
            scores[part] = predicted.detach()
            labels = torch.from_numpy(clicks[part].astype(np.float32))
            # The sum, because the updater of a row should see each click on its own scale.
            torch.nn.functional.binary_cross_entropy_with_logits(
                predicted, labels, reduction="sum"
            ).backward()
            optimizer.step()
        areas.append(area_under_curve(clicks, scores))
    # MULTIVERSO: all workers have trained.
    mv.barrier()
    return areas


def run(args):
    """Train with both tables; return the results."""
    options = {
        "updater": "adagrad",
        "learning_rate": args.learning_rate,
        "initial_accumulator_value": 0.1,
    }
    initial = mv.initializers.RandomNormal(stddev=0.05, seed=args.seed)
    # MULTIVERSO: all workers share the rows.
    hashed = mv.HashTableHandler(
        1 + FACTORS,
        args.capacity,
        initial,
        evict=None if args.evict == "none" else args.evict,
        admit=args.admit,
        name="keys",
        **options,
    )
    areas = train(args, hashed, lambda ids: ids, "hash table")
    stats = hashed.stats()
    mv.barrier()
    num_row = int(args.capacity * MEMORY_OF_KEYS)
    fixed = mv.MatrixTableHandler(num_row, 1 + FACTORS, initial, name="rows", **options)
    shared = train(args, fixed, lambda ids: ids % num_row, "hashed rows")
    return {
        "workers": mv.num_workers(),
        "ids": int(2 * args.active * (1 + args.drift * (args.windows - 1))),
        "hash_table": areas,
        "hashed_rows": shared,
        "stats": stats,
    }


def report(result):
    """Print a line for each window, and what happened to the keys."""
    print(f"{result['workers']} workers, about {result['ids']:,} ids; area under the curve:")
    for window, areas in enumerate(zip(result["hash_table"], result["hashed_rows"], strict=True)):
        print(f"  window {window:2}: hash table {areas[0]:.4f}, hashed rows {areas[1]:.4f}")
    print(", ".join(f"{count:,} {name}" for name, count in result["stats"].items()))


def plot(result, path):
    """Plot the area under the curve over the windows."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(7, 4), layout="constrained")
    for name in ("hash_table", "hashed_rows"):
        axes.plot(range(1, 1 + len(result[name])), result[name], marker="o", label=name)
    axes.set(xlabel="window of the stream", ylabel="area under the ROC curve")
    axes.legend([f"{name}, same memory" for name in ("hash table", "hashed rows")])
    figure.savefig(path, dpi=120)


def fraction(text):
    """Convert an option to a number from 0 to 1."""
    value = float(text)
    if not 0 <= value <= 1:
        raise ValueError(text)
    return value


def parse():
    """Return the options of the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    option, default = parser.add_argument, "(default %(default)s)"
    option("--windows", type=positive(int), default=10, help=default)
    option("--window", type=positive(int), default=40_000, help="clicks in a window " + default)
    option("--active", type=positive(int), default=10_000, help="users, and items " + default)
    option("--drift", type=fraction, default=0.2, help="replaced in a window " + default)
    option("--capacity", type=positive(int), default=8_000, help="keys of the table " + default)
    option("--evict", choices=("lru", "lfu", "none"), default="lru", help=default)
    option("--admit", type=positive(int), default=2, help="occurrences before a row " + default)
    option("--batch-size", type=positive(int), default=200, help=default)
    option("--learning-rate", type=positive(float), default=0.1, help=default)
    option("--seed", type=natural, default=1, help=default)
    option("--json", type=Path, metavar="FILE", help="write the results")
    option("--plot", type=Path, metavar="FILE", help="plot the results to FILE.png")
    return parser.parse_args()


def main():
    """Train, and report on the master."""
    args = parse()
    torch.set_num_threads(1)  # a job usually has one worker per core
    with mv.session():
        result = run(args)
        if mv.is_master_worker():
            report(result)
            if args.json is not None:
                args.json.write_text(json.dumps(result, indent=1), "utf-8")
            if args.plot is not None:
                plot(result, args.plot)
    return 0


if __name__ == "__main__":
    sys.exit(main())
