"""A residual network on CIFAR-10, trained with Keras by all workers of an MPI job.

    python examples/keras/resnet_cifar10.py
    mpirun -np 4 python examples/keras/resnet_cifar10.py --data FOLDER

FOLDER has the binary version of CIFAR-10 (data_batch_1.bin, ...). Without it, the images are
generated: a small set of the same shape, for a quick check.

Source of network and settings: K. He, X. Zhang, S. Ren and J. Sun, Deep Residual Learning for Image
Recognition, 2015, section 4.2. The workers divide each epoch's batches among themselves, so the
number of samples seen does not depend on the number of workers. The lines that make it parallel are
marked `MULTIVERSO`.
"""

import math
import sys
import time
from pathlib import Path

import numpy as np
from tqdm import tqdm

sys.path.append(str(Path(__file__).resolve().parents[1] / "common"))
import cifar10  # noqa: E402
import residual  # noqa: E402
from keras_backend import keras  # noqa: E402

layers = keras.layers


def convolution(x, filters, stride=1, rectify=True):
    """Return a 3 x 3 convolution, batch normalization and, by default, a rectifier."""
    x = layers.Conv2D(
        filters,
        3,
        stride,
        padding="same",
        use_bias=False,
        kernel_initializer="he_normal",
        kernel_regularizer=keras.regularizers.L2(residual.WEIGHT_DECAY),
    )(x)
    x = layers.BatchNormalization(momentum=0.9)(x)
    return layers.ReLU()(x) if rectify else x


class Shortcut(layers.Layer):
    """A shortcut without parameters: every second row and column, and channels of zeros."""

    def call(self, x):
        """Return the input with half the side and twice the channels."""
        margin = x.shape[3] // 2
        return keras.ops.pad(x[:, ::2, ::2], [(0, 0), (0, 0), (0, 0), (margin, margin)])


def residual_block(x, filters, halves):
    """Return two convolutions of `x` with `x` added to their result."""
    stack = convolution(x, filters, stride=2 if halves else 1)
    stack = convolution(stack, filters, rectify=False)
    return layers.ReLU()(layers.Add()([stack, Shortcut()(x) if halves else x]))


def build_network(depth):
    """Return the compiled network of `depth` = 6 n + 2 layers."""
    channels, *side = cifar10.SHAPE
    inputs = layers.Input((*side, channels))
    x = convolution(inputs, residual.FILTERS)
    for third in range(3):
        for block in range((depth - 2) // 6):
            x = residual_block(x, residual.FILTERS * 2**third, third > 0 and block == 0)
    decay = keras.regularizers.L2(residual.WEIGHT_DECAY)
    scores = layers.Dense(
        cifar10.CLASSES, kernel_initializer="he_normal", kernel_regularizer=decay
    )(layers.GlobalAveragePooling2D()(x))
    model = keras.Model(inputs, scores)
    model.compile(
        keras.optimizers.SGD(momentum=residual.MOMENTUM),
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
    )
    return model


class Batches(keras.utils.PyDataset):
    """The batches of an epoch with these indices, augmented when they are requested."""

    def __init__(self, data, args, epoch, indices):
        super().__init__()
        self.data, self.args, self.epoch, self.indices = data, args, epoch, indices
        self.order = residual.order_of(args, epoch, len(data.train))

    def __len__(self):
        """Return the number of batches."""
        return len(self.indices)

    def __getitem__(self, index):
        """Return the images and labels of one batch."""
        epoch_index, size = self.indices[index], self.args.batch_size
        batch = self.order[epoch_index * size : (epoch_index + 1) * size]
        images = residual.augmented(self.data.train[batch], self.args, self.epoch, epoch_index)
        return channels_last(images), self.data.train_labels[batch]


def channels_last(images):
    """Return images of shape (n, channels, rows, columns) as (n, rows, columns, channels)."""
    return np.ascontiguousarray(images.transpose(0, 2, 3, 1))


def train(args, mv, callbacks_of, data):
    """Train on `data`; return the result on the master, None elsewhere."""
    keras.utils.set_random_seed(args.seed)
    model = build_network(args.depth)
    # MULTIVERSO: all workers start from the master's network.
    callbacks = callbacks_of(model)
    master = mv.is_master_worker()
    batches = math.ceil(len(data.train) / args.batch_size)
    if batches < mv.num_workers():
        raise SystemExit(f"expected {mv.num_workers()} batches or more, received {batches}")
    if args.sync:  # MULTIVERSO: lock-step needs equally many batches per worker.
        batches -= batches % mv.num_workers()
    # MULTIVERSO: this worker's batches.
    my_batches = range(mv.worker_id(), batches, mv.num_workers())
    test_images = channels_last(data.test)
    history = []

    def test_error():
        size = residual.TEST_BATCH
        metrics = model.evaluate(test_images, data.test_labels, size, verbose=0, return_dict=True)
        return 1 - metrics["accuracy"]

    mv.barrier()  # MULTIVERSO: the clock starts when all workers are ready.
    start = time.perf_counter()
    # disable=None shows the bar only on a terminal.
    progress = tqdm(total=args.epochs, unit="epoch", disable=None if master else True)
    for epoch in range(args.epochs):
        model.optimizer.learning_rate = residual.learning_rate(args, epoch)
        dataset = Batches(data, args, epoch, my_batches)
        begin = time.perf_counter()
        # MULTIVERSO: the callback syncs after every freq batches, and at the end.
        losses = model.fit(dataset, shuffle=False, verbose=0, callbacks=callbacks).history["loss"]
        seconds = time.perf_counter() - begin  # without the test
        if master:  # MULTIVERSO: one worker tests and prints for all.
            error = test_error() if args.test_each else None
            history.append({"cost": losses[-1], "seconds": seconds, "test_error": error})
            progress.set_postfix_str(f"cost {losses[-1]:.3f}", refresh=False)
            progress.update()
    progress.close()
    # MULTIVERSO: wait until every worker has added its last batch, then fetch the result.
    mv.barrier()
    seconds = time.perf_counter() - start
    for callback in callbacks:
        callback.sync()
    if not master:
        return None
    return {
        "test_error": test_error(),
        "seconds": seconds,
        "workers": mv.num_workers(),
        "updates": args.epochs * batches,
        "epochs": args.epochs,
        "data": data.name,
        "depth": args.depth,
        "backend": keras.backend.backend(),
        "history": history,
    }


def main():
    """Load the data, train and report; return the exit code."""
    args = residual.parse_arguments(__doc__)
    try:
        data = residual.load(args)
    except cifar10.DataError as problem:
        print(f"error: {problem}", file=sys.stderr)
        return 2
    if args.plain:
        import single_process as mv

        def callbacks_of(model):
            return []
    else:
        import multiverso as mv

        # MULTIVERSO: syncs the networks of all workers.
        from multiverso.keras_ext import MVCallback

        def callbacks_of(model):
            return [MVCallback(model, freq=args.freq)]

    # MULTIVERSO: the processes of the job join one session for this block. The timeout covers the
    # time that a worker needs to compile and the master to test.
    with mv.session(sync=args.sync, staleness=args.staleness, timeout=residual.TIMEOUT):
        result = train(args, mv, callbacks_of, data)
    return 0 if result is None else residual.report(args, result)


if __name__ == "__main__":
    sys.exit(main())
