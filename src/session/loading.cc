#include "session/loading.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/text.h"
#include "checkpoint/folder.h"
#include "session/table_record.h"

namespace multiverso {

Loading::Loading(Checkpointing* state, std::unique_ptr<Operation> fence, CheckpointRequest request,
                 Tables tables, int64_t num_created, Instant deadline)
    : CheckpointCall(state, CollectiveKind::kLoad, std::move(fence), std::move(request),
                     std::move(tables), num_created, deadline) {}

Status Loading::Step(const WaitLimit& limit) {
  switch (phase_) {
    case Phase::kBegin:
      MV_RETURN_IF_NOT_OK(Begin(limit));
      FindAndArrive();
      phase_ = Phase::kFound;
      [[fallthrough]];
    case Phase::kFound:
      MV_RETURN_IF_NOT_OK(circle()->Wait(limit));
      MV_RETURN_IF_NOT_OK(TakeFinding());
      if (step_ < 0) return Status::Ok();
      phase_ = Phase::kVerify;
      [[fallthrough]];
    case Phase::kVerify: {
      const Status status = OpenAndVerify(limit);
      if (status.pending()) return status;
      CastVote(status);
      phase_ = Phase::kVerified;
      [[fallthrough]];
    }
    case Phase::kVerified:
      MV_RETURN_IF_NOT_OK(circle()->Wait(limit));
      MV_RETURN_IF_NOT_OK(CheckMeeting(loaders_, "checked its part: no table has changed"));
      phase_ = Phase::kApply;
      [[fallthrough]];
    case Phase::kApply: {
      const Status status = Apply(limit);
      if (status.pending()) return status;
      CastVote(status);
      phase_ = Phase::kApplied;
      [[fallthrough]];
    }
    case Phase::kApplied:
      MV_RETURN_IF_NOT_OK(circle()->Wait(limit));
      return CheckMeeting(loaders_, "loaded its rows, which hold what they held before");
  }
  return Status(Code::kInternal, "a load in no phase");
}

void Loading::FindAndArrive() {
  Status status;
  LeaderMessage tidings;
  if (is_master()) {
    const CheckpointFolder folder(state()->files, request().folder);
    const Result<std::string> found = folder.Resolve();
    status = found.status();
    if (found.ok() && found.value().empty()) {
      if (!request().flag) status = IoFailure(request().folder, "find a checkpoint in", ENOENT);
    } else if (found.ok()) {
      // All of it is read by every rank; here it is about which one it is.
      auto reader = CheckpointReader::Open(state()->files, found.value());
      status = reader.status();
      if (reader.ok()) {
        reader_ = std::move(reader.value());
        const Manifest& manifest = reader_->manifest();
        const bool is_folder = found.value() == request().folder;
        std::memcpy(&tidings.value[0], &manifest.id, sizeof(manifest.id));
        tidings.value[1] = manifest.step;
        tidings.value[2] = manifest.number;
        tidings.value[3] = is_folder ? 2 : 1;
      }
    }
  }
  CastVote(status, tidings);
}

Status Loading::TakeFinding() {
  MV_RETURN_IF_NOT_OK(CheckMeeting({master()}, "found the checkpoint"));
  loaders_ = circle()->participants();
  const LeaderMessage tidings = LeaderMessageOf(*circle(), master());
  if (tidings.value[3] == 0) return Status::Ok();
  std::memcpy(&id_, &tidings.value[0], sizeof(id_));
  step_ = tidings.value[1];
  found_ = tidings.value[3] == 2 ? request().folder
                                 : CheckpointFolder(state()->files, request().folder)
                                       .PathOf(CheckpointName{tidings.value[2], step_});
  return Status::Ok();
}

Status Loading::OpenAndVerify(const WaitLimit& limit) {
  if (reader_ == nullptr) {
    auto reader = CheckpointReader::Open(state()->files, found_);
    if (!reader.ok()) return reader.status();
    reader_ = std::move(reader.value());
  }
  if (places_.empty()) {
    if (reader_->manifest().id != id_) {
      return Corrupt(StrCat(found_, "/", kManifestName), 24,
                     "this rank sees another checkpoint than the master");
    }
    MV_RETURN_IF_NOT_OK(MatchTables());
  }
  const int64_t blocks = reader_->blocks();
  const auto all = static_cast<int64_t>(loaders_.size());
  const int64_t place = PlaceAmong(loaders_);
  verified_.done = std::max(verified_.done, blocks * place / all);
  return reader_->Verify(blocks * (place + 1) / all, &verified_, limit);
}

Status Loading::MatchTables() {
  const std::vector<SavedTable>& saved = reader_->manifest().tables;
  std::vector<bool> is_taken(saved.size());
  for (const auto& table : tables()) {
    const std::string name = table->spec().name;
    size_t place = 0;
    while (place < saved.size() && (is_taken[place] || saved[place].name != name)) ++place;
    // A checkpoint of one table is loaded into whichever table is named.
    if (place == saved.size() && request().table >= 0 && saved.size() == 1) place = 0;
    if (place == saved.size()) {
      return Status(Code::kMismatch, StrCat("the checkpoint ", found_, " does not fit: expected ",
                                            table->spec().Describe(), ", received none"));
    }
    MV_RETURN_IF_NOT_OK(CheckFits(found_, saved[place], *table));
    is_taken[place] = true;
    places_.push_back(static_cast<uint32_t>(place));
  }
  const auto left = std::find(is_taken.begin(), is_taken.end(), false);
  if (request().table >= 0 || left == is_taken.end()) return Status::Ok();
  const SavedTable& extra = saved[static_cast<size_t>(left - is_taken.begin())];
  return Status(Code::kMismatch,
                StrCat("the checkpoint ", found_, " does not fit: it has a table '", extra.name,
                       "', which this session has not"));
}

Status Loading::Apply(const WaitLimit& limit) {
  for (; applied_ < tables().size(); ++applied_, applied_areas_ = 0) {
    // Of updaters that keep state for each worker, in a job with more workers or fewer.
    const SavedTable& saved = reader_->manifest().tables[places_[applied_]];
    const auto slots = static_cast<uint32_t>(tables()[applied_]->state_slots());
    const uint32_t areas = saved.num_areas() - saved.slots + slots;
    for (; applied_areas_ < areas; ++applied_areas_, in_area_ = BlockProgress()) {
      const uint32_t area = applied_areas_ <= slots ? applied_areas_ : kStepsArea;
      MV_RETURN_IF_NOT_OK(ApplyArea(applied_, area, limit));
    }
    MV_RETURN_IF_NOT_OK(ApplyRest(applied_, limit));
  }
  return Status::Ok();
}

int64_t Loading::PlaceAmong(const std::vector<int>& ranks) const {
  return std::lower_bound(ranks.begin(), ranks.end(), members().rank()) - ranks.begin();
}

RowRange Loading::MyRows(const Table& table) const {
  const RowRange rows = table.partition().node_rows();
  std::vector<int> loaders_here;
  for (const int rank : loaders_) {
    if (group()->members().is_local(rank)) loaders_here.push_back(rank);
  }
  const auto here = static_cast<int64_t>(loaders_here.size());
  const int64_t place = PlaceAmong(loaders_here);
  return RowRange{rows.first + rows.count() * place / here,
                  rows.first + rows.count() * (place + 1) / here};
}

Status Loading::ApplyArea(size_t number, uint32_t area, const WaitLimit& limit) {
  Table* const table = tables()[number].get();
  const SavedTable& saved = reader_->manifest().tables[places_[number]];
  const RowRange rows = MyRows(*table);
  // Of a worker more than there were then.
  if (!saved.has_area(area)) return ClearArea(table, area, rows, limit);
  return reader_->Read(places_[number], area, rows.first, rows.end, &in_area_, limit,
                       [&](int64_t first, int64_t count, const char* data) {
                         return LoadPart(table, area, first, count, data, limit);
                       });
}

Status Loading::ClearArea(Table* table, uint32_t area, RowRange rows, const WaitLimit& limit) {
  const TableSpec& spec = table->spec();
  const int64_t elements = rows.count() * spec.num_col;
  const int64_t at_once = kBlockBytes / SizeOf(spec.type());
  const std::vector<char> zeros(static_cast<size_t>(kBlockBytes));
  for (; in_area_.done * at_once < elements; ++in_area_.done) {
    const int64_t first = in_area_.done * at_once;
    MV_RETURN_IF_NOT_OK(LoadPart(table, area, rows.first * spec.num_col + first,
                                 std::min(at_once, elements - first), zeros.data(), limit));
  }
  return Status::Ok();
}

Status Loading::ApplyRest(size_t number, const WaitLimit& limit) {
  Table* const table = tables()[number].get();
  const SavedTable& saved = reader_->manifest().tables[places_[number]];
  const RowRange rows = MyRows(*table);
  MV_RETURN_IF_NOT_OK(LoadStepsOfSection(
      table, rows, reader_->StepsOf(places_[number], rows.first, rows.end), limit));
  for (int32_t i = 0; i < kHyperCount; ++i) {
    const bool has = CheckHyper(table->spec().updater_kind(), i, saved.hyper[i]).ok();
    if (has) MV_RETURN_IF_NOT_OK(table->SetHyper(i, saved.hyper[i]));
  }
  uint64_t rounds = 0;
  for (const uint64_t clock : saved.clocks) rounds = std::max(rounds, clock);
  table->StartFrom(rounds);
  return Status::Ok();
}

}  // namespace multiverso
