"""The ctypes declarations match the header; an incompatible library is rejected."""

import ctypes
import os
import re
import shutil
import unittest
from pathlib import Path
from unittest import mock

import c_header
from folders import FolderTestCase
from programs import run_program

from multiverso import _version, errors
from multiverso._native import capi, library

ROOT = Path(__file__).resolve().parents[3]

SCALARS = {
    "int32_t": ctypes.c_int32,
    "int64_t": ctypes.c_int64,
    "double": ctypes.c_double,
    "const char*": ctypes.c_char_p,
    "char*": ctypes.c_char_p,
    "const char**": ctypes.POINTER(ctypes.c_char_p),
    **dict.fromkeys(("const void*", "void* const*", "void*"), ctypes.c_void_p),
    # Arrays of numbers are passed by address, like arrays of elements.
    **dict.fromkeys(("const int64_t*", "const float*", "uint16_t*", "uint32_t*"), ctypes.c_void_p),
    "int32_t*": ctypes.POINTER(ctypes.c_int32),
    "int64_t*": ctypes.POINTER(ctypes.c_int64),
    **dict.fromkeys(
        ("const void* const*", "void**", "const void**"), ctypes.POINTER(ctypes.c_void_p)
    ),
}


class Header:
    """Finds the declarations in the C header with a minimal parser."""

    def __init__(self, text):
        text = re.sub(r"/\*.*?\*/", " ", text, flags=re.DOTALL)
        self.constants = {
            name: int(value.strip("()"))
            for name, value in re.findall(r"^#define (MV_\w+) +(\(?-?\d+\)?) *$", text, re.M)
        }
        self.callbacks = re.findall(r"typedef [\w ]+\* ?\(\*(MV_\w+)\)", text)
        self.handles = re.findall(r"typedef struct \w+\* (\w+);", text)
        self.structs = {
            name: [
                (match["name"], match["type"].replace(" *", "*"), match["length"])
                for match in re.finditer(
                    r"(?P<type>(?:const )?\w+\*?(?: const\*)?) (?P<name>\w+)"
                    r"(?:\[(?P<length>\w+)\])?;",
                    body,
                )
            ]
            for body, name in re.findall(r"typedef struct \w+ \{(.*?)\} (\w+);", text, re.DOTALL)
        }
        self.functions = {
            name: (result, [self._type(part) for part in arguments.split(",")])
            for result, name, arguments in re.findall(
                r"MV_EXPORT ((?:const )?\w+\*?) (MV_\w+)\(([^)]*)\);", text
            )
        }
        self.exports = text.count("MV_EXPORT ") - text.count("define MV_EXPORT ")

    @staticmethod
    def _type(parameter):
        words = " ".join(parameter.split())
        return words if words == "void" else re.sub(r" ?\w+$", "", words)

    def ctype(self, name, length=None):
        """Return the ctypes type for a type of the header, or for an array if `length` is given."""
        if name in SCALARS:
            element = SCALARS[name]
        elif name in (*self.handles, *self.structs, *self.callbacks):
            element = getattr(capi, name)
        else:
            pointed = re.fullmatch(r"(?:const )?(MV_\w+)\*", name)
            if pointed is None:
                raise AssertionError(f"the header has a type that this test does not know: {name}")
            element = ctypes.POINTER(getattr(capi, pointed[1]))
        return element * self.constants[length] if length else element


class TestHeader(unittest.TestCase):
    header = Header(c_header.TEXT)

    def test_parser_finds_every_declaration_of_the_header(self):
        self.assertEqual(len(self.header.functions), self.header.exports)
        self.assertGreater(self.header.exports, 0)
        self.assertGreater(len(self.header.structs), 0)

    def test_constants_match_the_header(self):
        declared = {
            name: value
            for name, value in vars(capi).items()
            if name.startswith("MV_") and isinstance(value, int)
        }
        self.assertEqual(declared, self.header.constants)

    def test_functions_match_the_header(self):
        expected = {}
        for name, (result, arguments) in self.header.functions.items():
            types = [] if arguments == ["void"] else map(self.header.ctype, arguments)
            expected[name] = (self.header.ctype(result), tuple(types))
        self.assertEqual(capi.PROTOTYPES, expected)

    def test_structs_match_the_header(self):
        for name, fields in self.header.structs.items():
            expected = [(field, self.header.ctype(kind, length)) for field, kind, length in fields]
            self.assertEqual(list(getattr(capi, name)._fields_), expected, name)

    def test_handles_are_distinct_types(self):
        for name in self.header.handles:
            self.assertTrue(issubclass(getattr(capi, name), ctypes.c_void_p), name)
        with self.assertRaises(ctypes.ArgumentError):
            library.lib.MV_TableFree(capi.MV_Session(None))

    def test_every_error_status_has_an_exception(self):
        statuses = {v for n, v in self.header.constants.items() if n.startswith("MV_ERR_")}
        self.assertEqual(set(library.ERRORS), statuses)


class TestLibrary(FolderTestCase):
    def test_status_names_match_the_header(self):
        for name, value in TestHeader.header.constants.items():
            if name.startswith("MV_ERR_") or name in ("MV_OK", "MV_OUTDATED"):
                self.assertEqual(library.lib.MV_StatusName(value).decode(), name)
        self.assertEqual(library.lib.MV_StatusName(-999), b"unknown")

    def test_struct_sizes_match_the_library(self):
        for options, set_defaults in (
            (capi.MV_SessionOptions(), library.checked.MV_SessionOptionsInit),
            (capi.MV_TableOptions(), library.checked.MV_TableOptionsInit),
        ):
            set_defaults(ctypes.byref(options))
            self.assertEqual(options.struct_size, ctypes.sizeof(options))

    def test_missing_or_other_file_raises_import_error_with_its_path(self):
        text = self.folder / "libmultiverso.so"
        text.write_bytes(b"text")
        for path in (Path("/no/such/library.so"), text):
            with self.subTest(path), self.assertRaisesRegex(ImportError, re.escape(str(path))):
                library.load(path)

    def test_library_without_the_functions_raises_import_error(self):
        mapped = [line.split()[-1] for line in Path("/proc/self/maps").read_text().splitlines()]
        other = next(Path(path) for path in mapped if "libc.so" in path or "libm.so" in path)
        with self.assertRaisesRegex(ImportError, "MV_AbiVersion"):
            library.load(other)

    def test_version_difference_raises_import_error_with_both_versions(self):
        # An import of the real package would load the library before the test changes the version.
        code = f"""
            import sys, types
            package = types.ModuleType("multiverso")
            package.__path__ = [{str(Path(capi.__file__).parents[1])!r}]
            sys.modules["multiverso"] = package
            import multiverso._version as v
            ours, v.__version__ = v.__version__, "9.8.7"
            try:
                import multiverso._native.library
            except ImportError as error:
                assert "9.8.7" in str(error) and ours in str(error), error
                raise SystemExit(7)
        """
        self.assertEqual(run_program(code), (7, "", ""))

    def test_environment_variable_selects_the_library(self):
        path = "/no/such/other.so"
        status, _, errors = run_program("import multiverso", MULTIVERSO_LIBRARY=path)
        self.assertNotEqual(status, 0)
        self.assertIn("MULTIVERSO_LIBRARY", errors)
        self.assertIn(path, errors)

    def test_a_package_without_a_library_uses_one_of_its_version_from_elsewhere(self):
        program = """
            import pathlib, sys
            clone, *installed = sys.argv[1:]
            others = [path for path in sys.path if not pathlib.Path(path, "multiverso").exists()]
            sys.path[:] = [clone, *others, *installed]
            import multiverso._native.library as library
            print(library.library_path())
            """
        name, version = library.library_path().name, f'__version__ = "{_version.__version__}"'
        installed, broken, system = (self.folder / part for part in ("site", "broken", "system"))
        in_package = Path("multiverso", "_lib", name)
        clone = self.folder / "clone"
        ignored = shutil.ignore_patterns("_lib", "__pycache__")
        shutil.copytree(ROOT / "multiverso", clone / "multiverso", ignore=ignored)
        for path in (installed, broken):
            (path / in_package).parent.mkdir(parents=True)
        (broken / in_package).write_bytes(b"text")
        system.mkdir()
        places = (
            *(clone / "multiverso/_lib", installed / in_package.parent, clone / "build"),
            *(clone / "build/cmake", clone / "build/development", system),
        )
        variables = {"MULTIVERSO_LIBRARY": "", "LD_LIBRARY_PATH": str(system)}
        arguments = (clone, broken, installed)
        for place in places[::-1]:  # Each one is preferred to those before.
            place.mkdir(parents=True, exist_ok=True)
            (place / name).symlink_to(library.library_path())
            with self.subTest(place):
                status, printed, errors = run_program(program, *arguments, **variables)
                self.assertEqual((status, printed.strip()), (0, str(place / name)), errors)
        (places[0] / name).unlink()
        file = clone / "multiverso" / "_version.py"
        file.write_text(file.read_text("utf-8").replace(version, '__version__ = "9.8.7"'), "utf-8")
        status, _, errors = run_program(program, *arguments, **variables)
        self.assertEqual(status, 1)
        for part in (*map(str, places), str(broken), "9.8.7", _version.__version__):
            self.assertIn(part, errors)

    def test_empty_environment_variable_counts_as_unset(self):
        with mock.patch.dict(os.environ, MULTIVERSO_LIBRARY=""):
            with self.assertRaisesRegex(ImportError, "expected at /no/such/library.so"):
                library.load(Path("/no/such/library.so"))


class TestErrors(unittest.TestCase):
    def test_each_error_is_also_the_closest_builtin_exception(self):
        for ours, builtin in {
            errors.StateError: RuntimeError,
            errors.ForkedError: errors.StateError,
            errors.MismatchError: RuntimeError,
            errors.OperationTimeout: TimeoutError,
            errors.PeerLostError: RuntimeError,
            errors.AbortedError: RuntimeError,
            errors.TransportError: RuntimeError,
            errors.LauncherError: ImportError,
            errors.UnsupportedError: NotImplementedError,
            errors.InternalError: RuntimeError,
        }.items():
            self.assertTrue(issubclass(ours, builtin), ours)
            self.assertTrue(issubclass(ours, errors.MultiversoError), ours)
            self.assertIsNone(ours("why").status)

    def test_peer_error_attributes_default_to_none(self):
        attributes = "rank host table last_call silent_for last_checkpoint".split()
        for kind in (errors.PeerLostError, errors.OperationTimeout, errors.AbortedError):
            self.assertTrue(issubclass(kind, errors.PeerError), kind)
            self.assertEqual([getattr(kind("why"), name) for name in attributes], [None] * 6)

    def test_error_from_the_library_has_its_status(self):
        with self.assertRaises(errors.StateError) as caught:
            library.checked.MV_TableFlush(capi.MV_Table(None), 0.0)
        self.assertEqual(caught.exception.status, capi.MV_ERR_HANDLE)
        self.assertNotEqual(str(caught.exception), "")
