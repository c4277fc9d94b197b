"""A character-level transformer trained with DiLoCo: many local steps between two exchanges.

    mpirun -np 2 python examples/torch/diloco.py --json two.json
    mpirun -np 4 python examples/torch/diloco.py --json four.json
    python examples/torch/diloco.py two.json four.json --plot diloco.png

Each worker trains its own copy with AdamW. After every H steps, the sum of all workers' changes
serves as the gradient of one outer step of SGD with Nesterov momentum, and every worker continues
from the result (Douillard et al., arXiv:2311.08105). A larger H exchanges fewer bytes for the same
number of samples. The program trains once for each H of --sync-every, always on the same total
number of samples, and can plot the effect on the loss. The lines that make it parallel are marked
`MULTIVERSO`.

For slow links between machines, --wire encodes what travels, --fragments exchanges the parameters
part by part, and --async lets no worker wait for another.
"""

import argparse
import json
import sys
import time
from pathlib import Path

import numpy as np
import torch
from tqdm import tqdm

import multiverso as mv
from multiverso.sync import ParamSync

sys.path.append(str(Path(__file__).resolve().parents[1] / "common"))
from characters import TextError, load_characters  # noqa: E402
from command_line import positive  # noqa: E402

LENGTH = 64  # characters in a sample
NUM_VALIDATION = 64  # samples
EVALUATION_INTERVAL = 20  # steps, rounded to whole rounds


class Transformer(torch.nn.Module):
    """Predicts the next character from the previous ones."""

    def __init__(self, characters, width=64, heads=4, layers=2):
        super().__init__()
        self.character = torch.nn.Embedding(characters, width)
        self.position = torch.nn.Embedding(LENGTH, width)
        layer = torch.nn.TransformerEncoderLayer(
            width, heads, 4 * width, dropout=0.0, batch_first=True, norm_first=True
        )
        self.layers = torch.nn.TransformerEncoder(
            layer, layers, torch.nn.LayerNorm(width), enable_nested_tensor=False
        )
        self.scores = torch.nn.Linear(width, characters)
        mask = torch.nn.Transformer.generate_square_subsequent_mask(LENGTH)
        self.register_buffer("mask", mask, persistent=False)

    def forward(self, characters):
        """Return the scores of the next character at each position."""
        positions = torch.arange(characters.shape[1])
        embedded = self.character(characters) + self.position(positions)
        return self.scores(self.layers(embedded, mask=self.mask, is_causal=True))


def loss_of(model, windows):
    """Return the mean cross entropy of the next characters, in nats."""
    characters, expected = map(torch.from_numpy, windows)
    return torch.nn.functional.cross_entropy(model(characters).flatten(0, 1), expected.flatten())


def bytes_moved(tables):
    """Return the bytes between this node and others or, on one node, to and from the tables."""
    counts = [mv.stats()[table.name] for table in tables]
    between = sum(count["bytes_sent"] + count["bytes_received"] for count in counts)
    return between or sum(count["bytes_got"] + count["bytes_added"] for count in counts)


def train(args, text, sync_every, wire, progress):
    """Train a new model with `sync_every` local steps per exchange; return its record."""
    torch.manual_seed(args.seed)
    model = Transformer(len(text.alphabet))
    parameters = [parameter.detach() for parameter in model.parameters()]
    # MULTIVERSO: the outer optimizer runs where the parameters are stored. It receives the sum over
    # all workers, hence the division.
    sync = ParamSync(
        parameters,
        updater="nesterov",
        learning_rate=args.outer_rate / mv.num_workers(),
        momentum=args.outer_momentum,
        sync_every=sync_every,
        fragments=args.fragments,
        wire=wire,
    )
    inner = torch.optim.AdamW(model.parameters(), lr=args.inner_rate)
    # MULTIVERSO: each worker draws its own samples; all workers together see --samples.
    rng = np.random.default_rng((args.seed, mv.worker_id()))
    batch_of_all = mv.num_workers() * args.batch_size
    rounds = max(1, args.samples // (batch_of_all * sync_every))
    rounds_per_evaluation = max(1, EVALUATION_INTERVAL // sync_every)
    valid = text.held_out(NUM_VALIDATION, LENGTH)
    master = mv.is_master_worker()
    samples, losses, elapsed, num_bytes = [], [], [], []
    mv.barrier()
    moved_before, start, validating = bytes_moved(sync.tables), time.perf_counter(), 0.0
    for num_done in range(rounds + 1):
        # MULTIVERSO: one worker validates.
        if num_done == rounds and args.fragments > 1:
            sync.sync_all()  # MULTIVERSO: the steps since each fragment's last exchange.
        if master and (num_done % rounds_per_evaluation == 0 or num_done == rounds):
            begin = time.perf_counter()
            elapsed.append(begin - start - validating)
            num_bytes.append(bytes_moved(sync.tables) - moved_before)
            with torch.no_grad():
                losses.append(float(loss_of(model, valid)))
            samples.append(num_done * sync_every * batch_of_all)
            validating += time.perf_counter() - begin
            progress.set_postfix_str(f"H {sync_every}, {wire}, validation loss {losses[-1]:.3f}")
            progress.update(samples[-1] - sum(samples[-2:-1]))
        if num_done == rounds:
            break
        for _ in range(sync_every):
            inner.zero_grad()
            loss_of(model, text.windows(rng, args.batch_size, LENGTH)).backward()
            inner.step()
            sync.sync()  # MULTIVERSO: after H steps, apply the sum of all workers' steps.
    return {
        "workers": mv.num_workers(),
        "sync_every": sync_every,
        "wire": wire,
        "samples": samples,
        "loss": losses,
        "elapsed": elapsed,
        "bytes": num_bytes,
        "bytes_per_sample": num_bytes[-1] / (rounds * sync_every * args.batch_size)
        if master
        else 0,
        "seconds": time.perf_counter() - start - validating,
    }


def plot(runs, file):
    """Plot the loss of all runs over samples, seconds and bytes."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(12, 4.4), layout="constrained")
    panels = figure.subplots(1, 3, sharey=True)
    counts = sorted({run["workers"] for run in runs})
    styles = dict(zip(counts, ("-", "--", "-.", ":"), strict=False))
    kinds = sorted({(run["sync_every"], run["wire"]) for run in runs})
    colors = {kind: f"C{index}" for index, kind in enumerate(kinds)}
    labels = {
        "samples": f"samples of {LENGTH} characters, all workers together",
        "elapsed": "seconds",
        "bytes": "bytes exchanged by the master",
    }
    for panel, (of, label) in zip(panels, labels.items(), strict=True):
        for run in runs:
            style = styles.get(run["workers"], ":")
            name = "{workers} workers, H = {sync_every}, {wire}".format(**run)
            color = colors[run["sync_every"], run["wire"]]
            panel.plot(run[of], run["loss"], style, color=color, label=name)
        panel.set_xlabel(label)
        panel.grid(visible=True, alpha=0.3)
    panels[2].set_xscale("symlog", linthresh=1e5)
    panels[0].set_ylabel("validation loss, nats per character")
    panels[0].legend()
    figure.savefig(file, dpi=120)


def report(runs):
    """Print one line for each run."""
    for run in runs:
        print(
            "{workers} workers, H {sync_every}, {wire}: validation loss {last:.3f}, "
            "{bytes_per_sample:,.0f}"
            " bytes per sample, {seconds:.1f} seconds".format(last=run["loss"][-1], **run)
        )


def read_runs(files):
    """Return the runs in reports of this program; exit with code 2 if a report is invalid."""
    runs = []
    for file in files:
        try:
            runs += json.loads(file.read_text())["runs"]
        except (OSError, ValueError, KeyError, TypeError) as error:
            print(f"error: cannot use {file} as a report: {error}", file=sys.stderr)
            raise SystemExit(2) from error
    return runs


def parse_arguments():
    """Return the command-line options."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    option = parser.add_argument
    option("reports", type=Path, nargs="*", help="reports to plot instead of training")
    option("--sync-every", type=positive(int), nargs="+", metavar="H", default=[1, 10, 100])
    option("--wire", nargs="+", choices=("float32", "bfloat16", "int8"), default=["float32"])
    option("--fragments", type=positive(int), default=1, help="parts that are exchanged in turn")
    option("--async", dest="is_async", action="store_true", help="let no worker wait for another")
    option("--samples", type=positive(int), default=12800, help="of all workers, for each H")
    option("--batch-size", type=positive(int), default=8)
    option("--inner-rate", type=float, default=1e-3, help="learning rate of AdamW")
    option("--outer-rate", type=float, default=0.7, help="learning rate of Nesterov's momentum")
    option("--outer-momentum", type=float, default=0.9)
    option("--text", type=Path, nargs="+", default=[], metavar="FILE", help="UTF-8 texts to learn")
    option("--seed", type=int, default=1)
    option("--json", type=Path, metavar="FILE", help="write the runs to FILE")
    option("--plot", type=Path, metavar="FILE", help="plot the runs to FILE.png")
    return parser.parse_args()


def main():
    """Load the text, train and report; return the exit code."""
    args = parse_arguments()
    master, runs = True, read_runs(args.reports)
    if not runs:
        try:
            text = load_characters(args.text, minimum=20 * LENGTH)
        except TextError as problem:
            print(f"error: {problem}", file=sys.stderr)
            return 2
        torch.set_num_threads(1)  # a job usually has one worker per core
        # MULTIVERSO: the processes of the job join one session, in lock-step as in the paper.
        with mv.session(sync=not args.is_async):
            master = mv.is_master_worker()
            total = args.samples * len(args.sync_every) * len(args.wire)
            # disable=None shows the bar only on a terminal.
            with tqdm(total=total, unit="sample", disable=None if master else True) as progress:
                runs = [
                    train(args, text, every, wire, progress)
                    for every in args.sync_every
                    for wire in args.wire
                ]
    if not master:
        return 0
    report(runs)
    if args.json is not None:
        args.json.write_text(json.dumps({"runs": runs}, indent=1) + "\n")
    if args.plot is not None:
        plot(runs, args.plot)
    return 0


if __name__ == "__main__":
    sys.exit(main())
