"""``multiverso info``: what is installed here, and on what machine."""

import argparse
import json
import sys
from typing import Any

from multiverso._commands import _system_info


def add_parser(commands: Any) -> None:
    """Declare the command."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "info",
        help="show versions, MPI, memory and what is installed",
        description="Shows which Multiverso, MPI and Python are here, the machine's cores and "
        "memory, and which optional packages are installed: what a report of a fault should have.",
    )
    parser.add_argument("--json", action="store_true", help="for programs")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Print it; return 0."""
    facts = _system_info.collect()
    if options.json:
        sys.stdout.write(json.dumps(facts, indent=2) + "\n")
    else:
        lines = _lines(facts)
        width = max(len(name) for name, _ in lines)
        sys.stdout.writelines(f"{name:<{width}}  {text}\n" for name, text in lines)
    return 0


def _lines(facts: dict[str, Any]) -> list[tuple[str, str]]:
    library, machine, python = facts["library"], facts["machine"], facts["python"]
    memory, shared, limits = facts["memory"], facts["shared_memory"], facts["limits"]
    allowed, quota = machine["cores_allowed"], machine["cores_quota"]
    installed = [f"{name} {version}" for name, version in facts["installed"].items() if version]
    return [
        ("multiverso", f"{facts['version']} in {facts['package']}"),
        (
            "library",
            f"{library['path']}, ABI {library['abi']}, {library['build_type']} build by "
            f"{library['compiler']}, {library['vector_kernels']} kernels",
        ),
        ("python", f"{python['version']}, {python['executable']}"),
        ("numpy", facts["numpy"]),
        ("mpi4py", facts["mpi4py"] or "not installed"),
        ("mpi", describe_mpi(facts["mpi"])),
        ("mpirun", describe_launcher(facts["launcher"])),
        ("machine", f"{machine['host']}, {machine['system']}"),
        (
            "cores",
            f"{machine['cores']}, of which this process may use {allowed}"
            + (f" and keep {quota:g} busy" if quota else ""),
        ),
        (
            "memory",
            f"{size(memory['total'])}, {size(memory['available'])} free, "
            f"{size(memory['swap'])} of swap, limit of the control group: "
            f"{size(memory['limit'])}",
        ),
        (
            "shared memory",
            f"{shared['segments']}; {shared['path']}: {size(shared['total'])}, "
            f"{size(shared['free'])} free",
        ),
        (
            "huge pages",
            f"{shared['huge_pages'] or 'none'}; for shared memory: "
            f"{shared['huge_pages_shared'] or 'none'}",
        ),
        (
            "limits",
            f"open files {_count(limits['open_files'])}, "
            f"processes {_count(limits['processes'])}, "
            f"address space {size(limits['address_space'])}, "
            f"locked memory {size(limits['locked_memory'])}, "
            f"size of a file {size(limits['file_size'])}",
        ),
        ("installed", ", ".join(installed) or "nothing that is optional"),
    ]


def describe_mpi(mpi: dict[str, Any]) -> str:
    """Return which MPI that is, or why there is none."""
    if "error" in mpi:
        return str(mpi["error"])
    return f"{mpi['vendor']} {mpi['version']} (MPI {mpi['standard']}), {mpi['library']}"


def describe_launcher(launcher: dict[str, Any]) -> str:
    """Return which mpirun that is, or why there is none."""
    if "error" in launcher:
        return str(launcher["error"])
    make = f"{launcher['vendor']} {launcher['version'] or ''}".strip()
    return f"{make if launcher['vendor'] else 'of an unknown make'}, {launcher['path']}"


def size(number: int | None) -> str:
    """Return a number of bytes for people; None is none."""
    if number is None:
        return "none"
    amount, unit = float(number), "bytes"
    for larger in ("KiB", "MiB", "GiB", "TiB"):
        if amount < 1024:
            break
        amount, unit = amount / 1024, larger
    return f"{number} bytes" if unit == "bytes" else f"{amount:.1f} {unit}"


def _count(number: int | None) -> str:
    return "without limit" if number is None else str(number)
