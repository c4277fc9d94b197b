"""The Lua binding: its busted tests on 1, 2 and 4 ranks, its example, and how its jobs end."""

import re
import shutil
import signal
import sys
import tempfile
import unittest
from pathlib import Path

import pytest
from programs import output_of, run_command

import launch
import multiverso

ROOT = Path(__file__).resolve().parents[2]
INCLUDE = ROOT / "src" / "include" / "multiverso"
HEADER = "".join((INCLUDE / name).read_text("utf-8") for name in ("constants.h", "c_api.h"))
CAPI = ROOT / "lua" / "multiverso" / "capi.lua"


def has_lua():
    """Return whether LuaJIT, and busted for LuaJIT, are installed."""
    load_busted = ("luajit", "-e", "require 'busted.runner'")
    return shutil.which("luajit") is not None and run_command(*load_busted)[0] == 0


def run(*arguments, np, **options):
    return launch.run("luajit.py", *map(str, arguments), np=np, **options)


def without_library(folder):
    """Return a function that prints Multiverso's version from Lua; it finds no library.

    It runs a copy of the Lua modules with `folder` as the only environment on PATH.
    """
    shutil.copytree(CAPI.parent, Path(folder, "modules", "multiverso"))
    environment = {
        "LUA_CPATH": f"{folder}/c/?.so",
        "LUA_PATH": f"{folder}/modules/?.lua;{folder}/modules/?/init.lua",
        "PATH": f"{folder}/bin",
    }
    luajit = shutil.which("luajit")

    def run_lua(**changes):
        variables = {"MULTIVERSO_LIBRARY": "", "LD_LIBRARY_PATH": "", **environment, **changes}
        return run_command(luajit, "-e", "print(require 'multiverso'._VERSION)", **variables)

    return run_lua


def declarations(text):
    """Return the declarations in C code, without comments and with single spaces."""
    text = re.sub(r"/\*.*?\*/|^#.*?$|MV_EXPORT", " ", text, flags=re.DOTALL | re.MULTILINE)
    for name, number in re.findall(r"#define (MV_\w+) (\d+)\b", HEADER):
        text = text.replace(f"[{name}]", f"[{number}]")
    matches = re.findall(r"typedef struct \w+ \{.*?\} \w+;|[^;{}]+;", text, re.DOTALL)
    return {" ".join(statement.split()) for statement in matches}


class TestDeclarations(unittest.TestCase):
    def test_functions_and_structs_match_the_header(self):
        declared = declarations(re.search(r"\[\[(.*?)\]\]", CAPI.read_text("utf-8"), re.DOTALL)[1])
        self.assertGreater(len(declared), 20)
        self.assertEqual(declared - declarations(HEADER), set())

    def test_constants_match_the_header(self):
        text = HEADER
        pairs = re.findall(r"^  (MV_\w+) = (-?\d+),", CAPI.read_text("utf-8"), re.MULTILINE)
        self.assertGreater(len(pairs), 10)
        for name, number in pairs:
            with self.subTest(name):
                self.assertRegex(text, rf"#define {name} \(?{number}\)?\s")

    def test_detects_a_changed_declaration(self):
        text = HEADER
        self.assertNotEqual(
            declarations(text), declarations(text.replace("int64_t staleness", "int32_t staleness"))
        )


class TestRockspec(unittest.TestCase):
    def test_rockspec_installs_all_modules(self):
        text = (ROOT / "lua" / "multiverso-scm-1.rockspec").read_text("utf-8")
        installed = set(re.findall(r"'(lua/multiverso/\w+\.lua)'", text))
        modules = {str(path.relative_to(ROOT)) for path in CAPI.parent.glob("*.lua")}
        self.assertEqual(installed, modules)


@pytest.mark.slow
@unittest.skipUnless(has_lua(), "needs LuaJIT and busted: apt install luajit lua-busted lua-unit")
class TestBinding(unittest.TestCase):
    def test_busted_tests_pass_on_every_rank(self):
        for np in (1, 2, 4):
            with self.subTest(np=np):
                result = run(ROOT / "lua/spec/run.lua", "-o", "TAP", ROOT / "lua/spec", np=np)
                result.check()
                self.assertEqual(re.findall(r"^not ok.*", result.output, re.MULTILINE), [])
                self.assertGreaterEqual(len(re.findall(r"\bok \d+", result.output)), 50 * np)

    def test_example_learns_xor(self):
        for np in (1, 4):
            with self.subTest(np=np):
                result = run(ROOT / "examples/lua/xor.lua", np=np).check()
                self.assertIn(f"{np} worker(s): 4 of 4 right", result.output)
        result = run(ROOT / "examples/lua/xor.lua", np=3, mpirun=launch.WITHOUT_MPI).check()
        self.assertIn("3 worker(s): 4 of 4 right", result.output)

    def test_program_that_a_rank_starts_is_a_session_of_its_own(self):
        script = ROOT / "tests/mpi/programs/lua_starts.lua"
        for mpirun in (None, launch.WITHOUT_MPI):
            with self.subTest(mpirun):
                result = run(script, np=2, mpirun=mpirun).check()
                found = re.findall(r"(\w+): (\d) workers", result.output)
                expected = [("after", "1"), ("before", "1"), ("rank", "2")]
                self.assertEqual(sorted(found), sorted(2 * expected))

    def test_version_is_that_of_the_library(self):
        path = f"{ROOT}/lua/?.lua;{ROOT}/lua/?/init.lua"
        printed = output_of("luajit", "-e", "print(require 'multiverso'._VERSION)", LUA_PATH=path)
        self.assertEqual(printed.strip(), multiverso.__version__)

    def test_library_of_an_installed_python_package_is_found(self):
        with tempfile.TemporaryDirectory() as folder:
            run_lua = without_library(folder)
            status, _, error = run_lua()
            self.assertNotEqual(status, 0)
            for place in ("/c/libmultiverso.so: not", "the dynamic linker: ", "/lib/python3.*/"):
                self.assertIn(place, error)
            # The command in the message prints the path for any other Python environment.
            command = re.search(r"^  (export MULTIVERSO_LIBRARY=.*)$", error, re.MULTILINE)[1]
            path = f"{Path(sys.executable).parent}:/usr/bin:/bin"
            text = output_of("sh", "-c", f'{command} && echo "$MULTIVERSO_LIBRARY"', PATH=path)
            library = text.strip()
            self.assertEqual(run_lua(MULTIVERSO_LIBRARY=library)[1].strip(), multiverso.__version__)
            # It is not needed for an environment on PATH.
            installed = Path(folder, "lib/python3.13/site-packages/multiverso/_lib")
            installed.mkdir(parents=True)
            installed.joinpath("libmultiverso.so").symlink_to(library)
            self.assertEqual(run_lua()[1].strip(), multiverso.__version__)

    def test_waiting_ranks_receive_the_reason_why_a_rank_left(self):
        for how, reason in {
            "error": "its script ended without multiverso.shutdown",
            "return": "its script ended without multiverso.shutdown",
            "exit": "its program ended without closing the session",
        }.items():
            with self.subTest(how):
                result = run(ROOT / "tests/mpi/programs/lua_ends.lua", how, np=3).check_clean()
                for rank in (0, 2):
                    report = result.reports[rank]
                    self.assertFalse(report["ok"])
                    self.assertRegex(report["message"], "^MV_ERR_PEER_LOST: rank 1")
                    self.assertIn(reason, report["message"])
                self.assertNotIn(1, result.reports)

    def test_ctrl_c_ends_a_wait_and_aborts_the_other_ranks(self):
        with launch.Job(
            "luajit.py", str(ROOT / "tests/mpi/programs/lua_ends.lua"), "interrupt", np=2
        ) as job:
            job.wait_for("waiting")
            job.wait_until_asleep(1)  # in the barrier
            job.signal(1, signal.SIGINT)
            result = job.finish().check_clean()
        self.assertEqual(result.reports[1]["ok"], False, result.output)
        self.assertIn("interrupted!", result.reports[1]["message"])
        self.assertRegex(result.reports[0]["message"], "^MV_ERR_ABORTED: .*rank 1.*interrupted!")
