"""Test cases of PyTorch with tensors on the CPU, and the same with tensors on a GPU."""

import importlib.util
import unittest

import numpy as np
import sessions

HAS_TORCH = importlib.util.find_spec("torch") is not None
if HAS_TORCH:
    import torch

    from multiverso.torch_ext import TorchParamManager

GPU = "cuda"
HAS_GPU = HAS_TORCH and torch.cuda.is_available()


@unittest.skipUnless(HAS_TORCH, "needs PyTorch")
class TorchTestCase(sessions.SessionTestCase):
    """A test case whose tensors are on `device`, where it does not say otherwise."""

    device = "cpu"

    def setUp(self):
        super().setUp()
        torch.manual_seed(0)

    def tensor(self, values, **options):
        return torch.tensor(values, device=self.device, **options)

    def check_manager(self, module):
        """Check that a sync adds 2 of another worker and 1 of this one, where the tensors are."""
        before = flat(module)
        manager = TorchParamManager(module)
        np.testing.assert_array_equal(flat(module), before)
        places = [(p.device, p.data_ptr(), p.stride()) for p in module.parameters()]
        for turn in (1, 2):
            for table in manager.tables:
                table.add(np.full(table.size, 2, table.dtype))
            with torch.no_grad():
                for parameter in module.parameters():
                    parameter += 1
            manager.sync_all_param()
            np.testing.assert_allclose(flat(module), before + 3 * turn, rtol=0, atol=0.02)
        self.assertEqual(
            places, [(p.device, p.data_ptr(), p.stride()) for p in module.parameters()]
        )
        return manager


def on_gpu(case):
    """Return a test case as another one, whose tensors are on a GPU."""
    name, names = f"{case.__name__}OnGpu", {"device": GPU, "__module__": case.__module__}
    return unittest.skipUnless(HAS_GPU, "needs PyTorch with a GPU")(type(name, (case,), names))


def flat(module):
    """Return all parameters of a module as one vector of float64."""
    parameters = [p.detach().cpu().double().reshape(-1) for p in module.parameters()]
    return torch.cat(parameters).numpy()
