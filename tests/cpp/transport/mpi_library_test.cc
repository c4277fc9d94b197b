#include "transport/mpi_library.h"

#include <gtest/gtest.h>

#include "support/status.h"

namespace multiverso::testing {
namespace {

TEST(MpiLibrary, NamesAMissingLibraryAndTheRemedy) {
  EXPECT_TRUE(IsError(MpiLibrary::Find("/nowhere/libmpi.so.12"), Code::kLauncher,
                      "/nowhere/libmpi.so.12", "pip install"));
}

TEST(MpiLibrary, RejectsAnotherLibrary) {
  EXPECT_TRUE(
      IsError(MpiLibrary::Find("libm.so.6"), Code::kLauncher, "libm.so.6 is not an MPI library"));
}

}  // namespace
}  // namespace multiverso::testing
