"""Keras models on 2 ranks: the cases of programs/keras_params.py on each installed backend."""

import keras_params
import pytest
from requirements import is_installed

from case_jobs import CaseJobs, in_one_job, on_ranks
from launch import ONE_THREAD

BACKENDS = [
    name for name in ("jax", "tensorflow", "torch") if is_installed("keras") and is_installed(name)
]
pytestmark = [
    pytest.mark.frameworks,
    pytest.mark.skipif(not BACKENDS, reason="needs Keras"),
]

JOBS = {
    f"{name}_{job}": options
    for name in BACKENDS
    for job, options in in_one_job(on_ranks(2, KERAS_BACKEND=name, **ONE_THREAD)).items()
}

TestModels = CaseJobs(keras_params, JOBS).tests()
