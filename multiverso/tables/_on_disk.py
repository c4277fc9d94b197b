"""What is special about tables in files on a disk."""

import mmap
from pathlib import Path
from typing import Any

from multiverso._native.places import path_bytes
from multiverso.errors import StateError


class OnDisk:
    """A table, which may lie in a folder: its `backing`."""

    __slots__ = ("_disk_pages",)
    _disk_pages: dict[str, int] | None  # before the table was created; None if it is in memory

    def _begin_on_disk(self, backing: object) -> bytes | None:
        """Return the folder as an option of the library; raise an error if it is invalid."""
        self._disk_pages = None if backing is None else _pages_so_far()
        return None if backing is None else path_bytes(backing, "backing")

    def _description(self) -> Any:
        raise NotImplementedError

    @property
    def reopened(self) -> bool:
        """Whether the table has the rows of an earlier session, which lie in its `backing`."""
        return bool(self._description().is_reopened)

    def stats(self) -> dict[str, int]:
        """Return what has happened to the table; of a table without keys, only with `backing`.

        Returns
        -------
        dict
            Of a table with `backing`: the pages, mostly of 4 KiB, that this process has read from
            disks (``pages_read``) and has changed (``pages_written``) since it created the table,
            in all files together. Both are 0 where the system does not count them.

        Raises
        ------
        StateError
            If the table lies in memory and has no keys.

        """
        if self._disk_pages is None:
            msg = "stats: expected a table with backing or with keys, received one without"
            raise StateError(msg)
        before = self._disk_pages
        return {name: count - before[name] for name, count in _pages_so_far().items()}


def _pages_so_far() -> dict[str, int]:
    """Return the pages that this process has read and changed, which the system counts at once."""
    try:
        lines = Path("/proc/self/io").read_text("ascii").splitlines()
    except OSError:
        return {"pages_read": 0, "pages_written": 0}
    bytes_of = dict(line.split(": ") for line in lines)
    return {
        "pages_read": int(bytes_of["read_bytes"]) // mmap.PAGESIZE,
        "pages_written": int(bytes_of["write_bytes"]) // mmap.PAGESIZE,
    }
