"""Every call that takes a place understands the same names, and refuses the same ones."""

import contextlib
import io
import os
from pathlib import Path

from folders import FolderTestCase

import multiverso as mv
from multiverso import checkpoint
from multiverso._commands import main
from multiverso.learn import Data, MPIManager

#: Texts and objects that name no place on this machine, with a part of the error.
WRONG = {
    "s3://bucket/run": "address",
    "S3A://bucket/run": "address",
    "simplecache::s3://bucket/run": "address",
    "hdfs://host:9000/run#1": "address",
    Path("s3://bucket/run"): "one slash",
    "node1:/scratch/run": "one slash",
    "file://host/run": "file:///folder",
    "file://run": "file:///folder",
    "file://": "file:///folder",
    "file:run": "file:///folder",
    "FILE:": "file:///folder",
    "file:///run%00": "NUL",
    "~/run": "expanduser",
    Path("~"): "expanduser",
    "": "one or more characters",
    "run\0": "NUL",
    b"run": "a str or a path",
    5: "a str or a path",
}
#: Names of folders in the current one, all of which are possible.
NAMES = ("run", "run 1", "run#1", "run?1", "50%", "a%20b", "weird:name", "C:\\run", "~run", "ä")


def init(place):
    try:
        mv.init(on_term="leave", checkpoints=place)
    finally:
        if mv.is_initialized():
            mv.shutdown()


def manager(**places):
    options = {"train_list": ["a"], "num_epochs": 1, **places}
    return MPIManager(None, Data(1), None, None, **options)


def command(*arguments):
    """Run a command; raise ValueError with its error if its arguments are wrong."""
    errors = io.StringIO()
    try:
        with contextlib.redirect_stderr(errors):
            main(list(arguments))
    except SystemExit:
        raise ValueError(errors.getvalue()) from None


def in_session(function):
    """Return a call that makes a session with a table, and passes the table and the place."""

    def call(place):
        with mv.session(name="places"):
            function(mv.HashTable(1, capacity=10, name="w"), place)

    return call


CALLS = {
    "init": init,
    "save": in_session(lambda table, place: mv.save(place)),
    "save(background=)": in_session(lambda table, place: mv.save(place, background=True)),
    "load": in_session(lambda table, place: mv.load(place, missing_ok=True)),
    "table.save": in_session(lambda table, place: table.save(place)),
    "table.load": in_session(lambda table, place: table.load(place, missing_ok=True)),
    "ArrayTable": in_session(lambda table, place: mv.ArrayTable(1, backing=place)),
    "MatrixTable": in_session(lambda table, place: mv.MatrixTable(1, 1, backing=place)),
    "HashTable": in_session(lambda table, place: mv.HashTable(1, capacity=9, backing=place)),
    "latest": checkpoint.latest,
    "saved_in": checkpoint.saved_in,
    "Checkpoint": checkpoint.Checkpoint,
    "verify": checkpoint.verify,
    "export from": lambda place: checkpoint.export_safetensors(place, "file"),
    "export to": lambda place: checkpoint.export_safetensors("folder", place),
    "import from": lambda place: checkpoint.import_safetensors(place, "folder"),
    "import to": lambda place: checkpoint.import_safetensors("file", place),
    "MPIManager(checkpoint=)": lambda place: manager(checkpoint=place),
    "MPIManager(restore=)": lambda place: manager(restore=place),
    "MPIManager(profile=)": lambda place: manager(profile=place),
}
#: The calls that also take an address.
OF_ADDRESSES = {
    *("init", "save", "save(background=)", "load", "latest", "saved_in", "publish", "follow")
}
COMMANDS = {
    "multiverso verify": lambda place: command("verify", str(place)),
    "multiverso examples": lambda place: command("examples", "--copy", str(place)),
    "multiverso bench": lambda place: command("bench", "--json", str(place)),
}
#: The calls that save something, with a place that exists afterwards.
SAVES = {
    "init": lambda place: (init(place), in_session(lambda table, _: mv.save(place))(place)),
    **{name: CALLS[name] for name in ("save", "save(background=)", "table.save", "HashTable")},
    "publish": in_session(lambda table, place: mv.publish(1, to=place)),
    "multiverso examples": COMMANDS["multiverso examples"],
}


class TestPlaces(FolderTestCase):
    def setUp(self):
        super().setUp()
        self.addCleanup(os.chdir, Path.cwd())
        os.chdir(self.folder)

    def test_what_names_no_place_is_refused_before_anything_is_made(self):
        for place, part in WRONG.items():
            calls = CALLS | (COMMANDS if isinstance(place, str) else {})
            calls |= {"publish": SAVES["publish"], "follow": mv.follow}
            for name in calls.keys() - (OF_ADDRESSES if part == "address" else set()):
                call = calls[name]
                with self.subTest(name, place=place):
                    with self.assertRaises((TypeError, ValueError)) as raised:
                        call(place)
                    self.assertIn(part, " ".join(str(raised.exception).split()))
                    self.assertEqual(self.names(), [])

    def test_a_path_and_its_file_address_are_one_place(self):
        for call_name, call in SAVES.items():
            for number, name in enumerate(NAMES):
                with self.subTest(call_name, name=name), contextlib.redirect_stdout(io.StringIO()):
                    folder = self.folder / str(len(self.names()))
                    folder.mkdir()
                    os.chdir(folder)
                    place = folder / name
                    uri = place.as_uri()
                    local = uri.replace("file://", "file://localhost")
                    unquoted = f"file://{str(place).replace('%', '%25')}"
                    call((place, name, uri, local, unquoted, f"FILE:{uri[7:]}")[number % 6])
                    self.assertEqual(os.listdir(), [name])
                    os.chdir(self.folder)

    def test_followers_read_the_folder_of_their_address(self):
        for value, name in enumerate(NAMES):
            with mv.session(name="places"):
                table = mv.ArrayTable(1, name="w")
                table.add([value])
                mv.publish(1, to=f"file://{self.folder}/{name.replace('%', '%25')}")
        for value, name in enumerate(NAMES):
            for place in (self.folder / name, name, (self.folder / name).as_uri()):
                with self.subTest(name, place=place), mv.follow(place, timeout=30) as view:
                    self.assertEqual(view.tables["w"].get(), [value])

    def test_a_folder_that_cannot_be_written_is_refused_before_training(self):
        Path("file").touch()
        for place in ("file", "file/run", "/dev/null/run"):
            with self.subTest("init", place=place), self.assertRaisesRegex(ValueError, "writ"):
                init(place)
            for name in ("load", "latest", "save", "HashTable"):
                with (
                    self.subTest(name, place=place),
                    self.assertRaises((OSError, mv.errors.CheckpointCorruptError)),
                ):
                    CALLS[name](place)
        self.assertEqual(self.names(), ["file"])

    def test_checkpoints_stay_where_they_were_when_the_current_folder_changes(self):
        with mv.session(on_term="leave", checkpoints="saved") as session:
            os.chdir("/")
            self.assertEqual(session.options.checkpoints, str(self.folder / "saved"))
