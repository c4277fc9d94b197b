#include "saves/table_record.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <numeric>

#include "base/text.h"
#include "checkpoint/file_system.h"
#include "shard/keyed_shard.h"
#include "shard/shard_copies.h"

namespace multiverso {
namespace {

static_assert(kHyperCount <= kSavedHypers);
static_assert(kHashKind == static_cast<uint32_t>(TableKind::kHash));
static_assert(kKeyBytes == sizeof(KeyIndex::SavedCell));
static_assert(kRowsPerStripeOfKeys == KeyIndex::kRowsPerStripe);
constexpr int64_t kStepBytes = 4;

// Describes the table in the style of TableSpec::Describe.
std::string Describe(const SavedTable& saved) {
  TableSpec spec;
  spec.kind = static_cast<int32_t>(saved.kind);
  spec.dtype = static_cast<int32_t>(saved.dtype);
  spec.updater = static_cast<int32_t>(saved.updater);
  spec.num_row = saved.num_row;
  spec.keys.capacity = saved.num_row;
  spec.num_col = saved.num_col;
  std::memcpy(spec.hyper, saved.hyper, sizeof(spec.hyper));
  CopyText(spec.name, saved.name);
  return spec.Describe();
}

// Copies `bytes` bytes of an area of the table, from byte `offset` of a row on, to `out`.
Status CopyRows(Table* table, uint32_t area, int64_t first_row, int64_t offset, int64_t bytes,
                char* out, NextRead next_read, const WaitLimit& limit) {
  const TableSpec& spec = table->spec();
  const ShardCopies copies(table->shard());
  if (area == kStepsArea) {
    return copies.CopyStepsOut(first_row + offset / kStepBytes, bytes / kStepBytes, 1,
                               reinterpret_cast<uint32_t*>(out), limit);
  }
  if (area == kKeysArea) {
    const int64_t first = first_row - table->partition().node_rows().first + offset / kKeyBytes;
    auto* const cells = reinterpret_cast<KeyIndex::SavedCell*>(out);
    for (int64_t i = 0; i < bytes / kKeyBytes; ++i) {
      cells[i] = table->shard()->AsKeyed()->keys().Save(first + i);
    }
    return Status::Ok();
  }
  const int64_t element_bytes = SizeOf(area == kParameterArea ? spec.type() : spec.value_type());
  if (area == kRowStateArea) {
    const int64_t row_bytes = table->shard()->updater().row_slots() * element_bytes;
    return copies.CopyOut(copies.row_state(), (first_row + offset / row_bytes) * spec.num_col,
                          bytes / row_bytes * spec.num_col, out, next_read, limit);
  }
  return copies.CopyOut(area, first_row * spec.num_col + offset / element_bytes,
                        bytes / element_bytes, out, next_read, limit);
}

StepCounting CountingOf(const Table& table) {
  if (!table.shard()->counts_steps()) return StepCounting::kNone;
  // The rows of an array are always updated together.
  return table.spec().is_array() ? StepCounting::kPerSection : StepCounting::kPerRow;
}

// Returns the rows of a saved hash table among which the keys are that belong into these rows of
// the table. Stripes divide the range of the hashes, so those of the saved table are near the same
// place.
RowRange SavedRowsNear(const Table& table, const SavedTable& saved, RowRange rows) {
  const int64_t saved_stripes = saved.num_row / kRowsPerStripeOfKeys;
  const auto place_of = [&](int64_t row, int64_t more) {
    const double place = static_cast<double>(row / kRowsPerStripeOfKeys) *
                         static_cast<double>(saved_stripes) /
                         static_cast<double>(table.spec().key_stripes());
    return std::clamp<int64_t>(static_cast<int64_t>(place) + more, 0, saved_stripes) *
           kRowsPerStripeOfKeys;
  };
  if (rows.count() == 0) return RowRange{0, 0};
  return RowRange{place_of(rows.first, -1), place_of(rows.end, 2)};
}

}  // namespace

SavedTable RecordOf(const Table& table) {
  const TableSpec& spec = table.spec();
  SavedTable saved;
  saved.kind = static_cast<uint32_t>(spec.kind);
  saved.dtype = static_cast<uint32_t>(spec.dtype);
  saved.updater = static_cast<uint32_t>(spec.updater);
  saved.slots = static_cast<uint32_t>(table.shard()->state_slots());
  saved.counting = CountingOf(table);
  saved.row_slots = static_cast<uint32_t>(table.shard()->updater().row_slots());
  saved.num_row = spec.num_row;
  saved.num_col = spec.num_col;
  saved.name = spec.name;
  for (int i = 0; i < kHyperCount; ++i) saved.hyper[i] = table.GetHyper(i);
  saved.initializer = spec.initializer;
  return saved;
}

std::shared_ptr<const StoredRows> TouchedRows(const Table& table, RowRange rows) {
  const LazyRows* const lazy = table.shard()->lazy();
  if (lazy == nullptr) return nullptr;
  auto touched = std::make_shared<StoredRows>();
  const int64_t first_row = table.partition().node_rows().first;
  const int64_t end = rows.end - first_row;
  for (int64_t row = lazy->NextTouched(rows.first - first_row, end); row < end;) {
    const int64_t run_end = lazy->NextUntouched(row, end);
    touched->Append(first_row + row, run_end - row);
    row = lazy->NextTouched(run_end, end);
  }
  return touched;
}

Status RestartRows(Table* table, RowRange rows, const InitializerSpec& initializer,
                   const WaitLimit& limit) {
  const Initializer restarted(initializer, table->spec().type());
  return ShardCopies(table->shard()).Restart(rows.first, rows.count(), restarted, limit);
}

Status CopySection(Table* table, const Section& section, int64_t offset, int64_t bytes, char* out,
                   NextRead next_read, const WaitLimit& limit) {
  if (section.runs != nullptr) {
    std::memcpy(out, reinterpret_cast<const char*>(section.runs->data()) + offset,
                static_cast<size_t>(bytes));
    return Status::Ok();
  }
  if (section.stored == nullptr) {
    return CopyRows(table, section.area, section.first_row, offset, bytes, out, next_read, limit);
  }
  const StoredRows& stored = *section.stored;
  const int64_t row_bytes = section.bytes / stored.rows();
  const int64_t end = offset + bytes;
  while (offset < end) {
    // The stored row at `offset`, and the run of consecutive rows that begins with it.
    const int64_t place = offset / row_bytes;
    const StoredRows::Run run = stored.From(place);
    const int64_t count = std::min(end, (place + run.count) * row_bytes) - offset;
    if (section.area == kRowIdsArea) {
      auto* const ids = reinterpret_cast<int64_t*>(out);
      std::iota(ids, ids + count / kRowIdBytes, run.first);
    } else {
      MV_RETURN_IF_NOT_OK(CopyRows(table, section.area, run.first, offset % row_bytes, count, out,
                                   next_read, limit));
    }
    out += count;
    offset += count;
  }
  return Status::Ok();
}

Status StepsOfSection(Table* table, RowRange rows, uint64_t* steps, const WaitLimit& limit) {
  *steps = 0;
  if (CountingOf(*table) != StepCounting::kPerSection) return Status::Ok();
  uint32_t most = 0;
  MV_RETURN_IF_NOT_OK(ShardCopies(table->shard())
                          .CopyStepsOut(rows.first, rows.count(), rows.count(), &most, limit));
  *steps = most;
  return Status::Ok();
}

Status LoadPart(Table* table, uint32_t area, int64_t first, int64_t count, const char* data,
                const WaitLimit& limit) {
  const ShardCopies copies(table->shard());
  if (area == kStepsArea) {
    return copies.CopyStepsIn(first, count, 1, reinterpret_cast<const uint32_t*>(data), limit);
  }
  if (area == kRowStateArea) {
    const int64_t slots = table->shard()->updater().row_slots();
    const int64_t columns = table->spec().num_col;
    return copies.CopyIn(copies.row_state(), first / slots * columns, count / slots * columns, data,
                         limit);
  }
  return copies.CopyIn(area, first, count, data, limit);
}

Status LoadStepsOfSection(Table* table, RowRange rows, uint64_t steps, const WaitLimit& limit) {
  if (CountingOf(*table) != StepCounting::kPerSection || rows.count() == 0) return Status::Ok();
  constexpr uint64_t kMost = std::numeric_limits<uint32_t>::max();
  const auto counted = static_cast<uint32_t>(std::min(steps, kMost));
  return ShardCopies(table->shard())
      .CopyStepsIn(rows.first, rows.count(), rows.count(), &counted, limit);
}

Status ClearKeys(Table* table, RowRange rows, const WaitLimit& limit) {
  const int64_t node_row = table->partition().node_rows().first;
  return table->shard()->AsKeyed()->ClearKeys((rows.first - node_row) / kRowsPerStripeOfKeys,
                                              (rows.end - node_row) / kRowsPerStripeOfKeys, limit);
}

Status RestoreKeys(Table* table, const SavedTable& saved, RowRange rows, const ReadArea& read,
                   std::vector<RestoredRow>* restored, bool* had_ages, const WaitLimit& limit) {
  const int64_t stripes = table->spec().key_stripes();
  return read(kKeysArea, SavedRowsNear(*table, saved, rows),
              [&](int64_t first, int64_t count, const char* data) -> Status {
                for (int64_t i = 0; i < count; ++i) {
                  KeyIndex::SavedCell cell;
                  std::memcpy(&cell, data + i * kKeyBytes, sizeof(cell));
                  *had_ages |= cell.age != 0;
                  const int64_t stripe_row = StripeOfKey(cell.key, stripes) * kRowsPerStripeOfKeys;
                  if (stripe_row < rows.first || stripe_row >= rows.end) continue;
                  MV_ASSIGN_OR_RETURN(const int64_t row,
                                      table->shard()->AsKeyed()->RestoreKey(cell, limit));
                  if (row == KeyedShard::kTaken) continue;
                  if (row == KeyIndex::kNone) {
                    return Status(Code::kCheckpointCorrupt, StrCat("table '", saved.name, "': key ",
                                                                   cell.key, " occurs twice"));
                  }
                  restored->push_back(RestoredRow{first + i, row, cell.key});
                }
                return Status::Ok();
              });
}

Status LoadRowsOfKeys(Table* table, const SavedTable& saved, RowRange rows, const ReadArea& read,
                      std::vector<RestoredRow> restored, const WaitLimit& limit) {
  const KeyIndex& keys = table->shard()->AsKeyed()->keys();
  const int64_t node_row = table->partition().node_rows().first;
  const auto is_gone = [&](const RestoredRow& each) {
    return keys.Find(each.key) != each.row - node_row;
  };
  restored.erase(std::remove_if(restored.begin(), restored.end(), is_gone), restored.end());
  const auto is_before = [](const RestoredRow& a, const RestoredRow& b) {
    return a.saved_row < b.saved_row;
  };
  std::sort(restored.begin(), restored.end(), is_before);
  for (uint32_t index = 0; index < saved.num_areas(); ++index) {
    const uint32_t area = saved.area(index);
    if (area == kKeysArea || area == kRowIdsArea) continue;
    const int64_t width = saved.elements_per_row(area);
    const int64_t bytes = saved.element_bytes(area);
    const auto take = [&](int64_t first, int64_t count, const char* data) -> Status {
      auto next = std::lower_bound(restored.begin(), restored.end(),
                                   RestoredRow{first / width, 0, 0}, is_before);
      while (count > 0) {
        const int64_t in_row = first % width;
        const int64_t part = std::min(count, width - in_row);
        if (next != restored.end() && next->saved_row < first / width) ++next;
        if (next != restored.end() && next->saved_row == first / width) {
          MV_RETURN_IF_NOT_OK(LoadPart(table, area, next->row * width + in_row, part, data, limit));
        }
        first += part;
        count -= part;
        data += part * bytes;
      }
      return Status::Ok();
    };
    MV_RETURN_IF_NOT_OK(read(area, SavedRowsNear(*table, saved, rows), take));
  }
  return Status::Ok();
}

Status CheckFits(const std::string& path, const SavedTable& saved, const Table& table) {
  const TableSpec& spec = table.spec();
  const bool slots_vary = table.shard()->updater().notes_gets();  // one slot per worker
  if (static_cast<int64_t>(saved.kind) != spec.kind ||
      static_cast<int64_t>(saved.dtype) != spec.dtype ||
      static_cast<int64_t>(saved.updater) != spec.updater ||
      (!spec.is_hash() && saved.num_row != spec.num_row) || saved.num_col != spec.num_col) {
    return Status(Code::kMismatch, StrCat("the checkpoint ", path, " does not fit: expected ",
                                          spec.Describe(), ", received ", Describe(saved)));
  }
  if (saved.counting != CountingOf(table) ||
      static_cast<int64_t>(saved.row_slots) != table.shard()->updater().row_slots() ||
      (!slots_vary && static_cast<int64_t>(saved.slots) != table.shard()->state_slots())) {
    return CorruptionFailure(
        path, 0,
        StrCat("no ", spec.Describe(), " has ", saved.slots, " state slots, ", saved.row_slots,
               " numbers per row, and counts its updates like that"));
  }
  const Status hypers = CheckHypers(spec.updater_kind(), saved.hyper);
  if (hypers.ok()) {
    return CheckSupported(FeaturesOfHyper(spec.updater_kind(), kClipNorm, saved.hyper[kClipNorm]) |
                          table.features_of_session())
        .In(StrCat("the checkpoint ", path, " does not fit: table '", saved.name, "'"));
  }
  return CorruptionFailure(path, 0, StrCat("table '", saved.name, "': ", hypers.text()));
}

}  // namespace multiverso
