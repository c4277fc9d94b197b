"""`multiverso.torch_ext.load_live`: a module that another process trains."""

import importlib.util
import os
import subprocess
import sys
import unittest

import pytest

import multiverso as mv

pytestmark = pytest.mark.frameworks

HAS_TORCH = importlib.util.find_spec("torch") is not None
if HAS_TORCH:
    import torch

    from multiverso.torch_ext import load_live

#: Trains a module of two dtypes, with buffers, until it is told to end.
TRAINER = """
import sys, torch, multiverso as mv
from multiverso.torch_ext import TorchParamManager

class Model(torch.nn.Sequential):
    pass

mv.init(name=sys.argv[1])
model = Model(torch.nn.Linear(3, 2), torch.nn.BatchNorm1d(2), torch.nn.Linear(2, 1).double())
manager = TorchParamManager(model, fragments=int(sys.argv[2]))
for value in range(1, 4):
    with torch.no_grad():
        for tensor in model.state_dict().values():
            tensor.fill_(value)
    manager.sync_all_param()
    if value == 2:
        mv.publish(20)
    print(value, flush=True)
    sys.stdin.readline()
"""


@unittest.skipUnless(HAS_TORCH, "needs PyTorch")
class TestLoadLive(unittest.TestCase):
    def test_module_gets_the_values_of_the_session(self):
        for fragments in (1, 3):
            with self.subTest(fragments=fragments):
                self.check_values(fragments)

    def check_values(self, fragments):
        class Model(torch.nn.Sequential):
            pass

        linear = torch.nn.Linear(2, 1).double()
        model = Model(torch.nn.Linear(3, 2), torch.nn.BatchNorm1d(2), linear)
        name = f"load-live-{os.getpid()}-{fragments}"
        command = (sys.executable, "-c", TRAINER, name, str(fragments))
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as trainer:
            try:
                with mv.attach(name, timeout=100) as view:
                    # Current values, then those of the version, from which the third differ.
                    for value, step, expected in ((1, None, 1), (2, 20, 2), (3, 20, 2)):
                        self.assertEqual(trainer.stdout.readline(), b"%d\n" % value)
                        self.assertEqual(load_live(model, view), step)
                        for key, tensor in model.state_dict().items():
                            # A sync adds the difference, which is rounded.
                            self.assertLess((tensor - expected).abs().max(), 1e-6, key)
                        trainer.stdin.write(b"\n")
                        trainer.stdin.flush() if value < 3 else None
                    with self.assertRaisesRegex(ValueError, "expected a session that trains"):
                        load_live(torch.nn.Linear(3, 2), view)
                    with self.assertRaisesRegex(TypeError, "expected a torch.nn.Module"):
                        load_live("model", view)
            finally:
                trainer.kill()
