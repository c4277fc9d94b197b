"""MVModelParamManager on one rank; the models are lists of arrays."""

import numpy as np
from sessions import SessionTestCase

from multiverso.theano_ext.param_manager import MVModelParamManager


class Manager(MVModelParamManager):
    """Manages a list of arrays, which each sync replaces by the received arrays."""

    def get_all_param_values(self):
        return self.model

    def set_all_param_values(self, params):
        self.model[:] = params


class TestManagers(SessionTestCase):
    def test_does_not_change_the_arrays_that_a_model_returns(self):
        start = np.ones(3)
        start.flags.writeable = False
        manager = Manager([start])
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
