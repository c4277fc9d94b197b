"""Cases about versions that readers pin, on each node of a job, while its ranks publish."""

import os
import signal
import sys
from contextlib import ExitStack

import numpy as np
import worker
from cases import SEED, goes, registrar, run_all
from modes import same_bits

import multiverso as mv
from multiverso import api

CASES = {}

case = registrar(CASES)

STEPS = 60
#: The versions that readers of a node may pin.
MOST = 2


class Model:
    """The tables of a session, and what they contain, which is the same on all ranks."""

    def __init__(self):
        self.array = mv.ArrayTable(100_001, name="array")
        self.matrix = mv.MatrixTable(999, 5, name="matrix", dtype="int64")
        self.keyed = mv.HashTable(3, 1000, name="keyed") if goes("keys") else None
        self.values = {"array": np.zeros(100_001, "float32"), "matrix": np.zeros((999, 5), "int64")}
        self.versions = {}

    def change(self, step):
        """Change the tables as all workers do; the model knows what others add."""
        for rank in range(mv.num_workers()):
            rng = np.random.default_rng([SEED, step, rank])
            deltas = {
                "array": rng.integers(-9, 9, 100_001) * (rng.random(100_001) < 0.001),
                "matrix": rng.integers(-9, 9, (999, 5)),
            }
            for name, delta in deltas.items():
                self.values[name] += delta.astype(self.values[name].dtype)
            if rank == mv.worker_id():
                self.array.add(deltas["array"])
                self.matrix.add(deltas["matrix"])
                if self.keyed is not None:
                    self.keyed.add(np.full((1, 3), step), keys=[step])

    def publish(self, step):
        """Publish; remember the version."""
        mv.barrier()
        version = mv.publish(step)
        self.versions[version] = {name: values.copy() for name, values in self.values.items()}
        return version

    def check(self, cut):
        """Check that a cut is its version bit for bit."""
        for name, values in self.versions[cut.version].items():
            same_bits(cut[name], values)


def pin_at_random(view, model, blocks, rng, is_alone):
    """Begin or end a block with a pinned version, if readers of this node may."""
    if blocks and rng.random() < 0.4:
        stack, _ = blocks.pop(rng.integers(len(blocks)))
        stack.close()
        return
    stack = ExitStack()
    try:
        cut = stack.enter_context(view.pinned(["array", "matrix"]))
    except mv.errors.StateError:
        pinned_here = len({cut.version for _, cut in blocks})
        if is_alone and pinned_here < MOST:
            raise
        return
    assert cut.version == view.version
    blocks.append((stack, cut))
    assert len({cut.version for _, cut in blocks}) <= MOST


def publish_and_pin_at_random():
    model = Model()
    rng = np.random.default_rng([SEED, mv.rank()])
    is_alone = api.current_session().local_size == 1
    blocks = []
    with ExitStack() as views:
        view = None
        for step in range(1, STEPS + 1):
            model.change(step)
            assert model.publish(step) == step
            view = view or views.enter_context(mv.attach(os.getpid()))
            for _ in range(rng.integers(3)):
                pin_at_random(view, model, blocks, rng, is_alone)
            for _, cut in blocks:
                model.check(cut)
            if step % 5 == 0:
                copies = view.cut()
                assert copies.version == step
                model.check(copies)
                if model.keyed is not None:
                    assert set(copies["keyed"][0]) <= set(range(1, step + 1))
        for stack, _ in blocks:
            stack.close()


@case(name="pinning")
def pinned_versions_stay_while_all_ranks_publish():
    publish_and_pin_at_random()


@case(name="pinning", sync=True)
def pinned_versions_stay_in_sync_mode():
    publish_and_pin_at_random()


def publish_again(model, step):
    """Publish until it succeeds: it fails on all ranks if one was lost meanwhile."""
    while True:
        try:
            return model.publish(step)
        except mv.PeerLostError:
            continue


def loses_a_reader():
    """Lose the rank that chooses the buffers, and that has pinned one of two versions."""
    name = os.path.basename(os.environ["MULTIVERSO_TEST_JOB"])
    mv.init(on_peer_lost="continue", name=name)
    model = Model()
    view, cuts = None, []
    with ExitStack() as blocks:
        for step in (1, 2, 3):
            model.publish(step)
            view = view or mv.attach(os.getpid())
            if worker.RANK == step - 1 and step < 3:
                cuts.append(blocks.enter_context(view.pinned(["array", "matrix"])))
            mv.barrier()
        if worker.RANK == 2:
            try:
                blocks.enter_context(view.pinned(["array"]))
            except mv.errors.StateError as error:
                worker.report(refused=str(error))
        mv.barrier()
        if worker.RANK == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        for step in range(4, 20):
            model.values["array"] += step
            if worker.RANK == 2:
                model.array.add(np.full(100_001, step))
            publish_again(model, step)
            if worker.RANK == 2 and not cuts:
                cuts.append(blocks.enter_context(view.pinned(["array", "matrix"])))
            for cut in cuts:
                model.check(cut)
            # A rank may be a publication ahead of another.
            mv.barrier()
            copies = view.cut(["array", "matrix"])
            assert copies.step == step
            model.check(copies)
            mv.barrier()
        worker.report(pinned=[cut.step for cut in cuts])
    view.close()
    mv.shutdown()
    worker.report(ended=True)


if __name__ == "__main__":
    if sys.argv[1:] == ["loses_a_reader"]:
        worker.begin()
        loses_a_reader()
    else:
        run_all(CASES)
