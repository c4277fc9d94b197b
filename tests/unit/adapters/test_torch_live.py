"""`multiverso.torch_ext.load_live`: a module that another process trains."""

import importlib.util
import os
import subprocess
import sys
import tempfile
import unittest
import warnings

import pytest

import multiverso as mv

pytestmark = pytest.mark.frameworks

HAS_TORCH = importlib.util.find_spec("torch") is not None
if HAS_TORCH:
    import torch

    from multiverso.torch_ext import TorchParamManager, load_live

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
                    other = torch.nn.Sequential(*model)  # of another class
                    self.assertEqual(load_live(other, view, name="Model"), 20)
                    with self.assertRaisesRegex(ValueError, r"expected a model that fits.* 'Net'"):
                        load_live(other, view, name="Net")
                    with self.assertRaisesRegex(ValueError, "what 'Model' .*received 2; pass such"):
                        load_live(torch.nn.Linear(3, 2), view)
                    with self.assertRaisesRegex(TypeError, "expected a torch.nn.Module"):
                        load_live("model", view)
            finally:
                trainer.kill()

    def test_a_module_gets_the_only_model_that_fits_or_the_named_one(self):
        def net(kind, **sizes):
            return type(kind, (torch.nn.Sequential,), {})(torch.nn.Linear(3, 2, **sizes))

        mv.init(name=f"models-{os.getpid()}")
        self.addCleanup(mv.shutdown)
        models = [net("Tower"), net("Tower"), net("Flat", bias=False)]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # of two tables of one name
            managers = [TorchParamManager(model) for model in models]
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        mv.publish(7, to=folder.name)
        with mv.attach(os.getpid()) as live, mv.follow(folder.name, timeout=60) as followed:
            for view in (live, followed):
                names = list(view.tables)
                self.assertEqual(len(names), len(managers))
                for name, trained in ((names[0], models[0]), (names[1], models[1])):
                    model = net("Tower")
                    self.assertEqual(load_live(model, view, name=name), 7)
                    self.assertTrue(torch.equal(model[0].weight, trained[0].weight))
                flat = net("Another", bias=False)
                self.assertEqual(load_live(flat, view), 7)
                self.assertTrue(torch.equal(flat[0].weight, models[2][0].weight))
                for model, name, error in (
                    (net("Tower"), None, "which of 'Tower .*, 'Tower .* to load, since all fit"),
                    (net("Tower"), "Net", "a model that fits, 'Tower .*, received 'Net'"),
                    (net("Flat"), "Flat", "a model that fits, 'Tower .*, received 'Flat'"),
                    (torch.nn.Linear(3, 3), None, "one of the workers' models, 'Tower', 'Flat'"),
                    (torch.nn.Linear(3, 3), "Net", "model of the session, 'Tower', 'Flat', rec"),
                    (torch.nn.Linear(9, 1, bias=False), "Flat", "6 elements in 1 tensors, .* 9"),
                    (torch.nn.Linear(2, 3, bias=False), "Flat", "shapes and dtypes .* others"),
                ):
                    with self.subTest(error), self.assertRaisesRegex(ValueError, error):
                        load_live(model, view, name=name)
