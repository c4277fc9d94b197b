"""`multiverso.torch_ext.load_live`: a module that a session trains, in a process that reads."""

import os
import tempfile
import warnings

import pytest
from requirements import needs, needs_found_sessions
from sessions import SessionCleanupTestCase
from torch_devices import HAS_TORCH

import multiverso as mv

pytestmark = [pytest.mark.frameworks, needs_found_sessions]

if HAS_TORCH:
    import torch

    from multiverso.torch_ext import TorchParamManager, load_live

NAME = f"load-live-{os.getpid()}"


def module_of(name, *layers):
    """Return a module whose class has a name."""
    return type(name, (torch.nn.Sequential,), {})(*layers)


def model_of(name):
    """Return a module with two dtypes and buffers."""
    layers = [torch.nn.Linear(3, 2), torch.nn.BatchNorm1d(2), torch.nn.Linear(2, 1).double()]
    return module_of(name, *layers)


@needs("torch")
class TestLoadLive(SessionCleanupTestCase):
    def check_values(self, name, fragments):
        """Check current values, then those of the version, from which the third differ."""
        model = model_of("Model" * 8)
        with mv.session(name=NAME), mv.attach(os.getpid()) as view:
            manager = TorchParamManager(model, fragments=fragments)
            for value, step, expected in ((1, None, 1), (2, 20, 2), (3, 20, 2)):
                with torch.no_grad():
                    for tensor in model.state_dict().values():
                        tensor.fill_(value)
                manager.sync_all_param()
                if value == 2:
                    mv.publish(20)
                read = model_of(name)
                self.assertEqual(load_live(read, view), step)
                for key, tensor in read.state_dict().items():
                    # A sync adds the difference, which is rounded.
                    self.assertLess((tensor - expected).abs().max(), 1e-6, key)
            with self.assertRaisesRegex(
                ValueError, "of 9 tensors with 20 .* 2 tensors with 8 elem"
            ):
                load_live(torch.nn.Linear(3, 2), view)

    def test_module_gets_the_values_of_the_session(self):
        for fragments in (1, 3):
            for name in ("Model" * 8, "Another"):
                with self.subTest(fragments=fragments, name=name):
                    self.check_values(name, fragments)

    def test_a_module_gets_the_only_model_that_fits_or_the_named_one(self):
        def net(name, **options):
            return module_of(name, torch.nn.Linear(3, 2, **options))

        mv.init(name=NAME)
        models = [net("Tower"), net("Tower"), net("Flat", bias=False)]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # of two tables of one name
            self.managers = [TorchParamManager(model) for model in models]
        folder = self.enterContext(tempfile.TemporaryDirectory())
        mv.publish(7, to=folder)
        with mv.attach(os.getpid()) as live, mv.follow(folder, timeout=60) as followed:
            for view in (live, followed):
                others = net("Tower"), net("T"), net("Another", bias=False)
                for model, name, trained in zip(
                    others, (*[*view.tables][:2], None), models, strict=True
                ):
                    self.assertEqual(load_live(model, view, name=name), 7)
                    self.assertTrue(torch.equal(model[0].weight, trained[0].weight))
                for model, name, error in (
                    (net("Tower"), None, "which of 'Tower .*, 'Tower .* to load, .* None"),
                    (net("Flat"), "Flat", "which of 'Tower .* received 'Flat'"),
                    (torch.nn.Linear(3, 3), None, "'Flat' of 1 tensors .* 2 tensors with 12"),
                ):
                    with self.subTest(error), self.assertRaisesRegex(ValueError, error):
                        load_live(model, view, name=name)
