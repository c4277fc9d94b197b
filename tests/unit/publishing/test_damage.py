"""Damaged, missing and hostile files of publications are named errors."""

import random

import numpy as np
from publications import FolderTestCase, live_cut

import multiverso as mv
from multiverso._native import files
from multiverso.errors import PublicationError, StateError
from multiverso.publishing._following import FolderStore
from multiverso.readers import View


class TestDamage(FolderTestCase):
    def setUp(self):
        super().setUp()
        rng = np.random.default_rng(1)
        #: The values after each step.
        self.states = {}
        with mv.session(name="followed"):
            table = mv.ArrayTable(1000, name="w")
            keyed = mv.HashTable(2, capacity=50, name="k")
            for step in range(1, 4):
                table.add(rng.normal(size=1000) * (rng.random(1000) < 0.1))
                keyed.add(rng.normal(size=(5, 2)), keys=rng.integers(0, 20, 5))
                mv.publish(step, to=self.folder)
                cut = live_cut()
                self.states[step] = (
                    cut["w"].tobytes(),
                    sorted(zip(*cut["k"], strict=True), key=lambda p: p[0]),
                )
        self.content = {path.name: path.read_bytes() for path in self.folder.iterdir()}

    def restore(self):
        for name, content in self.content.items():
            (self.folder / name).write_bytes(content)

    def check(self):
        """Follow the folder; the result is a published state or the named error."""
        try:
            with mv.follow(self.folder) as view:
                self.check_state(view)
                return None
        except (PublicationError, StateError) as error:
            return error

    def check_state(self, view):
        weights, rows = self.states[view.step]
        self.assertEqual(view.tables["w"].get().tobytes(), weights)
        keys, values = view.cut()["k"]
        self.assertEqual(keys.tolist(), [int(key) for key, _ in rows])
        self.assertEqual(values.tobytes(), b"".join(row.tobytes() for _, row in rows))

    def test_random_damage_is_a_named_error(self):
        rng = random.Random(2)
        names = [*self.files(), "latest.json"]
        for mutation in range(1500):
            name = rng.choice(names)
            content = bytearray(self.content[name])
            match rng.randrange(5):
                case 0:
                    content[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
                case 1:
                    del content[rng.randrange(len(content)) :]
                case 2:
                    first = rng.randrange(len(content))
                    content[first : first + 8] = rng.randbytes(8)
                case 3:
                    content += rng.randbytes(rng.randrange(1, 100))
                case 4:
                    content = bytearray(self.content[rng.choice(names)])
            (self.folder / name).write_bytes(content)
            if bytes(content) != self.content[name]:
                with self.subTest(mutation=mutation, name=name):
                    error = self.check()
                    # A tail after the second line of `latest.json` is not read.
                    if name != "latest.json" or not content.startswith(self.content[name]):
                        self.assertIsInstance(error, PublicationError)
                        self.assertIn(str(self.folder), error.path)
            (self.folder / name).write_bytes(self.content[name])
        self.assertIsNone(self.check())

    def test_hostile_headers_are_named_errors(self):
        from multiverso.publishing import _format

        name = self.files()[0]
        with files.open_file(self.folder / name) as file:
            good = _format.decode(file, {})
        tensors = {
            key: _format.Tensor({8: "I64", 4: "F32", 2: "U16"}[value.itemsize], value)
            for key, value in good.tensors.items()
            if key != "checksum"
        }
        rng = random.Random(3)
        strange = [None, -1, 2**70, 1e300, "x", [], {}, [None], [2**40], True, [[[]]]]
        for mutation in range(1000):
            metadata = _copied(good.metadata)
            place = rng.choice([metadata, *metadata["tables"]])
            place[rng.choice([*place])] = rng.choice(strange)
            kept = {key: value for key, value in tensors.items() if rng.random() < 0.9}
            parts = _format.encode(metadata, kept)
            (self.folder / name).write_bytes(b"".join(map(bytes, parts)))
            with self.subTest(mutation=mutation, metadata=metadata):
                try:
                    with mv.follow(self.folder) as view:
                        view.cut()
                except PublicationError as error:
                    self.assertIn(str(self.folder), error.path)

    def test_view_stays_at_the_last_complete_version(self):
        second, third = self.files()[1:]
        view = mv.follow(self.folder)
        self.addCleanup(view.close)
        self.assertEqual(view.version, 3)
        (self.folder / third).unlink()
        with self.assertRaisesRegex(PublicationError, "missing"):
            mv.follow(self.folder)
        self.restore()
        (self.folder / third).write_bytes(self.content[second])
        fresh = View(FolderStore(self.folder))
        with self.assertRaises(PublicationError):
            fresh.wait(3, timeout=5)
        self.assertEqual(fresh.version, 2)
        self.check_state(fresh)
        self.restore()
        self.assertEqual(fresh.wait(3, timeout=5), 3)
        self.check_state(fresh)
        # What the first, failed, wait has changed is still told.
        self.assertEqual(len(fresh.changed("w")[0]), 1000)

    def test_names_outside_the_folder_are_refused(self):
        from multiverso.publishing import _format

        for name in ("../x.safetensors", "/etc/passwd", "a/b.safetensors", "x", "", 3):
            entry = {"version": 1, "step": 1, "files": [name]}
            latest = {"format": 1, "job": "", "publications": [entry]}
            (self.folder / "latest.json").write_bytes(_format.dump_latest(latest))
            with self.subTest(name), self.assertRaisesRegex(PublicationError, "names of files"):
                mv.follow(self.folder)


def _copied(metadata):
    return {
        **metadata,
        "tables": [dict(record) for record in metadata["tables"]],
    }
