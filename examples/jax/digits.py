"""A small network on handwritten digits, trained with Flax and Optax by all workers of an MPI job.

    python examples/jax/digits.py
    mpirun -np 4 python examples/jax/digits.py
    mpirun -np 4 python examples/jax/digits.py --sync

The workers share each epoch's batches out among them, so that the number of samples seen does not
depend on how many workers there are. What makes it a parallel program is marked `MULTIVERSO`.
"""

import argparse
import json
import math
import os
import sys
import time
from pathlib import Path

# The workers are as many as there are cores: one thread for each.
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
from digit_images import DataError, DigitImages, load_digit_images  # noqa: E402


class Network(linen.Module):
    """Two layers, which end in a score for each class."""

    classes: int

    @linen.compact
    def __call__(self, x):
        """Return the scores of the images `x`."""
        return linen.Dense(self.classes)(linen.relu(linen.Dense(64)(x)))


def compile_functions(network, optimizer):
    """Return a function that makes a step with a batch, and one that computes an error.

    Parameters
    ----------
    network : flax.linen.Module
        What is trained.
    optimizer : optax.GradientTransformation
        What makes the steps.
    """

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
    # It falls to nothing within a worker's updates: what the network ends with does not depend on
    # which images came last.
    mine = args.epochs * math.ceil(batches / mv.num_workers())
    optimizer = optax.sgd(optax.cosine_decay_schedule(args.learning_rate, mine))
    step, error = compile_functions(network, optimizer)
    params = network.init(jax.random.key(args.seed), images[:1])
    # MULTIVERSO: all workers start from the master's parameters.
    sync = PytreeSync(params)
    params = sync.params
    state = optimizer.init(params)
    master = mv.is_master_worker()
    history = []

    mv.barrier()  # MULTIVERSO: the clock starts when all workers are ready.
    start = time.perf_counter()
    # tqdm shows nothing where the standard error is no terminal.
    progress = tqdm(total=args.epochs, unit="epoch", disable=None if master else True)
    for epoch in range(args.epochs):
        order = np.random.default_rng((args.seed, epoch)).permutation(len(labels))
        # MULTIVERSO: each worker takes every num_workers-th batch.
        for turn, first in enumerate(range(0, batches, mv.num_workers()), 1):
            index = first + mv.worker_id()
            if index < batches:
                batch = order[index * args.batch_size : (index + 1) * args.batch_size]
                params, state = step(params, state, images[batch], labels[batch])
            if turn % args.freq == 0:
                # MULTIVERSO: send what these batches have changed, fetch what the others' have.
                # With --sync all do so equally often, also those for whom no batch was left.
                params = sync.sync(params)
        if master:  # MULTIVERSO: one worker validates and prints for all.
            history.append(float(error(params, data.valid.images, data.valid.labels)))
            progress.set_postfix_str(f"validation error {history[-1]:.2%}")
            progress.update()
    progress.close()
    # MULTIVERSO: wait until everybody's last step is in, then fetch the whole.
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


def positive(kind):
    """Return a function that turns an option into a positive, finite number."""

    def parse(text):
        value = kind(text)
        if not 0 < value < math.inf:
            raise ValueError(text)
        return value

    parse.__name__ = f"positive {kind.__name__}"
    return parse


def parse_arguments():
    """Return the options of the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    option = parser.add_argument
    option("--epochs", type=positive(int), default=20, help="(default %(default)s)")
    option("--batch-size", type=positive(int), default=20, help="(default %(default)s)")
    option("--learning-rate", type=positive(float), default=0.1, help="(default %(default)s)")
    option("--freq", type=positive(int), default=1, help="batches between two syncs")
    option("--seed", type=int, default=0, help="of images and weights (default %(default)s)")
    option("--sync", action="store_true", help="in lock-step: equal to the bit in every run")
    option("--data", type=Path, metavar="PATH", help="MNIST instead of the digits")
    option("--json", type=Path, metavar="FILE", help="write the result to FILE, too")
    return parser.parse_args()


def main():
    """Load the data, train, report; return the exit code."""
    args = parse_arguments()
    try:
        data = load_digit_images(args.data)
    except DataError as problem:
        print(f"error: {problem}", file=sys.stderr)
        return 2
    # MULTIVERSO: the processes find each other here, and part at its end.
    with mv.session(sync=args.sync):
        result = train(args, data)
    if result is None:
        return 0
    print(
        "test error {test_error:.2%}, {seconds:.2f} seconds"
        " (workers {workers}, updates {updates}, epochs {epochs})".format(**result)
    )
    if args.json is not None:
        args.json.write_text(json.dumps(result) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
