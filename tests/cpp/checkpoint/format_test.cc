#include "checkpoint/format.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "base/crc.h"
#include "support/status.h"

namespace multiverso::testing {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

Manifest MakeManifest() {
  Manifest manifest;
  manifest.id = 0x0123456789abcdefU;
  manifest.number = 3;
  manifest.step = 300;
  manifest.mode = 1;
  manifest.workers = 2;
  manifest.created = 1'700'000'000;
  manifest.library = "1.2.3";
  SavedTable table;
  table.kind = 1;
  table.dtype = 1;
  table.slots = 2;
  table.num_row = 1000;
  table.num_col = 700;
  table.counting = StepCounting::kPerRow;
  table.row_slots = 3;
  table.name = "w";
  table.hyper[0] = 0.5;
  table.clocks = {7, 8};
  manifest.tables = {table};
  manifest.files = {SavedFile{8192, 5, 0, manifest.id, manifest.number}};
  return manifest;
}

DataHeader MakeHeader(const Manifest& manifest) {
  DataHeader header;
  header.id = manifest.id;
  for (const uint32_t area : {0U, 1U, 2U, kStepsArea, kRowStateArea}) {
    Section section;
    section.area = area;
    section.rows = 1000;
    section.bytes = 1000 * manifest.tables[0].row_bytes(area);
    header.sections.push_back(section);
  }
  EXPECT_TRUE(LayOut(&header));
  return header;
}

std::string WithCrc(std::string bytes) {
  const uint32_t crc = Crc32c(bytes.data(), static_cast<int64_t>(bytes.size()) - 4);
  std::memcpy(bytes.data() + bytes.size() - 4, &crc, 4);
  return bytes;
}

template <class T>
std::string WithValueAt(std::string bytes, size_t at, T value) {
  std::memcpy(bytes.data() + at, &value, sizeof(value));
  return bytes;
}

void ExpectCorrupt(const Status& status, const std::string& part = "") {
  EXPECT_TRUE(IsError(status, Code::kCheckpointCorrupt, part));
  ASSERT_NE(status.file(), nullptr);
  EXPECT_EQ(status.file()->path, "the file");
}

TEST(Manifest, RoundTrips) {
  const std::string bytes = EncodeManifest(MakeManifest());
  const Manifest manifest = ValueOf(DecodeManifest(bytes, "the file"));
  EXPECT_EQ(EncodeManifest(manifest), bytes);
  EXPECT_EQ(manifest.step, 300);
  EXPECT_EQ(manifest.library, "1.2.3");
  EXPECT_EQ(manifest.tables[0].name, "w");
  EXPECT_EQ(manifest.tables[0].clocks, (std::vector<uint64_t>{7, 8}));
  EXPECT_EQ(manifest.tables[0].num_areas(), 5U);
  EXPECT_EQ(manifest.tables[0].row_bytes(kRowStateArea), 3 * 8);
}

TEST(Manifest, DetectsEveryFlippedBitAndTruncation) {
  const std::string bytes = EncodeManifest(MakeManifest());
  for (size_t bit = 0; bit < bytes.size() * 8; ++bit) {
    std::string flipped = bytes;
    flipped[bit / 8] = static_cast<char>(flipped[bit / 8] ^ (1 << (bit % 8)));
    ExpectCorrupt(DecodeManifest(flipped, "the file").status());
  }
  for (size_t size = 0; size < bytes.size(); ++size) {
    ExpectCorrupt(DecodeManifest(bytes.substr(0, size), "the file").status());
  }
  ExpectCorrupt(DecodeManifest(bytes + "x", "the file").status());
}

Manifest MakeLazyManifest() {
  Manifest manifest = MakeManifest();
  manifest.tables.push_back(manifest.tables[0]);
  InitializerSpec* const initializer = &manifest.tables[1].initializer;
  initializer->kind = static_cast<int32_t>(InitializerKind::kNormal);
  initializer->seed = 11;
  initializer->first = 0.25;
  initializer->second = 2;
  return manifest;
}

TEST(Manifest, OfATableWithAnInitializerRoundTripsInVersion2) {
  const std::string bytes = EncodeManifest(MakeLazyManifest());
  EXPECT_EQ(bytes[8], 2);
  const Manifest manifest = ValueOf(DecodeManifest(bytes, "the file"));
  EXPECT_EQ(EncodeManifest(manifest), bytes);
  EXPECT_FALSE(manifest.tables[0].is_lazy());
  EXPECT_TRUE(manifest.tables[1].initializer == MakeLazyManifest().tables[1].initializer);
  EXPECT_EQ(manifest.tables[1].area(4), kRowIdsArea);
}

TEST(Manifest, OfAnIncrementRoundTripsAndNamesTheWritersOfFiles) {
  for (Manifest manifest : {MakeManifest(), MakeLazyManifest()}) {
    const size_t own = manifest.files.size();
    manifest.files.push_back(SavedFile{4096, 5, 0, 0xfedcba9876543210U, 2});
    manifest.files.push_back(SavedFile{8192, 6, 1, 0xfedcba9876543210U, 2});
    manifest.files.push_back(SavedFile{4096, 7, 0, 0xfedcba9876543211U, 1});
    const std::string bytes = EncodeManifest(manifest);
    EXPECT_EQ(bytes[8], 5);
    // Version 4 is the same, but its data files have no runs.
    const std::string stripes = WithCrc(WithValueAt(bytes, 8, uint32_t{4}));
    EXPECT_EQ(EncodeManifest(ValueOf(DecodeManifest(stripes, "the file"))), bytes);
    const Manifest read = ValueOf(DecodeManifest(bytes, "the file"));
    EXPECT_EQ(EncodeManifest(read), bytes);
    EXPECT_TRUE(read.is_increment());
    ASSERT_EQ(read.files.size(), own + 3);
    EXPECT_EQ(read.files[own + 1].id, 0xfedcba9876543210U);
    EXPECT_EQ(read.files[own + 1].number, 2);
    EXPECT_EQ(read.files[own + 1].index, 1U);
    EXPECT_EQ(read.files[0].bytes, 8192);
    for (size_t bit = 0; bit < bytes.size() * 8; ++bit) {
      std::string flipped = bytes;
      flipped[bit / 8] = static_cast<char>(flipped[bit / 8] ^ (1 << (bit % 8)));
      ExpectCorrupt(DecodeManifest(flipped, "the file").status());
    }
    const auto reject = [&](size_t file, auto change) {
      Manifest changed = manifest;
      change(&changed.files[file]);
      ExpectCorrupt(DecodeManifest(EncodeManifest(changed), "the file").status(),
                    "the files of this checkpoint and then those of earlier ones");
    };
    reject(0, [](SavedFile* file) { file->id = 1; });
    reject(0, [](SavedFile* file) { file->index = 1; });
    reject(own, [](SavedFile* file) { file->index = 1; });
    reject(own + 1, [](SavedFile* file) { file->index = 2; });
    reject(own + 1, [](SavedFile* file) { file->id = 3; });
    reject(own, [&](SavedFile* file) { file->id = manifest.id; });
    for (const int64_t number : {int64_t{-1}, int64_t{2}, int64_t{4}, INT64_MAX}) {
      reject(own + 2, [&](SavedFile* file) { file->number = number; });
    }
    for (const uint32_t version : {1U, 2U}) {
      ExpectCorrupt(DecodeManifest(WithCrc(WithValueAt(bytes, 8, version)), "the file").status());
    }
  }
}

TEST(Manifest, RejectsHostileInitializers) {
  const std::string bytes = EncodeManifest(MakeLazyManifest());
  const size_t at = 96 + 264 + 232;  // of the second table's initializer
  const auto reject = [&](size_t place, auto value) {
    ExpectCorrupt(
        DecodeManifest(WithCrc(WithValueAt(bytes, at + place, value)), "the file").status());
  };
  reject(0, uint32_t{0});  // without an initializer it would be version 1
  for (const uint32_t kind : {6U, 0x80000000U, 0xffffffffU}) reject(0, kind);
  reject(4, uint32_t{1});
  for (const double value : {-1.0, kInfinity, -kInfinity, std::nan("")}) reject(24, value);
  for (const double value : {kInfinity, std::nan("")}) reject(16, value);
}

// The checksum is valid, as in a forged file, so that only the number can be rejected.
TEST(Manifest, RejectsHostileNumbers) {
  const std::string bytes = EncodeManifest(MakeManifest());
  const auto reject = [&](size_t at, auto value) {
    ExpectCorrupt(DecodeManifest(WithCrc(WithValueAt(bytes, at, value)), "the file").status());
  };
  for (const uint32_t huge : {0xffffffffU, 0x80000000U, 100000U}) {
    reject(12, huge);       // tables
    reject(48, huge);       // files
    reject(56, huge);       // workers
    reject(96, huge);       // kind
    reject(96 + 4, huge);   // dtype
    reject(96 + 12, huge);  // slots
    reject(96 + 32, huge);  // counting
    reject(96 + 36, huge);  // numbers per row
  }
  for (const int64_t wrong : {int64_t{-1}, INT64_MIN, INT64_MAX}) {
    reject(16, wrong);       // bytes
    reject(96 + 16, wrong);  // rows
    reject(96 + 24, wrong);  // columns
  }
  reject(32, int64_t{-1});  // number
  reject(40, int64_t{-1});  // step
  reject(96 + 16, int64_t{1} << 50);
  reject(96 + 40 + 63, 'x');  // end of the name
}

TEST(Manifest, RejectsRowStateWhoseSizeOverflows) {
  Manifest manifest = MakeManifest();
  SavedTable* const table = &manifest.tables[0];
  table->initializer.kind = static_cast<int32_t>(InitializerKind::kZeros);
  table->num_row = (int64_t{1} << 50) + 1;
  table->num_col = 1;
  table->row_slots = 2048;
  ExpectCorrupt(DecodeManifest(EncodeManifest(manifest), "the file").status(), "expected a size");
  table->row_slots = 1;
  EXPECT_TRUE(IsOk(DecodeManifest(EncodeManifest(manifest), "the file").status()));
}

TEST(DataHeader, OfStoredRowsRoundTripsAndRejectsOtherSizes) {
  Manifest manifest = MakeLazyManifest();
  DataHeader header;
  header.version = VersionOfData(manifest, {});
  header.id = manifest.id;
  for (const uint32_t area : {0U, 1U, 2U, kStepsArea, kRowIdsArea}) {
    Section section;
    section.table = 1;
    section.area = area;
    section.rows = 1000;
    section.bytes = 17 * manifest.tables[1].row_bytes(area);
    header.sections.push_back(section);
  }
  ASSERT_TRUE(LayOut(&header));
  const std::string bytes = EncodeDataHeader(header);
  const auto read = [&](const std::string& changed) {
    manifest.files[0].header_crc = HeaderCrcOf(changed);
    return DecodeDataHeader(changed, header.file_bytes, manifest, 0, "the file");
  };
  EXPECT_EQ(EncodeDataHeader(ValueOf(read(bytes))), bytes);
  for (const int64_t wrong : {int64_t{-8}, int64_t{17 * 8 + 1}, int64_t{1001 * 8}, INT64_MAX}) {
    ExpectCorrupt(read(WithCrc(WithValueAt(bytes, 64 + 4 * 56 + 32, wrong))).status(),
                  "section 4 cannot have");
  }
  ExpectCorrupt(read(WithCrc(WithValueAt(bytes, 8, uint32_t{1}))).status());
}

TEST(DataHeader, RejectsAHeaderOfAnotherFileOrCheckpoint) {
  Manifest manifest = MakeManifest();
  manifest.files.push_back(manifest.files[0]);
  manifest.files[1].index = 1;
  const DataHeader header = MakeHeader(manifest);
  const std::string bytes = EncodeDataHeader(header);
  const auto decode = [&](uint32_t index) {
    return DecodeDataHeader(bytes, header.file_bytes, manifest, index, "the file").status();
  };
  ExpectCorrupt(decode(1), "expected file 1 of checkpoint 3, received file 0");
  ExpectCorrupt(decode(0), "not the one that the manifest names");
  manifest.files[0].id = 1;
  ExpectCorrupt(decode(0), "of another");
}

TEST(DataHeader, RejectsHostileNumbers) {
  Manifest manifest = MakeManifest();
  const DataHeader header = MakeHeader(manifest);
  const std::string bytes = EncodeDataHeader(header);
  const auto read = [&](const std::string& changed) -> Status {
    manifest.files[0].header_crc = HeaderCrcOf(changed);
    const auto length = HeaderBytesOf(changed.substr(0, 64), header.file_bytes, "the file");
    if (!length.ok()) return length.status();
    if (length.value() != static_cast<int64_t>(changed.size())) {
      return Status(Code::kCheckpointCorrupt, "another length", FileFault{"the file", 0, 0});
    }
    return DecodeDataHeader(changed, header.file_bytes, manifest, 0, "the file").status();
  };
  ASSERT_TRUE(read(bytes).ok());
  // Sets any 4 or 8 bytes of the header to values that overflow easily.
  for (size_t at = 8; at + 8 <= 64 + 4 * 56; at += 4) {
    for (const uint32_t value : {0xffffffffU, 0x7fffffffU, 0x80000000U}) {
      const std::string changed = WithCrc(WithValueAt(bytes, at, value));
      // Any number of steps is valid, so a changed number is no error.
      const bool is_steps = at >= 64 && (at - 64) % 56 >= 48;
      if (!is_steps) ExpectCorrupt(read(changed));
    }
    const std::string changed = WithCrc(WithValueAt(bytes, at, uint64_t{0x7fffffffffffffffU}));
    const bool has_steps = at >= 64 && (at - 64) % 56 >= 44;
    if (!has_steps) ExpectCorrupt(read(changed));
  }
}

}  // namespace
}  // namespace multiverso::testing
