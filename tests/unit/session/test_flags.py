"""Every public argument that is True or False takes nothing else, however true it may seem.

An argument at the wrong place, as in ``array.get([1, 2])``, would otherwise change the meaning of
the call without an error.
"""

import shutil
import tempfile

import numpy as np
from public_flags import check_rejections, flags_of
from sessions import SessionTestCase

import multiverso as mv
from multiverso.learn import Algo, Data, InputError, ModelBuilder, MPIManager
from multiverso.sync import ParamSync

MODULES = ("multiverso", *(f"multiverso.{name}" for name in ("checkpoint", "learn", "sync")))


def train_with(**flag):
    return MPIManager(None, Data(1), Algo("sgd"), ModelBuilder(), 1, ["a.h5"], **flag)


def open_session(**flag):
    with mv.session(**flag):
        pass


class TestFlags(SessionTestCase):
    def test_every_flag_takes_a_bool_only(self):
        array, matrix = mv.ArrayTableHandler(3), mv.MatrixTableHandler(3, 2)
        hashed = mv.HashTableHandler(2, capacity=10)
        folder = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, folder)
        check_rejections(
            self,
            flags_of(*MODULES),
            {
                "init": mv.init,
                "session": open_session,
                "save": lambda **flag: mv.save(folder, **flag),
                "load": lambda **flag: mv.load(folder, **flag),
                "Session.load": lambda **flag: mv.init().load(folder, **flag),
                "ArrayTable.get": array.get,
                "ArrayTable.add": lambda **flag: array.add([9, 9, 9], **flag),
                "ArrayTable.view": array.view,
                "ArrayTable.load": lambda **flag: array.load(folder, **flag),
                "MatrixTable.get": lambda **flag: matrix.get([0], **flag),
                "MatrixTable.add": lambda **flag: matrix.add([9, 9], [0], **flag),
                "MatrixTable.view": matrix.view,
                "MatrixTable.load": lambda **flag: matrix.load(folder, **flag),
                "MatrixTable.get_async": lambda **flag: matrix.get_async([0], **flag),
                "HashTable.get": lambda **flag: hashed.get([7], **flag),
                "HashTable.add": lambda **flag: hashed.add([9, 9], [7], **flag),
                "HashTable.load": lambda **flag: hashed.load(folder, **flag),
                "HashTable.get_async": lambda **flag: hashed.get_async([7], **flag),
                "MPIManager": train_with,
                "ParamSync": lambda **flag: ParamSync([np.zeros(2)], **flag),
            },
        )
        self.assertEqual((array.get().sum(), matrix.get().sum(), len(hashed)), (0, 0, 0))

    def test_a_part_in_the_place_of_sync_is_an_error_that_names_index(self):
        array, matrix = mv.ArrayTableHandler(3, [1, 2, 3]), mv.MatrixTableHandler(3, 2, 1)
        for part in ([1, 2], 2, np.s_[:2], np.array([1])):
            for call in (
                lambda part=part: array.get(part),
                lambda part=part: array.add([9, 9, 9], part),
                lambda part=part: array.add([9], part, np.s_[:1]),
                lambda part=part: matrix.get(None, part),
                lambda part=part: matrix.get([0], part),
                lambda part=part: matrix.get(None, part, None, np.s_[:1]),
                lambda part=part: matrix.add(np.ones((3, 2)), None, part),
                lambda part=part: matrix.add([[1, 1]], [0], part),
            ):
                with self.assertRaisesRegex(TypeError, "^sync: expected True .* write index="):
                    call()
        self.assertEqual(array.get().tolist(), [1, 2, 3])
        self.assertEqual(matrix.get().tolist(), [[1, 1]] * 3)

    def test_flags_take_bools_of_numpy(self):
        array = mv.ArrayTableHandler(2, [1, 2])
        for flag in (np.True_, np.False_):
            self.assertEqual(array.get(flag).tolist(), [1, 2])
            array.add([0, 0], flag)
            self.assertEqual(array.view(live=flag).tolist(), [1, 2])

    def test_a_long_list_in_the_place_of_a_flag_is_not_printed(self):
        with self.assertRaises(TypeError) as caught:
            mv.ArrayTableHandler(2).get(list(range(10**5)))
        self.assertLess(len(str(caught.exception)), 200)


class TestTimeouts(SessionTestCase):
    def test_timeouts_are_numbers(self):
        table = mv.ArrayTableHandler(3)
        ended = table.get_async()
        ended.result()
        for call in (table.flush, ended.wait, ended.result, table.get_async().wait):
            for timeout in (True, np.False_, "1", b"1", [1], float("nan")):
                with self.subTest(f"{call}({timeout!r})"):
                    self.assertRaisesRegex(
                        (TypeError, ValueError), "^timeout: expected", call, timeout
                    )
        for options in ({"timeout": True}, {"timeout": "60"}, {"peer_timeout": np.True_}):
            self.assertRaisesRegex(TypeError, "timeout: expected", mv.init, **options)
        for timeout in (True, "60", None):
            with self.assertRaisesRegex(TypeError, "timeout: expected"):
                mv.attach("missing", timeout=timeout)


class TestOneInPlaceOfSeveral(SessionTestCase):
    def test_a_text_is_not_a_list_of_its_characters(self):
        for call in (
            lambda: mv.Work({0: "a"}),
            lambda: MPIManager(None, Data(1), Algo("sgd"), ModelBuilder(), 1, "a.h5"),
            lambda: MPIManager(None, Data(1), Algo("sgd"), ModelBuilder(), 1, ["a"], "b.h5"),
            lambda: Data(1).set_file_names("a.h5"),
            lambda: mv.hash_keys("abc"),
            lambda: mv.assign_device("cuda:0"),
        ):
            with self.assertRaisesRegex((TypeError, InputError), "expected .*received"):
                call()
