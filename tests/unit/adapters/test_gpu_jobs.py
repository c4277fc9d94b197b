"""Workers that share a GPU, in jobs of ``multiverso run``, against the same jobs on the CPU."""

import json

import numpy as np
import pytest
from folders import FolderTestCase
from programs import run_python
from requirements import is_installed, needs

from multiverso import devices

pytestmark = pytest.mark.frameworks

#: Trains a regression with each combination of options, and writes the parameters of each.
PYTORCH = """
import json, os, sys
import numpy as np
import multiverso as mv

device = mv.assign_device() if sys.argv[1] == "gpu" else None
import torch
from multiverso.torch_ext import DistributedOptimizer, Embedding

place = "cpu"
if sys.argv[1] == "gpu":
    assert os.environ["CUDA_VISIBLE_DEVICES"] == device and torch.cuda.device_count() == 1
    place = "cuda"
results = []
for sync in (False, True):
    for average in (False, True):
        for overlap in (False, True):
            with mv.session(sync=sync, timeout=60):
                me = mv.worker_id()
                torch.manual_seed(me)
                model = torch.nn.Sequential(
                    torch.nn.Linear(4, 3), torch.nn.BatchNorm1d(3), torch.nn.Linear(3, 1)
                )
                half = torch.nn.Linear(3, 1).bfloat16()
                model = torch.nn.ModuleList([model, half]).to(place)
                table = mv.MatrixTableHandler(9, 4, updater="sgd", learning_rate=0.1)
                layer = Embedding(table).to(place)
                module = torch.nn.ModuleList([model, layer])
                optimizer = DistributedOptimizer(
                    torch.optim.SGD(module.parameters(), lr=0.01), module, average=average,
                    overlap=overlap,
                )
                generator = np.random.default_rng(7 + me)
                for step in range(6):
                    x = torch.from_numpy(generator.standard_normal((8, 4), "float32")).to(place)
                    ids = torch.from_numpy(generator.integers(0, 9, 8)).to(place)
                    optimizer.zero_grad()
                    hidden = model[0][:2](x + layer(ids))
                    loss = (model[0][2](hidden).square() + model[1](hidden.bfloat16())).mean()
                    loss.backward()
                    optimizer.step()
                    if not sync:
                        mv.barrier()
                # The first sync adds the rest of all deltas, the second one gets them.
                for _ in range(2):
                    optimizer.sync()
                    optimizer.wait()
                    mv.barrier()
                values = [tensor.detach().cpu().double().reshape(-1) for tensor in
                          (*model.parameters(), *model.buffers())]
                if sync:
                    results.append([*torch.cat(values).tolist(), *table.get().ravel().tolist()])
                else:  # The order of the adds is not that of another run.
                    results.append([float(torch.cat(values).isfinite().all())])
with open(f"{sys.argv[2]}/{mv.local_rank()}.json", "w") as file:
    json.dump(results, file)
"""

JAX = """
import json, os, sys
os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"
import multiverso as mv

if sys.argv[1] == "gpu":
    assert mv.assign_device() is not None
else:
    os.environ["JAX_PLATFORMS"] = "cpu"
import jax, jax.numpy as jnp
from multiverso.jax_ext import Embedding, PytreeSync, lookup

jax.config.update("jax_default_matmul_precision", "highest")
assert jax.default_backend() == sys.argv[1] and len(jax.devices()) == 1
results = []
for average in (False, True):
    with mv.session(sync=True, timeout=60):
        me = mv.worker_id()
        embedding = Embedding(mv.MatrixTableHandler(9, 4, updater="sgd", learning_rate=0.1))
        params = {"w": jnp.linspace(-1, 1, 4) + me, "h": jnp.ones(4, jnp.bfloat16),
                  "rows": embedding}

        @jax.jit
        def step(params, x, ids):
            def loss(params):
                rows = lookup(params["rows"], ids) + x
                return (jnp.tanh(rows @ params["w"]) + rows @ params["h"].astype("float32")).mean()

            gradients = jax.grad(loss)(params)
            return jax.tree.map(lambda p, g: p - 0.1 * g.astype(p.dtype), params, gradients)

        sync = PytreeSync(params, average=average)
        params = sync.params
        for turn in range(5):
            x = jnp.sin(jnp.arange(32.0).reshape(8, 4) + me + turn)
            params = sync.sync(step(params, x, jnp.arange(8) % (3 + me)))
            embedding.step()
        mv.barrier()
        values = [params["w"], params["h"].astype("float32"), embedding.table.get()]
        results.append([float(value) for array in values for value in jnp.ravel(array)])
with open(f"{sys.argv[2]}/{mv.local_rank()}.json", "w") as file:
    json.dump(results, file)
"""


def has_gpu(framework):
    """Return whether a framework finds a GPU, in a process of its own."""
    if not devices._visible_gpus() or not is_installed(framework):
        return False
    question = {"torch": "torch.cuda.is_available()", "jax": "jax.default_backend() == 'gpu'"}
    code = f"import {framework}; print({question[framework]})"
    return run_python("-c", code, XLA_PYTHON_CLIENT_PREALLOCATE="false")[1].strip() == "True"


class TestSharedGpu(FolderTestCase):
    def results(self, code, place, ranks):
        """Run a job and return the results of its ranks."""
        script = self.folder / "train.py"
        script.write_text(code)
        command = ("-m", "multiverso", "run", "-np", ranks, script, place, self.folder)
        status, output, errors = run_python(*command, OMP_NUM_THREADS="1", timeout=200)
        self.assertEqual(status, 0, output + errors)
        return [json.loads((self.folder / f"{rank}.json").read_text()) for rank in range(ranks)]

    def check(self, framework, code):
        if not has_gpu(framework):
            self.skipTest(f"needs {framework} with a GPU")
        on_cpu, on_gpu = (self.results(code, place, 2) for place in ("cpu", "gpu"))
        for expected, values in zip(on_cpu, on_gpu, strict=True):
            for one, other in zip(expected, values, strict=True):
                np.testing.assert_allclose(other, one, rtol=5e-3, atol=2e-2)
        for one, other in zip(*on_gpu, strict=True):  # Sync mode ends with equal bits.
            np.testing.assert_array_equal(one, other)

    @needs("torch")
    def test_workers_with_pytorch_train_as_on_the_cpu(self):
        self.check("torch", PYTORCH)

    @needs("jax")
    def test_workers_with_jax_train_as_on_the_cpu(self):
        self.check("jax", JAX)
