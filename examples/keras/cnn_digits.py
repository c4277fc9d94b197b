"""A convolutional network on handwritten digits, trained with Keras by all workers of an MPI job.

    python examples/keras/cnn_digits.py
    mpirun -np 4 python examples/keras/cnn_digits.py
    KERAS_BACKEND=torch mpirun -np 4 python examples/keras/cnn_digits.py --sync

Each worker trains on its part of the images, so that the number of samples seen does not depend on
how many workers there are. What makes it a parallel program is marked `MULTIVERSO`.
"""

import argparse
import json
import math
import sys
import time
from pathlib import Path

import numpy as np

import multiverso as mv

sys.path.append(str(Path(__file__).resolve().parents[1] / "common"))
from digit_images import DataError, DigitImages, load_digit_images  # noqa: E402
from keras_backend import EpochBar, keras  # noqa: E402

# MULTIVERSO: the callback that keeps the models in step, and what cuts the data for the workers.
from multiverso.keras_ext import MVCallback, shard  # noqa: E402  # isort: skip

SMALLEST_SIDE = 8  # of the images: both layers of convolution have something to see


def network(side, classes, learning_rate, updates):
    """Return a network of two convolutions, for images of `side` x `side` pixels.

    Its learning rate falls to nothing within so many updates: what it ends with does not depend on
    which images came last.
    """
    layers = keras.layers
    model = keras.Sequential(
        [
            layers.Input((side, side, 1)),
            layers.Conv2D(16, 3, activation="relu"),
            layers.MaxPooling2D(),
            layers.Conv2D(32, 2, use_bias=False),
            layers.BatchNormalization(momentum=0.9),
            layers.ReLU(),
            layers.Flatten(),
            layers.Dense(classes),
        ]
    )
    cost = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    rate = keras.optimizers.schedules.CosineDecay(learning_rate, updates)
    model.compile(keras.optimizers.SGD(rate), cost, metrics=["accuracy"])
    return model


def train(args, data: DigitImages):
    """Train on `data`; return the result on the test images on the master, None elsewhere."""
    side = math.isqrt(data.train.images.shape[1])
    train, valid, test = (
        (part.images.reshape(-1, side, side, 1), part.labels)
        for part in (data.train, data.valid, data.test)
    )
    # MULTIVERSO: of each worker's own images, in an order of their own.
    keras.utils.set_random_seed(args.seed + mv.worker_id())
    images, labels = shard(*train)
    updates = args.epochs * math.ceil(len(labels) / args.batch_size)
    model = network(side, data.classes, args.learning_rate, updates)
    # MULTIVERSO: from here on all workers have the master's model; after every freq batches it
    # sends what they have changed, and fetches what the others' have. The epochs end together.
    callbacks = [MVCallback(model, freq=args.freq, average_metrics=True)]
    master = mv.is_master_worker()
    if master:  # MULTIVERSO: one worker validates and prints for all.
        callbacks.append(EpochBar(args.epochs))
    all_updates = np.array([updates])
    mv.aggregate(all_updates)  # MULTIVERSO: those of all workers; now all are ready, too.

    start = time.perf_counter()
    history = model.fit(
        images,
        labels,
        batch_size=args.batch_size,
        epochs=args.epochs,
        verbose=0,
        callbacks=callbacks,
        validation_data=valid if master else None,
    ).history
    # MULTIVERSO: wait until everybody's last batch is in, then fetch the whole.
    mv.barrier()
    callbacks[0].sync()
    seconds = time.perf_counter() - start
    if not master:
        return None
    return {
        "test_error": 1 - model.evaluate(*test, verbose=0, return_dict=True)["accuracy"],
        "seconds": seconds,
        "workers": mv.num_workers(),
        "updates": int(all_updates[0]),
        "epochs": args.epochs,
        "backend": keras.backend.backend(),
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
    option("--data", metavar="FILE", help="mnist.npz, or a folder with the four IDX files of MNIST")
    option("--epochs", type=positive(int), default=20, help="(default %(default)s)")
    option("--batch-size", type=positive(int), default=20, help="(default %(default)s)")
    option("--learning-rate", type=positive(float), default=0.05, help="(default %(default)s)")
    option("--freq", type=positive(int), default=1, help="batches between two syncs")
    option("--seed", type=int, default=0, help="of images and weights (default %(default)s)")
    option("--sync", action="store_true", help="in lock-step: equal to the bit in every run")
    option("--json", metavar="FILE", type=Path, help="write the result to this file, too")
    return parser.parse_args()


def main():
    """Load the data, train, report; return the exit code."""
    args = parse_arguments()
    try:
        data = load_digit_images(args.data)
        pixels = data.train.images.shape[1]
        if math.isqrt(pixels) ** 2 != pixels or pixels < SMALLEST_SIDE**2:
            raise DataError(
                f"expected square images of {SMALLEST_SIDE} x {SMALLEST_SIDE} pixels or more,"
                f" received {pixels} pixels"
            )
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
        " (workers {workers}, updates {updates}, epochs {epochs}, on {backend})".format(**result)
    )
    if args.json is not None:
        args.json.write_text(json.dumps(result) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
