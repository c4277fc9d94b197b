"""The command line and the environment of mpirun for each MPI, with a stub of mpirun."""

import os
from unittest import mock

from folders import FolderTestCase

from multiverso._mpi.launcher import without_rank
from multiverso._mpi.mpirun import mpirun_command, mpirun_environment, mpirun_vendor

MPICH = "HYDRA build details:\n    Version:    5.0.2\n"
OPEN_MPI = "mpirun (Open MPI) 5.0.11\n\nReport bugs"


class TestMpirun(FolderTestCase):
    def stub_of_mpirun(self, version_text):
        """Return the path of a program that prints this text, as mpirun prints its version."""
        stub = self.folder / "mpirun"
        stub.write_text(f"#!/bin/sh\ncat <<END\n{version_text}\nEND\n", "utf-8")
        stub.chmod(0o755)
        return str(stub)

    def test_vendor_and_version_are_read_from_what_mpirun_prints(self):
        for text, vendor, version in (
            (MPICH, "MPICH", "5.0.2"),
            (OPEN_MPI, "Open MPI", "5.0.11"),
            ("Intel(R) MPI Library for Linux* OS, Version 2021.10", "Intel MPI", "2021.10"),
            ("something else", None, None),
        ):
            with self.subTest(text):
                self.assertEqual(mpirun_vendor(self.stub_of_mpirun(text)), (vendor, version))

    def test_plain_command_is_the_same_for_every_mpi(self):
        command = mpirun_command(["train", "-x"], 3, mpirun="/no/mpirun")
        self.assertEqual(command, ["/no/mpirun", "-np", "3", "train", "-x"])

    def test_surviving_command_differs_by_vendor(self):
        for text, option in ((MPICH, "-disable-auto-cleanup"), (OPEN_MPI, "--enable-recovery")):
            with self.subTest(option):
                mpirun = self.stub_of_mpirun(text)
                command = mpirun_command(["train", "-x"], 3, mpirun=mpirun, survive=True)
                self.assertEqual(command[:4], [mpirun, option, "-np", "3"])
                self.assertEqual(command[-2:], ["train", "-x"])

    def test_more_ranks_than_cores_are_allowed_where_they_are_asked_for(self):
        cores = len(os.sched_getaffinity(0))
        for ranks, is_allowed in ((cores, False), (cores + 1, True), (None, True)):
            with self.subTest(ranks), mock.patch.dict(os.environ, clear=True):
                found = mpirun_environment(ranks)
                self.assertEqual("PRTE_MCA_rmaps_default_mapping_policy" in found, is_allowed)

    def test_what_the_user_has_set_stays(self):
        name = "PRTE_MCA_rmaps_default_mapping_policy"
        with mock.patch.dict(os.environ, {name: "mine"}):
            self.assertEqual(mpirun_environment()[name], "mine")

    def test_variables_of_a_rank_are_left_out(self):
        given = {"PMI_RANK": "1", "OMPI_COMM_WORLD_SIZE": "2", "OMPI_MCA_btl": "x", "HOME": "/"}
        self.assertEqual(without_rank(given), {"OMPI_MCA_btl": "x", "HOME": "/"})
