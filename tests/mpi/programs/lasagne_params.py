"""What each rank sees of a Lasagne network that all workers train."""

import os
import sys
from pathlib import Path

import numpy as np
import worker

worker.begin()
os.environ["THEANO_FLAGS"] = "mode=FAST_COMPILE,linker=py,cxx="
sys.path.append(str(Path(__file__).parents[3] / "examples" / "common"))
from lasagne_backend import T, lasagne, theano  # noqa: E402

import multiverso as mv  # noqa: E402
from multiverso.lasagne_ext.param_manager import LasagneParamManager  # noqa: E402

ROUNDS = 10
DTYPES = ("float32", "float64", "float16")


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
    return all(bool((v.get_value() == value).all()) for v in parameters_of(network))


def equals_tables(network, manager):
    held = np.concatenate([table.get() for table in manager.tables])
    values = [variable.get_value().ravel() for variable in parameters_of(network)]
    return bool(np.array_equal(np.concatenate(values), held))


def sums(in_step):
    """All start from the master's parameters and end with everybody's gains."""
    me, workers = mv.worker_id(), mv.num_workers()
    networks = [network_of(me + 4, dtype) for dtype in DTYPES]
    networks.append(network_of(me + 4, depth=500))  # of a thousand tensors
    managers = [LasagneParamManager(network) for network in networks]
    worker.report(starts=[holds(network, 4) for network in networks])
    for _ in range(ROUNDS):
        for network, manager in zip(networks, managers, strict=True):
            for variable in parameters_of(network):
                variable.set_value(variable.get_value() + np.dtype(variable.dtype).type(me + 1))
            manager.sync_all_param()
    if not in_step:
        mv.barrier()
        for manager in managers:
            manager.sync_all_param()
    end = 4 + ROUNDS * workers * (workers + 1) / 2
    worker.report(ends=[holds(network, end) for network in networks])
    mv.barrier()
    if not in_step:
        pairs = zip(networks, managers, strict=True)
        worker.report(equal=[equals_tables(network, manager) for network, manager in pairs])


def training():
    """Make steps of gradient descent with the gradients of all workers."""
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
    # The gradient of the weights is the input, that of the bias one.
    weights, bias = (variable.get_value() for variable in parameters)
    inputs = mv.num_workers() * (mv.num_workers() + 1) / 2
    worker.report(
        weights=bool((weights == 1 - 4 * 0.5 * inputs).all()),
        bias=bool((bias == 1 - 4 * 0.5 * mv.num_workers()).all()),
    )


class Statistic(lasagne.layers.Layer):
    """Has a mean and a count of what it has seen, neither of them trained."""

    def __init__(self, incoming, value):
        super().__init__(incoming)
        start = theano.shared(np.float32([value]))
        self.mean = self.add_param(start, (1,), trainable=False)
        self.count = self.add_param(theano.shared(np.int64([0])), (1,), trainable=False)


def statistics():
    """Statistics are averaged, the master's, or each worker's own."""
    me = mv.worker_id()
    seen = {}
    for choice in ("average", "master", False):
        network = Statistic(network_of(0), 100 + me)  # of which only the master's counts
        manager = LasagneParamManager(network, sync_non_trainable=choice)
        network.mean.set_value(network.mean.get_value() + np.float32(6 * (me + 1)))
        network.count.set_value(network.count.get_value() + me + 1)
        manager.sync_all_param()
        values = [network.mean.get_value(), network.count.get_value()]
        seen[str(choice)] = [value.item() for value in values]
    worker.report(statistics=seen)


def wrong_on_one(make):
    """Rank 0 makes something else than the others; report what they get, and that all go on."""
    worker.report_call(make if mv.rank() == 0 else lambda: LasagneParamManager(network_of(0)))
    network = network_of(mv.rank())
    manager = LasagneParamManager(network)
    network.b.set_value(network.b.get_value() + np.float32(1))
    manager.sync_all_param()
    mv.barrier()
    manager.sync_all_param()
    worker.report(after=network.b.get_value().tolist())


WRONG = {
    "empty": lambda: LasagneParamManager(lasagne.layers.InputLayer((None, 2))),
    "no layer": lambda: LasagneParamManager(None),
    "another size": lambda: LasagneParamManager(network_of(0, units=3)),
}

scenario = sys.argv[1]
with mv.session(sync=scenario in ("sync", "training", "statistics")):
    if scenario in ("async", "sync"):
        sums(scenario == "sync")
    elif scenario == "training":
        training()
    elif scenario == "statistics":
        statistics()
    else:
        wrong_on_one(WRONG[scenario])
