"""A character-level transformer with memories of character n-grams in tables of many rows.

    python examples/torch/ngram_lm.py
    mpirun -np 4 python examples/torch/ngram_lm.py --save checkpoints
    mpirun -np 2 python examples/torch/ngram_lm.py --save checkpoints     continues if it was killed

The last two and the last three characters select a row each, by a hash, whose sum with the
character's embedding enters the network. Such memories know frequent continuations, which leaves
the network more capacity for the rest. A step uses a few of the rows, so they stay in host memory,
where all workers share one copy. The rows of the next step are fetched, and the gradients of the
last one are sent, while the network computes. The program trains for equally many steps without the
memories first, unless --rows names other sizes, and prints both losses. The lines that make it
parallel are marked `MULTIVERSO`.
"""

import argparse
import json
import sys
import time
from pathlib import Path

import numpy as np
import torch
from diloco import LENGTH, NUM_VALIDATION, Transformer
from tqdm import tqdm

import multiverso as mv
from multiverso.torch_ext import DistributedOptimizer, Embedding, prefetch

sys.path.append(str(Path(__file__).resolve().parents[1] / "common"))
from characters import TextError, load_characters  # noqa: E402
from command_line import positive  # noqa: E402

WIDTH = 64
HASH_FACTOR = np.uint64(0x9E3779B97F4A7C15)  # odd; products wrap around in 64 bits


class NgramTransformer(Transformer):
    """Predicts the next character from the previous ones and from the rows of their n-grams."""

    def __init__(self, characters, layers, table=None):
        super().__init__(characters, WIDTH, layers=layers)
        self.memories = None if table is None else Embedding(table)

    def forward(self, characters, ids):
        """Return the scores of the next character at each position."""
        embedded = self.character(characters) + self.position(torch.arange(characters.shape[1]))
        if self.memories is not None:
            embedded = embedded + self.memories(ids).sum(-2)
        return self.scores(self.layers(embedded, mask=self.mask, is_causal=True))


def ngrams_of(characters, rows):
    """Return the rows of the 2-gram and the 3-gram that end at each character, shape (..., 2)."""
    if rows == 0:
        return None
    padded = np.zeros((len(characters), characters.shape[1] + 2), np.uint64)
    padded[:, 2:] = characters
    ngrams = np.empty((*characters.shape, 2), np.uint64)
    ngrams[..., 0] = padded[:, 1:-1] * 65_537 + padded[:, 2:]
    ngrams[..., 1] = ngrams[..., 0] * 65_537 + padded[:, :-2]
    # A multiplicative hash; half of the rows are for the 2-grams.
    ngrams *= HASH_FACTOR
    ngrams >>= 20
    ngrams %= rows // 2
    ngrams[..., 1] += rows // 2
    return torch.from_numpy(ngrams.view(np.int64))


def loss_of(model, batch):
    """Return the mean cross entropy of the next characters, in nats."""
    scores = model(batch["characters"], batch["ids"])
    return torch.nn.functional.cross_entropy(scores.flatten(0, 1), batch["expected"].flatten())


def train(args, text, rows, progress):
    """Train a new model with a table of `rows` rows, or none; return its record."""
    torch.manual_seed(args.seed)
    table = None
    if rows > 0:
        # MULTIVERSO: all workers share the rows; an untouched row takes no memory.
        table = mv.MatrixTable(
            rows,
            WIDTH,
            mv.initializers.Zeros(),
            updater="rowwise_adagrad",
            learning_rate=args.row_rate,
            name="n-grams",
        )
    model = NgramTransformer(len(text.alphabet), args.layers, table)
    # MULTIVERSO: every step also syncs the network, and sends the gradients of the rows.
    optimizer = DistributedOptimizer(
        torch.optim.AdamW(model.parameters(), lr=args.rate), model, average=True
    )
    folder = None if args.save is None else args.save / str(rows)
    begin = 0
    if folder is not None:
        # MULTIVERSO: continue from the last checkpoint, if there is one.
        begin = mv.load(folder, missing_ok=True) or 0
        optimizer.sync()
        progress.update(begin)

    def batch_of(windows):
        ids = ngrams_of(windows[0], rows)
        characters, expected = map(torch.from_numpy, windows)
        return {"characters": characters, "expected": expected, "ids": ids}

    # MULTIVERSO: each worker draws its own samples.
    rng = np.random.default_rng((args.seed, begin, mv.worker_id()))
    batches = (
        batch_of(text.windows(rng, args.batch_size, LENGTH)) for _ in range(begin, args.steps)
    )
    if rows > 0 and args.prefetch > 0:
        # MULTIVERSO: get the rows of the next steps in the background.
        batches = prefetch(batches, model.memories, key="ids", depth=args.prefetch)
    seconds = []
    start = time.perf_counter()
    for step, batch in enumerate(batches, begin + 1):
        optimizer.zero_grad()
        loss_of(model, batch).backward()
        optimizer.step()
        progress.update()
        if folder is not None and (step % args.save_every == 0 or step == args.steps):
            mv.save(folder, step=step)
        start, last = time.perf_counter(), start
        seconds.append(start - last)
    # MULTIVERSO: all workers have trained; the master validates.
    mv.barrier()
    optimizer.sync()
    model.eval()
    with torch.no_grad():
        loss = float(loss_of(model, batch_of(text.held_out(NUM_VALIDATION, LENGTH))))
    return {
        "workers": mv.num_workers(),
        "rows": rows,
        "steps": args.steps,
        "begin": begin,
        "loss": loss,
        "seconds_per_step": float(np.median(seconds)) if seconds else 0.0,
    }


def report(runs):
    """Print one line for each run."""
    for run in runs:
        print(
            "{workers} workers, {rows:,} rows: validation loss {loss:.3f} after {steps} steps, "
            "{0:.1f} ms per step".format(1e3 * run["seconds_per_step"], **run)
        )


def parse():
    """Return the options of the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    option = parser.add_argument
    option("--rows", type=int, nargs="+", default=[0, 1 << 20], metavar="N", help="0: no memories")
    option("--steps", type=positive(int), default=300, metavar="N", help="of each worker")
    option("--layers", type=positive(int), default=4, metavar="N", help="of the network")
    option("--batch-size", type=positive(int), default=16, metavar="N")
    option("--rate", type=positive(float), default=1e-3, metavar="R", help="of the network")
    option("--row-rate", type=positive(float), default=0.05, metavar="R", help="of the rows")
    option("--prefetch", type=int, default=1, metavar="N", help="steps ahead; 0: do not prefetch")
    option("--save", type=Path, metavar="FOLDER", help="save, and continue from the last save")
    option("--save-every", type=positive(int), default=50, metavar="STEPS")
    option("--seed", type=int, default=1, metavar="N")
    option("--text", type=Path, nargs="+", default=(), metavar="FILE", help="texts in UTF-8")
    option("--json", type=Path, metavar="FILE", help="write the results")
    return parser.parse_args()


def main():
    """Train with each number of rows, and report."""
    args = parse()
    try:
        text = load_characters(args.text, minimum=20 * LENGTH)
    except TextError as problem:
        print(f"error: {problem}", file=sys.stderr)
        return 2
    if any(rows != 0 and rows < 2 for rows in args.rows):
        print("error: --rows: expected 0, or 2 or more", file=sys.stderr)
        return 2
    torch.set_num_threads(1)  # a job usually has one worker per core
    runs = []
    for rows in args.rows:
        with mv.session():  # of its own, so that a checkpoint has the tables of one run
            master = mv.is_master_worker()
            options = {"desc": f"{rows:,} rows", "disable": None if master else True}
            with tqdm(total=args.steps, unit="step", **options) as progress:
                runs.append(train(args, text, rows, progress))
    if master:
        report(runs)
        if args.json is not None:
            args.json.write_text(json.dumps({"runs": runs}, indent=1), "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
