#include "session/table_record.h"

#include <cstring>

#include "base/text.h"

namespace multiverso {
namespace {

static_assert(kHyperCount <= kSavedHypers);

// In the words of TableSpec::Describe.
std::string Describe(const SavedTable& saved) {
  TableSpec spec;
  spec.kind = static_cast<int32_t>(saved.kind);
  spec.dtype = static_cast<int32_t>(saved.dtype);
  spec.updater = static_cast<int32_t>(saved.updater);
  spec.num_row = saved.num_row;
  spec.num_col = saved.num_col;
  std::memcpy(spec.hyper, saved.hyper, sizeof(spec.hyper));
  CopyText(spec.name, saved.name);
  return spec.Describe();
}

}  // namespace

SavedTable RecordOf(const Table& table) {
  const TableSpec& spec = table.spec();
  SavedTable saved;
  saved.kind = static_cast<uint32_t>(spec.kind);
  saved.dtype = static_cast<uint32_t>(spec.dtype);
  saved.updater = static_cast<uint32_t>(spec.updater);
  saved.slots = static_cast<uint32_t>(table.state_slots());
  saved.num_row = spec.num_row;
  saved.num_col = spec.num_col;
  saved.name = spec.name;
  for (int i = 0; i < kHyperCount; ++i) saved.hyper[i] = table.GetHyper(i);
  return saved;
}

bool WritesFile(const Membership& members, int rank) { return members.is_server(rank); }

Status CopySection(Table* table, const Section& section, int64_t offset, int64_t bytes, char* out,
                   const WaitLimit& limit) {
  const TableSpec& spec = table->spec();
  const int64_t element_bytes = SizeOf(spec.type());
  Progress progress;
  return table->CopyOut(section.area, section.first_row * spec.num_col + offset / element_bytes,
                        bytes / element_bytes, out, &progress, limit);
}

uint64_t StepsOfRows(Table* /*table*/, RowRange /*rows*/) { return 0; }

Status CheckFits(const SavedTable& saved, const Table& table) {
  const TableSpec& spec = table.spec();
  if (static_cast<int64_t>(saved.kind) == spec.kind &&
      static_cast<int64_t>(saved.dtype) == spec.dtype &&
      static_cast<int64_t>(saved.updater) == spec.updater && saved.num_row == spec.num_row &&
      saved.num_col == spec.num_col) {
    return Status::Ok();
  }
  return Status(Code::kMismatch, StrCat("the checkpoint does not fit: expected ", spec.Describe(),
                                        ", received ", Describe(saved)));
}

}  // namespace multiverso
