"""A convolutional network on handwritten digits, trained with Keras by all workers of an MPI job.

    python examples/keras/cnn_digits.py
    mpirun -np 4 python examples/keras/cnn_digits.py
    KERAS_BACKEND=torch mpirun -np 4 python examples/keras/cnn_digits.py --sync

Each worker trains on its part of the images, so the number of samples seen does not depend on the
number of workers. The lines that make it parallel are marked `MULTIVERSO`.
"""

import math
import sys
import time
from pathlib import Path

import numpy as np

import multiverso as mv

sys.path.append(str(Path(__file__).resolve().parents[1] / "common"))
from command_line import make_parser, positive, report  # noqa: E402
from digit_images import DataError, DigitImages, load_digit_images  # noqa: E402
from keras_backend import EpochBar, keras  # noqa: E402

# MULTIVERSO: the callback that syncs the models, and the function that divides the data.
from multiverso.keras_ext import MVCallback, shard  # noqa: E402  # isort: skip

SMALLEST_SIDE = 8  # pixels that the two convolutions need


def build_network(side, classes, learning_rate, updates):
    """Return a network of two convolutions, for images of `side` x `side` pixels.

    The learning rate decays to zero within `updates`, so the result does not depend on which images
    came last.
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
    # MULTIVERSO: each worker takes its own images, in its own order.
    keras.utils.set_random_seed(args.seed + mv.worker_id())
    images, labels = shard(*train)
    updates = args.epochs * math.ceil(len(labels) / args.batch_size)
    model = build_network(side, data.classes, args.learning_rate, updates)
    # MULTIVERSO: all workers start from the master's model. The callback exchanges changes after
    # every freq batches, and the epochs end together.
    callbacks = [MVCallback(model, freq=args.freq, average_metrics=True)]
    master = mv.is_master_worker()
    if master:  # MULTIVERSO: one worker validates and prints for all.
        callbacks.append(EpochBar(args.epochs))
    all_updates = np.array([updates])
    mv.aggregate(all_updates)  # MULTIVERSO: sum the updates of all workers and wait for them.

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
    # MULTIVERSO: wait until every worker has added its last batch, then fetch the result.
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


def parse_arguments():
    """Return the command-line options."""
    parser = make_parser(__doc__, epochs=20, batch_size=20, learning_rate=0.05)
    option = parser.add_argument
    option("--data", metavar="FILE", help="mnist.npz or the folder of MNIST's four IDX files")
    option("--freq", type=positive(int), default=1, help="batches between syncs")
    option("--sync", action="store_true", help="lock-step: runs are bitwise identical")
    return parser.parse_args()


def main():
    """Load the data, train and report; return the exit code."""
    args = parse_arguments()
    try:
        data = load_digit_images(args.data, SMALLEST_SIDE)
    except DataError as problem:
        print(f"error: {problem}", file=sys.stderr)
        return 2
    # MULTIVERSO: the processes of the job join one session for this block.
    with mv.session(sync=args.sync):
        result = train(args, data)
    if result is None:
        return 0
    return report(result, args.json, f", on {result['backend']}")


if __name__ == "__main__":
    sys.exit(main())
