"""Assigns a GPU to each process of a host, and finds the GPUs that no process uses."""

import logging
import os
import re
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from multiverso._local.job import find_join, find_local_job, joiner_index
from multiverso._mpi.launcher import LOCAL_RANK_VARIABLES, find_launcher
from multiverso._native.arguments import integer, several
from multiverso.errors import LauncherError

__all__ = ["assign_device", "local_rank"]

#: The CUDA runtime, and with it every framework, uses only the GPUs that this variable lists.
_VISIBLE_DEVICES: Final = "CUDA_VISIBLE_DEVICES"

#: Seconds after which a run of nvidia-smi has failed.
_NVIDIA_SMI_TIMEOUT: Final = 30.0

_log = logging.getLogger("multiverso")

#: NVIDIA's driver lists one entry here for each GPU.
_DRIVER_GPUS: Final = Path("/proc/driver/nvidia/gpus")


def local_rank() -> int:
    """Return the index of this process among the job's processes on this host, from 0.

    The call needs neither a session nor communication, so that a program can choose its GPU before
    it imports a framework. Without a launcher the index is 0. A process that ``--respawn`` starts
    has the index of the rank that it replaces.

    Raises
    ------
    LauncherError
        If the launcher does not provide the index.

    Examples
    --------
    >>> import multiverso as mv
    >>> mv.local_rank()
    0

    """
    if find_join() is not None:
        return joiner_index()
    job = find_local_job()
    if job is not None:
        return job.rank
    launcher = find_launcher()
    if launcher is None:
        return 0
    for variable in LOCAL_RANK_VARIABLES:
        value = os.environ.get(variable, "")
        if value.isdecimal():
            return int(value)
    raise LauncherError(
        f"local_rank: expected one of the variables {', '.join(LOCAL_RANK_VARIABLES)} from "
        f"{launcher.name}, received none"
    )


def assign_device(devices: Sequence[int | str] | None = None) -> str | None:
    """Restrict this process to one GPU of its host, chosen by its `local_rank`.

    This sets ``CUDA_VISIBLE_DEVICES``, so call it before the first use of CUDA, preferably before
    importing the framework. If a host has more processes than GPUs, some processes share a GPU. If
    the launcher has already assigned one GPU to this process, that one is kept.

    Parameters
    ----------
    devices : sequence of int or str, optional
        The GPUs of this host that the job may use, by number or UUID; "cuda:2" is number 2. By
        default the GPUs in ``CUDA_VISIBLE_DEVICES`` if it is set, else all GPUs that NVIDIA's
        driver lists.

    Returns
    -------
    str or None
        CUDA's name of the GPU; None if there is no GPU, in which case nothing is changed.

    Raises
    ------
    TypeError, ValueError
        If `devices` is not a sequence or is empty, or an element cannot be the number or UUID of
        a GPU.
    LauncherError
        As for `local_rank`.

    Examples
    --------
    >>> import multiverso as mv
    >>> mv.assign_device([2, 3])
    '2'

    """
    names = _visible_gpus() if devices is None else _gpu_names(devices)
    if not names:
        return None
    chosen = names[local_rank() % len(names)]
    os.environ[_VISIBLE_DEVICES] = chosen
    return chosen


def idle_gpus() -> list[str] | None:
    """Return the ids of the NVIDIA GPUs without a compute process; None without nvidia-smi."""
    program = shutil.which("nvidia-smi")
    if program is None:
        return None
    gpus = _query(program, "--query-gpu=index,uuid")
    processes = _query(program, "--query-compute-apps=gpu_uuid")
    if gpus is None or processes is None:
        return []
    busy = {line[0] for line in processes}
    allowed = _listed_gpus()
    return [
        uuid
        for index, uuid in (line[:2] for line in gpus if len(line) >= 2)
        if uuid not in busy and (allowed is None or index in allowed or uuid in allowed)
    ]


def _query(program: str, query: str) -> list[list[str]] | None:
    """Return the rows of the table that nvidia-smi prints, or None if nvidia-smi fails."""
    try:
        process = subprocess.run(
            [program, query, "--format=csv,noheader"],
            capture_output=True,
            text=True,
            timeout=_NVIDIA_SMI_TIMEOUT,
            check=True,
        )
    except (OSError, subprocess.SubprocessError) as error:
        _log.warning("nvidia-smi failed, so no GPU is used: %s", error)
        return None
    lines = filter(None, process.stdout.splitlines())
    return [[part.strip() for part in line.split(",")] for line in lines]


def _listed_gpus() -> list[str] | None:
    """Return the GPUs that CUDA_VISIBLE_DEVICES names, or None if it is not set."""
    if (listed := os.environ.get(_VISIBLE_DEVICES)) is None:
        return None
    names = [name.strip() for name in listed.split(",")]
    # CUDA ignores everything from the first invalid name on.
    end = next((i for i, name in enumerate(names) if name in ("", "-1")), len(names))
    return names[:end]


def _visible_gpus() -> list[str]:
    if (names := _listed_gpus()) is not None:
        return names
    try:
        count = sum(1 for _ in _DRIVER_GPUS.iterdir())
    except OSError:
        return []
    return [str(index) for index in range(count)]


def _gpu_names(devices: Sequence[int | str]) -> list[str]:
    """Return CUDA's names of the devices; raise an error if one is not a GPU's number or name."""
    names = [_gpu_name(device) for device in several(devices, "devices")]
    if not names:
        raise ValueError("devices: expected one or more GPUs, received none")
    return names


def _gpu_name(device: object) -> str:
    """Return CUDA's name of a device: its number, or its UUID, such as GPU-12345678 or MIG-..."""
    if not isinstance(device, str):
        return str(integer(device, "devices", 0))
    match = re.fullmatch(r"\s*(?:cuda:)?([0-9]+|(?:GPU|MIG)-[\w/-]+)\s*", device)
    if match is None:
        raise ValueError(f"devices: expected the numbers or UUIDs of GPUs, received {device!r}")
    return match[1]
