// Looking for an MPI where there is none, and where the library is something else.
#include "transport/mpi_library.h"

#include <gtest/gtest.h>

namespace multiverso {
namespace {

TEST(MpiLibrary, NamesAMissingLibraryAndTheRemedy) {
  const Result<MpiLibrary> found = MpiLibrary::Find("/nowhere/libmpi.so.12");
  EXPECT_EQ(found.status().code(), Code::kLauncher);
  for (const char* part : {"/nowhere/libmpi.so.12", "pip install"}) {
    EXPECT_NE(found.status().text().find(part), std::string::npos) << found.status().text();
  }
}

TEST(MpiLibrary, MustBeOne) {
  const Result<MpiLibrary> found = MpiLibrary::Find("libm.so.6");
  EXPECT_EQ(found.status().code(), Code::kLauncher);
  EXPECT_EQ(found.status().text(), "libm.so.6 is not an MPI library");
}

}  // namespace
}  // namespace multiverso
