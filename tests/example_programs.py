"""Runs the programs of examples/ for tests: as jobs, and in one process without mpirun."""

import json
import os
import tempfile
from pathlib import Path
from unittest import mock

from folders import FolderTestCase
from programs import run_python

import launch

EXAMPLES = Path(__file__).parents[1] / "examples"

#: One percentage point of the test error.
POINT = 0.01

#: Seconds for a run of an example, because frameworks start and compile slowly.
EXAMPLE_TIMEOUT = 2 * launch.JOB_TIMEOUT


#: A module that Python imports at its start. While a framework is imported, looking for garbage
#: takes a sixth of the time.
RARE_COLLECTIONS = "import gc; gc.set_threshold(100_000, 50, 50)"


def run_alone(example, *arguments, **environ):
    """Run an example in one process without mpirun; return (exit code, stdout, stderr)."""
    return run_python(EXAMPLES / example, *arguments, timeout=EXAMPLE_TIMEOUT, **environ)


class ExampleProgramTestCase(FolderTestCase):
    def setUp(self):
        super().setUp()
        self.json = self.folder / "result.json"
        folder = self.enterContext(tempfile.TemporaryDirectory())
        Path(folder, "sitecustomize.py").write_text(RARE_COLLECTIONS, "utf-8")
        paths = [folder, *filter(None, [os.environ.get("PYTHONPATH")])]
        changed = mock.patch.dict(os.environ, PYTHONPATH=os.pathsep.join(paths))
        changed.start()
        self.addCleanup(changed.stop)

    def result_and_output(self, example, *arguments, ranks, **options):
        """Run an example as a job; return the result that it wrote as JSON, and its output."""
        self.json.unlink(missing_ok=True)
        options = {"timeout": EXAMPLE_TIMEOUT, **options}
        program, json_option = EXAMPLES / example, ("--json", str(self.json))
        job = launch.run(program, *json_option, *arguments, np=ranks, **options).check()
        result = json.loads(self.json.read_text("utf-8"))
        self.assertEqual(result["workers"], ranks)
        if "test_error" in result:  # the master prints it once
            self.assertEqual(job.output.count("test error"), 1, job.output)
        return result, job.output

    def result(self, example, *arguments, ranks, **options):
        """Run an example as a job; return the result that it wrote as JSON."""
        return self.result_and_output(example, *arguments, ranks=ranks, **options)[0]

    def result_of_equal_runs(self, example, *arguments, ranks, **options):
        """Run an example twice and check that the runs differ only in time; return a result."""
        first, second = (self.result(example, *arguments, ranks=ranks, **options) for _ in range(2))
        for result in (first, second):
            for epoch in result["history"]:
                if isinstance(epoch, dict):
                    epoch.pop("seconds", None)
        self.assertEqual(first["history"], second["history"])
        self.assertEqual(first["test_error"], second["test_error"])
        return first

    def assert_rejects(self, pattern, example, *arguments):
        """Check that an example prints only one line, an error that matches `pattern`."""
        returncode, _, errors = run_alone(example, *arguments)
        self.assertEqual(returncode, 2, errors)
        self.assertRegex(errors, rf"\Aerror: .*{pattern}.*\n\Z")
