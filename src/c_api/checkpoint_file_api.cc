// The part of the C API that reads and writes checkpoints without a session.
#include <algorithm>
#include <cstring>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "base/backoff.h"
#include "base/text.h"
#include "base/version.h"
#include "c_api/guard.h"
#include "c_api/registry.h"
#include "c_api/waiting.h"
#include "checkpoint/folder.h"
#include "checkpoint/format.h"
#include "checkpoint/memory_save.h"
#include "checkpoint/reader.h"
#include "multiverso/c_api.h"

namespace multiverso::c_api {
namespace {

static_assert(MV_AREA_STEPS == kStepsArea);
static_assert(MV_AREA_KEYS == kKeysArea);
static_assert(MV_AREA_ROW_STATE == kRowStateArea);
static_assert(MV_HYPER_COUNT <= kSavedHypers);

struct CheckpointEntry {
  std::unique_ptr<CheckpointReader> reader;
  std::mutex mutex;      // held while reading
  int64_t verified = 0;  // number of blocks that MV_CheckpointVerify has verified
};

// How long a thread sleeps at most before it tries again to use a checkpoint that another one
// reads.
constexpr auto kLongestNap = std::chrono::milliseconds(5);

using CheckpointHandles = HandleTable<MV_Checkpoint, CheckpointEntry>;

CheckpointHandles& Checkpoints() { return HandlesOf<CheckpointHandles>("checkpoint", nullptr); }

// Runs body(entry, limit) on an open checkpoint, one thread at a time, since reading uses one
// buffer. The caller can abort the call.
template <class Body>
int32_t WithCheckpoint(MV_Checkpoint checkpoint, const Body& body) {
  return Checkpoints().With(checkpoint, [&](CheckpointEntry* entry) {
    return RunFileCall([&](Interrupt* interrupt) -> Status {
      const WaitLimit limit = WaitLimit::Until(Instant::max(), interrupt);
      std::unique_lock<std::mutex> lock(entry->mutex, std::defer_lock);
      MV_RETURN_IF_NOT_OK(PollUntil(Instant::max(), Backoff(kLongestNap), [&] {
        if (lock.try_lock()) return Status::Ok();
        const Status checked = limit.Check(Clock::now());
        return checked.ok() ? Status::Pending() : checked;
      }));
      return body(entry, limit);
    });
  });
}

// A table of an open checkpoint, for a call on it.
struct OpenTable {
  CheckpointReader* reader;
  uint32_t index;
  const SavedTable* saved;
  WaitLimit limit;

  // Returns the number of rows that MV_CheckpointRead reads: of a hash table, those of its keys.
  Result<int64_t> RowsToRead() const {
    return saved->is_hash() ? reader->StoredRowsOf(index) : Result<int64_t>(saved->num_row);
  }
};

// Runs `body`, a Status(const OpenTable&), on a table of an open checkpoint.
template <class Body>
int32_t WithSavedTable(MV_Checkpoint checkpoint, int64_t table, const Body& body) {
  return WithCheckpoint(checkpoint, [&](CheckpointEntry* entry, const WaitLimit& limit) -> Status {
    const std::vector<SavedTable>& tables = entry->reader->manifest().tables;
    const auto count = static_cast<int64_t>(tables.size());
    if (table < 0 || table >= count) {
      return Status(Code::kIndex, StrCat("table: expected 0 to ", count - 1, ", received ", table));
    }
    return body(OpenTable{entry->reader.get(), static_cast<uint32_t>(table),
                          &tables[static_cast<size_t>(table)], limit});
  });
}

// Returns the table as a checkpoint stores it, or an error if no reader would accept it.
Result<SavedTable> SavedTableFrom(const MV_CheckpointTable& table) {
  MV_RETURN_IF_NOT_OK(CheckStruct(&table, "MV_CheckpointTable"));
  TableSpec spec;
  spec.kind = table.kind;
  spec.dtype = table.dtype;
  spec.updater = table.updater;
  spec.num_row = table.num_row;
  spec.num_col = table.num_col;
  std::memcpy(spec.hyper, table.hyper, sizeof(spec.hyper));
  MV_RETURN_IF_NOT_OK(spec.Check());
  if (table.name != nullptr && std::strlen(table.name) >= kSavedNameBytes) {
    return Status(Code::kValue, StrCat("name: expected at most ", kSavedNameBytes - 1,
                                       " bytes, received '", table.name, "'"));
  }
  if (table.name == nullptr || table.slots < 0 || table.row_slots < 0 || table.counting < 0) {
    return Status(Code::kValue, "MV_CheckpointTable: expected a name, slots and a counting");
  }
  SavedTable saved;
  saved.kind = static_cast<uint32_t>(table.kind);
  saved.dtype = static_cast<uint32_t>(table.dtype);
  saved.updater = static_cast<uint32_t>(table.updater);
  saved.slots = static_cast<uint32_t>(table.slots);
  saved.counting = static_cast<StepCounting>(table.counting);
  saved.row_slots = static_cast<uint32_t>(table.row_slots);
  saved.num_row = table.num_row;
  saved.num_col = table.num_col;
  saved.name = table.name;
  std::memcpy(saved.hyper, table.hyper, sizeof(table.hyper));
  const std::string problem = ProblemOf(saved);
  if (!problem.empty()) return Status(Code::kValue, StrCat("MV_CheckpointTable: ", problem));
  return saved;
}

// Fills an area with what rows have that are not stored: initial values, and zeros in the state.
void FillUnstored(const SavedTable& saved, uint32_t area, char* out) {
  const int64_t row_bytes = saved.row_bytes(area);
  if (area != kParameterArea) {
    std::memset(out, 0, static_cast<size_t>(saved.num_row * row_bytes));
    return;
  }
  const Initializer initializer(saved.initializer, saved.type());
  for (int64_t row = 0; row < saved.num_row; ++row) {
    initializer.Fill(row, 0, saved.num_col, out + row * row_bytes);
  }
}

}  // namespace
}  // namespace multiverso::c_api

using namespace multiverso;         // NOLINT: this file is the C++ side of extern "C" functions
using namespace multiverso::c_api;  // NOLINT

int32_t MV_CheckpointOpen(const char* directory, MV_Checkpoint* checkpoint) {
  return Guard(NotNull(__func__, checkpoint), [&]() -> Status {
    MV_RETURN_IF_NOT_OK(CheckPath(directory, "directory"));
    MV_RETURN_IF_NOT_OK(WatchForks());
    FileSystem* const files = LocalFileSystem();
    const CheckpointFolder folder(files, directory);
    MV_ASSIGN_OR_RETURN(const std::string found, folder.Resolve());
    if (found.empty()) return folder.NotFound();
    auto entry = std::make_unique<CheckpointEntry>();
    MV_ASSIGN_OR_RETURN(entry->reader, CheckpointReader::Open(files, found));
    return Checkpoints().Open(std::move(entry), checkpoint);
  });
}

int32_t MV_CheckpointDescribe(MV_Checkpoint checkpoint, MV_CheckpointDescription* description) {
  return WithCheckpoint(checkpoint,
                        [&](CheckpointEntry* entry, const WaitLimit& /*limit*/) -> Status {
                          MV_RETURN_IF_NOT_OK(CheckStruct(description, "MV_CheckpointDescription"));
                          const Manifest& manifest = entry->reader->manifest();
                          description->number = manifest.number;
                          description->step = manifest.step;
                          description->created = manifest.created;
                          description->num_tables = static_cast<int64_t>(manifest.tables.size());
                          description->num_files = static_cast<int64_t>(manifest.files.size());
                          description->num_workers = manifest.workers;
                          description->bytes = entry->reader->file_bytes();
                          description->mode = static_cast<int32_t>(manifest.mode);
                          description->reserved = 0;
                          description->path = entry->reader->path().c_str();
                          description->library = manifest.library.c_str();
                          return Status::Ok();
                        });
}

int32_t MV_CheckpointDescribeTable(MV_Checkpoint checkpoint, int64_t table,
                                   MV_CheckpointTable* description) {
  return WithSavedTable(checkpoint, table, [&](const OpenTable& open) -> Status {
    MV_RETURN_IF_NOT_OK(CheckStruct(description, "MV_CheckpointTable"));
    const SavedTable& saved = *open.saved;
    MV_ASSIGN_OR_RETURN(const int64_t rows, open.RowsToRead());
    description->kind = static_cast<int32_t>(saved.kind);
    description->dtype = static_cast<int32_t>(saved.dtype);
    description->num_row = rows;
    description->num_col = saved.num_col;
    description->updater = static_cast<int32_t>(saved.updater);
    description->slots = static_cast<int32_t>(saved.slots);
    description->counting = static_cast<int32_t>(saved.counting);
    description->row_slots = static_cast<int32_t>(saved.row_slots);
    description->steps = static_cast<int64_t>(open.reader->StepsOf(open.index, 0, saved.num_row));
    std::memcpy(description->hyper, saved.hyper, sizeof(description->hyper));
    description->name = saved.name.c_str();
    return Status::Ok();
  });
}

int32_t MV_CheckpointClocks(MV_Checkpoint checkpoint, int64_t table, int64_t* clocks,
                            int64_t count) {
  return WithSavedTable(checkpoint, table, [&](const OpenTable& open) {
    const auto& saved = open.saved->clocks;
    if (count != static_cast<int64_t>(saved.size()) || (count > 0 && clocks == nullptr)) {
      return Status(Code::kValue,
                    StrCat("expected room for ", saved.size(), " clocks, received ", count));
    }
    for (size_t i = 0; i < saved.size(); ++i) clocks[i] = static_cast<int64_t>(saved[i]);
    return Status::Ok();
  });
}

int32_t MV_CheckpointVerify(MV_Checkpoint checkpoint, int64_t most_bytes, int64_t* left) {
  return WithCheckpoint(checkpoint, [&](CheckpointEntry* entry, const WaitLimit& limit) -> Status {
    if (left == nullptr || most_bytes < 1) {
      return Status(Code::kValue, "MV_CheckpointVerify: expected at least 1 byte");
    }
    const int64_t blocks = entry->reader->blocks();
    const int64_t count = most_bytes / kBlockBytes + 1;
    const int64_t end = std::min(blocks, entry->verified + count);
    MV_RETURN_IF_NOT_OK(entry->reader->Verify(entry->verified, end, limit));
    entry->verified = end;
    *left = (blocks - end) * kBlockBytes;
    return Status::Ok();
  });
}

int32_t MV_CheckpointRead(MV_Checkpoint checkpoint, int64_t table, int64_t area, void* out,
                          int64_t bytes) {
  return WithSavedTable(checkpoint, table, [&](const OpenTable& open) -> Status {
    const SavedTable& saved = *open.saved;
    const auto area_number = static_cast<uint32_t>(area);
    if (area_number != area || area_number == kRowIdsArea || !saved.has_area(area_number)) {
      return Status(Code::kIndex, StrCat("area: the table has no area ", area));
    }
    MV_ASSIGN_OR_RETURN(const int64_t rows, open.RowsToRead());
    const int64_t expected = rows * saved.row_bytes(area_number);
    if (bytes != expected || (out == nullptr && bytes > 0)) {
      return Status(Code::kValue, StrCat("expected ", expected, " bytes, received ", bytes));
    }
    const int64_t element_bytes = saved.element_bytes(area_number);
    if (saved.is_lazy() && !saved.is_hash()) {
      FillUnstored(saved, area_number, static_cast<char*>(out));
    }
    // The rows of a hash table have no places of their own: they follow each other in `out`.
    int64_t bytes_done = 0;
    // In an increment, the area with the keys may come from a later save than this area.
    const auto rows_differ = [&] {
      return CorruptionFailure(ManifestPath(open.reader->path()), 0,
                               StrCat("table '", saved.name, "': area ", area_number,
                                      " does not have the rows of its keys"));
    };
    MV_RETURN_IF_NOT_OK(open.reader->Read(
        open.index, area_number, 0, saved.num_row, open.limit,
        [&](int64_t first, int64_t count, const char* data) -> Status {
          const int64_t offset = saved.is_hash() ? bytes_done : first * element_bytes;
          const int64_t end = offset + count * element_bytes;
          if (offset < 0 || end > bytes) return rows_differ();
          std::memcpy(static_cast<char*>(out) + offset, data,
                      static_cast<size_t>(count * element_bytes));
          bytes_done += count * element_bytes;
          return Status::Ok();
        }));
    return saved.is_hash() && bytes_done != bytes ? rows_differ() : Status::Ok();
  });
}

int32_t MV_CheckpointClose(MV_Checkpoint checkpoint) { return Checkpoints().Release(checkpoint); }

int32_t MV_CheckpointWrite(const MV_SaveOptions* options, const MV_CheckpointTable* tables,
                           int64_t num_tables, const void* const* areas) {
  return Guard([&]() -> Status {
    if (options == nullptr || options->struct_size != sizeof(MV_SaveOptions) ||
        options->step < -1 || options->keep < 0 || num_tables < 0 ||
        (num_tables > 0 && (tables == nullptr || areas == nullptr))) {
      return Status(Code::kValue, "MV_CheckpointWrite: expected options and tables");
    }
    MV_RETURN_IF_NOT_OK(CheckPath(options->directory, "directory"));
    std::vector<MemoryTable> all;
    size_t next_area = 0;
    for (int64_t i = 0; i < num_tables; ++i) {
      MemoryTable table;
      MV_ASSIGN_OR_RETURN(table.record, SavedTableFrom(tables[i]));
      table.steps = static_cast<uint64_t>(tables[i].steps);
      for (uint32_t area = 0; area < table.record.num_areas(); ++area) {
        if (areas[next_area] == nullptr) {
          return Status(Code::kValue, StrCat("areas[", next_area, "]: received null"));
        }
        table.areas.push_back(areas[next_area++]);
      }
      all.push_back(std::move(table));
    }
    return RunFileCall([&](Interrupt* interrupt) {
      return SaveMemory(LocalFileSystem(), options->directory, options->step, options->keep, all,
                        kVersion, interrupt);
    });
  });
}
