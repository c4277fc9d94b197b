"""``multiverso verify DIR``: describes checkpoints, and verifies their checksums."""

import argparse
import sys
from pathlib import Path
from typing import Any

from multiverso.checkpoint import Checkpoint, saved_in
from multiverso.errors import CheckpointCorruptError


def add_parser(commands: Any) -> None:
    """Declare the command."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "verify",
        help="verify every byte of checkpoints",
        description="Reads a checkpoint, or all checkpoints in a folder, verifies the checksums of "
        "every byte, and describes the contents. Exits with 1 if one is damaged.",
    )
    parser.add_argument("directory", type=Path, help="a checkpoint, or a folder of checkpoints")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Verify the checkpoints, the newest first; return 0 if all are undamaged."""
    code = 0
    # An incremental checkpoint has links to the files of earlier ones. So the newest is read first,
    # and a checkpoint whose files have all been read is not read again.
    verified: set[tuple[int, int]] = set()
    for path in saved_in(options.directory)[::-1] or [options.directory]:
        try:
            with Checkpoint(path) as checkpoint:
                sys.stdout.write(_description(checkpoint))
                files = {_identity(file) for file in checkpoint.path.glob("shard-*.mv")}
                if not files or not files <= verified:
                    checkpoint.verify()
                    verified |= files
            sys.stdout.write("  intact\n")
        except (CheckpointCorruptError, OSError) as error:
            sys.stdout.flush()
            sys.stderr.write(f"multiverso: {error}\n")
            code = 1
    return code


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
