"""What sessions cannot do with the library for POSIX systems: the errors of each rank."""

import os

import worker

import multiverso as mv
from multiverso._local.job import JOIN

if __name__ == "__main__":
    worker.begin()
    worker.report_call(lambda: mv.init(elastic=True, timeout=30), name="elastic")
    worker.report_call(lambda: mv.attach("job"), name="attach")
    os.environ[JOIN] = "job"
    worker.report_call(lambda: mv.init(elastic=True, timeout=30), name="join")
