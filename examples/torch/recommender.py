"""A recommender whose users and items come and go, with embeddings in a hash table.

    python examples/torch/recommender.py --plot auc.png
    mpirun -np 2 python examples/torch/recommender.py --unlimited
    python examples/torch/recommender.py --backing keys  # run it twice: the second run continues

The program generates clicks: popularity follows Zipf's law, and in every window of the stream some
users and items disappear and new ones take their places. A factorization machine predicts whether
a user clicks on an item. Its rows are in a hash table that has room for a small part of all ids:
an id gets a row when it occurs for the second time, and takes it from one that has not occurred for
long. For comparison, the program trains with a table of fixed rows that takes the same memory, in
which ids that have the same hash share a row; with --unlimited, also with a row for every id. Each
prediction is made before its click is learned, and the area under the ROC curve is reported for
each window. The lines that make the program parallel are marked `MULTIVERSO`.

Source of the model: S. Rendle, Factorization Machines, 2010.
"""

import argparse
import importlib.util
import sys
from pathlib import Path

import numpy as np
import torch
from tqdm import tqdm

import multiverso as mv
from multiverso.torch_ext import DistributedOptimizer, Embedding

sys.path.append(str(Path(__file__).resolve().parents[1] / "common"))
from command_line import natural, positive, write_json  # noqa: E402

COLUMNS = 17  # of a row: a bias and 16 factors
TASTES = 4  # dimensions of the tastes that generate the clicks
MOST_ADMIT = 255  # of a hash table
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


def count_ids(args):
    """Return the number of distinct ids in the stream."""
    return len(np.unique(np.concatenate([ids.ravel() for ids, _ in windows_of(args)])))


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
        scores = np.zeros(len(ids))
        # MULTIVERSO: the workers take turns at the clicks.
        mine = np.arange(mv.worker_id(), len(ids), mv.num_workers())
        for first in range(0, len(mine), args.batch_size):
            part = mine[first : first + args.batch_size]
            optimizer.zero_grad()
            predicted = model(torch.from_numpy(ids_of(ids[part])))
            scores[part] = predicted.detach()
            labels = torch.from_numpy(clicks[part].astype(np.float32))
            # The sum, because the updater of a row should see each click on its own scale.
            torch.nn.functional.binary_cross_entropy_with_logits(
                predicted, labels, reduction="sum"
            ).backward()
            optimizer.step()
        # MULTIVERSO: put the predictions together. The workers wait for each other here, because
        # ids that one of them no longer needs must not evict those of another.
        mv.aggregate(scores)
        areas.append(area_under_curve(clicks, scores))
        progress.set_postfix_str(f"area {areas[-1]:.4f}", refresh=False)
    # MULTIVERSO: the table has the last gradients of all workers.
    table.flush()
    mv.barrier()
    return areas


def run(args):
    """Train with each table; return the results."""
    initial = mv.initializers.RandomNormal(stddev=0.05, seed=args.seed)
    options = {
        "updater": "adagrad",
        "learning_rate": args.learning_rate,
        "initial_accumulator_value": 0.1,
    }
    num_ids = count_ids(args)
    rows = args.rows or int(args.capacity * MEMORY_OF_KEYS)
    areas, stats = {}, {}
    # MULTIVERSO: all workers share the rows.
    table = mv.HashTable(
        COLUMNS,
        args.capacity,
        initial,
        evict=args.evict,
        admit=args.admit,
        name="keys",
        backing=args.backing,
        **options,
    )
    reopened = table.reopened
    areas["hash table"] = train(args, table, lambda ids: ids, "hash table")
    stats["hash table"] = table.stats()
    # MULTIVERSO: so are the rows that ids share.
    table = mv.MatrixTable(rows, COLUMNS, initial, name="rows", **options)
    areas["hashed rows"] = train(args, table, lambda ids: ids % rows, "hashed rows")
    if args.unlimited:
        # MULTIVERSO: a hash table without admission and eviction has a row for every id.
        table = mv.HashTable(COLUMNS, num_ids, initial, name="all keys", **options)
        areas["unlimited"] = train(args, table, lambda ids: ids, "unlimited")
        stats["unlimited"] = table.stats()
    return {
        "workers": mv.num_workers(),
        "ids": num_ids,
        "capacity": args.capacity,
        "rows": rows,
        "areas": areas,
        "stats": stats,
        "reopened": reopened,
    }


def report(result):
    """Print a line for each window, and what happened to the keys."""
    print(
        "{workers} workers, {ids:,} ids, room for {capacity:,} keys or {rows:,} rows; "
        "area under the curve:".format(**result)
    )
    areas = result["areas"]
    for window, values in enumerate(zip(*areas.values(), strict=True)):
        columns = (f"{name} {value:.4f}" for name, value in zip(areas, values, strict=True))
        print(f"  window {window:2}: {', '.join(columns)}")
    for name, counts in result["stats"].items():
        print(f"{name}:", ", ".join(f"{count:,} {what}" for what, count in counts.items()))


def plot(result, path):
    """Plot the areas to `path`, if given; return the exit code of the program."""
    if path is None:
        return 0
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 4), layout="constrained")
    axes = figure.subplots()
    for name, values in result["areas"].items():
        axes.plot(values, marker="o", label=name)
    axes.set(xlabel="window of the stream", ylabel="area under the ROC curve")
    axes.grid(visible=True, alpha=0.3)
    axes.legend()
    try:
        figure.savefig(path, format="png", dpi=120)
    except OSError as error:
        print(f"error: cannot write {path}: {error.strerror}", file=sys.stderr)
        return 2
    return 0


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
    option("--rows", type=positive(int), help="hashed rows (default: those of the same memory)")
    option("--evict", choices=("lru", "lfu"), default="lru", help=default)
    option("--admit", type=positive(int), default=2, help="occurrences before a row " + default)
    option("--backing", type=Path, help="folder of the hash table, which the next run continues")
    option("--unlimited", action="store_true", help="also train with a row for every id")
    option("--batch-size", type=positive(int), default=200, help=default)
    option("--learning-rate", type=positive(float), default=0.1, help=default)
    option("--seed", type=natural, default=1, help=default)
    option("--json", type=Path, metavar="FILE", help="write the results")
    option("--plot", type=Path, metavar="FILE", help="plot the results to FILE.png")
    return parser.parse_args()


def main():
    """Train, and report on the master; return the exit code."""
    args = parse()
    if args.admit > MOST_ADMIT:
        print(f"error: --admit: expected at most {MOST_ADMIT}", file=sys.stderr)
        return 2
    if args.plot is not None and importlib.util.find_spec("matplotlib") is None:
        print("error: --plot: expected Matplotlib, found none", file=sys.stderr)
        return 2
    torch.set_num_threads(1)  # a job usually has one worker per core
    # MULTIVERSO: the processes of the job join one session for this block.
    with mv.session():
        result = run(args)
        master = mv.is_master_worker()
    if not master:
        return 0
    report(result)
    return write_json(result, args.json) or plot(result, args.plot)


if __name__ == "__main__":
    sys.exit(main())
