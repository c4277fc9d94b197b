"""Cases about Lasagne networks on any number of ranks that adapter_suite.py does not cover."""

import os
import sys
from pathlib import Path

import numpy as np
from cases import equal, registrar, run_all

import multiverso as mv

# Only ranks import these modules, so pytest can read the names of the cases without Lasagne.
T = lasagne = theano = LasagneParamManager = None

CASES = {}

case = registrar(CASES)


def make_network(value):
    """Return a layer whose weights and biases all have one value."""
    return lasagne.layers.DenseLayer(
        lasagne.layers.InputLayer((None, 2)),
        2,
        W=theano.shared(np.full((2, 2), value, np.float32)),
        b=theano.shared(np.full(2, value, np.float32)),
        nonlinearity=None,
    )


@case(sync=True)
def training_functions_step_with_the_gradients_of_all_workers():
    network = make_network(1.0)
    x = T.matrix("x")
    cost = T.sum(lasagne.layers.get_output(network, x))
    parameters = lasagne.layers.get_all_params(network, trainable=True)
    train = theano.function([x], updates=lasagne.updates.sgd(cost, parameters, 0.5))
    manager = LasagneParamManager(network)
    for step in range(1, 5):
        train(np.full((1, 2), 1.0 + mv.worker_id(), np.float32))
        if step % 2 == 0:
            manager.sync_all_param()
    # The gradient of the weights is the input, and the gradient of the bias is one.
    weights, bias = (variable.get_value() for variable in parameters)
    inputs = mv.num_workers() * (mv.num_workers() + 1) / 2
    equal(weights, np.full((2, 2), 1 - 4 * 0.5 * inputs))
    equal(bias, np.full(2, 1 - 4 * 0.5 * mv.num_workers()))


def statistics_after_sync(choice, average):
    """Return a mean and a count that each worker changed differently, after a sync."""
    me = mv.worker_id()

    class Statistic(lasagne.layers.Layer):
        def __init__(self, incoming, value):
            super().__init__(incoming)
            start = theano.shared(np.float32([value]))
            self.mean = self.add_param(start, (1,), trainable=False)
            self.count = self.add_param(theano.shared(np.int64([0])), (1,), trainable=False)
            # No table has this dtype, so it is not synchronized.
            self.mask = self.add_param(theano.shared(np.int8([me])), (1,), trainable=False)

    network = Statistic(make_network(0), 100 + me)  # only the master's value is used
    manager = LasagneParamManager(network, sync_non_trainable=choice, average=average)
    network.mean.set_value(network.mean.get_value() + np.float32(6 * (me + 1)))
    network.count.set_value(network.count.get_value() + me + 1)
    manager.sync_all_param()
    equal(network.mask.get_value(), [me])
    return [network.mean.get_value().item(), network.count.get_value().item()]


@case(sync=True)
def statistics_follow_the_sync_option():
    me, workers = mv.worker_id(), mv.num_workers()
    # Counts are not averaged; they are taken from the master.
    for average in (False, True):
        equal(statistics_after_sync("average", average), [100 + 3.0 * (workers + 1), 1])
        equal(statistics_after_sync("master", average), [106.0, 1])
        equal(statistics_after_sync(False, average), [100.0 + me + 6 * (me + 1), me + 1])


if __name__ == "__main__":
    os.environ["THEANO_FLAGS"] = "mode=FAST_COMPILE,linker=py,cxx="
    sys.path.append(str(Path(__file__).parents[3] / "examples" / "common"))
    from lasagne_backend import T, lasagne, theano

    from multiverso.lasagne_ext.param_manager import LasagneParamManager

    run_all(CASES)
