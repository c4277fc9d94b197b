#include "table/table_file.h"

#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <fstream>

#include "support/checkpoints.h"

namespace multiverso::testing {
namespace {

constexpr int64_t kBytes = 20000;

TablePlace Place() {
  TablePlace place;
  place.spec.kind = static_cast<int32_t>(TableKind::kMatrix);
  place.spec.num_row = 10;
  place.spec.num_col = 4;
  place.num_nodes = 2;
  place.rows = RowRange{0, 5};
  place.bytes = kBytes;
  return place;
}

class TableFileTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto file = Open();
    if (file.status().code() == Code::kUnsupported) GTEST_SKIP() << file.status().text();
  }
  Result<std::unique_ptr<TableFile>> Open(const TablePlace& place = Place(),
                                          int64_t segment_bytes = kBytes) const {
    return TableFile::Open(path(), place, segment_bytes, /*any_seed=*/false);
  }
  std::string path() const { return folder_.path() + "/table"; }
  bool Exists(const std::string& name) const { return std::filesystem::exists(path() + name); }
  // Uses the files as a session does, and writes `value` to the rows.
  void Use(uint64_t session, char value) const {
    auto file = Open();
    ASSERT_TRUE(file.ok()) << file.status().text();
    const Segment rows = file.value()->TakeRows();
    ASSERT_TRUE(file.value()->BeginUse(session).ok());
    std::memset(rows.data(), value, kBytes);
    ASSERT_TRUE(file.value()->EndUse(rows, /*version=*/3).ok());
  }
  Code CodeOfOpening(const TablePlace& place) const { return Open(place).status().code(); }

  TemporaryFolder folder_;
};

TEST_F(TableFileTest, AUseThatIsCancelledLeavesTheFilesAsTheyWere) {
  Use(77, 'a');
  {
    auto file = Open();
    ASSERT_TRUE(file.value()->BeginUse(78).ok());
    file.value()->CancelUse();
  }
  auto file = Open();
  ASSERT_TRUE(file.ok()) << file.status().text();
  EXPECT_EQ(file.value()->last_session(), 77U);
}

TEST_F(TableFileTest, AFileOfAnInterruptedCreationIsNew) {
  {
    auto file = Open();
    std::filesystem::copy(path() + "/node-0", folder_.path() + "/copy");
  }
  std::filesystem::create_directories(path());
  std::filesystem::rename(folder_.path() + "/copy", path() + "/node-0");
  auto file = Open();
  ASSERT_TRUE(file.ok()) << file.status().text();
  EXPECT_EQ(file.value()->last_session(), 0U);
}

TEST_F(TableFileTest, FilesOfAnotherTableAreRefused) {
  Use(77, 'a');
  const auto refuses = [&](void (*change)(TablePlace*)) {
    TablePlace place = Place();
    change(&place);
    EXPECT_EQ(CodeOfOpening(place), Code::kMismatch);
  };
  refuses([](TablePlace* place) { place->spec.dtype = static_cast<int32_t>(DType::kFloat64); });
  refuses([](TablePlace* place) { place->spec.updater = MV_UPDATER_ADAM; });
  refuses([](TablePlace* place) { place->spec.num_row = 11; });
  refuses([](TablePlace* place) { place->spec.initializer.kind = MV_INITIALIZER_ZEROS; });
  refuses([](TablePlace* place) { place->spec.keys.evict = 1; });
  refuses([](TablePlace* place) { place->num_nodes = 3; });
  refuses([](TablePlace* place) { place->rows.end = 6; });
  refuses([](TablePlace* place) { place->bytes = kBytes + 4096; });
  refuses([](TablePlace* place) { place->spec.initializer.second = 1e-9; });
  refuses([](TablePlace* place) { place->spec.initializer.seed = 5; });
  TablePlace renamed = Place();
  renamed.spec.name[0] = 'x';
  renamed.spec.hyper[0] = 0.5;
  EXPECT_EQ(CodeOfOpening(renamed), Code::kOk);
}

TEST_F(TableFileTest, MissingRowsAreRefused) {
  for (const bool is_empty : {false, true}) {
    Use(77, 'a');
    std::filesystem::remove(path() + "/node-0/rows");
    if (is_empty) std::ofstream(path() + "/node-0/rows").close();
    std::filesystem::permissions(path() + "/node-0", std::filesystem::perms::owner_all);
    EXPECT_FALSE(Open().ok());
    EXPECT_EQ(Exists("/node-0/rows"), is_empty);
    std::filesystem::remove_all(path());
  }
}

TEST_F(TableFileTest, ASegmentMayBecomeLongerOrShorterBehindTheRows) {
  Use(77, 'a');
  for (const int64_t bytes : {kBytes + 9000, kBytes, kBytes + 1}) {
    auto file = Open(Place(), bytes);
    ASSERT_TRUE(file.ok()) << file.status().text();
    const Segment rows = file.value()->TakeRows();
    EXPECT_EQ(rows.bytes(), bytes);
    EXPECT_EQ(rows.data()[kBytes - 1], 'a');
    ASSERT_TRUE(file.value()->BeginUse(78).ok());
    ASSERT_TRUE(file.value()->EndUse(rows, 3).ok());
  }
}

}  // namespace
}  // namespace multiverso::testing
