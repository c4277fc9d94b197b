"""A residual network on CIFAR-10, trained with Lasagne by all workers of an MPI job.

    python examples/theano/lasagne/Deep_Residual_Learning_CIFAR-10.py
    mpirun -np 4 python examples/theano/lasagne/Deep_Residual_Learning_CIFAR-10.py --data FOLDER

FOLDER has the binary version of CIFAR-10 (data_batch_1.bin, ...). Without it, the images are
generated: a small set of the same shape, for a quick check. The first start takes minutes, because
Theano compiles the network.

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

sys.path.append(str(Path(__file__).resolve().parents[2] / "common"))
import cifar10  # noqa: E402
import residual  # noqa: E402
from lasagne_backend import T, lasagne, theano  # noqa: E402

# batch_norm imports lasagne_backend.
from batch_norm import BatchNormLayer, updates_of  # noqa: E402  # isort: skip

layers = lasagne.layers


def convolution(incoming, filters, stride=1, rectify=True):
    """Return a 3 x 3 convolution, batch normalization and, by default, a rectifier."""
    conv = layers.Conv2DLayer(
        incoming,
        filters,
        3,
        stride=stride,
        pad=1,
        W=lasagne.init.HeNormal(gain="relu"),
        b=None,
        nonlinearity=None,
    )
    norm = BatchNormLayer(conv)
    return layers.NonlinearityLayer(norm, lasagne.nonlinearities.rectify) if rectify else norm


class Shortcut(layers.Layer):
    """A shortcut without parameters: every second row and column, and channels of zeros."""

    def get_output_shape_for(self, input_shape):
        """Return half the side and twice the channels."""
        images, channels, rows, columns = input_shape
        return images, 2 * channels, (rows + 1) // 2, (columns + 1) // 2

    def get_output_for(self, input, **kwargs):
        """Return the input with half the side and twice the channels."""
        kept = input[:, :, ::2, ::2]
        zeros = T.zeros_like(kept)[:, : self.input_shape[1] // 2]
        return T.concatenate([zeros, kept, zeros], axis=1)


def residual_block(incoming, filters, halves):
    """Return two convolutions of `incoming` with `incoming` added to their result."""
    stack = convolution(incoming, filters, stride=2 if halves else 1)
    stack = convolution(stack, filters, rectify=False)
    shortcut = Shortcut(incoming) if halves else incoming
    total = layers.ElemwiseSumLayer([stack, shortcut])
    return layers.NonlinearityLayer(total, lasagne.nonlinearities.rectify)


def build_network(depth):
    """Return the network of `depth` = 6 n + 2 layers, which returns class probabilities."""
    stack = convolution(layers.InputLayer((None, *cifar10.SHAPE)), residual.FILTERS)
    for third in range(3):
        for block in range((depth - 2) // 6):
            halves = third > 0 and block == 0
            stack = residual_block(stack, residual.FILTERS * 2**third, halves)
    stack = layers.GlobalPoolLayer(stack)
    return layers.DenseLayer(
        stack,
        cifar10.CLASSES,
        W=lasagne.init.HeNormal(),
        nonlinearity=lasagne.nonlinearities.softmax,
    )


def compile_functions(network, rate):
    """Return a function that trains on a batch and one that counts misclassified images.

    `rate` is the shared variable with the learning rate.
    """
    x, y = T.tensor4("x"), T.ivector("y")
    probabilities = layers.get_output(network, x)
    cost = lasagne.objectives.categorical_crossentropy(probabilities, y).mean()
    weights = layers.get_all_params(network, regularizable=True)
    penalty = sum(T.sum(T.sqr(parameter)) for parameter in weights)
    updates = lasagne.updates.momentum(
        cost + np.float32(residual.WEIGHT_DECAY) * penalty,
        layers.get_all_params(network, trainable=True),
        rate,
        residual.MOMENTUM,
    )
    updates.update(updates_of(network))
    train = theano.function([x, y], cost, updates=updates)
    predicted = T.argmax(layers.get_output(network, x, deterministic=True), axis=1)
    count_wrong = theano.function([x, y], T.sum(T.neq(predicted, y)))
    return train, count_wrong


def test_error(count_wrong, data):
    """Return the fraction of misclassified test images."""
    size = residual.TEST_BATCH
    wrong = sum(
        int(count_wrong(data.test[i : i + size], data.test_labels[i : i + size]))
        for i in range(0, len(data.test), size)
    )
    return wrong / len(data.test)


def train(args, mv, param_manager, data):
    """Train on `data`; return the result on the master, None elsewhere."""
    lasagne.random.set_rng(np.random.RandomState(args.seed))
    network = build_network(args.depth)
    rate = theano.shared(np.float32(args.learning_rate))
    update, count_wrong = compile_functions(network, rate)
    # MULTIVERSO: all workers start from the master's network.
    manager = param_manager(network)
    master = mv.is_master_worker()
    batches = math.ceil(len(data.train) / args.batch_size)
    history = []

    mv.barrier()  # MULTIVERSO: the clock starts when all workers have compiled.
    start = time.perf_counter()
    # disable=None shows the bar only on a terminal.
    progress = tqdm(total=args.epochs, unit="epoch", disable=None if master else True)
    for epoch in range(args.epochs):
        order = residual.order_of(args, epoch, len(data.train))
        rate.set_value(np.float32(residual.learning_rate(args, epoch)))
        cost, num_my_batches, begin = 0.0, 0, time.perf_counter()
        # MULTIVERSO: each worker takes every num_workers-th batch.
        starts = range(0, batches, mv.num_workers())
        for step, first in enumerate(starts, 1):
            index = first + mv.worker_id()
            if index < batches:
                batch = order[index * args.batch_size : (index + 1) * args.batch_size]
                num_my_batches += 1
                images = residual.augmented(data.train[batch], args, epoch, index)
                cost += float(update(images, data.train_labels[batch]))
            if step % args.freq == 0 or step == len(starts):
                # MULTIVERSO: send these batches' changes and fetch the other workers' changes.
                manager.sync()
        seconds = time.perf_counter() - begin  # without the test
        if master:  # MULTIVERSO: one worker tests and prints for all.
            error = test_error(count_wrong, data) if args.test_each else None
            history.append({"cost": cost / num_my_batches, "seconds": seconds, "test_error": error})
            progress.set_postfix_str(f"cost {cost / num_my_batches:.3f}", refresh=False)
            progress.update()
    progress.close()
    # MULTIVERSO: wait until every worker has added its last batch, then fetch the result.
    mv.barrier()
    seconds = time.perf_counter() - start
    manager.sync()
    if not master:
        return None
    return {
        "test_error": test_error(count_wrong, data),
        "seconds": seconds,
        "workers": mv.num_workers(),
        "updates": args.epochs * batches,
        "epochs": args.epochs,
        "data": data.name,
        "depth": args.depth,
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
        from single_process import ParamManager as LasagneParamManager
    else:
        import multiverso as mv

        # MULTIVERSO: syncs the networks of all workers.
        from multiverso.lasagne_ext.param_manager import LasagneParamManager
    # MULTIVERSO: the processes of the job join one session for this block. The timeout covers the
    # time that Theano needs to compile and the master to test.
    with mv.session(sync=args.sync, staleness=args.staleness, timeout=residual.TIMEOUT):
        result = train(args, mv, LasagneParamManager, data)
    return 0 if result is None else residual.report(args, result)


if __name__ == "__main__":
    sys.exit(main())
