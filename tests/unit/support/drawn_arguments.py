"""Hypothesis strategies for valid and invalid arguments of the public functions.

MULTIVERSO_EXAMPLES=10000 draws that many examples per test, and other ones in each run.
"""

import contextlib
import math
import os

import hypothesis
import numpy as np
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst
from sessions import SessionTestCase

REJECTIONS = (TypeError, ValueError, IndexError)
MANY = os.environ.get("MULTIVERSO_EXAMPLES")
TABLE_DTYPES = tuple(map(np.dtype, ("float32", "float64", "int32", "int64")))
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
    """Draw an array of any dtype, shape and memory layout."""
    drawn_dtype, drawn_shape = draw(dtype), draw(shape)
    array = np.zeros(drawn_shape, drawn_dtype)
    if drawn_dtype.kind not in "MmOUSV":  # the dtypes that are not numbers
        numbers = np.arange(math.prod(drawn_shape)) % 5
        array = numbers.reshape(drawn_shape).astype(drawn_dtype)
    layout = draw(st.integers(0, 5))
    if layout == 1:
        array = np.asfortranarray(array)
    elif layout == 2:  # with gaps
        wide = np.zeros((*drawn_shape, 2), drawn_dtype)
        wide[..., 0] = array
        array = wide[..., 0]
    elif layout == 3 and array.ndim:
        array = array[::-1]
    elif layout == 4:
        array.flags.writeable = False
    elif layout == 5:  # not aligned
        memory = np.zeros(array.nbytes + 1, np.uint8)
        if drawn_dtype.kind != "O":
            shifted = memory[1:].view(drawn_dtype).reshape(drawn_shape)
            shifted[...] = array
            array = shifted
    return array


def can_be_added(data, dtype, allowed_shapes):
    """Return whether an array can be added to a table of this dtype with one of these shapes."""
    if not np.can_cast(data.dtype, dtype, "same_kind") or data.shape not in allowed_shapes:
        return False
    if data.dtype.kind in "iu" and dtype.kind == "i" and data.size:
        limits = np.iinfo(dtype)
        return limits.min <= int(data.min()) and int(data.max()) <= limits.max
    return True


class ExampleTestCase(SessionTestCase):
    """Runs all examples of a test in one session, since a session per example would be slow."""

    @contextlib.contextmanager
    def assert_rejects(self, *arrays):
        """Check that the block raises one of `REJECTIONS` and leaves the arrays unchanged."""
        before = [np.array(array, copy=True) for array in arrays]
        with self.assertRaises(REJECTIONS) as caught:
            yield
        self.assertNotEqual(str(caught.exception), "")
        for array, old in zip(arrays, before, strict=True):
            np.testing.assert_array_equal(array, old)
