"""Random programs in one process, which Hypothesis draws and shrinks, under each configuration.

MULTIVERSO_EXAMPLES=10000 draws that many programs for each, and other ones in each run.
"""

import os
import tempfile
from unittest import mock

import hypothesis
import pytest
from drawn_arguments import MANY
from hypothesis import stateful, strategies as st

import multiverso as mv
from configurations import VARIABLE, configurations
from machine.operations import OPERATIONS
from machine.programs import Program

CHOICES = st.randoms(use_true_random=False)
HERE = [name for name, each in configurations().items() if not each.needs_job]

#: What the examples of each configuration have called and left out.
COUNTS: dict[str, list[Program]] = {}


class Machine(stateful.RuleBasedStateMachine):
    """A program whose operations are rules."""

    @stateful.initialize(rng=CHOICES, seed=st.integers(0, 2**32 - 1))
    def begin(self, rng, seed):
        self.folder = tempfile.TemporaryDirectory()
        self.program = Program(rng, seed, self.folder.name)
        COUNTS.setdefault(os.environ[VARIABLE], []).append(self.program)

    def teardown(self):
        try:
            if mv.is_initialized():
                self.program.close_session()
        finally:
            if mv.is_initialized():
                mv.shutdown()
            self.folder.cleanup()


def _rule(name):
    def run(self, rng):
        self.program.rng = self.program.own = rng
        self.program.run(name)

    run.__name__ = name
    return stateful.rule(rng=CHOICES)(run)


for _name in OPERATIONS:
    setattr(Machine, _name, _rule(_name))


@pytest.mark.parametrize("name", HERE)
def test_random_programs_agree_with_the_model(name, record_property):
    settings = hypothesis.settings(
        max_examples=int(MANY or 15),
        stateful_step_count=25,
        derandomize=MANY is None,
        deadline=None,
        database=None,
        print_blob=True,
        suppress_health_check=list(hypothesis.HealthCheck),
    )
    with mock.patch.dict(os.environ, {VARIABLE: name}):
        stateful.run_state_machine_as_test(Machine, settings=settings)
    programs = COUNTS.pop(name)
    record_property("configuration", name)
    record_property("calls", sum(program.calls.total() for program in programs))
    skipped = sum((program.skipped for program in programs), type(programs[0].skipped)())
    record_property("skipped", dict(skipped))
