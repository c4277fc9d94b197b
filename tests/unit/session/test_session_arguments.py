"""Session functions match NumPy for any valid argument, and reject any other.

Each test draws valid and invalid arguments and compares with a model in NumPy. Arguments that the
model accepts must give the model's result; all others must raise one of `REJECTIONS` and leave
every table and array unchanged.
"""

import tempfile
from pathlib import Path

import hypothesis
import numpy as np
from drawn_arguments import REJECTIONS, TABLE_DTYPES, ExampleTestCase, anything, arrays, examples
from hypothesis import strategies as st

import multiverso as mv
from multiverso._native.dtypes import ARRAY_CODES
from multiverso._session import options
from multiverso.sync import ParamSync

#: Valid options of a session, of which a test replaces one.
OPTIONS = {
    **{"sync": False, "staleness": None, "role": "all", "comm": None},
    **{"timeout": 1.0, "start_timeout": 1.0, "peer_timeout": 1.0},
    **{"nan_policy": "error", "on_peer_lost": "fail"},
    **{"name": None, "elastic": False, "on_term": "end", "checkpoints": None},
}


class TestSession(ExampleTestCase):
    @examples
    @hypothesis.given(arrays())
    @hypothesis.example(np.zeros((0, 2), ">f4"))  # its strides are 0 in NumPy
    def test_aggregate_of_any_array_matches_numpy(self, array):
        before, writeable = array.copy(), array.flags.writeable
        if array.dtype.newbyteorder("=") in ARRAY_CODES and writeable:
            self.assertIs(mv.aggregate(array), array)
            np.testing.assert_array_equal(array, before)  # the sum of one worker
        else:
            with self.assert_rejects(array):
                mv.aggregate(array)

    @examples
    @hypothesis.given(anything)
    def test_aggregate_of_any_object_is_accepted_or_rejected(self, value):
        with self.assert_rejects():
            mv.aggregate(value)

    @examples
    @hypothesis.given(st.lists(arrays(), max_size=3))
    def test_param_sync_of_any_arrays_matches_numpy(self, tensors):
        before = [tensor.copy() for tensor in tensors]
        dtypes = (*TABLE_DTYPES, np.dtype(np.float16))
        can_sync = all(t.dtype.newbyteorder("=") in dtypes and t.flags.writeable for t in tensors)
        if can_sync and any(tensor.size for tensor in tensors):
            sync = ParamSync(tensors)
            for tensor in tensors:
                tensor += np.ones((), tensor.dtype)
            sync.sync()
            for tensor, old in zip(tensors, before, strict=True):
                np.testing.assert_array_equal(tensor, old + np.ones((), old.dtype))
        else:
            with self.assert_rejects(*tensors):
                ParamSync(tensors)

    @examples
    @hypothesis.given(anything)
    def test_param_sync_of_any_object_is_accepted_or_rejected(self, value):
        with self.assert_rejects():
            ParamSync(value)
        if value is not None and not isinstance(value, str):
            with self.assert_rejects():
                ParamSync([np.zeros(3)], name=value)
        if not isinstance(value, bool | np.bool_):
            with self.assert_rejects():
                ParamSync([np.zeros(3)], overlap=value)
            with self.assert_rejects():
                ParamSync([np.zeros(3)], average=value)

    @examples
    @hypothesis.given(st.sampled_from([*OPTIONS]), anything)
    def test_any_init_argument_is_accepted_or_rejected(self, name, value):
        session = mv.init()
        try:
            options.session_options(**{**OPTIONS, name: value})
        except REJECTIONS:
            with self.assert_rejects():
                mv.init(**{name: value})
        self.assertIs(mv.init(), session)

    @examples
    @hypothesis.given(st.sampled_from(["step", "keep", "background", "directory"]), anything)
    def test_any_save_argument_is_accepted_or_rejected(self, name, value):
        table = mv.ArrayTableHandler(2, 1)
        with tempfile.TemporaryDirectory() as folder:
            if name == "directory":
                hypothesis.assume(not (isinstance(value, str) and value and "\0" not in value))
                for call in (mv.save, mv.load, table.save):
                    with self.assert_rejects():
                        call(value)
                return
            try:
                mv.save(folder, **{name: value})
                mv.wait_for_save()
            except REJECTIONS:
                self.assertEqual(list(Path(folder).iterdir()), [])
            else:
                table.add([1, 1])
                mv.load(folder)
                np.testing.assert_array_equal(table.get(), 1)
