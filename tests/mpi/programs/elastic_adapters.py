"""A rank of an elastic job that changes a model of adapter_suite.py, alone and with a joiner."""

import importlib
import sys

import worker

import elastic
import multiverso as mv
from multiverso.api import current_session


def change(model, delta):
    """Add to all parameters, and sync."""
    model.add(delta)
    model.sync()
    model.wait()


def values_of(model):
    """Return the different values of all parameters."""
    return sorted(set(model.values().tolist()))


def main(adapter, folder):
    """Change the model alone, with a joiner, and alone again; then load what both saved."""
    module = importlib.import_module(f"adapters.{adapter}")  # slow, so that nobody waits for it
    elastic.begin()
    model = module.Model([(3, 2), (4,)], "float32", value=mv.rank() + 1)
    model.attach()
    worker.report(began=values_of(model))
    if not elastic.IS_JOINER:
        change(model, 10)
        worker.announce("changed")
        elastic.wait_until(lambda: mv.num_workers() == 2)
    mv.barrier()
    change(model, 100)
    mv.barrier()
    model.sync()
    mv.save(folder, step=1)
    worker.report(together=values_of(model))
    if elastic.IS_JOINER:
        current_session().leave()
        return
    elastic.wait_until(lambda: mv.num_workers() == 1)
    change(model, 1000)
    worker.report(alone=values_of(model))
    mv.load(folder)
    model.sync()
    worker.report(loaded=values_of(model))
    mv.shutdown()


if __name__ == "__main__":
    main(*sys.argv[1:])
