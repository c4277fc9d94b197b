"""MVModelParamManager on one rank; the models are lists of arrays."""

import numpy as np
from sessions import SessionTestCase

from multiverso.theano_ext.param_manager import MVModelParamManager


class Manager(MVModelParamManager):
    """Manages a list of arrays, which each sync changes in place."""

    def get_all_param_values(self):
        return self.model

    def set_all_param_values(self, params):
        for mine, value in zip(self.model, params, strict=True):
            mine[...] = value


class ReplacingManager(Manager):
    """Manages a list of arrays, which each sync replaces by the received arrays."""

    def set_all_param_values(self, params):
        self.model[:] = params


class TestManagers(SessionTestCase):
    def test_model_may_copy_or_keep_the_arrays_that_it_receives(self):
        for kind in (Manager, ReplacingManager):
            with self.subTest(kind.__name__):
                model = [np.ones((2, 3), np.float32), np.ones(4, np.float16), np.ones(())]
                manager = kind(model)
                for turn in range(1, 4):
                    for table in manager._sync.tables:
                        table.add(np.full(table.size, 2))
                    for value in model:
                        value += 1
                    manager.sync_all_param()
                    for value in model:
                        np.testing.assert_array_equal(value, 1 + 3 * turn)

    def test_does_not_change_the_arrays_that_a_model_returns(self):
        start = np.ones(3)
        start.flags.writeable = False
        manager = ReplacingManager([start])
        manager.model[0] = manager.model[0] + 1
        manager.sync_all_param()
        np.testing.assert_array_equal(manager.model[0], [2, 2, 2])
        np.testing.assert_array_equal(start, [1, 1, 1])

    def test_rejects_a_changed_shape(self):
        manager = Manager([np.ones(3)])
        manager.model[0] = np.ones(4)
        with self.assertRaisesRegex(ValueError, r"shapes \[\(3,\)\], received \[\(4,\)\]"):
            manager.sync_all_param()

    def test_both_methods_must_be_implemented(self):
        with self.assertRaisesRegex(TypeError, "abstract"):
            MVModelParamManager([])
