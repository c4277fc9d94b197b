"""What the control groups of this process allow it: the time of cores, and memory."""

from collections.abc import Callable
from pathlib import Path
from typing import Final, TypeVar

_ROOT: Final = Path("/sys/fs/cgroup")
_OWN: Final = Path("/proc/self/cgroup")

_Limit = TypeVar("_Limit", int, float)


def cpu_quota(root: Path = _ROOT, groups: Path = _OWN) -> float | None:
    """Return the number of cores whose time the control groups allow, or None without a limit."""
    return _least("cpu", _quota_in, root, groups)


def memory_limit(root: Path = _ROOT, groups: Path = _OWN) -> int | None:
    """Return the bytes of memory that the control groups allow, or None without a limit."""
    return _least("memory", _bytes_in, root, groups)


def _least(
    controller: str, limit_in: Callable[[Path], _Limit | None], root: Path, groups: Path
) -> _Limit | None:
    """Return the least limit of this process's groups and of those that contain them."""
    try:
        own = [line.split(":", 2) for line in groups.read_text("utf-8").splitlines()]
    except OSError:  # Only Linux has control groups.
        own = []
    found = []
    for _, controllers, path in own:
        if controllers and controller not in controllers.split(","):
            continue
        top = root / controller if controllers else root
        folder: Path = top / path.strip("/")
        for each in (folder, *folder.parents):
            if not each.is_relative_to(top):
                break
            found += [limit for limit in [limit_in(each)] if limit is not None]
    return min(found, default=None)


def _quota_in(folder: Path) -> float | None:
    try:
        if (folder / "cpu.max").exists():
            quota, period = (folder / "cpu.max").read_text("ascii").split()
        else:  # the first version of control groups
            quota = (folder / "cpu.cfs_quota_us").read_text("ascii")
            period = (folder / "cpu.cfs_period_us").read_text("ascii")
        return int(quota) / int(period) if int(quota) > 0 else None
    except (OSError, ValueError):  # The limit is "max", or there is none.
        return None


def _bytes_in(folder: Path) -> int | None:
    try:
        is_second = (folder / "memory.max").exists()
        name = "memory.max" if is_second else "memory.limit_in_bytes"
        limit = int((folder / name).read_text("ascii"))
    except (OSError, ValueError):  # The limit is "max", or there is none.
        return None
    return limit if limit < 2**62 else None  # Version 1 reports no limit as a huge number.
