"""``multiverso verify DIR``: describes checkpoints, and verifies their checksums."""

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from multiverso._commands._argument_types import place
from multiverso._native.checkpoint_calls import name_intact
from multiverso.checkpoint import Checkpoint, saved_in
from multiverso.errors import CheckpointCorruptError, CheckpointIOError


def add_parser(commands: Any) -> None:
    """Declare the command."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "verify",
        help="verify every byte of checkpoints",
        description="Reads a checkpoint, or all checkpoints in a folder, verifies the checksums of "
        "every byte, and describes the contents. Exits with 1 if one is damaged.",
    )
    parser.add_argument("directory", type=place, help="a checkpoint, or a folder of checkpoints")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Verify the checkpoints, the newest first; return 0 if all are undamaged."""
    # An incremental checkpoint has links to the files of earlier ones. So the newest is read first,
    # and a checkpoint whose files have all been read is not read again.
    directory = Path(options.directory)
    if not directory.exists():
        sys.stderr.write(f"multiverso verify: there is no folder {directory}\n")
        return 1
    verified: set[tuple[int, int]] = set()
    results = []
    saved = saved_in(options.directory)[::-1]
    for path in saved or [options.directory]:
        result: dict[str, Any] = {"path": str(path), "intact": False}
        results.append(result)
        try:
            with Checkpoint(path) as checkpoint:
                result |= _content(checkpoint)
                if not options.json:
                    sys.stdout.write(_description(checkpoint))
                files = {_identity(file) for file in checkpoint.path.glob("shard-*.mv")}
                if not files or not files <= verified:
                    checkpoint.verify()
                    verified |= files
            result["intact"] = True
            if not options.json:
                sys.stdout.write("  intact\n")
        except (CheckpointCorruptError, OSError) as error:
            if not saved and isinstance(error, CheckpointCorruptError | CheckpointIOError):
                name_intact(error, path)
            result |= {"error": str(error.args[0]), **_place(error)}
            if not options.json:
                sys.stdout.flush()
                sys.stderr.write(f"multiverso: {_damage(error)}\n")
    intact = [Path(result["path"]) for result in results if result["intact"]]
    if options.json:
        sys.stdout.write(json.dumps(results, indent=2) + "\n")
    elif intact and len(intact) < len(results):
        path = intact[0].absolute()
        sys.stderr.write(f"multiverso: the newest intact one: mv.load({str(path)!r})\n")
    return 0 if len(intact) == len(results) else 1


def _place(error: Exception) -> dict[str, Any]:
    """Return the file that is damaged, and the byte, if the error is about one."""
    if not isinstance(error, CheckpointCorruptError) or error.path is None:
        return {}
    return {"file": error.path, "byte": error.offset}


def _damage(error: Exception) -> str:
    """Return one line about a damaged file, or the text of another error."""
    place = _place(error)
    if not place:
        return str(error)
    where = f"{place['file']}, byte {place['byte']}: "
    reason = str(error.args[0]).removeprefix(where)
    return f"damaged: {place['file']} at byte {place['byte']}: {reason}"


def _content(checkpoint: Checkpoint) -> dict[str, Any]:
    """Return what a checkpoint contains, as JSON values."""
    return {
        "step": checkpoint.step,
        "bytes": checkpoint.num_bytes,
        "files": checkpoint.num_files,
        "mode": checkpoint.mode,
        "saved": checkpoint.created.isoformat(),
        "version": checkpoint.library,
        "tables": [
            {
                "name": table.name,
                "shape": list(table.shape),
                "dtype": str(table.dtype),
                "updater": table.updater,
                "options": dict(table.options),
            }
            for table in checkpoint.tables
        ],
    }


def _identity(file: Path) -> tuple[int, int]:
    """Return the same numbers for all names of a file."""
    status = file.stat()
    return status.st_dev, status.st_ino


def _description(checkpoint: Checkpoint) -> str:
    tables, files = len(checkpoint.tables), checkpoint.num_files
    lines = [
        f"{checkpoint.path}: step {checkpoint.step}, {tables} table{'s' * (tables != 1)}, "
        f"{checkpoint.num_bytes} bytes in {files} file{'s' * (files != 1)} of data, "
        f"{checkpoint.mode} mode, saved {checkpoint.created:%Y-%m-%d %H:%M:%S} UTC "
        f"by version {checkpoint.library}"
    ]
    for table in checkpoint.tables:
        shape = " x ".join(map(str, table.shape))
        if table.is_hash_table:
            shape = f"{table.shape[0]} keys x {table.shape[1]}"
        options = "".join(f", {name} {value:g}" for name, value in table.options.items())
        rounds = f", {max(table.clocks)} rounds" if any(table.clocks) else ""
        lines.append(f"  {table.name!r}: {shape} {table.dtype}, {table.updater}{options}{rounds}")
    return "\n".join(lines) + "\n"
