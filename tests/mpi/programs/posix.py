"""What sessions cannot do with the library for POSIX systems: the errors of each rank."""

import os

import worker

import multiverso as mv
from multiverso._local.job import JOIN


def create_on_disk():
    """Create a table in a folder, in a session of its own."""
    with mv.session(timeout=30):
        mv.MatrixTable(2, 2, backing="/var/tmp/no-table-is-here")


if __name__ == "__main__":
    worker.begin()
    worker.report_call(lambda: mv.init(elastic=True, timeout=30), name="elastic")
    worker.report_call(lambda: mv.attach("job"), name="attach")
    worker.report_call(create_on_disk, name="on disk")
    os.environ[JOIN] = "job"
    worker.report_call(lambda: mv.init(elastic=True, timeout=30), name="join")
