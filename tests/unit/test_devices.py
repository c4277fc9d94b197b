"""local_rank and assign_device: the GPU of a process, from the variables of its launcher."""

import os
import unittest
from unittest import mock

import numpy as np
from drawn_arguments import REJECTIONS
from folders import FolderTestCase

import multiverso as mv
from multiverso import devices

OPEN_MPI = {"OMPI_COMM_WORLD_SIZE": "4", "OMPI_COMM_WORLD_LOCAL_RANK": "3"}
MPICH = {"PMI_SIZE": "4", "PMI_RANK": "2", "MPI_LOCALNRANKS": "2", "MPI_LOCALRANKID": "1"}
SRUN = {"SLURM_STEP_ID": "0", "SLURM_STEP_NUM_TASKS": "4", "SLURM_LOCALID": "2"}


def only_env(**variables):
    """Return a patch with which the environment has only these variables."""
    return mock.patch.dict(os.environ, variables, clear=True)


class TestLocalRank(unittest.TestCase):
    def test_local_rank_reads_the_variables_of_launchers(self):
        for variables, expected in ((OPEN_MPI, 3), (MPICH, 1), (SRUN, 2)):
            with self.subTest(expected), only_env(**variables):
                self.assertEqual(mv.local_rank(), expected)

    def test_local_rank_is_zero_without_a_launcher(self):
        for variables in ({}, {"SLURM_LOCALID": "5", "SLURM_JOB_ID": "1"}):
            with only_env(**variables):
                self.assertEqual(mv.local_rank(), 0)

    def test_local_rank_fails_if_the_launcher_does_not_provide_it(self):
        for variables in ({"PMI_SIZE": "4"}, OPEN_MPI | {"OMPI_COMM_WORLD_LOCAL_RANK": "x"}):
            with (
                only_env(**variables),
                self.assertRaisesRegex(mv.errors.LauncherError, "received none"),
            ):
                mv.local_rank()


class TestAssignDevice(FolderTestCase):
    def test_processes_share_the_given_devices_in_turn(self):
        for rank, expected in enumerate(["0", "1", "2", "0"]):
            variables = OPEN_MPI | {"OMPI_COMM_WORLD_LOCAL_RANK": str(rank)}
            with only_env(**variables):
                self.assertEqual(mv.assign_device([0, 1, 2]), expected)
                self.assertEqual(os.environ["CUDA_VISIBLE_DEVICES"], expected)

    def test_devices_default_to_visible_ones(self):
        for listed, expected in (
            ("4,5", "5"),
            ("GPU-7", "GPU-7"),
            ("4, 6,-1,7", "6"),
            ("", None),
            ("-1", None),
        ):
            with self.subTest(listed), only_env(**MPICH, CUDA_VISIBLE_DEVICES=listed):
                self.assertEqual(mv.assign_device(), expected)
                self.assertEqual(os.environ["CUDA_VISIBLE_DEVICES"], expected or listed)

    def test_devices_default_to_those_of_the_driver(self):
        with (
            only_env(**OPEN_MPI),
            mock.patch.object(devices, "_DRIVER_GPUS", self.folder / "none"),
        ):
            self.assertIsNone(mv.assign_device())
            self.assertNotIn("CUDA_VISIBLE_DEVICES", os.environ)
        for name in ("0000:01:00.0", "0000:02:00.0"):
            (self.folder / name).mkdir()
        with only_env(**OPEN_MPI), mock.patch.object(devices, "_DRIVER_GPUS", self.folder):
            self.assertEqual(mv.assign_device(), "1")

    def test_rejects_invalid_devices(self):
        before = os.environ.get("CUDA_VISIBLE_DEVICES")
        for wrong in (
            *([], [""], ["0,1"], [-1], [True], [0.5], [None], ["c"], ["gpu"], ["cuda"], ["cuda:"]),
            *("cuda:0", "01", b"0", 2, np.int64(1), np.True_),
        ):
            with self.subTest(wrong), self.assertRaisesRegex(REJECTIONS, "devices: expected"):
                mv.assign_device(wrong)
        self.assertEqual(os.environ.get("CUDA_VISIBLE_DEVICES"), before)

    def test_devices_may_have_the_names_of_pytorch_and_of_the_driver(self):
        for device in (2, np.int64(2), "2", " 2 ", "cuda:2", "GPU-8932f937-d72c", "MIG-GPU-7/1/0"):
            with only_env():
                expected = str(device).strip().removeprefix("cuda:")
                self.assertEqual(mv.assign_device([device]), expected)
