"""Lasagne networks on any number of ranks: one start, all deltas, errors that reach every rank."""

import os
import sys
from pathlib import Path

import numpy as np
from cases import equal, raises, registrar, run_all

import multiverso as mv

# Only ranks import these, so a test that reads the names of the cases does not need Lasagne.
T = lasagne = theano = LasagneParamManager = None

ROUNDS = 10
DTYPES = ("float32", "float64", "float16")

CASES = {}

case = registrar(CASES)


def network_of(value, dtype="float32", depth=1, units=2):
    """Return layers of weights and biases that all have one value."""
    stack = lasagne.layers.InputLayer((None, units))
    for _ in range(depth):
        stack = lasagne.layers.DenseLayer(
            stack,
            units,
            W=theano.shared(np.full((units, units), value, dtype)),
            b=theano.shared(np.full(units, value, dtype)),
            nonlinearity=None,
        )
    return stack


def parameters_of(network, **tags):
    return lasagne.layers.get_all_params(network, **tags)


def holds(network, value):
    for variable in parameters_of(network):
        equal(variable.get_value(), np.full(variable.get_value().shape, value))


def sums(in_step=False):
    """All workers start from the master's parameters and end with all deltas."""
    me, workers = mv.worker_id(), mv.num_workers()
    networks = [network_of(me + 4, dtype) for dtype in DTYPES]
    networks.append(network_of(me + 4, depth=500))  # a thousand tensors
    managers = [LasagneParamManager(network) for network in networks]
    for network in networks:
        holds(network, 4)
    for _ in range(ROUNDS):
        for network, manager in zip(networks, managers, strict=True):
            for variable in parameters_of(network):
                variable.set_value(variable.get_value() + np.dtype(variable.dtype).type(me + 1))
            manager.sync_all_param()
    if not in_step:
        mv.barrier()
        for manager in managers:
            manager.sync_all_param()
    for network in networks:
        holds(network, 4 + ROUNDS * workers * (workers + 1) / 2)
    mv.barrier()
    if not in_step:
        for network, manager in zip(networks, managers, strict=True):
            values = [variable.get_value().ravel() for variable in parameters_of(network)]
            held = np.concatenate([table.get() for table in manager.tables])
            equal(np.concatenate(values), held)


@case()
def workers_start_from_the_master_and_receive_all_deltas():
    sums()


@case(sync=True)
def also_in_sync_mode():
    sums(in_step=True)


@case(sync=True)
def training_functions_step_with_the_gradients_of_all_workers():
    network = network_of(1.0)
    x = T.matrix("x")
    cost = T.sum(lasagne.layers.get_output(network, x))
    parameters = parameters_of(network, trainable=True)
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


def statistics_with(choice):
    """Return an untrained mean and an untrained count after workers have seen different data."""

    class Statistic(lasagne.layers.Layer):
        def __init__(self, incoming, value):
            super().__init__(incoming)
            start = theano.shared(np.float32([value]))
            self.mean = self.add_param(start, (1,), trainable=False)
            self.count = self.add_param(theano.shared(np.int64([0])), (1,), trainable=False)

    me = mv.worker_id()
    network = Statistic(network_of(0), 100 + me)  # only the master's value is used
    manager = LasagneParamManager(network, sync_non_trainable=choice)
    network.mean.set_value(network.mean.get_value() + np.float32(6 * (me + 1)))
    network.count.set_value(network.count.get_value() + me + 1)
    manager.sync_all_param()
    return [network.mean.get_value().item(), network.count.get_value().item()]


@case(sync=True)
def statistics_follow_the_sync_option():
    me, workers = mv.worker_id(), mv.num_workers()
    # Counts are not averaged; they are taken from the master.
    equal(statistics_with("average"), [100 + 3.0 * (workers + 1), 1])
    equal(statistics_with("master"), [106.0, 1])
    equal(statistics_with(False), [100.0 + me + 6 * (me + 1), me + 1])


def wrong_on_the_first(make, error):
    """Rank 0 gets `error` for its object, the others a MismatchError; then all continue."""
    if mv.size() == 1:
        return
    if mv.rank() == 0:
        raises(error, make)
    else:
        raises(mv.MismatchError, lambda: LasagneParamManager(network_of(0)))
    network = network_of(mv.rank())
    manager = LasagneParamManager(network)
    network.b.set_value(network.b.get_value() + np.float32(1))
    manager.sync_all_param()
    mv.barrier()
    manager.sync_all_param()
    equal(network.b.get_value(), [mv.size()] * 2)


@case()
def no_parameters_on_one_rank():
    empty = lasagne.layers.InputLayer((None, 2))
    wrong_on_the_first(lambda: LasagneParamManager(empty), ValueError)


@case()
def no_layer_on_one_rank():
    wrong_on_the_first(lambda: LasagneParamManager(None), TypeError)


@case()
def another_size_on_one_rank():
    wrong_on_the_first(lambda: LasagneParamManager(network_of(0, units=3)), mv.MismatchError)


if __name__ == "__main__":
    os.environ["THEANO_FLAGS"] = "mode=FAST_COMPILE,linker=py,cxx="
    sys.path.append(str(Path(__file__).parents[3] / "examples" / "common"))
    from lasagne_backend import T, lasagne, theano

    from multiverso.lasagne_ext.param_manager import LasagneParamManager

    run_all(CASES)
