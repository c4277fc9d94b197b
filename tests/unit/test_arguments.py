"""Whatever is given to the public functions, they do what NumPy would or refuse it untouched.

Each test draws arguments, right ones and wrong ones, and compares with a model in NumPy: what the
model takes must give the model's result, and what it does not take must raise one of `REFUSALS` and
leave every table and array as it was. MULTIVERSO_EXAMPLES=10000 draws more, and others each time.
"""

import contextlib
import math
import os
import tempfile
import unittest
from pathlib import Path

import hypothesis
import numpy as np
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

import multiverso as mv
from multiverso import _options
from multiverso.sync import ParamSync

REFUSALS = (TypeError, ValueError, IndexError)
MANY = os.environ.get("MULTIVERSO_EXAMPLES")
TABLES = tuple(map(np.dtype, ("float32", "float64", "int32", "int64")))
SIZE, ROWS, COLUMNS = 6, 3, 2

examples = hypothesis.settings(
    max_examples=int(MANY or 150),
    derandomize=MANY is None,
    deadline=None,
    database=None,
    suppress_health_check=list(hypothesis.HealthCheck),
)

huge = st.integers(-(2**70), 2**70)
scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 8),
    huge,
    st.just(10**400),
    st.floats(),
    st.complex_numbers(),
    st.text(max_size=3),
    st.binary(max_size=3),
    st.builds(np.bool_, st.booleans()),
    st.builds(np.float64, st.floats()),
    st.builds(np.int8, st.integers(-3, 8)),
    st.builds(np.uint64, st.integers(0, 2**64 - 1)),
    st.builds(object),
)
anything = st.one_of(scalars, st.lists(scalars, max_size=3), st.dictionaries(scalars, scalars))

dtypes = st.one_of(
    st.sampled_from(["?", "b", "B", "h", "H", "i", "I", "q", "Q", "e", "f", "d", "g", "F", "D"]),
    st.sampled_from(["O", "U3", "S3", "M8[s]", "m8[s]", ">f4", ">f8", ">i4", ">i8", "V4"]),
).map(np.dtype)
shapes = st.one_of(
    st.sampled_from([(SIZE,), (ROWS, COLUMNS), (COLUMNS, ROWS), (SIZE, 1), (1, SIZE), (), (0,)]),
    npst.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=7),
)


@st.composite
def arrays(draw, shape=shapes, dtype=dtypes):
    """Return an array of any kind, whose memory may lie in any way."""
    kind, extents = draw(dtype), draw(shape)
    numbers = np.arange(math.prod(extents)) % 5
    array = np.zeros(extents, kind)
    if kind.kind not in "MmOUSV":
        array = numbers.reshape(extents).astype(kind)
    layout = draw(st.integers(0, 5))
    if layout == 1:
        array = np.asfortranarray(array)
    elif layout == 2:  # with gaps
        wide = np.zeros((*extents, 2), kind)
        wide[..., 0] = array
        array = wide[..., 0]
    elif layout == 3 and array.ndim:
        array = array[::-1]
    elif layout == 4:
        array.flags.writeable = False
    elif layout == 5:  # not aligned
        memory = np.zeros(array.nbytes + 1, np.uint8)
        shifted = memory[1:].view(kind).reshape(extents) if kind.kind != "O" else array
        shifted[...] = array
        array = shifted
    return array


def copy_of(array):
    """Return an array that stays as it is, and the flags that a call must not change."""
    return array.copy(), array.flags.writeable


def is_right(data, dtype, wanted):
    """Return whether an array may be added to a table of that dtype and one of these shapes."""
    if not np.can_cast(data.dtype, dtype, "same_kind") or data.shape not in wanted:
        return False
    if data.dtype.kind in "iu" and dtype.kind == "i" and data.size:
        limits = np.iinfo(dtype)
        return limits.min <= int(data.min()) and int(data.max()) <= limits.max
    return True


class Arguments(unittest.TestCase):
    """A test with a session for all of its examples."""

    def setUp(self):
        mv.init()
        self.addCleanup(mv.shutdown)

    @contextlib.contextmanager
    def refused(self, *arrays):
        """Check that the block raises, and that nothing has changed."""
        before = [np.array(array, copy=True) for array in arrays]
        with self.assertRaises(REFUSALS) as caught:
            yield
        self.assertNotEqual(str(caught.exception), "")
        for array, old in zip(arrays, before, strict=True):
            np.testing.assert_array_equal(array, old)


class TestCreation(Arguments):
    @examples
    @hypothesis.given(anything)
    def test_size(self, size):
        is_whole = hasattr(size, "__index__") and not isinstance(size, bool | np.bool_)
        if is_whole and 1 <= int(size) < 100:
            self.assertEqual(mv.ArrayTableHandler(size).shape, (int(size),))
        elif is_whole and 100 <= int(size) < 2**34:  # which may be there or not
            with contextlib.suppress(MemoryError):
                self.assertEqual(mv.ArrayTableHandler(size).shape, (int(size),))
        else:
            with self.assertRaises((*REFUSALS, MemoryError)):
                mv.ArrayTableHandler(size)

    @examples
    @hypothesis.given(huge, huge)
    def test_sizes_whose_product_overflows(self, rows, columns):
        hypothesis.assume(not (0 < rows < 2**34 and 0 < columns < 2**34))
        with self.assertRaises((ValueError, MemoryError)):
            mv.MatrixTableHandler(rows, columns)

    @examples
    @hypothesis.given(st.one_of(anything, dtypes, st.text(max_size=6)))
    @hypothesis.example(",")
    @hypothesis.example({-1: "0"})
    def test_dtype(self, dtype):
        try:
            known = dtype is not None and np.dtype(dtype) in TABLES
        except Exception:
            known = False
        if known:
            self.assertEqual(mv.ArrayTableHandler(2, dtype=dtype).dtype, np.dtype(dtype))
        else:
            with self.refused():
                mv.ArrayTableHandler(2, dtype=dtype)

    @examples
    @hypothesis.given(anything)
    def test_name_and_updater(self, value):
        if not (isinstance(value, str) and value and "\0" not in value):
            hypothesis.assume(value is not None)
            with self.refused():
                mv.ArrayTableHandler(2, name=value)
        with self.refused():
            mv.ArrayTableHandler(2, updater=value)

    @examples
    @hypothesis.given(anything, st.sampled_from(["learning_rate", "momentum", "rho", "\u00e9"]))
    def test_options(self, value, name):
        table = mv.ArrayTableHandler(2, updater="momentum")
        before = table.options
        number = isinstance(value, int | float | np.floating | np.integer)
        number = number and not isinstance(value, bool | np.bool_)
        limits = {"learning_rate": (0, math.inf), "momentum": (0, 1)}.get(name)
        inside = number and limits and limits[0] <= value < limits[1] and value < 1e300
        if inside:
            table.set_option(**{name: value})
            self.assertEqual(table.options, {**before, name: float(value)})
        elif value is not None:
            with contextlib.suppress(*REFUSALS):
                table.set_option(**{name: value})
                # What the library allows besides, it must have taken.
                self.assertEqual(table.options[name], float(value))
                return
            self.assertEqual(table.options, before)

    @examples
    @hypothesis.given(arrays(), st.sampled_from(TABLES))
    def test_initial_value(self, value, dtype):
        before, _ = copy_of(value)
        shapes = ((), (SIZE,), (ROWS, COLUMNS))
        if is_right(value, dtype, shapes):
            table = mv.MatrixTableHandler(ROWS, COLUMNS, value, dtype=dtype)
            wanted = np.broadcast_to(
                before.astype(dtype).reshape(before.shape if before.ndim != 1 else (ROWS, COLUMNS)),
                (ROWS, COLUMNS),
            )
            np.testing.assert_array_equal(table.get(), wanted)
        else:
            with self.refused(value):
                mv.MatrixTableHandler(ROWS, COLUMNS, value, dtype=dtype)


class TestTables(Arguments):
    @examples
    @hypothesis.given(arrays(), st.sampled_from(TABLES))
    def test_add(self, data, dtype):
        table = mv.MatrixTableHandler(ROWS, COLUMNS, 3, dtype=dtype)
        if is_right(data, dtype, ((ROWS, COLUMNS), (SIZE,))):
            table.add(data)
            wanted = 3 + data.astype(dtype).reshape(ROWS, COLUMNS)
            np.testing.assert_array_equal(table.get(), wanted)
        else:
            with self.refused(data):
                table.add(data)
            self.assertTrue((table.get() == 3).all())

    @examples
    @hypothesis.given(anything)
    def test_add_of_anything(self, data):
        table = mv.ArrayTableHandler(SIZE, 3)
        with contextlib.suppress(*REFUSALS):
            table.add(data)
            self.assertEqual(np.shape(data), (SIZE,))
            return
        self.assertTrue((table.get() == 3).all())

    @examples
    @hypothesis.given(arrays(), st.sampled_from(TABLES))
    def test_out(self, out, dtype):
        table = mv.ArrayTableHandler(SIZE, np.arange(SIZE), dtype=dtype)
        right = out.dtype.newbyteorder("=") == dtype and out.shape == (SIZE,)
        if right and out.flags.writeable:
            self.assertIs(table.get(out=out), out)
            np.testing.assert_array_equal(out, np.arange(SIZE))
        else:
            with self.refused(out):
                table.get(out=out)
            with self.refused(out):
                table.add_get(np.ones(SIZE, dtype), out=out)
            np.testing.assert_array_equal(table.get(), np.arange(SIZE))

    @examples
    @hypothesis.given(anything)
    def test_out_of_anything(self, out):
        table = mv.ArrayTableHandler(SIZE)
        if out is not None:
            with self.refused():
                table.get(out=out)

    @examples
    @hypothesis.given(
        st.integers(0, 6), st.integers(0, 6), st.sampled_from([1, 2, -1]), st.sampled_from(TABLES)
    )
    def test_add_get_where_both_share_memory(self, begin, out_begin, step, dtype):
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
    """Return the ids as a list of ints, or None if they are none; the first that is outside."""
    if isinstance(row_ids, np.ndarray):
        if row_ids.ndim != 1 or row_ids.dtype.kind not in "iu":
            return None, None
        row_ids = row_ids.tolist()
    elif isinstance(row_ids, range):
        # It may be longer than memory; what matters is where it begins and where it leaves.
        row_ids = list(row_ids[: ROWS + 3])
    elif not isinstance(row_ids, list | tuple):
        return None, None
    if any(isinstance(i, bool) or not isinstance(i, int | np.integer) for i in row_ids):
        return None, None
    outside = next((p for p, i in enumerate(row_ids) if not 0 <= i < ROWS), None)
    return [int(i) for i in row_ids], outside


class TestRows(Arguments):
    @examples
    @hypothesis.given(ids)
    def test_ids(self, row_ids):
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
            with self.assertRaises(REFUSALS) as caught:
                call()
            if isinstance(caught.exception, IndexError):
                self.assertIn(f"row_ids[{outside}]", str(caught.exception))
                self.assertIn(f"received {found[outside]}", str(caught.exception))
        np.testing.assert_array_equal(out, 0)
        np.testing.assert_array_equal(table.get(), initial)

    @examples
    @hypothesis.given(arrays(), st.lists(st.integers(0, ROWS - 1), max_size=4))
    def test_data(self, data, row_ids):
        table = mv.MatrixTableHandler(ROWS, COLUMNS, 3)
        shape = (len(row_ids), COLUMNS)
        if is_right(data, table.dtype, (shape, (math.prod(shape),))):
            wanted = np.full((ROWS, COLUMNS), 3, np.float32)
            np.add.at(wanted, np.array(row_ids, int), data.astype(np.float32).reshape(shape))
            table.add(data, row_ids)
            np.testing.assert_array_equal(table.get(), wanted)
        else:
            with self.refused(data):
                table.add(data, row_ids)
            self.assertTrue((table.get() == 3).all())


class TestSession(Arguments):
    @examples
    @hypothesis.given(arrays())
    @hypothesis.example(np.zeros((0, 2), ">f4"))  # NumPy says that its strides are 0
    def test_aggregate(self, array):
        before, writeable = copy_of(array)
        if array.dtype.newbyteorder("=") in TABLES and writeable:
            self.assertIs(mv.aggregate(array), array)
            np.testing.assert_array_equal(array, before)  # the sum of one worker
        else:
            with self.refused(array):
                mv.aggregate(array)

    @examples
    @hypothesis.given(anything)
    def test_aggregate_of_anything(self, value):
        with self.refused():
            mv.aggregate(value)

    @examples
    @hypothesis.given(st.lists(arrays(), max_size=3))
    def test_param_sync(self, tensors):
        before = [tensor.copy() for tensor in tensors]
        halves = np.dtype(np.float16)
        right = all(
            tensor.dtype.newbyteorder("=") in (*TABLES, halves) and tensor.flags.writeable
            for tensor in tensors
        )
        if right and any(tensor.size for tensor in tensors):
            sync = ParamSync(tensors)
            for tensor in tensors:
                tensor += np.ones((), tensor.dtype)
            sync.sync()
            for tensor, old in zip(tensors, before, strict=True):
                np.testing.assert_array_equal(tensor, old + np.ones((), old.dtype))
        else:
            with self.refused(*tensors):
                ParamSync(tensors)

    @examples
    @hypothesis.given(anything)
    def test_param_sync_of_anything(self, value):
        with self.refused():
            ParamSync(value)
        if value is not None and not isinstance(value, str):
            with self.refused():
                ParamSync([np.zeros(3)], name=value)
        if not isinstance(value, bool):
            with self.refused():
                ParamSync([np.zeros(3)], overlap=value)

    @examples
    @hypothesis.given(
        st.sampled_from(
            [
                "sync",
                "staleness",
                "role",
                "timeout",
                "nan_policy",
                "on_peer_lost",
                "peer_timeout",
                "comm",
            ]
        ),
        anything,
    )
    def test_init(self, name, value):
        options = {
            "sync": False,
            "staleness": None,
            "role": "all",
            "comm": None,
            "timeout": 1.0,
            "nan_policy": "error",
            "on_peer_lost": "fail",
            "peer_timeout": 1.0,
        }
        session = mv.init()
        try:
            _options.checked(**{**options, name: value})
        except REFUSALS:
            with self.refused():
                mv.init(**{name: value})
        self.assertIs(mv.init(), session)

    @examples
    @hypothesis.given(st.sampled_from(["step", "keep", "background", "directory"]), anything)
    def test_save(self, name, value):
        table = mv.ArrayTableHandler(2, 1)
        with tempfile.TemporaryDirectory() as folder:
            if name == "directory":
                hypothesis.assume(not (isinstance(value, str) and value and "\0" not in value))
                with self.refused():
                    mv.save(value)
                with self.refused():
                    mv.load(value)
                with self.refused():
                    table.save(value)
                return
            try:
                mv.save(folder, **{name: value})
                mv.wait_for_save()
            except REFUSALS:
                self.assertEqual(list(Path(folder).iterdir()), [])
            else:
                table.add([1, 1])
                mv.load(folder)
                np.testing.assert_array_equal(table.get(), 1)


class TestNonFinite(unittest.TestCase):
    numbers = npst.arrays(
        np.float32,
        (ROWS, COLUMNS),
        elements=st.one_of(
            st.floats(-4, 4, width=32), st.sampled_from([math.nan, math.inf, -math.inf])
        ),
    )

    @staticmethod
    def calls(table, data):
        return (
            lambda: table.add(data),
            lambda: table.add(np.asfortranarray(data)),
            lambda: table.add(data.astype(np.float64)),
            lambda: table.add_get(data),
            lambda: table.add(data, [0, 1, 2]),
        )

    @examples
    @hypothesis.given(numbers)
    def test_error_names_the_first_and_applies_nothing(self, data):
        wrong = np.argwhere(~np.isfinite(data))
        with mv.session(nan_policy="error"):
            table = mv.MatrixTableHandler(ROWS, COLUMNS, 3)
            wanted = table.get()
            for call in self.calls(table, data):
                if not len(wrong):
                    call()
                    wanted += data
                    continue
                with self.assertRaises(ValueError) as caught:
                    call()
                self.assertIn(f"data[{wrong[0][0]}, {wrong[0][1]}]: ", str(caught.exception))
            np.testing.assert_array_equal(table.get(), wanted)

    @examples
    @hypothesis.given(numbers)
    def test_propagated_as_numpy_does(self, data):
        with mv.session(), np.errstate(invalid="ignore"):
            table = mv.MatrixTableHandler(ROWS, COLUMNS, 3)
            wanted = table.get()
            for call in self.calls(table, data):
                call()
                wanted += data
            np.testing.assert_array_equal(table.get(), wanted)

    def test_integers_are_not_looked_at(self):
        with mv.session(nan_policy="error"):
            table = mv.ArrayTableHandler(2, dtype="int64")
            table.add([1, 2])
            self.assertEqual(table.get().tolist(), [1, 2])

    def test_first_of_many(self):
        data = np.zeros(200_000)
        data[[150_000, 199_999]] = math.inf
        with mv.session(nan_policy="error"):
            table = mv.ArrayTableHandler(data.size, dtype="float64")
            with self.assertRaisesRegex(ValueError, r"data\[150000\]: .*received inf"):
                table.add(data)

    def test_aggregate_and_param_sync(self):
        with mv.session(nan_policy="error"):
            array = np.array([1, math.nan], np.float32)
            with self.assertRaisesRegex(ValueError, r"array\[1\]: expected a finite number"):
                mv.aggregate(array)
            tensors = [np.zeros((2, 2), np.float32), np.zeros(3, np.float16)]
            for overlap in (False, True):
                sync = ParamSync(tensors, overlap=overlap)
                tensors[1][2] = math.inf
                with self.assertRaisesRegex(ValueError, r"parameters, tensor 1\[2\]: "):
                    sync.sync()
                self.assertTrue(all((table.get() == 0).all() for table in sync.tables))
                tensors[1][2] = 1  # and the worker goes on
                sync.sync()
                sync.wait()
                self.assertEqual(
                    sync.tables[1].get().tolist()
                    if len(sync.tables) > 1
                    else sync.tables[0].get()[4:].tolist(),
                    [0, 0, 1],
                )
                tensors[1][2] = 0

    def test_policy_is_one_of_two(self):
        for wrong, error in (("ignore", ValueError), (None, TypeError), (True, TypeError)):
            with self.assertRaisesRegex(error, "nan_policy: expected one of 'propagate', 'error'"):
                mv.init(nan_policy=wrong)
        self.assertFalse(mv.is_initialized())
