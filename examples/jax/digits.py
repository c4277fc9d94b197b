"""A small network on handwritten digits, trained with Flax and Optax by all workers of an MPI job.

    python examples/jax/digits.py
    mpirun -np 4 python examples/jax/digits.py
    mpirun -np 4 python examples/jax/digits.py --sync

The workers divide each epoch's batches among themselves, so the number of samples seen does not
depend on the number of workers. The lines that make it parallel are marked `MULTIVERSO`.
"""

import math
import os
import sys
import time
from pathlib import Path

# JAX starts as many threads as NPROC says. A job usually has one worker per core.
os.environ.setdefault("NPROC", "1")

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import linen
from tqdm import tqdm

import multiverso as mv
from multiverso.jax_ext import PytreeSync

sys.path.append(str(Path(__file__).resolve().parents[1] / "common"))
from command_line import make_parser, positive, report  # noqa: E402
from digit_images import DataError, DigitImages, load_digit_images  # noqa: E402


class Network(linen.Module):
    """Two dense layers that return a score for each class."""

    classes: int

    @linen.compact
    def __call__(self, x):
        """Return the scores of the images `x`."""
        return linen.Dense(self.classes)(linen.relu(linen.Dense(64)(x)))


def compile_functions(network, optimizer):
    """Return a function that trains on one batch and one that returns the error rate."""

    def cost(params, x, y):
        scores = network.apply(params, x)
        return optax.softmax_cross_entropy_with_integer_labels(scores, y).mean()

    @jax.jit
    def step(params, state, x, y):
        updates, state = optimizer.update(jax.grad(cost)(params, x, y), state, params)
        return optax.apply_updates(params, updates), state

    @jax.jit
    def error(params, x, y):
        return jnp.mean(network.apply(params, x).argmax(axis=1) != y)

    return step, error


def train(args, data: DigitImages):
    """Train on `data`; return the result on the test images on the master, None elsewhere."""
    images, labels = data.train.images, data.train.labels
    network = Network(data.classes)
    batches = math.ceil(len(labels) / args.batch_size)
    # The learning rate decays to zero, so the result does not depend on which images came last.
    updates = args.epochs * math.ceil(batches / mv.num_workers())
    optimizer = optax.sgd(optax.cosine_decay_schedule(args.learning_rate, updates))
    step, error = compile_functions(network, optimizer)
    params = network.init(jax.random.key(args.seed), images[:1])
    # MULTIVERSO: all workers start from the master's parameters, and their changes are summed.
    sync = PytreeSync(params, average=False)
    params = sync.params
    state = optimizer.init(params)
    master = mv.is_master_worker()
    history = []

    mv.barrier()  # MULTIVERSO: the clock starts when all workers are ready.
    start = time.perf_counter()
    # disable=None shows the bar only on a terminal.
    progress = tqdm(total=args.epochs, unit="epoch", disable=None if master else True)
    for epoch in range(args.epochs):
        order = np.random.default_rng((args.seed, epoch)).permutation(len(labels))
        # MULTIVERSO: each worker takes every num_workers-th batch.
        for step_number, first in enumerate(range(0, batches, mv.num_workers()), 1):
            index = first + mv.worker_id()
            if index < batches:
                batch = order[index * args.batch_size : (index + 1) * args.batch_size]
                params, state = step(params, state, images[batch], labels[batch])
            if step_number % args.freq == 0:
                # MULTIVERSO: send these batches' changes and fetch the other workers' changes. With
                # --sync, a worker without a batch also does so, because a round needs all workers.
                params = sync.sync(params)
        if master:  # MULTIVERSO: one worker validates and prints for all.
            history.append(float(error(params, data.valid.images, data.valid.labels)))
            progress.set_postfix_str(f"validation error {history[-1]:.2%}")
            progress.update()
    progress.close()
    # MULTIVERSO: wait until every worker has added its last step, then fetch the result.
    params = sync.sync(params)
    mv.barrier()
    params = sync.sync(params)
    seconds = time.perf_counter() - start
    if not master:
        return None
    return {
        "test_error": float(error(params, data.test.images, data.test.labels)),
        "seconds": seconds,
        "workers": mv.num_workers(),
        "updates": args.epochs * batches,
        "epochs": args.epochs,
        "history": history,
    }


def parse_arguments():
    """Return the command-line options."""
    parser = make_parser(__doc__, epochs=20, batch_size=20, learning_rate=0.1)
    option = parser.add_argument
    option("--freq", type=positive(int), default=1, help="batches between syncs")
    option("--sync", action="store_true", help="lock-step: runs are bitwise identical")
    option("--data", type=Path, metavar="PATH", help="MNIST instead of the digits")
    return parser.parse_args()


def main():
    """Load the data, train and report; return the exit code."""
    args = parse_arguments()
    try:
        data = load_digit_images(args.data)
    except DataError as problem:
        print(f"error: {problem}", file=sys.stderr)
        return 2
    # MULTIVERSO: the processes of the job join one session for this block.
    with mv.session(sync=args.sync):
        result = train(args, data)
    return 0 if result is None else report(result, args.json)


if __name__ == "__main__":
    sys.exit(main())
