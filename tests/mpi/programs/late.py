"""Ranks that wait for rank 0 until the test has seen that they say so: ``late.py``."""

import os

import numpy as np
import worker

import multiverso as mv

TIMEOUT = 60


def calls_of(table):
    """Return the calls that wait for rank 0, by name: the options of the session, and the call."""

    def get_in_background():
        table().add(np.ones(3))
        table().get_async().result()

    def get():
        table().add(np.ones(3))
        table().get()

    return {
        "barrier": ({"timeout": None}, mv.barrier),
        "shutdown": ({"timeout": TIMEOUT}, mv.shutdown),
        "aggregate": ({"timeout": None}, lambda: mv.aggregate(np.ones(100_000))),
        "get": ({"sync": True, "timeout": TIMEOUT}, get),
        "result": ({"sync": True, "timeout": None}, get_in_background),
    }


if __name__ == "__main__":
    worker.begin()
    tables = []
    for name, (options, call) in calls_of(lambda: tables[-1]).items():
        session = mv.init(**options)
        tables.append(mv.ArrayTableHandler(3))
        mv.barrier()
        if worker.RANK == 0:
            worker.wait_for(name)
        else:
            os.environ["MULTIVERSO_FAILPOINTS"] = "wait.line@1=error,wait.line@2=error"
        call()
        os.environ["MULTIVERSO_FAILPOINTS"] = "none"
        if mv.is_initialized():
            mv.shutdown()
