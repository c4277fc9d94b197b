"""What only arrays of JAX on a GPU show, or on several devices.

The other tests of the adapter run on the GPU too, where JAX has one: it is JAX's default device.
"""

import os

import numpy as np
import pytest
from programs import run_program
from requirements import is_installed, needs
from sessions import SessionTestCase

import multiverso as mv

pytestmark = pytest.mark.frameworks

if is_installed("jax"):
    # Other processes use the GPU too.
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    import jax
    import jax.numpy as jnp

    from multiverso.jax_ext import PytreeSync

ROWS, COLUMNS = 40, 4

#: Ends with an address that is not of the CPU, if the default device decides where copies are.
DEFAULT_DEVICES = """
import jax, jax.numpy as jnp, numpy as np
import multiverso as mv
from multiverso.jax_ext import PytreeSync

near, far = jax.devices("cpu")[0], jax.devices()[-1]
with mv.session():
    for inner, outer in ((near, far), (far, near), (near, None), (far, None)):
        with jax.default_device(inner):
            sync = PytreeSync({"w": jnp.zeros(300)}, average=False)
            params = sync.sync({"w": sync.params["w"] + 1})
        with jax.default_device(outer):
            for turn in (2, 3):
                sync.tables[0].add(np.ones(300))
                params = sync.sync(params)
                assert (np.asarray(params["w"]) == turn).all(), (turn, inner, outer, params)
                assert params["w"].devices() == {inner}, (inner, outer, params["w"].devices())
print("done")
"""


def plus_one(params):
    return jax.tree.map(lambda leaf: leaf + 1, params)


@needs("jax")
class TestDefaultDevice(SessionTestCase):
    def test_programs_may_change_the_default_device(self):
        # In a program of its own, which may have several devices without a GPU too.
        flags = "--xla_force_host_platform_device_count=2"
        code, output, errors = run_program(
            DEFAULT_DEVICES, XLA_FLAGS=flags, XLA_PYTHON_CLIENT_PREALLOCATE="false"
        )
        self.assertEqual((code, output), (0, "done\n"), errors)


@needs("jax")
class GpuTestCase(SessionTestCase):
    def setUp(self):
        if jax.default_backend() != "gpu":
            self.skipTest("needs JAX with a GPU")
        super().setUp()


class TestPytreeSync(GpuTestCase):
    def test_syncs_leaves_of_both_devices(self):
        near = jax.device_put(jnp.ones(5), jax.devices("cpu")[0])
        sync = PytreeSync({"cpu": near, "gpu": jnp.ones(5)})
        params = sync.params
        for turn in (2, 3):
            params = sync.sync(plus_one(params))
            self.assertEqual(params["cpu"].devices(), near.devices())
            self.assertEqual({d.platform for d in params["gpu"].devices()}, {"gpu"})
            np.testing.assert_array_equal(sync.tables[0].get(), turn)


class TestTables(GpuTestCase):
    def test_tables_take_arrays_and_write_to_none(self):
        table, rows = mv.ArrayTableHandler(4), mv.MatrixTableHandler(ROWS, COLUMNS)
        table.add(jnp.arange(4.0))
        table.add_async(jnp.arange(4.0)).result()
        np.testing.assert_array_equal(table.get(), 2 * np.arange(4))
        rows.add(jnp.ones((2, COLUMNS)), jnp.array([1, 2]))
        np.testing.assert_array_equal(rows.get(jnp.array([2, 3])), [[1] * COLUMNS, [0] * COLUMNS])
        out = jnp.zeros(4)
        for call in (lambda: table.get(out=out), lambda: mv.sync.ParamSync([out])):
            with self.assertRaises((TypeError, ValueError)):
                call()
        np.testing.assert_array_equal(out, 0)

    @needs("cupy")
    def test_tables_refuse_arrays_of_cupy(self):
        import cupy

        table, array = mv.ArrayTableHandler(4), cupy.ones(4, "float32")
        for call in (
            lambda: table.add(array),
            lambda: table.get(out=array),
            lambda: mv.ArrayTableHandler(4, array),
            lambda: mv.sync.ParamSync([array]),
            lambda: mv.MatrixTableHandler(ROWS, COLUMNS).get(cupy.arange(2)),
        ):
            with self.assertRaisesRegex(TypeError, "expected"):
                call()
        np.testing.assert_array_equal(table.get(), 0)
