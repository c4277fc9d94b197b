"""Tables in files on a disk: from session to session, and files that are refused."""

import gc
import os
import random
import shutil
import tempfile
import unittest

import failpoints
import numpy as np
from folders import FolderTestCase
from programs import run_command, run_program

import multiverso as mv

ROWS, COLUMNS = 3000, 40


class BackingTest(FolderTestCase):
    def matrix(self, *, name="rows", **options):
        options.setdefault("init_value", mv.initializers.RandomUniform(-1, 1))
        return mv.MatrixTable(ROWS, COLUMNS, backing=self.folder / name, **options)

    @property
    def node(self):
        return self.folder / "rows" / "node-0"


class TestFilesThatVanish(BackingTest):
    def test_the_next_save_warns_and_the_end_of_the_session_fails(self):
        def replace(name):
            shutil.copy(self.node / name, self.folder / "copy")
            os.replace(self.folder / "copy", self.node / name)

        for what, vanish in {
            "rows": lambda: (self.node / "rows").unlink(),
            "header": lambda: (self.node / "header").unlink(),
            "folder": lambda: shutil.rmtree(self.folder / "rows"),
            "replaced rows": lambda: replace("rows"),
            "replaced header": lambda: replace("header"),
        }.items():
            for releases in (False, True):
                shutil.rmtree(self.folder / "rows", ignore_errors=True)
                warnings = []
                with self.subTest(what, releases=releases):
                    with self.assertRaises(mv.errors.CheckpointIOError) as raised, mv.session():
                        table = self.matrix()
                        table.add(np.ones((1, COLUMNS)), [5])
                        warnings.append(self.warning_of_save())
                        vanish()
                        warnings.append(self.warning_of_save())
                        del table
                        if releases:
                            gc.collect()
                    self.assertEqual(warnings[0], "")
                    self.assertRegex(warnings[1], "warning: .*/rows/node-0/(rows|header): ")
                    self.assertIn(raised.exception.path, warnings[1])

    def warning_of_save(self):
        """Save, and return what the library has written to standard error."""
        with tempfile.TemporaryFile() as file:
            saved = os.dup(2)
            os.dup2(file.fileno(), 2)
            try:
                mv.save(self.folder / "saved")
            finally:
                os.dup2(saved, 2)
                os.close(saved)
            file.seek(0)
            return file.read().decode()

    def test_files_that_have_been_moved_are_complete(self):
        with self.assertRaisesRegex(mv.errors.CheckpointIOError, "moved"), mv.session():
            self.matrix().add(np.ones((1, COLUMNS)), [5])
            (self.folder / "rows").rename(self.folder / "moved")
        with mv.session():
            self.assertTrue(self.matrix(name="moved").reopened)


class TestTablesThatAreFreed(BackingTest):
    def test_the_files_keep_what_the_program_has_stored(self):
        values = np.arange(ROWS * COLUMNS, dtype=np.float32).reshape(ROWS, COLUMNS)
        with mv.session():
            self.matrix(name="given", init_value=values)
            table = self.matrix(name="added", init_value=None)
            table.add(values)
            with self.assertRaises(mv.errors.CheckpointIOError):
                self.matrix(name="/dev/null/none")
            del table
            table = self.matrix(name="before", init_value=None)
            table.add(values)
            newer = self.matrix(name="newer")
            del table
            del newer
        with mv.session():
            for name in ("given", "added", "before"):
                table = self.matrix(name=name, init_value=None)
                self.assertTrue(table.reopened, name)
                np.testing.assert_array_equal(table.get(), values)


class TestReopening(BackingTest):
    def test_an_error_of_the_only_rank_leaves_a_table_of_an_earlier_session(self):
        for is_new in (False, True):
            folder = f"rows-{is_new}"
            if not is_new:
                with mv.session():
                    self.matrix(name=folder).get([0])
            with self.assertRaisesRegex(RuntimeError, "of the program"), mv.session():
                self.matrix(name=folder).add(np.ones((1, COLUMNS)), [5])
                raise RuntimeError("an error of the program")
            with self.subTest(is_new), mv.session():
                if is_new:  # It may be half of what the program was going to load.
                    self.assertRaisesRegex(
                        mv.StateError, "did not end well", self.matrix, name=folder
                    )
                else:
                    self.assertTrue(self.matrix(name=folder).reopened)

    @failpoints.needs_failpoints
    def test_a_table_that_is_half_loaded_is_refused(self):
        program = """
            import sys, numpy as np, multiverso as mv
            folder, ids = sys.argv[1], np.arange(100_000)
            with mv.session():
                zeros = mv.initializers.Zeros()
                if sys.argv[2] == "save":
                    table = mv.MatrixTable(len(ids), 64, zeros, name="saved")
                    table.add(np.ones((len(ids), 64)), ids)
                    mv.save(folder + "/checkpoint")
                    sys.exit()
                table = mv.MatrixTable(len(ids), 64, zeros, name="saved", backing=folder + "/rows")
                try:
                    mv.load(folder + "/checkpoint")
                except MemoryError:
                    values = table.get(ids)
                    print((values == 0).any(), (values == 1).any())
            """
        self.assertEqual(run_program(program, self.folder, "save")[0], 0)
        points = failpoints.environment("file_segment.reserve@15=error")
        status, out, err = run_program(program, self.folder, "load", **points)
        self.assertEqual((status, out), (0, "True True\n"), err)
        status, _, err = run_program(program, self.folder, "load")
        self.assertEqual(status, 1)
        self.assertIn("did not end well", err)

    @failpoints.needs_failpoints
    def test_rows_that_could_not_be_written_are_refused(self):
        program = """
            import sys, numpy as np, multiverso as mv
            with mv.session():
                table = mv.MatrixTable(1000, 4, backing=sys.argv[1])
                table.add(np.ones((1000, 4)))
            """
        self.assertEqual(run_program(program, self.folder)[0], 0)
        points = failpoints.environment("file_segment.write_back@2=error")
        for expected, environment in (("Input/output error", points), ("did not end well", {})):
            status, _, err = run_program(program, self.folder, **environment)
            self.assertEqual(status, 1)
            self.assertIn(expected, err)

    def test_tables_without_a_seed_differ_and_keep_their_values(self):
        values = []
        for names in (("a", "b"), ("b", "a")):
            with mv.session():
                tables = {name: self.matrix(name=name) for name in names}
                values.append([tables[name].get([7]) for name in "ab"])
        self.assertFalse((values[0][0] == values[0][1]).any())
        np.testing.assert_array_equal(values[0], values[1])

    def test_bounded_staleness_and_async_use_the_same_files(self):
        for number, options in enumerate(({}, {"staleness": 2}, {"staleness": 1}, {})):
            with mv.session(**options):
                table = self.matrix(init_value=mv.initializers.Zeros())
                np.testing.assert_array_equal(table.get([3]), np.full((1, COLUMNS), number))
                table.add(np.ones((1, COLUMNS)), [3])

    def test_copies_without_zeros_get_their_room_again(self):
        for kind in ("lazy", "dense", "keys"):
            folder = self.folder / kind

            def create(folder=folder, kind=kind):
                if kind == "keys":
                    return mv.HashTable(COLUMNS, capacity=ROWS, backing=folder)
                start = mv.initializers.Zeros() if kind == "lazy" else None
                return mv.MatrixTable(ROWS, COLUMNS, start, backing=folder)

            with mv.session():
                create().add(np.ones((2, COLUMNS)), [5, ROWS - 1])
            rows = folder / "node-0" / "rows"
            before = rows.stat().st_blocks
            copy = self.folder / "copy"
            with rows.open("rb") as source, copy.open("wb") as target:
                while block := source.read(4096):
                    if block.count(0) == len(block):
                        target.seek(len(block), os.SEEK_CUR)
                    else:
                        target.write(block)
                target.truncate(rows.stat().st_size)
            copy.chmod(0o600)
            self.assertLess(copy.stat().st_blocks, before)
            copy.rename(rows)
            with self.subTest(kind), mv.session():
                table = create()
                self.assertGreaterEqual(rows.stat().st_blocks, before)
                self.assertTrue((table.get([5, ROWS - 1]) == 1).all())

    def test_a_row_takes_little_more_room_than_it_has(self):
        with mv.session():
            table = mv.HashTable(
                1024, capacity=100_000, updater="adam", backing=self.folder / "keys"
            )
            before = (self.folder / "keys" / "node-0" / "rows").stat().st_blocks
            table.add(np.ones((1, 1024)), [5])
            taken = (self.folder / "keys" / "node-0" / "rows").stat().st_blocks - before
        self.assertLess(taken * 512, 8 << 20)

    def test_a_table_that_the_program_releases_can_be_used_in_the_next_session(self):
        with mv.session():
            table = self.matrix()
            table.add(np.ones((1, COLUMNS)), [5])
            values = table.get([5])
            del table
            with self.assertRaisesRegex(mv.StateError, "another table of this session"):
                self.matrix()
        with mv.session():
            np.testing.assert_array_equal(self.matrix().get([5]), values)

    def test_a_checkpoint_is_loaded_into_new_files(self):
        with mv.session():
            table = self.matrix()
            table.add(np.ones((2, COLUMNS)), [5, 2999])
            values = table.get(np.arange(ROWS))
            mv.save(self.folder / "checkpoint")
        shutil.rmtree(self.folder / "rows")
        with mv.session():
            table = self.matrix()
            mv.load(self.folder / "checkpoint")
            np.testing.assert_array_equal(table.get(np.arange(ROWS)), values)

    def test_stats_count_pages(self):
        with mv.session():
            table = self.matrix()
            table.add(np.ones((1, COLUMNS)), [5])
            self.assertGreaterEqual(table.stats()["pages_written"], 0)
            keyed = mv.HashTable(2, capacity=10, backing=self.folder / "keys")
            self.assertLessEqual({"keys", "pages_read"}, set(keyed.stats()))
            with self.assertRaisesRegex(mv.StateError, "backing"):
                mv.MatrixTable(2, 2).stats()


class TestRefusals(BackingTest):
    def create(self, **options):
        with mv.session():
            self.matrix(**options).add(np.ones((1, COLUMNS)), [5])

    def test_files_of_a_killed_job_are_refused(self):
        status, _, err = run_program(
            """
            import os, signal, sys, numpy as np, multiverso as mv
            with mv.session():
                table = mv.MatrixTable(10, 2, backing=sys.argv[1])
                table.add(np.ones((10, 2)))
                os.kill(os.getpid(), signal.SIGKILL)
            """,
            self.folder / "rows",
        )
        self.assertEqual(status, -9, err)
        with (
            mv.session(),
            self.assertRaisesRegex(mv.StateError, "did not end well.*remove .*load a checkpoint"),
        ):
            mv.MatrixTable(10, 2, backing=self.folder / "rows")

    @failpoints.needs_failpoints
    def test_a_kill_before_all_rows_are_on_the_disk_leaves_no_table(self):
        program = """
            import sys, numpy as np, multiverso as mv
            with mv.session():
                table = mv.MatrixTable(10, 2, backing=sys.argv[1])
                print(table.reopened, flush=True)
                table.add(np.ones((10, 2)))
            """
        for point, works in (("end", False), ("written", False), ("clean", True)):
            with self.subTest(point):
                folder = self.folder / point
                run_program(program, folder)
                points = failpoints.environment(f"table_file.{point}@1=kill")
                self.assertEqual(run_program(program, folder, **points)[:2], (-9, "True\n"))
                status, out, err = run_program(program, folder)
                self.assertEqual((status == 0, out == "True\n"), (works, works), err)

    @failpoints.needs_failpoints
    def test_a_full_disk_is_an_error_before_a_row_changes(self):
        program = """
            import sys, numpy as np, multiverso as mv
            with mv.session():
                zeros = mv.initializers.Zeros()
                table = mv.MatrixTable(100_000, 64, zeros, backing=sys.argv[1] + "/rows")
                keyed = mv.HashTable(64, capacity=100_000, backing=sys.argv[1] + "/keys")
                failed = 0
                for number in range(40):
                    for some, words in ((table, "row_ids"), (keyed, "keys")):
                        ids = np.random.default_rng(number).choice(100_000, 5, replace=False)
                        try:
                            some.add(np.ones((5, 64)), **{words: ids})
                            added = 1
                        except MemoryError as error:
                            assert "No space left" in str(error)
                            failed += 1
                            added = 0
                        values = some.get(ids, **({"insert": False} if some is keyed else {}))
                        assert (values == added).any(), values
                        assert added or (values == 0).any(), values
                print(failed > 0)
            """
        points = ",".join(f"file_segment.reserve@{hit}=error" for hit in range(20, 60, 3))
        status, out, err = run_program(program, self.folder, **failpoints.environment(points))
        self.assertEqual((status, out), (0, "True\n"), err)

    def test_damaged_headers_are_refused(self):
        self.create()
        header = self.node / "header"
        content = header.read_bytes()
        used = len(content.rstrip(b"\0"))
        rng = random.Random(1)
        for number in range(60):
            damaged = bytearray(content)
            damaged[rng.randrange(used)] ^= 1 << rng.randrange(8)
            header.write_bytes(damaged)
            with self.subTest(number), mv.session():
                self.assertRaises((mv.CheckpointCorruptError, mv.StateError), self.matrix)
        for number in (0, 1, 100, 4095, 5000):
            header.write_bytes(content[:number] + b"\0" * (number - len(content)))
            with self.subTest(number), mv.session():
                self.assertRaises(mv.CheckpointCorruptError, self.matrix)
        header.write_bytes(content)
        with mv.session():
            self.assertTrue(self.matrix().reopened)

    def test_files_of_others_are_refused_and_stay(self):
        cases = {
            "rows": (mv.CheckpointCorruptError, "other files"),
            "header": (mv.CheckpointCorruptError, "expected 4096 bytes"),
        }
        for name, (kind, text) in cases.items():
            self.node.mkdir(parents=True)
            (self.node / name).write_text("a diary")
            (self.node / name).chmod(0o600)
            with mv.session(), self.assertRaisesRegex(kind, text):
                self.matrix()
            self.assertEqual((self.node / name).read_text(), "a diary")
            shutil.rmtree(self.folder / "rows")

    def test_files_that_were_changed_are_refused(self):
        def linked(name):
            os.rename(self.node / name, self.folder / "elsewhere")
            os.symlink(self.folder / "elsewhere", self.node / name)

        def resized(size):
            os.truncate(self.node / "rows", size)

        for change, argument, kind, text in (
            (lambda name: (self.node / name).chmod(0o666), "rows", ValueError, "nobody else"),
            (lambda name: (self.node / name).chmod(0o666), "header", ValueError, "nobody else"),
            (linked, "rows", mv.CheckpointIOError, ""),
            (resized, 8192, mv.CheckpointCorruptError, "received 8192"),
            (resized, 0, mv.CheckpointCorruptError, "received 0"),
            (lambda name: (self.node / name).unlink(), "rows", mv.CheckpointIOError, "No such"),
        ):
            self.create()
            change(argument)
            with self.subTest(argument, text=text), mv.session():
                self.assertRaisesRegex(kind, text, self.matrix)
            shutil.rmtree(self.folder / "rows")

    @unittest.skipUnless(os.geteuid() == 0, "only root can mount")
    def test_nothing_touches_a_place_that_a_full_disk_does_not_have(self):
        disk = self.folder / "disk"
        disk.mkdir()
        if run_command("mount", "-t", "tmpfs", "-o", "size=24m", "tmpfs", disk)[0] != 0:
            self.skipTest("mounts are not allowed here")
        self.addCleanup(run_command, "umount", disk)
        status, out, err = run_program(
            """
            import os, sys, numpy as np, multiverso as mv
            disk = sys.argv[1]
            with mv.session():
                zeros = mv.initializers.Zeros()
                lazy = mv.MatrixTable(200_000, 64, zeros, backing=disk + "/lazy")
                keys = mv.HashTable(16, capacity=400_000, admit=3, backing=disk + "/keys")
                lazy.add(np.ones((1, 64)), [5])
                with open(disk + "/fill", "wb", buffering=0) as file:
                    try:
                        while file.write(b"1" * 4096):
                            pass
                    except OSError:
                        pass
                rng = np.random.default_rng(0)
                for _ in range(20):
                    ids = rng.integers(0, 200_000, 3000)
                    assert (lazy.get(ids) == 0).all() or 5 in ids
                    keys.get(ids, insert=False)
                    keys.remove(ids)
                    for call in (lambda: keys.get(ids), lambda: lazy.add(np.ones((3000, 64)), ids)):
                        try:
                            call()
                        except MemoryError as error:
                            assert "No space left" in str(error), error
                try:
                    mv.MatrixTable(10, 2, backing=disk + "/new")
                except MemoryError:
                    assert not os.path.exists(disk + "/new/node-0"), "it was not removed"
                print("ended")
            """,
            disk,
        )
        self.assertEqual((status, out), (0, "ended\n"), err)

    def test_a_second_job_is_refused(self):
        with mv.session():
            _table = self.matrix()
            status, _, err = run_program(
                """
                import sys, multiverso as mv
                with mv.session():
                    mv.MatrixTable(3, 2, backing=sys.argv[1])
                """,
                self.folder / "rows",
            )
            self.assertEqual(status, 1)
            self.assertIn("another job uses", err)

    def test_a_failed_creation_leaves_no_files(self):
        with mv.session(), self.assertRaises(ValueError):
            mv.HashTable(0, capacity=5, backing=self.folder / "rows")
        self.assertEqual(list(self.folder.iterdir()), [])
