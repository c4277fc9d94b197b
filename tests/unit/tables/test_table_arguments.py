"""Tables match NumPy for any valid argument, and reject any other.

Each test draws valid and invalid arguments and compares with a model in NumPy. Arguments that the
model accepts must give the model's result; all others must raise one of `REJECTIONS` and leave
every table and array unchanged.
"""

import contextlib
import math

import hypothesis
import numpy as np
from drawn_arguments import (
    COLUMNS,
    REJECTIONS,
    ROWS,
    SIZE,
    TABLE_DTYPES,
    ExampleTestCase,
    anything,
    arrays,
    can_be_added,
    dtypes,
    examples,
    scalars,
)
from hypothesis import strategies as st

import multiverso as mv
from multiverso.tables._updaters import UPDATERS


class TestCreation(ExampleTestCase):
    @examples
    @hypothesis.given(anything)
    def test_any_size_is_accepted_or_rejected_like_numpy(self, size):
        is_whole = hasattr(size, "__index__") and not isinstance(size, bool | np.bool_)
        if is_whole and 1 <= int(size) < 100:
            self.assertEqual(mv.ArrayTableHandler(size).shape, (int(size),))
        elif is_whole and 100 <= int(size) < 2**34:  # if there is enough memory
            with contextlib.suppress(MemoryError):
                self.assertEqual(mv.ArrayTableHandler(size).shape, (int(size),))
        else:
            with self.assertRaises((*REJECTIONS, MemoryError)):
                mv.ArrayTableHandler(size)

    @examples
    @hypothesis.given(st.one_of(anything, dtypes, st.text(max_size=6)))
    @hypothesis.example(",")
    @hypothesis.example({-1: "0"})
    def test_any_dtype_is_accepted_or_rejected(self, dtype):
        try:
            known = dtype is not None and np.dtype(dtype) in TABLE_DTYPES
        except Exception:
            known = False
        if known:
            self.assertEqual(mv.ArrayTableHandler(2, dtype=dtype).dtype, np.dtype(dtype))
        else:
            with self.assert_rejects():
                mv.ArrayTableHandler(2, dtype=dtype)

    @examples
    @hypothesis.given(anything)
    def test_any_name_and_updater_is_accepted_or_rejected(self, value):
        if not (isinstance(value, str) and value and "\0" not in value):
            hypothesis.assume(value is not None)
            with self.assert_rejects():
                mv.ArrayTableHandler(2, name=value)
        hypothesis.assume(not isinstance(value, str) or value not in UPDATERS)
        with self.assert_rejects():
            mv.ArrayTableHandler(2, updater=value)

    @examples
    @hypothesis.given(anything, st.sampled_from(["learning_rate", "momentum", "rho", "\u00e9"]))
    def test_any_option_is_accepted_or_rejected(self, value, name):
        table = mv.ArrayTableHandler(2, updater="momentum")
        before = table.options
        is_number = isinstance(value, int | float | np.floating | np.integer)
        is_number = is_number and not isinstance(value, bool | np.bool_)
        limits = {"learning_rate": (0, math.inf), "momentum": (0, 1)}.get(name)
        if is_number and limits and limits[0] <= value < limits[1] and value < 1e300:
            table.set_option(**{name: value})
            self.assertEqual(table.options, {**before, name: float(value)})
        elif value is not None:
            with contextlib.suppress(*REJECTIONS):
                table.set_option(**{name: value})
                # An accepted value must have been stored.
                self.assertEqual(table.options[name], float(value))
                return
            self.assertEqual(table.options, before)

    @examples
    @hypothesis.given(arrays(), st.sampled_from(TABLE_DTYPES))
    def test_any_initial_value_is_accepted_or_rejected(self, value, dtype):
        before = value.copy()
        if can_be_added(value, dtype, ((), (SIZE,), (ROWS, COLUMNS))):
            table = mv.MatrixTableHandler(ROWS, COLUMNS, value, dtype=dtype)
            wanted = before.astype(dtype).reshape((ROWS, COLUMNS) if before.ndim else ())
            self.assertTrue((table.get() == wanted).all())
        else:
            with self.assert_rejects(value):
                mv.MatrixTableHandler(ROWS, COLUMNS, value, dtype=dtype)


class TestTables(ExampleTestCase):
    @examples
    @hypothesis.given(arrays(), st.sampled_from(TABLE_DTYPES))
    def test_add_of_any_array_matches_numpy(self, data, dtype):
        table = mv.MatrixTableHandler(ROWS, COLUMNS, 3, dtype=dtype)
        if can_be_added(data, dtype, ((ROWS, COLUMNS), (SIZE,))):
            table.add(data)
            wanted = 3 + data.astype(dtype).reshape(ROWS, COLUMNS)
            np.testing.assert_array_equal(table.get(), wanted)
        else:
            with self.assert_rejects(data):
                table.add(data)
            self.assertTrue((table.get() == 3).all())

    @examples
    @hypothesis.given(anything)
    def test_add_of_any_object_is_accepted_or_rejected(self, data):
        table = mv.ArrayTableHandler(SIZE, 3)
        with contextlib.suppress(*REJECTIONS):
            table.add(data)
            self.assertEqual(np.shape(data), (SIZE,))
            return
        self.assertTrue((table.get() == 3).all())

    @examples
    @hypothesis.given(arrays(), st.sampled_from(TABLE_DTYPES))
    def test_get_into_any_array_matches_numpy(self, out, dtype):
        table = mv.ArrayTableHandler(SIZE, np.arange(SIZE), dtype=dtype)
        fits = out.dtype.newbyteorder("=") == dtype and out.shape == (SIZE,)
        if fits and out.flags.writeable:
            self.assertIs(table.get(out=out), out)
            np.testing.assert_array_equal(out, np.arange(SIZE))
        else:
            with self.assert_rejects(out):
                table.get(out=out)
            with self.assert_rejects(out):
                table.add_get(np.ones(SIZE, dtype), out=out)
            np.testing.assert_array_equal(table.get(), np.arange(SIZE))

    @examples
    @hypothesis.given(anything)
    def test_get_into_any_object_is_accepted_or_rejected(self, out):
        table = mv.ArrayTableHandler(SIZE)
        if out is not None:
            with self.assert_rejects():
                table.get(out=out)

    @examples
    @hypothesis.given(
        st.integers(0, 6),
        st.integers(0, 6),
        st.sampled_from([1, 2, -1]),
        st.sampled_from(TABLE_DTYPES),
    )
    def test_add_get_supports_overlapping_memory(self, begin, out_begin, step, dtype):
        memory = np.arange(30).astype(dtype)
        data = memory[begin : begin + 12][::step][:SIZE]
        out = memory[out_begin : out_begin + 12][:SIZE]
        table = mv.ArrayTableHandler(SIZE, 5, dtype=dtype)
        wanted = 5 + data
        self.assertIs(table.add_get(data, out=out), out)
        np.testing.assert_array_equal(out, wanted)
        np.testing.assert_array_equal(table.get(), wanted)


ids = st.one_of(
    st.lists(st.one_of(st.integers(-1, ROWS), scalars), max_size=4),
    st.lists(st.integers(0, ROWS - 1), max_size=4),
    st.builds(tuple, st.lists(st.integers(0, ROWS), max_size=4)),
    st.builds(range, st.integers(-2, 4), st.integers(-2, 2**65), st.sampled_from([1, 2, -1])),
    arrays(shape=st.sampled_from([(0,), (1,), (2,), (2, 1), ()])),
    scalars.filter(lambda value: value is not None),
)


def model_ids(row_ids):
    """Return the ids as ints, or None if one is no id, and the index of the first out of range."""
    if isinstance(row_ids, np.ndarray):
        if row_ids.ndim != 1 or row_ids.dtype.kind not in "iu":
            return None, None
        row_ids = row_ids.tolist()
    elif isinstance(row_ids, range):
        # A range may be larger than memory; only the part up to the first invalid id matters.
        row_ids = list(row_ids[: ROWS + 3])
    elif not isinstance(row_ids, list | tuple):
        return None, None
    if any(isinstance(i, bool) or not isinstance(i, int | np.integer) for i in row_ids):
        return None, None
    outside = next((p for p, i in enumerate(row_ids) if not 0 <= i < ROWS), None)
    return [int(i) for i in row_ids], outside


class TestRows(ExampleTestCase):
    @examples
    @hypothesis.given(ids)
    def test_any_row_ids_are_accepted_or_rejected(self, row_ids):
        initial = np.arange(SIZE).reshape(ROWS, COLUMNS)
        table = mv.MatrixTableHandler(ROWS, COLUMNS, initial)
        found, outside = model_ids(row_ids)
        if found is not None and outside is None:
            np.testing.assert_array_equal(
                table.get(row_ids), initial[np.array(found, np.int64)].reshape(-1, COLUMNS)
            )
            wanted = initial.copy()
            np.add.at(wanted, np.array(found, np.int64), 1)
            table.add(np.ones((len(found), COLUMNS)), row_ids)
            np.testing.assert_array_equal(table.get(), wanted)
            return
        out = np.zeros((2, COLUMNS), np.float32)
        for call in (
            lambda: table.get(row_ids),
            lambda: table.get(row_ids, out=out),
            lambda: table.add(np.ones((2, COLUMNS)), row_ids),
        ):
            with self.assertRaises(REJECTIONS) as caught:
                call()
            if isinstance(caught.exception, IndexError):
                self.assertIn(f"row_ids[{outside}]", str(caught.exception))
                self.assertIn(f"received {found[outside]}", str(caught.exception))
        np.testing.assert_array_equal(out, 0)
        np.testing.assert_array_equal(table.get(), initial)

    @examples
    @hypothesis.given(arrays(), st.lists(st.integers(0, ROWS - 1), max_size=4))
    def test_any_data_for_rows_is_accepted_or_rejected(self, data, row_ids):
        table = mv.MatrixTableHandler(ROWS, COLUMNS, 3)
        shape = (len(row_ids), COLUMNS)
        if can_be_added(data, table.dtype, (shape, (math.prod(shape),))):
            wanted = np.full((ROWS, COLUMNS), 3, np.float32)
            np.add.at(wanted, np.array(row_ids, int), data.astype(np.float32).reshape(shape))
            table.add(data, row_ids)
            np.testing.assert_array_equal(table.get(), wanted)
        else:
            with self.assert_rejects(data):
                table.add(data, row_ids)
            self.assertTrue((table.get() == 3).all())
