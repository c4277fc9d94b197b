"""Checkpoints at addresses: each is a folder of this machine, sent or fetched by the master.

The ranks save to a folder that only this user can open, as to any other. Then the master's thread
sends the files while training continues, the manifest last: without it there is no checkpoint.
"""

import contextlib
import shutil
import tempfile
import weakref
from collections.abc import Iterator
from ctypes import byref
from hashlib import sha256
from pathlib import Path
from typing import Any

from multiverso._native import checkpoint_calls, library, supported
from multiverso._native.arguments import flag
from multiverso._native.checkpoint_calls import MANIFEST, REMOTE, numbered, remote_checkpoints
from multiverso._native.exception_text import describe
from multiverso._native.library import checked
from multiverso._native.node_calls import read_description
from multiverso._native.remote import Job, RemoteFolder, Sender
from multiverso._session.departure import Leaver
from multiverso.errors import CheckpointIOError, MultiversoError

#: The companions of a session with its `RemoteSaves`.
SAVES = "saves at addresses"


class _Checkpoint(Job):
    """A checkpoint of this machine that is to be sent, after which the last `keep` ones stay."""

    def __init__(self, folder: RemoteFolder, source: Path, keep: int | None) -> None:
        super().__init__()
        self._folder, self._source, self._keep = folder, source, keep

    def do(self) -> None:
        """Send it, remove it here, and remove there what is not needed any more."""
        try:
            self._folder.send(self._source, self._source.name, MANIFEST)
        finally:
            shutil.rmtree(self._source, ignore_errors=True)
        there = self._folder.folders()
        complete = remote_checkpoints(there)
        old = set(complete[: -self._keep] if self._keep else ())
        for name in numbered(there):
            if name in old or name not in complete:  # A job that was killed has left the latter.
                self._folder.remove_folder(name, there[name], MANIFEST)


class RemoteSaves:
    """The saves and loads of a session whose folders are addresses."""

    def __init__(self, session: Leaver) -> None:
        described = read_description(checked.MV_SessionStats, session.handle)
        self._handle, self._is_alone = session.handle, len(described["members"]) == 1
        self._folder = Path(tempfile.gettempdir(), f"multiverso-{described['session']:016x}")
        self._sender: Sender | None = None
        if session.is_master_worker():
            self._folder.mkdir(mode=0o700)
            weakref.finalize(self, shutil.rmtree, self._folder, True)
            self._sender = Sender("a checkpoint to an address", session.options.timeout)

    def save(self, address: str, step: Any, keep: Any, background: Any, incremental: Any) -> None:
        """Save to this machine, and begin to send that; see `multiverso.save`."""
        here = self._place(address)
        raw = checkpoint_calls.save_options(here, step, keep, background, incremental)
        if raw.incremental:
            raise ValueError(
                "incremental: expected False for an address, to which files cannot be linked, "
                "received True; save increments to a folder of this machine and copy them"
            )
        raw.background = False  # Sending takes longer, and is always in the background.
        folder = None
        with self._others_fail(address):
            if self._sender is not None:
                self._sender.check(waits=True)
                folder = RemoteFolder(address, REMOTE)
                shutil.rmtree(here, ignore_errors=True)
                # The number of the checkpoint and its step follow those of the last one there.
                for name in numbered(folder.folders())[-1:]:
                    (here / name).mkdir(parents=True)
        checked.MV_SessionSave(self._handle, byref(raw))
        if self._sender is not None and folder is not None:
            saved = checkpoint_calls.saved_in(here)[-1]
            self._sender.put(_Checkpoint(folder, saved, raw.keep if keep is not None else None))

    def wait(self) -> None:
        """Wait until all checkpoints have been sent; raise what has failed."""
        with self._others_fail("the last checkpoint"):
            if self._sender is not None:
                self._sender.check(waits=True)

    def load(self, address: str, missing_ok: bool) -> Any:
        """Fetch a checkpoint, and load it with all ranks; see `multiverso.load`."""
        flag(missing_ok, "missing_ok")
        here = self._place(address)
        with self._others_fail(address):
            if self._sender is not None:
                self._sender.check(waits=True)
                folder = RemoteFolder(address, REMOTE)
                shutil.rmtree(here, ignore_errors=True)
                there = folder.folders()
                # The address may be that of a checkpoint itself.
                names = [""] if MANIFEST in there.get("", ()) else remote_checkpoints(there)
                for name in names[-1:]:
                    folder.fetch(name, there[name], here / name)
        try:
            return checkpoint_calls.load(checked.MV_SessionLoad, self._handle, here, missing_ok)
        finally:
            if self._sender is not None:
                shutil.rmtree(here, ignore_errors=True)

    def close(self) -> None:
        """Wait for the last checkpoint before the session ends."""
        if self._sender is not None:
            try:
                self._sender.check(waits=True)
            finally:
                self._sender.end()

    def _place(self, address: str) -> Path:
        """Return the folder of this machine that stands for an address, on all ranks the same."""
        # A checkpoint has to be loaded from a folder of its name.
        name = address.rstrip("/").rpartition("/")[2]
        place = self._folder / sha256(address.encode()).hexdigest()[:16] / name
        library.addresses[str(place)] = address.rstrip("/")
        return place

    @contextlib.contextmanager
    def _others_fail(self, address: str) -> Iterator[None]:
        """Let the other ranks, which wait in a save or load, get a MismatchError if this fails."""
        try:
            yield
        except BaseException as error:
            if not self._is_alone:
                with contextlib.suppress(Exception):
                    checked.MV_SessionBarrier(self._handle)
            if not isinstance(error, OSError) or isinstance(error, MultiversoError):
                raise
            failure = CheckpointIOError(f"{address}: cannot be used: {describe(error)}")
            failure.set_file(address, 0, error.errno or 0)
            raise failure from error


def remote_saves(session: Leaver) -> RemoteSaves:
    """Return the saves of a session at addresses, unless they are not supported."""
    supported.check("checkpoints at an address", *session.features())
    found: list[Any] = session.companions.setdefault(SAVES, [])
    if not found:
        found.append(RemoteSaves(session))
    return found[0]  # type: ignore[no-any-return]
