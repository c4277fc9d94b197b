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
from multiverso.learn import Algo, Data, ModelBuilder, MPIManager
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

    def test_flags_take_bools_of_numpy(self):
        array = mv.ArrayTableHandler(2, [1, 2])
        for flag in (np.True_, np.False_):
            self.assertEqual(array.get(flag).tolist(), [1, 2])
            array.add([0, 0], flag)
            self.assertEqual(array.view(live=flag).tolist(), [1, 2])
