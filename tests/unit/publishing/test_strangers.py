"""Readers of files that anyone may have made, and writers in folders to which others may write."""

import contextlib
import errno
import itertools
import json
import os
import resource
import shutil
import tempfile
import unittest
import unittest.mock
from pathlib import Path

import numpy as np
import sessions
from folders import FolderTestCase
from requirements import needs
from strangers import HOSTILE, SPARSE_BYTES, tree

import multiverso as mv
from multiverso import checkpoint as checkpoints
from multiverso._native import files, remote, tensor_files
from multiverso.learn._history import write_json
from multiverso.publishing import _folder, _format

#: What a reader may raise about a file.
NAMED = (
    *(mv.errors.PublicationError, mv.errors.CheckpointCorruptError, mv.errors.CheckpointIOError),
    *(OSError, ValueError, MemoryError, mv.errors.StateError),
)
#: The most memory that a refusal may take, in bytes.
MOST_MEMORY = 64 << 20


def follow(folder):
    with mv.follow(folder) as view:
        return view.tables["w"].get()


def load(folder):
    with contextlib.closing(checkpoints.Checkpoint(folder)) as opened:
        opened.verify()
        return opened.read("w")


def import_file(folder):
    checkpoints.import_safetensors(folder / "w.safetensors", folder / "imported")


def publish(table, folder):
    for step in range(2):
        mv.publish(step, to=folder, full_every=1, keep=1)


def save(table, folder):
    mv.save(folder, step=1)
    mv.save(folder, step=2, keep=1)


def lie_there(table, folder):
    disk = mv.MatrixTable(100, 1, name="disk", backing=folder)
    disk.add(np.ones((100, 1)))


def export(table, folder):
    mv.save(folder.parent / "saved", keep=1)
    checkpoints.export_safetensors(folder.parent / "saved", folder / "w.safetensors")


WRITERS = {
    "publish": publish,
    "save": save,
    "backing": lie_there,
    "export": export,
    "history": lambda table, folder: write_json(folder / "history.json", {}),
}
PLANTED = {
    "a link to a file": lambda path, outside: path.symlink_to(outside / "precious"),
    "a link to nothing": lambda path, outside: path.symlink_to(outside / "nothing"),
    "a link to a folder": lambda path, outside: path.symlink_to(outside / "folder"),
    "a second name": lambda path, outside: os.link(outside / "empty", path),
    "a folder": lambda path, outside: path.mkdir(),
}


@contextlib.contextmanager
def one_table():
    with mv.session(name="strangers"):
        yield mv.ArrayTable(1000, np.arange(1000), name="w")


class TestReaders(FolderTestCase, sessions.SessionCleanupTestCase):
    """Each file of each kind is replaced by each hostile thing."""

    def setUp(self):
        super().setUp()
        with one_table() as table:
            mv.publish(1, to=self.folder / "published")
            mv.save(self.folder / "saved")
            del table
        tensors = {"w": _format.Tensor("F32", np.arange(1000, dtype=np.float32))}
        (self.folder / "file").mkdir()
        content = b"".join(map(bytes, _format.encode({}, tensors)))
        (self.folder / "file" / "w.safetensors").write_bytes(content)

    def check_refusals(self, read, folder):
        names = [path for path in folder.rglob("*") if path.suffix not in ("", ".lock")]
        self.assertTrue(names)
        for path, (what, make) in itertools.product(names, HOSTILE.items()):
            with self.subTest(what, path=path.name):
                kept = path.with_name("kept")
                path.rename(kept)
                make(path)
                before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
                try:
                    with self.assertRaises(NAMED) as caught:
                        read(folder)
                finally:
                    shutil.rmtree(path) if path.is_dir() else path.unlink()
                    kept.rename(path)
                grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
                self.assertLess(grown * 1024, MOST_MEMORY)
                self.assertIn(str(folder), str(caught.exception))

    def test_publications(self):
        np.testing.assert_array_equal(follow(self.folder / "published"), np.arange(1000))
        self.check_refusals(follow, self.folder / "published")

    def test_checkpoints(self):
        np.testing.assert_array_equal(load(self.folder / "saved"), np.arange(1000))
        self.check_refusals(load, self.folder / "saved")

    def test_safetensors(self):
        self.check_refusals(import_file, self.folder / "file")

    def test_what_fits_the_file_and_not_the_memory_is_a_memory_error(self):
        count = (SPARSE_BYTES - 4096) // 4
        entries = {"w": ("F32", [count], 0, 4 * count), "checksum": ("U32", [1], 4 * count, None)}
        header = _header(entries, 4 * count + 4)
        path = self.folder / "file" / "w.safetensors"
        path.write_bytes(header)
        os.truncate(path, len(header) + 4 * count + 4)
        with self.assertRaisesRegex(MemoryError, r"w\.safetensors: cannot hold 8.0 TiB"):
            import_file(self.folder / "file")
        with (
            files.open_file(path) as file,
            self.assertRaisesRegex(MemoryError, "cannot hold 8.0 TiB"),
        ):
            _format.decode(file, {})

    def test_view_keeps_its_version_without_memory_for_the_next(self):
        asked = []

        def refuse(file, size):
            asked.append(size)
            if size > 4000:  # the values
                raise MemoryError(f"{file.name}: cannot hold {size}")

        folder = self.folder / "published"
        with mv.follow(folder) as view, one_table() as table:
            table.add(np.ones(1000))
            mv.publish(2, to=folder)
            mv.shutdown()
            with unittest.mock.patch.object(files.OpenFile, "require_memory", refuse):
                for _ in range(2):
                    with self.assertRaisesRegex(MemoryError, str(folder)):
                        view.wait(timeout=60)
            self.assertEqual(view.version, 1)
            np.testing.assert_array_equal(view.tables["w"].get(), np.arange(1000))
            self.assertEqual(view.wait(timeout=60), 2)
            np.testing.assert_array_equal(view.tables["w"].get(), np.arange(1000) + 1)

    def test_hostile_headers_are_refused(self):
        good = {"w": ("F32", [2], 0, 8)}
        hostile = {
            "overlapping": {**good, "v": ("F32", [2], 0, 8)},
            "with a hole": {"w": ("F32", [2], 8, 16)},
            "beyond the end": {"w": ("F32", [4], 0, 16)},
            "shorter than the file": {"w": ("F32", [1], 0, 4)},
            "of a size above 64 bits": {"w": ("F32", [2**62, 2**62], 0, 8)},
            "of a negative size": {"w": ("F32", [-2], 0, 8)},
            "backwards": {"w": ("F32", [2], 8, 0)},
            "of too many dimensions": {"w": ("F32", [1] * 100_000 + [2], 0, 8)},
            "of no dtype": {"w": ("F33", [2], 0, 8)},
            "of an unhashable dtype": {"w": (["F32"], [2], 0, 8)},
            "of a real size": {"w": ("F32", [2.0], 0, 8)},
        }
        path = self.folder / "file" / "w.safetensors"
        contents = {name: _header(entries, 8) + bytes(8) for name, entries in hostile.items()}
        text = _header(good, 8)[8:]
        for name, changed in {
            "with a name twice": text.replace(b"{", b'{"w":1,', 1),
            "deep": b'{"w":' + b"[" * 200_000,
            "not UTF-8": text.replace(b"F32", b"F\xff2"),
            "no object": b"[]",
            "no JSON": b"NaN Infinity",
        }.items():
            contents[name] = tensor_files.LENGTH.pack(len(changed)) + changed + bytes(8)
        for length in (2**63, 2**64 - 1, 2**40, len(text) + 17):
            contents[f"of {length} bytes"] = tensor_files.LENGTH.pack(length) + text + bytes(8)
        path.write_bytes(_header(good, 8) + bytes(8))
        import_file(self.folder / "file")
        for name, content in contents.items():
            path.write_bytes(content)
            with self.subTest(name), self.assertRaisesRegex(ValueError, r"w\.safetensors"):
                import_file(self.folder / "file")

    @needs("fsspec")
    def test_files_of_a_store_are_refused_by_their_sizes(self):
        import fsspec

        shutil.copytree(self.folder / "published", self.folder / "store")
        folder = _folder.folder_of(f"local://{self.folder / 'store'}")
        self.enterContext(unittest.mock.patch.object(remote, "_FIRST_BYTES", 8))
        np.testing.assert_array_equal(follow(folder.name), np.arange(1000))
        info = fsspec.implementations.local.LocalFileSystem.info
        for path in (self.folder / "store").glob("*.*s*n*"):
            for size in (None, 2, SPARSE_BYTES):

                def lie(store, at, *, path=path, size=size, **options):
                    found = info(store, at, **options)
                    return {**found, "size": size} if at.endswith(path.name) else found

                with (
                    self.subTest(path=path.name, size=size),
                    unittest.mock.patch.object(type(folder._files), "info", lie),
                    self.assertRaisesRegex(mv.errors.PublicationError, path.name),
                ):
                    follow(folder.name)

    @needs("fsspec")
    def test_what_is_read_does_not_depend_on_other_readers_and_writers(self):
        contents = [bytes([number]) * size for number, size in enumerate((9, 900, 9, 9000))]
        for place in (self.folder / "x", "memory://x"):
            folder, opened = _folder.folder_of(place), []
            for content in contents:
                folder.write("latest.json", [content])
                opened += [(content, folder.open("latest.json")) for _ in range(2)]
            parts = [bytes(file.take(3)) for _, file in opened]
            for part, (content, file) in zip(parts, opened, strict=True):
                self.assertEqual(part + bytes(file.take(file.size - 3)), content)

    def test_files_that_change_while_they_are_read_are_refused(self):
        (name,) = (path.name for path in (self.folder / "published").glob("*.safetensors"))
        for size in (0, 8, 100, 1 << 20):
            folder = self.folder / f"copy-{size}"
            shutil.copytree(self.folder / "published", folder)
            opened = files.open_file(folder / name)
            os.truncate(folder / name, size)
            with self.subTest(size), opened, self.assertRaises((OSError, *tensor_files.BAD)):
                _format.decode(opened, {"version": 2 if size > 100 else 1})


class TestWriters(FolderTestCase, sessions.SessionCleanupTestCase):
    """Whatever lies in the place of a file, nothing outside of the folder changes."""

    def run_writer(self, write, folder):
        with one_table() as table:
            write(table, folder)

    def names_of(self, write):
        """Return the names that a writer uses, as far as they can be foreseen."""
        seen = []
        for _ in range(2):
            folder = Path(tempfile.mkdtemp(dir=self.folder), "shared")
            folder.mkdir()
            self.run_writer(write, folder)
            seen.append({str(path.relative_to(folder)) for path in folder.rglob("*")})
        return sorted(seen[0] & seen[1])

    def test_nothing_outside_is_touched(self):
        outside = self.folder / "outside"
        (outside / "folder").mkdir(parents=True)
        (outside / "folder" / "rows").write_text("precious")
        (outside / "precious").write_text("precious")
        (outside / "empty").write_bytes(b"")
        os.chmod(outside / "empty", 0o600)
        for kind, write in WRITERS.items():
            names = self.names_of(write)
            self.assertTrue(names)
            for name, (what, plant) in itertools.product(names, PLANTED.items()):
                folder = Path(tempfile.mkdtemp(dir=self.folder), "shared")
                (folder / name).parent.mkdir(parents=True)
                plant(folder / name, outside)
                before = tree(outside)
                with self.subTest(what, writer=kind, name=name):
                    try:
                        self.run_writer(write, folder)
                    except mv.errors.InternalError:
                        raise
                    except (mv.MultiversoError, OSError, ValueError) as error:
                        self.assertIn(str(folder), str(error))
                    self.assertEqual(tree(outside), before)
                    if name == "publisher.lock":
                        # What has failed holds no lock.
                        with contextlib.suppress(OSError):
                            (folder / name).unlink()
                        if not (folder / name).exists():
                            self.run_writer(write, folder)

    def test_publisher_that_fails_at_its_start_releases_the_folder(self):
        folder = self.folder / "shared"
        folder.mkdir()

        def no_thread(function, arguments):
            raise RuntimeError("can't start new thread")

        with one_table() as table:
            (folder / "latest.json").mkdir()
            with self.assertRaisesRegex(mv.errors.PublicationError, "regular file"):
                mv.publish(1, to=folder)
            (folder / "latest.json").rmdir()
            with (
                unittest.mock.patch("multiverso._native.threads.start_new_thread", no_thread),
                self.assertRaisesRegex(RuntimeError, "new thread") as kept,
            ):
                mv.publish(1, to=folder)
            mv.publish(1, to=folder)
            del kept, table
        np.testing.assert_array_equal(follow(folder), np.arange(1000))

    def test_names_that_begin_or_end_alike_stay(self):
        folder = self.folder / "shared"
        folder.mkdir()
        stay = [
            *(".notes.part", ".latest.json.part", ".latest.json.123.part", "1.safetensors"),
            *(f".notes.{7:016x}.part", f".latest.json.{7:016X}.part.part", "0001-x.safetensors"),
        ]
        for name in stay:
            (folder / name).write_text("precious")
        (folder / ".cache.part").mkdir()
        stuck = folder / f"{0:08}-{0:016x}-full.safetensors"
        stuck.mkdir()
        with one_table() as table:
            for step in range(6):
                table.add(np.ones(1000))
                mv.publish(step, to=folder, keep=1, full_every=1)
        self.assertLessEqual({*stay, ".cache.part", stuck.name}, set(os.listdir(folder)))
        self.assertEqual(len(list(folder.glob("0000*.safetensors"))), 2)
        self.assertEqual(follow(folder)[0], 6)

    def test_full_disk_is_a_named_error_until_there_is_room(self):
        folder = self.folder / "shared"
        unlimited = resource.getrlimit(resource.RLIMIT_FSIZE)
        errors = []
        with one_table() as table:
            mv.publish(0, to=folder)
            with mv.follow(folder, timeout=60) as view:
                # A limit on the size of files stands for the disk.
                resource.setrlimit(resource.RLIMIT_FSIZE, (1000, unlimited[1]))
                self.addCleanup(resource.setrlimit, resource.RLIMIT_FSIZE, unlimited)
                for step in range(1, 7):
                    table.add(np.ones(1000))
                    try:
                        mv.publish(step, to=folder, full_every=1)
                    except mv.errors.CheckpointIOError as error:
                        errors.append(error)
                resource.setrlimit(resource.RLIMIT_FSIZE, unlimited)
                self.assertTrue(errors)
                for error in errors:
                    self.assertEqual(error.errno, errno.EFBIG)
                    self.assertEqual(error.bytes_written, 1000)
                    self.assertTrue(error.path.startswith(str(folder)))
                    self.assertRegex(str(error), r"after 1000 of 4\d\d\d bytes; free room there")
                self.assertFalse([error.path for error in errors if os.path.exists(error.path)])
                while view.step < 7:
                    # The failure of the last publication before may still be told.
                    with contextlib.suppress(mv.errors.CheckpointIOError):
                        mv.publish(7, to=folder)
                    with contextlib.suppress(mv.errors.OperationTimeout):
                        view.wait(timeout=1)
                np.testing.assert_array_equal(view.tables["w"].get(), table.get())
        self.assertEqual(list(folder.glob(".*")), [])

    def test_names_of_files_being_written_cannot_be_foreseen(self):
        folder = _folder.LocalFolder(str(self.folder / "shared"))
        with unittest.mock.patch("builtins.open", wraps=open) as spy:
            for _ in range(3):
                folder.write("latest.json", [b"x"])
        names = {os.path.basename(call.args[0]) for call in spy.call_args_list}
        self.assertEqual(len(names), 3)
        self.assertEqual({files.written_as(name) for name in names}, {"latest.json"})


def _header(entries, end):
    """Return the header of a file with these tensors."""
    listed = {
        name: {"dtype": dtype, "shape": shape, "data_offsets": [begin, end if to is None else to]}
        for name, (dtype, shape, begin, to) in entries.items()
    }
    text = json.dumps({**listed, "__metadata__": {_format.METADATA: '{"format": 1}'}}).encode()
    return tensor_files.LENGTH.pack(len(text)) + text
