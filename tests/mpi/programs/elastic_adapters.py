"""A rank of an elastic job that trains with the adapter of a framework, alone and with a joiner."""

import sys

import numpy as np
import worker

import elastic
import multiverso as mv
from multiverso.api import current_session


class TorchModel:
    """A linear model in PyTorch that `DistributedOptimizer` trains."""

    def __init__(self):
        import torch

        from multiverso.torch_ext import DistributedOptimizer

        torch.manual_seed(mv.rank())
        self.torch = torch
        self.module = torch.nn.Linear(3, 1)
        optimizer = torch.optim.SGD(self.module.parameters(), lr=0.05)
        self.optimizer = DistributedOptimizer(optimizer, self.module, average=False)
        self.sync = self.optimizer.sync

    def weights(self):
        """Return the weights, as lists."""
        return [parameter.tolist() for parameter in self.module.parameters()]

    def train(self, x, y):
        """Train; return the last loss."""
        for _ in range(20):
            self.optimizer.zero_grad()
            outputs = self.module(self.torch.from_numpy(x))
            loss = self.torch.nn.functional.mse_loss(outputs, self.torch.from_numpy(y))
            loss.backward()
            self.optimizer.step()
        return float(loss)


class KerasModel:
    """The same model in Keras, with `MVCallback`."""

    def __init__(self):
        import keras

        from multiverso.keras_ext import MVCallback

        keras.utils.set_random_seed(mv.rank())
        self.model = keras.Sequential([keras.layers.Input((3,)), keras.layers.Dense(1)])
        self.model.compile(keras.optimizers.SGD(0.05), "mse")
        self.callback = MVCallback(self.model)
        self.sync = self.callback.sync

    def weights(self):
        """Return the weights, as lists."""
        return [array.tolist() for array in self.model.get_weights()]

    def train(self, x, y):
        """Train; return the last loss."""
        history = self.model.fit(
            x, y, batch_size=len(x), epochs=20, verbose=0, callbacks=[self.callback]
        )
        return history.history["loss"][-1]


def main(framework, folder):
    """Train alone, with a joiner, and alone again; then load what both saved."""
    elastic.begin()
    x = np.random.default_rng(mv.rank()).normal(size=(32, 3)).astype(np.float32)
    y = x.sum(axis=1, keepdims=True)
    model = {"torch": TorchModel, "keras": KerasModel}[framework]()
    began = model.weights()
    if not elastic.IS_JOINER:
        alone = model.train(x, y)
        worker.announce("trained")
        elastic.wait_until(lambda: mv.num_workers() == 2)
    else:
        alone = None
    mv.barrier()
    together = model.train(x, y)
    mv.barrier()
    model.sync()
    saved = model.weights()
    mv.save(folder, step=1)
    worker.report(began=began, alone=alone, together=together, saved=saved)
    if elastic.IS_JOINER:
        current_session().leave()
        return
    elastic.wait_until(lambda: mv.num_workers() == 1)
    model.train(x, y)
    trained_on = model.weights()
    mv.load(folder)
    model.sync()
    worker.report(trained_on=trained_on, loaded=model.weights())
    mv.shutdown()


if __name__ == "__main__":
    main(*sys.argv[1:])
