"""Shared variables with a table on one rank, in graphs, syncs, copies and sessions."""

import copy
import gc
import io
import os
import pickle
import sys
import tracemalloc
import unittest
import weakref
from pathlib import Path
from unittest import mock

import numpy as np
import pytest
import sessions
from programs import run_program

import multiverso as mv
from multiverso.theano_ext.sharedvar import MVSharedVariable, mv_shared, sync_all_mv_shared_vars

pytestmark = pytest.mark.frameworks

COMMON = Path(__file__).parents[3] / "examples" / "common"
sys.path.append(str(COMMON))
try:
    # The import sets variables so that Theano does not compile functions; other tests must not
    # inherit these variables.
    with mock.patch.dict(os.environ):
        from theano_backend import T, theano
except ImportError as error:
    raise unittest.SkipTest("needs PyTensor, Aesara or Theano, see make test-all") from error

SharedVariable = theano.compile.sharedvalue.SharedVariable
NEEDS_INIT = "expected an open session"
NO_TABLE = "has no table.*call MVSharedVariable\\(variable\\) on all ranks"


def float_matrix(value=1.0):
    return np.full((2, 3), value, np.float32)


class TheanoTestCase(sessions.SessionTestCase):
    def assert_value(self, variable, expected):
        np.testing.assert_array_equal(variable.get_value(), expected)


class TestInGraphs(TheanoTestCase):
    def test_is_a_shared_variable_of_the_framework(self):
        plain = theano.shared(float_matrix(), name="W")
        variable = mv_shared(float_matrix(), name="W", borrow=True)
        for kind in (SharedVariable, type(plain), MVSharedVariable):
            self.assertIsInstance(variable, kind)
        self.assertEqual(variable.type, plain.type)
        self.assertEqual((variable.name, str(variable)), ("W", str(plain)))
        self.assertIn(type(plain).__name__, type(variable).__name__)

    def test_accepts_all_arguments_of_shared(self):
        positional = mv_shared(float_matrix(), "W", True, False)
        self.assertIs(positional.container.strict, True)
        named = mv_shared(value=float_matrix(), name="V", strict=True, allow_downcast=True)
        self.assertIs(named.container.allow_downcast, True)
        with self.assertRaises(TypeError):
            mv_shared(float_matrix(), no_such_argument=1)
        self.assertRaises(TypeError, mv_shared, T.matrix())

    def test_functions_can_be_copied_swapped_and_pickled(self):
        variable = mv_shared(float_matrix(0))
        other = theano.shared(float_matrix(10))
        function = theano.function([], updates=[(variable, variable + np.float32(1))])
        function.copy(swap={variable: other})()
        self.assert_value(other, float_matrix(11))
        copy.deepcopy(function)()
        pickle.loads(pickle.dumps(function))()
        self.assert_value(variable, float_matrix(0))
        function.copy(share_memory=True)()
        self.assert_value(variable, float_matrix(1))


class TestSync(TheanoTestCase):
    def test_syncs_python_numbers(self):
        number, count = mv_shared(2.5, borrow=False), mv_shared(7)
        step = theano.function([], updates=[(number, number * 2), (count, count + 1)])
        for expected in ((5, 8), (10, 9)):
            step()
            sync_all_mv_shared_vars()
            self.assertEqual((number.get_value(), count.get_value()), expected)

    def test_syncs_a_numpy_scalar_that_an_update_has_left(self):
        variable = mv_shared(np.float64(1))
        variable.container.storage[0] = np.float64(2)
        variable._mv_link._sync.tables[0].add([5])
        variable.mv_sync()
        self.assert_value(variable, 7)

    def test_repeated_syncs_do_not_change_half_precision(self):
        variable = mv_shared(np.float16([0.1, 2049.0, 60000.0]))
        variable.set_value(-variable.get_value())
        for _ in range(3):
            variable.mv_sync()
            self.assert_value(variable, -np.float16([0.1, 2049.0, 60000.0]))

    def test_does_not_write_to_the_array_that_was_passed(self):
        start = float_matrix(1)
        first, second = mv_shared(start, borrow=True), mv_shared(start, borrow=True)
        first.set_value(float_matrix(2))
        sync_all_mv_shared_vars()
        np.testing.assert_array_equal(start, float_matrix(1))
        self.assert_value(second, float_matrix(1))

    def test_sync_allocates_nothing_of_its_size(self):
        variable = mv_shared(np.zeros(1_000_000, np.float32))
        variable.mv_sync()
        tracemalloc.start()
        self.addCleanup(tracemalloc.stop)
        variable.mv_sync()
        self.assertLess(tracemalloc.get_traced_memory()[1], 100_000)


class TestAttachAndCopy(TheanoTestCase):
    def test_attaching_keeps_the_same_object(self):
        plain = theano.shared(float_matrix(1), name="W")
        step = theano.function([], updates=[(plain, plain + np.float32(1))])
        variable = MVSharedVariable(plain)
        self.assertIs(variable, plain)
        step()
        variable.mv_sync()
        step()
        sync_all_mv_shared_vars()
        self.assert_value(plain, float_matrix(3))
        self.assertIs(MVSharedVariable(svobj=variable), variable)
        variable.mv_sync()
        self.assert_value(plain, float_matrix(3))

    def test_clones_and_shallow_copies_share_value_and_table(self):
        variable = mv_shared(float_matrix(1), name="W")
        for twin in (variable.clone(), copy.copy(variable)):
            self.assertIsNot(twin, variable)
            self.assertIsInstance(twin, MVSharedVariable)
            self.assertEqual(twin.name, "W")
            twin.set_value(float_matrix(2))
            self.assert_value(variable, float_matrix(2))
            twin.mv_sync()
            variable.mv_sync()
            self.assert_value(twin, float_matrix(2))

    def test_pickles_and_deep_copies_have_no_table(self):
        variable = mv_shared(float_matrix(1), name="W")
        copies = [pickle.loads(pickle.dumps(variable, p)) for p in range(6)]
        for other in (*copies, copy.deepcopy(variable)):
            self.assertIsInstance(other, SharedVariable)
            self.assertEqual((other.name, other.type), ("W", variable.type))
            step = theano.function([], T.sum(other), updates=[(other, other + np.float32(1))])
            self.assertEqual((step(), step()), (6, 12))
            self.assert_value(other, float_matrix(3))
            self.assert_value(variable, float_matrix(1))
            with self.assertRaisesRegex(mv.errors.StateError, NO_TABLE):
                other.mv_sync()
            self.assertIs(MVSharedVariable(other), other)
            other.mv_sync()
            self.assert_value(other, float_matrix(3))

    def test_copies_of_a_model_keep_its_structure(self):
        weights = mv_shared(float_matrix(1), name="W")
        model = {"W": weights, "again": weights, "sum": T.sum(weights)}
        for twin in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
            self.assertIs(twin["W"], twin["again"])
            twin["W"].set_value(float_matrix(2))
            self.assertEqual(theano.function([], twin["sum"])(), 12)

    def test_pickle_can_be_used_without_a_session(self):
        file = io.BytesIO()
        pickle.dump(mv_shared(float_matrix(7), name="W"), file)
        code = f"""
            import sys
            sys.path.append({str(COMMON)!r})
            import theano_backend, pickle
            W = pickle.loads({file.getvalue()!r})
            assert (W.get_value() == 7).all() and W.name == "W"
            try:
                W.mv_sync()
            except RuntimeError as error:
                print(error)
        """
        status, printed, errors = run_program(code)
        self.assertEqual((status, errors), (0, ""))
        self.assertRegex(printed, NEEDS_INIT)


class TestSessions(TheanoTestCase):
    def test_variables_of_an_earlier_session_are_not_synced(self):
        old = mv_shared(float_matrix(1), name="old")
        mv.shutdown()
        old.set_value(float_matrix(2))
        mv.init()
        new = mv_shared(float_matrix(3))
        new.set_value(float_matrix(4))
        sync_all_mv_shared_vars()
        self.assert_value(old, float_matrix(2))
        with self.assertRaisesRegex(
            mv.errors.StateError, "'old' belongs to a session that has been shut"
        ):
            old.mv_sync()
        self.assertIs(MVSharedVariable(old), old)
        sync_all_mv_shared_vars()
        self.assert_value(old, float_matrix(2))
        self.assert_value(new, float_matrix(4))

    def test_session_keeps_its_variables_alive(self):
        observer = weakref.ref(mv_shared(float_matrix()))
        gc.collect()
        self.assertIsNotNone(observer())
        sync_all_mv_shared_vars()
        mv.shutdown()
        gc.collect()
        self.assertIsNone(observer())

    def test_syncs_all_variables_in_the_order_of_attachment(self):
        names = ["c", "a", "b"]
        for name in names:
            mv_shared(float_matrix(), name=name)
        MVSharedVariable(theano.shared(1.0, name="0"))
        original = SharedVariable.get_value
        with mock.patch.object(SharedVariable, "get_value", autospec=True) as read:
            read.side_effect = original
            sync_all_mv_shared_vars()
        self.assertEqual([call.args[0].name for call in read.call_args_list], [*names, "0"])
