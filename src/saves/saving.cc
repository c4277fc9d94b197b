#include "saves/saving.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <functional>
#include <random>

#include "base/log.h"
#include "base/text.h"
#include "base/version.h"
#include "checkpoint/data_file.h"
#include "checkpoint/folder.h"
#include "memory/limits.h"
#include "saves/table_record.h"
#include "saves/table_snapshot.h"

namespace multiverso {
namespace {

// The most increments whose files a checkpoint has. Together they are not much larger than those of
// the full save, either, so that loading takes at most about twice as long, and that the space of
// replaced rows becomes free.
constexpr int64_t kMaxIncrements = 32;
// Why a save is full after enough increments. That is as it should be, so no warning is logged.
constexpr char kManyIncrements[] = "the increments are as large as the full checkpoint";

// The indices of MasterMessage::values. The id of the last save is 0 in a full save.
enum MasterValue { kId, kNumber, kStep, kBaseId };
// In the message of each rank about its increment.
enum SizeValue { kIncrementBytes, kFullBytes };

int64_t BytesOf(const std::vector<Section>& sections) {
  int64_t bytes = 0;
  for (const Section& section : sections) bytes += section.bytes;
  return bytes;
}

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
  Status status;
  MV_RETURN_IF_NOT_OK(Begin(std::move(tables), num_created, limit, &status));
  const Status prepared = Prepare(status, limit);
  if (!prepared.ok()) {
    // Without the master, a rank that has seen the folder's name cannot complete the save either.
    if (!saving_path_.empty() && is_master()) {
      CheckpointFolder(state()->files, request().folder).Abandon(saving_path_);
    }
    return prepared;
  }
  status = ListSections(limit);
  if (base_id_ != 0) status = ChooseKind(status, limit);
  if (status.ok() && request().in_background) status = Copy(limit);
  if (status.ok()) status = StartJob(limit.deadline);
  status = ExchangeVotes(status, savers_, "begun to write its rows", limit);
  if (status.ok()) {
    if (!request().in_background) status = EndSave(state(), limit);
  } else if (world()->IsCompleted()) {
    state()->job.reset();
    // Files that another rank still writes would stay, and their folder with them.
    (void)ExchangeVotes(Status::Ok(), savers_, "stopped writing", limit);
    if (is_master()) CheckpointFolder(state()->files, request().folder).Abandon(saving_path_);
  }
  // An interrupt has aborted the session, so no rank can complete this save.
  if (limit.is_interrupted()) state()->job.reset();
  return status;
}

bool Saving::IsOfTheseTables(const LastSave& save) const {
  const auto is_same = [](const std::shared_ptr<Table>& table, int64_t id) {
    return table->id() == id;
  };
  return std::equal(tables().begin(), tables().end(), save.tables.begin(), save.tables.end(),
                    is_same);
}

const LastSave* Saving::KnownBase() const {
  const LastSave* const last = LastSaveInto(*state(), request().folder);
  const bool is_known =
      base_id_ != 0 && last != nullptr && last->id == base_id_ && IsOfTheseTables(*last);
  return is_known ? last : nullptr;
}

std::string Saving::LinkLastSave() {
  const LastSave* const last = LastSaveInto(*state(), request().folder);
  if (last == nullptr) return "this session has not saved there since it began or loaded";
  if (!IsOfTheseTables(*last)) return "the session has other tables than at its last save there";
  const std::string path = StrCat(request().folder, "/", last->name.text());
  Result<Manifest> manifest = ReadManifest(state()->files, path);
  if (!manifest.ok()) return manifest.status().text();
  if (manifest->id != last->id) return StrCat(path, " is not what was saved there");
  const std::vector<SavedFile>& files = manifest->files;
  int64_t increments = 1;
  uint64_t bytes_of_full = 0;  // unsigned, since a manifest may contain any numbers
  uint64_t bytes_of_increments = 0;
  for (size_t i = 0; i < files.size(); ++i) {
    if (i > 0 && files[i].number != files[i - 1].number) ++increments;
    (files[i].number == files.back().number ? bytes_of_full : bytes_of_increments) +=
        static_cast<uint64_t>(files[i].bytes);
  }
  if (increments > kMaxIncrements || bytes_of_increments > bytes_of_full) return kManyIncrements;
  const Status linked = LinkFiles(manifest.value(), path);
  if (!linked.ok()) return linked.text();
  base_id_ = last->id;
  earlier_files_ = files;
  return "";
}

Status Saving::LinkFiles(const Manifest& last, const std::string& path) {
  FileSystem* const files = state()->files;
  std::vector<std::string> made;
  for (const SavedFile& file : last.files) {
    const std::string to = StrCat(saving_path_, "/", DataFileName(file, name_.number));
    const Status linked = files->Link(StrCat(path, "/", DataFileName(file, last.number)), to);
    if (linked.ok()) {
      made.push_back(to);
      continue;
    }
    // A link that stays takes space until the new checkpoint is removed, and does no other harm.
    for (const std::string& link : made) (void)files->Remove(link);
    return linked;
  }
  return Status::Ok();
}

Status Saving::Prepare(const Status& mine, const WaitLimit& limit) {
  Status status = mine;
  MasterMessage message;
  if (status.ok() && is_master()) {
    std::random_device random;
    const uint64_t id = (uint64_t{random()} << 32) | random();
    status = CheckpointFolder(state()->files, request().folder)
                 .Begin(request().step, id, &name_)
                 .status();
    created_ = std::chrono::duration_cast<std::chrono::seconds>(
                   std::chrono::system_clock::now().time_since_epoch())
                   .count();
    saving_path_ = CheckpointFolder(state()->files, request().folder).SavingPath(name_, id);
    if (status.ok() && request().incremental) {
      const std::string why_full = LinkLastSave();
      if (!why_full.empty() && why_full != kManyIncrements) {
        LogWarning(StrCat(SavedPath(), " is a full checkpoint and not an increment: ", why_full));
      }
    }
    std::memcpy(&message.values[kId], &id, sizeof(id));
    message.values[kNumber] = name_.number;
    message.values[kStep] = name_.step;
    std::memcpy(&message.values[kBaseId], &base_id_, sizeof(base_id_));
  }
  MV_RETURN_IF_NOT_OK(ExchangeVotes(status, {master()}, "made the folder", limit, message));
  savers_ = world()->participants();
  message = world()->payload(master()).Read<MasterMessage>();
  std::memcpy(&id_, &message.values[kId], sizeof(id_));
  name_ = CheckpointName{message.values[kNumber], message.values[kStep]};
  std::memcpy(&base_id_, &message.values[kBaseId], sizeof(base_id_));
  saving_path_ = CheckpointFolder(state()->files, request().folder).SavingPath(name_, id_);
  return Status::Ok();
}

std::string Saving::SavedPath() const { return StrCat(request().folder, "/", name_.text()); }

Status Saving::ListSections(const WaitLimit& limit) {
  const LastSave* const base = KnownBase();
  this_save_ = LastSave{request().folder, id_, name_, {}, {}};
  for (size_t i = 0; i < tables().size(); ++i) {
    Table* const table = tables()[i].get();
    const RowRange rows = table->partition().RowsSavedBy(members().rank(), savers_);
    std::vector<RowRange> changed;
    MV_ASSIGN_OR_RETURN(
        const int64_t version,
        table->ListChangesHere(base == nullptr ? 0 : base->versions[i], rows, &changed,
                               std::hash<std::string>()(request().folder), limit));
    this_save_.tables.push_back(table->id());
    this_save_.versions.push_back(version);
    if (rows.count() == 0) continue;
    SectionRows all{rows, 0, TouchedRows(*table, rows), nullptr};
    MV_RETURN_IF_NOT_OK(StepsOfSection(table, rows, &all.steps, limit));
    const SavedTable record = RecordOf(*table);
    AddSections(i, record, all, &full_sections_);
    if (base == nullptr) continue;
    if (table->spec().keys.evict != 0) {
      // The uses of keys count as no changes, but decide which keys stay.
      SectionRows keys = all;
      keys.has_values = false;
      AddSections(i, record, keys, &sections_);
      all.has_keys = false;
    }
    // Gets change the state of an updater that notes them.
    const bool notes_gets = table->shard()->updater().notes_gets();
    if (changed.empty() && !notes_gets) continue;
    // The count of a section is that of all rows of a rank, and so would not be right for a part.
    const bool is_one_section = record.counting == StepCounting::kPerSection || notes_gets ||
                                rows.count() > StoredRows::kMostRows;
    if (is_one_section) {
      AddSections(i, record, all, &sections_);
    } else {
      AddChanged(i, record, changed, all);
    }
  }
  if (base == nullptr) sections_ = full_sections_;
  return Status::Ok();
}

void Saving::AddChanged(size_t table, const SavedTable& record,
                        const std::vector<RowRange>& changed, SectionRows rows) {
  auto stored = std::make_shared<StoredRows>();
  auto freed = std::make_shared<StoredRows>();
  const LazyRows* const lazy = tables()[table]->shard()->lazy();
  const int64_t origin = tables()[table]->partition().node_rows().first;
  for (const RowRange& range : changed) {
    for (int64_t row = range.first; row < range.end;) {
      const bool is_stored = lazy == nullptr || lazy->IsTouched(row - origin);
      int64_t next = range.end;
      if (lazy != nullptr) {
        next = origin + (is_stored ? lazy->NextUntouched(row - origin, next - origin)
                                   : lazy->NextTouched(row - origin, next - origin));
      }
      (is_stored ? *stored : *freed).Append(row, next - row);
      row = next;
    }
  }
  rows.stored = std::move(stored);
  // An untouched row of another table is as it was.
  if (record.is_hash()) rows.freed = std::move(freed);
  rows.is_of_changed = true;
  AddSections(table, record, rows, &sections_);
}

void Saving::AddSections(size_t table, const SavedTable& record, const SectionRows& rows,
                         std::vector<Section>* sections) const {
  if (rows.range.count() == 0) return;
  Section section;
  section.table = static_cast<uint32_t>(table);
  section.first_row = rows.range.first;
  section.rows = rows.range.count();
  section.steps = rows.steps;
  section.stored = rows.stored;
  const int64_t stored = rows.stored == nullptr ? section.rows : rows.stored->rows();
  for (uint32_t index = 0; index < record.num_areas(); ++index) {
    section.area = record.area(index);
    const bool is_of_keys = section.area == kKeysArea || section.area == kRowIdsArea;
    if (is_of_keys ? !rows.has_keys : !rows.has_values) continue;
    if (section.area == kRowIdsArea && rows.is_of_changed) continue;
    section.bytes = stored * record.row_bytes(section.area);
    sections->push_back(section);
  }
  if (!rows.is_of_changed) return;
  for (const uint32_t area : {kRunsArea, kFreedRunsArea}) {
    const StoredRows* const list = (area == kRunsArea ? rows.stored : rows.freed).get();
    if (list == nullptr) continue;
    section.area = area;
    section.runs = std::make_shared<const std::vector<uint64_t>>(list->Encode(rows.range.first));
    section.bytes = static_cast<int64_t>(section.runs->size()) * kRunBytes;
    sections->push_back(section);
  }
}

Status Saving::ChooseKind(const Status& mine, const WaitLimit& limit) {
  MasterMessage message;
  message.values[kIncrementBytes] = BytesOf(sections_);
  message.values[kFullBytes] = BytesOf(full_sections_);
  MV_RETURN_IF_NOT_OK(ExchangeVotes(mine, savers_, "listed its changes", limit, message));
  int64_t saved_bytes = 0;  // by the increment
  for (const int rank : savers_) {
    const auto sizes = world()->payload(rank).Read<MasterMessage>();
    saved_bytes += sizes.values[kFullBytes] - sizes.values[kIncrementBytes];
  }
  if (saved_bytes > 0) return Status::Ok();
  sections_ = full_sections_;
  // A link that stays takes space until the new checkpoint is removed, and does no other harm.
  for (const SavedFile& file : earlier_files_) {
    (void)state()->files->Remove(StrCat(saving_path_, "/", DataFileName(file, name_.number)));
  }
  earlier_files_.clear();
  return Status::Ok();
}

Status Saving::MakeRoomForCopy() {
  const int64_t bytes = SnapshotOffsets(sections_).back();
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
  return CopySnapshot(tables(), sections_, state()->copy.data(),
                      SnapshotThreads(context()->members().num_ranks_here()), limit);
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
    const PeerStatus& peers = *context->peers();
    if (!peers.IsLost(writers[file])) return Status::Ok();
    return peers.LossOf(writers[file], " before it had written its rows");
  };
  std::unique_ptr<BlockSource> source;
  if (request().in_background) {
    std::vector<const char*> copies;
    for (const int64_t offset : SnapshotOffsets(sections_)) {
      copies.push_back(state()->copy.data() + offset);
    }
    source = std::make_unique<MemorySource>(std::move(copies));
  } else {
    source = std::make_unique<TableSource>(tables(), sections_, deadline);
  }
  auto job = SaveJob::Start(state()->files, std::move(plan), std::move(source));
  if (job.ok()) state()->job = std::move(job.value());
  state()->saving = std::move(this_save_);
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
  manifest.files = earlier_files_;
  for (const auto& table : tables()) {
    manifest.tables.push_back(RecordOf(*table));
    manifest.tables.back().clocks = table->consistency()->Clocks();
  }
  return manifest;
}

}  // namespace multiverso
