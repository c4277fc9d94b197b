"""``multiverso info``: shows the software and the machine."""

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from multiverso._commands import _system_info


def add_parser(commands: Any) -> None:
    """Declare the command."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "info",
        help="show versions, MPI, memory and installed packages",
        description="Shows the versions of Multiverso, MPI and Python, the cores and memory of the "
        "machine, and the optional packages that are installed. Add it to bug reports.",
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Print the information; return 0."""
    facts = _system_info.collect()
    if options.json:
        sys.stdout.write(json.dumps(facts, indent=2) + "\n")
    else:
        lines = _info_lines(facts)
        width = max(len(name) for name, _ in lines)
        sys.stdout.writelines(f"{name:<{width}}  {text}\n" for name, text in lines)
    return 0


def _info_lines(facts: dict[str, Any]) -> list[tuple[str, str]]:
    library, machine, python = facts["library"], facts["machine"], facts["python"]
    memory, shared, limits = facts["memory"], facts["shared_memory"], facts["limits"]
    allowed, quota = machine["cores_allowed"], machine["cores_quota"]
    installed = [f"{name} {version}" for name, version in facts["installed"].items() if version]
    return [
        ("multiverso", f"{facts['version']} in {facts['package']}"),
        (
            "library",
            f"{library['path']}{_outside(facts)}, ABI {library['abi']}, "
            f"{library['build_type']} build by {library['compiler']}, "
            f"{library['vector_kernels']} kernels",
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
            f"{format_bytes(memory['total'])}, {format_bytes(memory['available'])} free, "
            f"{format_bytes(memory['swap'])} of swap, limit of the control group: "
            f"{format_bytes(memory['limit'])}"
            if memory["available"] is not None  # Only Linux tells.
            else format_bytes(memory["total"]),
        ),
        (
            "shared memory",
            f"{shared['segments']}; {shared['path']}: {format_bytes(shared['total'])}, "
            f"{format_bytes(shared['free'])} free",
        ),
        (
            "huge pages",
            f"{shared['huge_pages'] or 'none'}; for shared memory: "
            f"{shared['huge_pages_shared'] or 'none'}",
        ),
        (
            "limits",
            f"open files {_format_limit(limits['open_files'])}, "
            f"processes {_format_limit(limits['processes'])}, "
            f"address space {format_bytes(limits['address_space'])}, "
            f"locked memory {format_bytes(limits['locked_memory'])}, "
            f"size of a file {format_bytes(limits['file_size'])}",
        ),
        ("installed", ", ".join(installed) or "no optional packages"),
    ]


def _outside(facts: dict[str, Any]) -> str:
    """Return a remark if the library is not the package's own."""
    is_inside = Path(facts["library"]["path"]).is_relative_to(facts["package"])
    return "" if is_inside else " (not in the package)"


def describe_mpi(mpi: dict[str, Any]) -> str:
    """Return vendor, version and path of the MPI, or the error."""
    if "error" in mpi:
        return "none" if mpi.get("is_missing") else str(mpi["error"])
    return f"{mpi['vendor']} {mpi['version']} (MPI {mpi['standard']}), {mpi['library']}"


def describe_launcher(launcher: dict[str, Any]) -> str:
    """Return vendor, version and path of the mpirun, or the error."""
    if "error" in launcher:
        return "none" if launcher.get("is_missing") else str(launcher["error"])
    program = f"{launcher['vendor']} {launcher['version'] or ''}".strip()
    return f"{program if launcher['vendor'] else 'unknown vendor'}, {launcher['path']}"


def format_bytes(count: int | None) -> str:
    """Return a number of bytes in readable units; None becomes "none"."""
    if count is None:
        return "none"
    amount, unit = float(count), "bytes"
    for larger in ("KiB", "MiB", "GiB", "TiB"):
        if amount < 1024:
            break
        amount, unit = amount / 1024, larger
    return f"{count} bytes" if unit == "bytes" else f"{amount:.1f} {unit}"


def _format_limit(limit: int | None) -> str:
    return "unlimited" if limit is None else str(limit)
