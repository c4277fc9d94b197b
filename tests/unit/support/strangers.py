"""What somebody else may put in the place of a file, and what a folder looks like afterwards."""

import os
import socket

#: A file of so many bytes, with no data, fits on any disk and into no memory.
SPARSE_BYTES = 1 << 43


def _socket(path):
    """Make a socket, whose path may be longer than an address can be."""
    before = os.getcwd()
    os.chdir(path.parent)
    try:
        with socket.socket(socket.AF_UNIX) as made:
            made.bind(path.name)
    finally:
        os.chdir(before)


def _sparse(path):
    with open(path, "wb") as file:
        file.truncate(SPARSE_BYTES)


#: What makes a thing that is no file of ours, by its name.
HOSTILE = {
    "a pipe": os.mkfifo,
    "a folder": os.mkdir,
    "a socket": _socket,
    "a device without end": lambda path: os.symlink("/dev/zero", path),
    "the memory of this process": lambda path: os.symlink("/proc/self/mem", path),
    "a link to itself": lambda path: os.symlink(path.name, path),
    "a link to nothing": lambda path: os.symlink("nowhere", path),
    "an empty file": lambda path: path.write_bytes(b""),
    "a file of eight tebibytes": _sparse,
    "another file": lambda path: path.write_bytes(b"\x08\0\0\0\0\0\0\0{" + b"[" * 100_000),
}


def tree(folder):
    """Return what is in a folder, without following links."""
    found = {}
    for path in sorted(folder.rglob("*")):
        status = path.lstat()
        is_file = path.is_file() and not path.is_symlink()
        content = path.read_bytes() if is_file else None
        # The time shows a file that was written and has its content again.
        found[str(path.relative_to(folder))] = (status.st_mode, status.st_mtime_ns, content)
    return found
