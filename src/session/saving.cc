#include "session/saving.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <random>
#include <utility>

#include "base/text.h"
#include "checkpoint/folder.h"
#include "memory/limits.h"
#include "session/table_record.h"
#include "session/version.h"

namespace multiverso {
namespace {

// Reads the sections from the tables themselves.
class TableSource final : public BlockSource {
 public:
  TableSource(Tables tables, std::vector<Section> sections, Instant deadline)
      : tables_(std::move(tables)), sections_(std::move(sections)), deadline_(deadline) {}

  Result<const char*> Fetch(size_t index, int64_t offset, int64_t bytes, char* buffer) override {
    const Section& section = sections_[index];
    MV_RETURN_IF_NOT_OK(CopySection(tables_[section.table].get(), section, offset, bytes, buffer,
                                    NextRead::kSoon, WaitLimit::Until(deadline_)));
    return static_cast<const char*>(buffer);
  }

 private:
  Tables tables_;
  std::vector<Section> sections_;
  Instant deadline_;
};

}  // namespace

Status Saving::Run(Tables tables, int64_t num_created, const WaitLimit& limit) {
  MV_RETURN_IF_NOT_OK(Begin(std::move(tables), num_created, limit));
  MV_RETURN_IF_NOT_OK(Prepare(limit));
  Status status = ListSections(limit);
  if (status.ok() && request().in_background) status = Copy(limit);
  if (status.ok()) status = StartJob(limit.deadline);
  status = ExchangeVotes(status, limit);
  if (status.ok()) {
    status = CheckVotes(savers_, "begun to write its rows");
    if (!status.ok()) {
      state()->job.reset();
      if (is_master()) CheckpointFolder(state()->files, request().folder).Abandon(saving_path_);
    } else if (!request().in_background) {
      status = EndSave(state(), limit);
    }
  }
  // An interrupt has aborted the session, so no rank can complete this save.
  if (limit.is_interrupted()) state()->job.reset();
  return status;
}

Status Saving::Prepare(const WaitLimit& limit) {
  Status status;
  MasterMessage message;
  if (is_master()) {
    std::random_device random;
    const uint64_t id = (uint64_t{random()} << 32) | random();
    CheckpointName name;
    status = CheckpointFolder(state()->files, request().folder)
                 .Begin(request().step, id, &name)
                 .status();
    std::memcpy(&message.values[0], &id, sizeof(id));
    message.values[1] = name.number;
    message.values[2] = name.step;
    message.values[3] = std::chrono::duration_cast<std::chrono::seconds>(
                            std::chrono::system_clock::now().time_since_epoch())
                            .count();
  }
  MV_RETURN_IF_NOT_OK(ExchangeVotes(status, limit, message));
  MV_RETURN_IF_NOT_OK(CheckVotes({master()}, "made the folder"));
  savers_ = world()->participants();
  message = MasterMessageOf(*world(), master());
  std::memcpy(&id_, &message.values[0], sizeof(id_));
  name_ = CheckpointName{message.values[1], message.values[2]};
  created_ = message.values[3];
  saving_path_ = CheckpointFolder(state()->files, request().folder).SavingPath(name_, id_);
  return Status::Ok();
}

Status Saving::ListSections(const WaitLimit& limit) {
  for (size_t i = 0; i < tables().size(); ++i) {
    const SavedTable record = RecordOf(*tables()[i]);
    const RowRange rows = tables()[i]->partition().RowsSavedBy(members().rank(), savers_);
    if (rows.count() == 0) continue;
    uint64_t steps = 0;
    MV_RETURN_IF_NOT_OK(StepsOfSection(tables()[i].get(), rows, &steps, limit));
    const auto row_ids = TouchedRows(*tables()[i], rows);
    const int64_t stored =
        row_ids == nullptr ? rows.count() : static_cast<int64_t>(row_ids->size());
    for (uint32_t index = 0; index < record.num_areas(); ++index) {
      Section section;
      section.table = static_cast<uint32_t>(i);
      section.area = record.area(index);
      section.first_row = rows.first;
      section.rows = rows.count();
      section.steps = steps;
      section.row_ids = row_ids;
      section.bytes = stored * record.row_bytes(section.area);
      sections_.push_back(section);
    }
  }
  return Status::Ok();
}

Status Saving::MakeRoomForCopy() {
  const int64_t bytes = TableSnapshot::OffsetsOf(sections_).back();
  if (bytes <= state()->copy.bytes()) return Status::Ok();
  state()->copy = Segment();
  Status status = CheckIsFree(bytes);
  if (status.ok()) {
    Result<Segment> made = Segment::CreatePrivate(bytes);
    status = made.status();
    if (made.ok()) state()->copy = std::move(made.value());
  }
  return status.In("a copy of the tables, to write from in the background");
}

Status Saving::Copy(const WaitLimit& limit) {
  MV_RETURN_IF_NOT_OK(MakeRoomForCopy());
  return TableSnapshot(tables(), sections_, state()->copy.data())
      .Copy(TableSnapshot::ThreadsFor(context()->members().num_ranks_here()), limit);
}

Status Saving::StartJob(Instant deadline) {
  SavePlan plan;
  plan.folder = request().folder;
  plan.saving = saving_path_;
  plan.name = name_;
  plan.deadline = deadline;
  plan.sections = sections_;
  plan.keep = request().keep;
  plan.commits = is_master();
  plan.manifest = MakeManifest();
  // Each rank that saves rows writes one file, in rank order.
  std::vector<int> writers;
  for (const int rank : savers_) {
    const auto has_rows = [&](const std::shared_ptr<Table>& table) {
      return table->partition().RowsSavedBy(rank, savers_).count() > 0;
    };
    if (std::any_of(tables().begin(), tables().end(), has_rows)) writers.push_back(rank);
  }
  const auto writer = std::find(writers.begin(), writers.end(), members().rank());
  if (writer != writers.end()) plan.file_index = static_cast<int32_t>(writer - writers.begin());
  plan.num_files = static_cast<uint32_t>(writers.size());
  RankContext* const context = this->context();
  plan.why_never = [context, writers](uint32_t file) {
    const std::string reason = context->peers()->ExitReason(writers[file]);
    if (reason.empty()) return Status::Ok();
    return context->peers()->About(
        writers[file],
        Status(Code::kPeerLost, StrCat(context->members().NameRank(writers[file]), " ", reason,
                                       " before it had written its rows")));
  };
  std::unique_ptr<BlockSource> source;
  if (request().in_background) {
    std::vector<const char*> copies;
    for (const int64_t offset : TableSnapshot::OffsetsOf(sections_)) {
      copies.push_back(state()->copy.data() + offset);
    }
    source = std::make_unique<MemorySource>(std::move(copies));
  } else {
    source = std::make_unique<TableSource>(tables(), sections_, deadline);
  }
  auto job = SaveJob::Start(state()->files, std::move(plan), std::move(source));
  if (job.ok()) state()->job = std::move(job.value());
  state()->committer = master();
  return job.status();
}

Manifest Saving::MakeManifest() const {
  Manifest manifest;
  manifest.id = id_;
  manifest.number = name_.number;
  manifest.step = name_.step;
  manifest.mode = static_cast<uint32_t>(mode_);
  manifest.workers = static_cast<uint32_t>(members().num_workers());
  manifest.created = created_;
  manifest.library = kVersion;
  for (const auto& table : tables()) {
    manifest.tables.push_back(RecordOf(*table));
    manifest.tables.back().clocks = table->consistency()->Clocks();
  }
  return manifest;
}

}  // namespace multiverso
