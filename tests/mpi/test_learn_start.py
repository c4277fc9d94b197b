"""Trainings in which a rank does not come, fails before the start or cannot read its input."""

import pytest

import launch

RANKS = 3

pytestmark = launch.needs_mpi


def test_late_rank_is_named():
    result = launch.run("learn_start.py", "absent", np=RANKS).check_clean()
    assert result.returncode != 0
    assert "OperationTimeout" in result.output


def test_rank_that_makes_another_call_gets_an_error_on_all_ranks():
    result = launch.run("learn_start.py", "barrier", np=RANKS).check_clean()
    result.check_errors("MismatchError", "barrier", "aggregate", ranks=range(RANKS))


def test_file_that_one_rank_misses_is_named_before_a_framework_is_imported():
    reports = launch.run("learn_start.py", "missing_file", np=RANKS).check_clean().reports
    for rank in range(RANKS):
        kind, message = reports[rank]["error"]
        assert kind == "InputError"
        assert message == f"{'' if rank == RANKS - 1 else 'rank 2: '}cannot read 2.h5: no such file"
        assert reports[rank]["imported"] == []


@pytest.mark.parametrize(
    ("fault", "words"),
    [("unreadable", "cannot read"), ("incomplete", "multiverso-learn train needs")],
)
def test_input_that_one_rank_cannot_use_ends_all_ranks_with_one_sentence(
    fault, words, tmp_path, monkeypatch
):
    (tmp_path / "files.txt").write_text("1.h5\n", "utf-8")
    (tmp_path / "1.h5").touch()
    # Only the existence of a backend is checked before the input.
    for package in ("torch", "h5py", "keras", "tqdm"):
        (tmp_path / f"{package}.py").touch()
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    result = launch.run("learn_start.py", fault, str(tmp_path), np=RANKS).check_clean()
    assert result.returncode == 2
    assert result.output.count(f"error: rank 2: {words}") == 1, result.output
