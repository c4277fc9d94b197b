"""Incremental saves: when they are possible, and that each is complete."""

import shutil

import checkpoint_bytes
import failpoints
import numpy as np
from folders import FolderTestCase
from programs import run_program

import multiverso as mv
from multiverso import checkpoint as checkpoints

ROWS = 40_000


def size_of(path):
    """Return the bytes that the save itself wrote."""
    return sum(file.stat().st_size for file in path.iterdir() if "-of-" not in file.name)


def bases(path):
    """Return the numbers of the earlier checkpoints whose files this one has, the newest first."""
    manifest = checkpoint_bytes.read_manifest((path / "manifest.mv").read_bytes())
    numbers = {file["number"] for file in manifest["files"]} - {manifest["number"]}
    return sorted(numbers, reverse=True)


class IncrementTestCase(FolderTestCase):
    def save(self, **options):
        """Save an increment, if possible; return its path and what `bases` returns."""
        mv.save(self.folder, incremental=True, **options)
        path = checkpoints.latest(self.folder)
        return path, bases(path)

    def table(self):
        return mv.MatrixTableHandler(ROWS, 16, updater="adam", name="m")


class TestIncrements(IncrementTestCase):
    def test_increment_has_only_changed_rows_and_restores_all(self):
        with mv.session():
            table = self.table()
            table.add(np.ones((ROWS, 16)))
            first, none = self.save(step=10)
            table.add(np.ones((2, 16)), [7, ROWS - 1])
            second, base = self.save(step=20)
            mv.save(self.folder, step=30, background=True, incremental=True)
            mv.wait_for_save()
            third = checkpoints.latest(self.folder)
            both = bases(third)
            values = table.get()
        self.assertEqual((none, base, both), ([], [1], [2, 1]))
        self.assertLess(size_of(second), 2_000)
        self.assertLess(size_of(third), 5_000)
        manifest, arrays = checkpoint_bytes.read(third)
        self.assertEqual((manifest["version"], manifest["step"]), (5, 30))
        np.testing.assert_array_equal(arrays[0, 0], values)
        with checkpoints.Checkpoint(second) as opened:
            opened.verify()
            np.testing.assert_array_equal(arrays[0, 0], opened.read("m"))
            np.testing.assert_array_equal(arrays[0, 2], opened.read("m", 1))
            steps = arrays[0, checkpoint_bytes.STEPS].ravel()
            np.testing.assert_array_equal(steps, opened.read_steps("m"))
            self.assertEqual((steps[7], steps[8]), (2, 1))
        with mv.session():
            table = self.table()
            self.assertEqual(mv.load(self.folder), 30)
            np.testing.assert_array_equal(table.get(), values)

    def test_increment_has_what_the_updater_has_noted_of_gets(self):
        def step(table):
            return table.add_get(np.full(50_000, 2))[0]

        def create():
            return mv.ArrayTable(50_000, 9, updater="dcasgd", learning_rate=1, variance_control=1)

        with mv.session():
            table = create()
            self.save()
            table.get()  # 9, so that the second of the next two adds is late
            self.assertEqual(self.save()[1], [])  # all of it, so as a full one
            table.add(np.full(50_000, 2))
            expected = step(table)
        with mv.session():
            table = create()
            mv.load(self.folder)
            table.add(np.full(50_000, 2))
            self.assertEqual(step(table), expected)
        self.assertEqual(expected, 7 - (2 + 2 * 2 * (7 - 9)))

    def test_save_is_full_without_a_usable_base(self):
        with mv.session():
            table = self.table()
            self.assertEqual(self.save()[1], [])  # the first one in the folder
            self.assertEqual(self.save()[1], [1])
            mv.load(self.folder)
            self.assertEqual(self.save()[1], [])
            new = mv.ArrayTableHandler(3, name="new")
            self.assertEqual(self.save()[1], [])
            self.assertEqual(self.save()[1], [4])
            del new
        with mv.session():
            table = self.table()
            table.add(np.ones((ROWS, 16)))
            self.assertEqual(self.save()[1], [])  # another session
            table.add(np.ones((1, 16)), [3])
            self.assertEqual(self.save()[1], [6])
            shutil.rmtree(self.folder / "000006-step-5")
            path, base = self.save()
            self.assertEqual(base, [7, 6])  # whose files checkpoint 7 has
            checkpoints.verify(path)
            shutil.rmtree(path)
            last, none = self.save()
            self.assertEqual(none, [])
            with checkpoints.Checkpoint(last) as opened:
                np.testing.assert_array_equal(opened.read("m"), table.get())

    def test_save_that_failed_or_went_elsewhere_does_not_count(self):
        with mv.session():
            table = self.table()
            self.save()
            table.add(np.ones((1, 16)), [100])
            mv.save(self.folder.with_suffix(".other"))
            self.folder.rename(self.folder.with_suffix(".aside"))
            self.folder.write_text("no folder")
            with self.assertRaises(mv.errors.CheckpointIOError):
                mv.save(self.folder, incremental=True)
            self.folder.unlink()
            self.folder.with_suffix(".aside").rename(self.folder)
            path, base = self.save()
            self.assertEqual(base, [1])
            with checkpoints.Checkpoint(path) as opened:
                np.testing.assert_array_equal(opened.read("m"), table.get())

    def test_keep_counts_increments_and_each_is_complete(self):
        with mv.session():
            table = self.table()
            for step in range(5):
                table.add(np.ones((1, 16)), [step])
                path, base = self.save(keep=2)
            names = [path.name for path in checkpoints.saved_in(self.folder)]
            self.assertEqual(names, ["000004-step-3", "000005-step-4"])
            self.assertEqual(base, [4, 3, 2, 1])
            values = table.get()
        copy = shutil.copytree(path, self.folder.with_suffix(".copy"))
        shutil.rmtree(self.folder)
        checkpoints.verify(copy)
        with mv.session():
            table = self.table()
            mv.load(copy)
            np.testing.assert_array_equal(table.get(), values)

    @failpoints.needs_failpoints
    def test_save_is_full_where_files_cannot_be_linked(self):
        links = ",".join(f"file.link@{number}=error" for number in (1, 2, 3))
        environment = failpoints.environment(links)
        status, output, errors = run_program(SAVES, self.folder, **environment)
        self.assertEqual(status, 0, errors)
        self.assertIn("is a full checkpoint and not an increment: ", output + errors)
        for path in checkpoints.saved_in(self.folder):
            self.assertEqual(bases(path), [])
            checkpoints.verify(path)

    def test_increments_as_large_as_the_full_checkpoint_make_the_next_one_full(self):
        with mv.session():
            table = self.table()
            chains = []
            for _ in range(7):
                table.add(np.ones((ROWS * 3 // 5, 16)), range(ROWS * 3 // 5))
                chains.append(len(self.save(keep=1)[1]))
            table.add(np.ones((ROWS, 16)))
            self.assertEqual([*chains, len(self.save(keep=1)[1])], [0, 1, 2, 0, 1, 2, 0, 0])
        self.assertEqual(self.names(), ["000008-step-7"])

    def test_checkpoint_has_at_most_32_increments(self):
        with mv.session():
            table = mv.MatrixTableHandler(200_000, 16, name="m")
            chains = []
            for step in range(35):
                table.add(np.ones((1, 16)), [step])
                chains.append(len(self.save()[1]))
            self.assertEqual(chains, [*range(33), 0, 1])


SAVES = """
import sys
import numpy as np
import multiverso as mv
with mv.session():
    table = mv.MatrixTableHandler(30_000, 16, name="w")
    step = mv.load(sys.argv[1], missing_ok=True) or 0
    table.add(np.full((30_000, 16), step + 1) - table.get())
    mv.save(sys.argv[1], step=step + 1, keep=1, incremental=True)
    for i in range(3):
        step += 1
        table.add(np.ones((1, 16)), [step])
        background = len(sys.argv) > 2
        mv.save(sys.argv[1], step=step + 1, keep=2, background=background, incremental=True)
    mv.wait_for_save()
"""
