#include "saves/loading.h"

#include <algorithm>
#include <cstring>

#include "base/log.h"
#include "base/text.h"
#include "checkpoint/folder.h"

namespace multiverso {

Result<int64_t> Loading::Run(Tables tables, int64_t num_created, const WaitLimit& limit) {
  Status mine;
  MV_RETURN_IF_NOT_OK(Begin(std::move(tables), num_created, limit, &mine));
  MV_RETURN_IF_NOT_OK(FindCheckpoint(mine, limit));
  if (step_ < 0) return step_;
  MV_RETURN_IF_NOT_OK(ExchangeVotes(OpenAndVerify(limit), loaders_,
                                    "checked its part: no table has changed", limit));
  // The tables no longer contain what the session has saved.
  state()->last_saves.clear();
  state()->is_half_loaded = true;
  const Tables& covered = this->tables();
  const bool any_keys = std::any_of(covered.begin(), covered.end(),
                                    [](const auto& table) { return table->spec().is_hash(); });
  if (any_keys) {
    MV_RETURN_IF_NOT_OK(ExchangeVotes(ClearKeysOfTables(limit), loaders_,
                                      "removed its keys: some of them may be gone", limit));
    MV_RETURN_IF_NOT_OK(ExchangeVotes(RestoreKeysOfTables(limit), loaders_,
                                      "loaded all of its keys, which have no values yet", limit));
  }
  MV_RETURN_IF_NOT_OK(
      ExchangeVotes(LoadTables(limit), loaders_,
                    "loaded all of its rows, some of which may hold their old values", limit));
  state()->is_half_loaded = false;
  return step_;
}

Status Loading::FindCheckpoint(const Status& mine, const WaitLimit& limit) {
  Status status = mine;
  MasterMessage message;
  const CheckpointFolder folder(state()->files, request().folder);
  if (status.ok() && is_master()) {
    const Result<std::string> found = folder.Resolve();
    status = found.status();
    if (found.ok() && found.value().empty()) {
      if (!request().missing_ok) status = folder.NotFound("; with missing_ok, a load accepts that");
    } else if (found.ok()) {
      auto reader = CheckpointReader::Open(state()->files, found.value());
      status = reader.status();
      if (reader.ok()) {
        reader_ = std::move(reader.value());
        const Manifest& manifest = reader_->manifest();
        std::memcpy(&message.values[kId], &manifest.id, sizeof(manifest.id));
        message.values[kStep] = manifest.step;
        message.values[kNumber] = manifest.number;
        message.values[kPlace] = found.value() == request().folder ? kIsCheckpoint : kHasCheckpoint;
      }
    }
  }
  MV_RETURN_IF_NOT_OK(ExchangeVotes(status, {master()}, "found the checkpoint", limit, message));
  loaders_ = world()->participants();
  message = world()->payload(master()).Read<MasterMessage>();
  if (message.values[kPlace] == kNoCheckpoint) return Status::Ok();
  std::memcpy(&id_, &message.values[kId], sizeof(id_));
  step_ = message.values[kStep];
  checkpoint_path_ = message.values[kPlace] == kIsCheckpoint
                         ? request().folder
                         : folder.PathOf(CheckpointName{message.values[kNumber], step_});
  return Status::Ok();
}

Status Loading::OpenAndVerify(const WaitLimit& limit) {
  if (reader_ == nullptr) {
    MV_ASSIGN_OR_RETURN(reader_, CheckpointReader::Open(state()->files, checkpoint_path_));
  }
  if (reader_->manifest().id != id_) {
    return CorruptionFailure(ManifestPath(checkpoint_path_), kIdOffset,
                             "this rank and the master see different checkpoints");
  }
  MV_RETURN_IF_NOT_OK(MatchTables());
  const int64_t blocks = reader_->blocks();
  const auto num_loaders = static_cast<int64_t>(loaders_.size());
  const int64_t index = IndexIn(loaders_);
  return reader_->Verify(blocks * index / num_loaders, blocks * (index + 1) / num_loaders, limit);
}

Status Loading::MatchTables() {
  const std::vector<SavedTable>& saved = reader_->manifest().tables;
  std::vector<bool> is_taken(saved.size());
  for (const auto& table : tables()) {
    const std::string name = table->spec().name;
    size_t index = 0;
    while (index < saved.size() && (is_taken[index] || saved[index].name != name)) ++index;
    // A checkpoint of one table may be loaded into a table of another name.
    if (index == saved.size() && request().table >= 0 && saved.size() == 1) index = 0;
    if (index == saved.size()) {
      return Status(Code::kMismatch,
                    StrCat("the checkpoint ", checkpoint_path_, " does not fit: expected ",
                           table->spec().Describe(), ", received none"));
    }
    MV_RETURN_IF_NOT_OK(CheckFits(checkpoint_path_, saved[index], *table));
    const KeyPolicy& policy = table->spec().keys;
    if (saved[index].is_hash() && policy.evict == 0) {
      MV_ASSIGN_OR_RETURN(const int64_t stored,
                          reader_->StoredRowsOf(static_cast<uint32_t>(index)));
      if (stored > policy.capacity) {
        return Status(Code::kMismatch,
                      StrCat("the checkpoint ", checkpoint_path_, " does not fit: expected ",
                             policy.capacity, " keys at most (capacity), received ", stored));
      }
    }
    is_taken[index] = true;
    saved_indices_.push_back(static_cast<uint32_t>(index));
  }
  const auto unmatched = std::find(is_taken.begin(), is_taken.end(), false);
  if (request().table >= 0 || unmatched == is_taken.end()) return Status::Ok();
  const SavedTable& extra = saved[static_cast<size_t>(unmatched - is_taken.begin())];
  return Status(Code::kMismatch,
                StrCat("the checkpoint ", checkpoint_path_, " does not fit: table '", extra.name,
                       "' is in the checkpoint but not in this session"));
}

ReadArea Loading::ReaderOf(size_t table_index, const WaitLimit& limit) {
  return [this, table_index, limit](uint32_t area, RowRange rows, const TakeElements& take) {
    return reader_->Read(saved_indices_[table_index], area, rows.first, rows.end, limit, take);
  };
}

Status Loading::ClearKeysOfTables(const WaitLimit& limit) {
  for (const auto& table : tables()) {
    if (table->spec().is_hash()) {
      MV_RETURN_IF_NOT_OK(ClearKeys(table.get(), RowsToLoad(*table), limit));
    }
  }
  return Status::Ok();
}

Status Loading::RestoreKeysOfTables(const WaitLimit& limit) {
  restored_.resize(tables().size());
  for (size_t i = 0; i < tables().size(); ++i) {
    Table* const table = tables()[i].get();
    if (!table->spec().is_hash()) continue;
    bool had_ages = false;
    const Status restored = RestoreKeys(table, SavedOf(i), RowsToLoad(*table), ReaderOf(i, limit),
                                        &restored_[i], &had_ages, limit);
    if (!restored.ok()) return restored.In(checkpoint_path_);
    if (had_ages) {
      LogWarning(StrCat(checkpoint_path_, ": the keys of table '", table->spec().name,
                        "' had an expiry (ttl) and are loaded without it: remove those that are "
                        "not needed with table.remove"));
    }
  }
  return Status::Ok();
}

Status Loading::LoadTables(const WaitLimit& limit) {
  for (size_t i = 0; i < tables().size(); ++i) {
    // An updater that keeps one slot per worker needs more or fewer slots than were saved if the
    // number of workers has changed since the save.
    const SavedTable& saved = SavedOf(i);
    const auto slots = static_cast<uint32_t>(tables()[i]->shard()->state_slots());
    if (saved.is_hash()) {
      const Status loaded = LoadRowsOfKeys(tables()[i].get(), saved, RowsToLoad(*tables()[i]),
                                           ReaderOf(i, limit), std::move(restored_[i]), limit);
      if (!loaded.ok()) return loaded.In(checkpoint_path_);
      MV_RETURN_IF_NOT_OK(LoadOptionsAndCounts(i, limit));
      continue;
    }
    if (saved.is_lazy()) {
      MV_RETURN_IF_NOT_OK(
          RestartRows(tables()[i].get(), RowsToLoad(*tables()[i]), saved.initializer, limit));
    }
    for (uint32_t area = kParameterArea; area <= slots; ++area) {
      MV_RETURN_IF_NOT_OK(LoadArea(i, area, limit));
    }
    for (const uint32_t area : {kStepsArea, kRowStateArea}) {
      if (saved.has_area(area)) MV_RETURN_IF_NOT_OK(LoadArea(i, area, limit));
    }
    MV_RETURN_IF_NOT_OK(LoadOptionsAndCounts(i, limit));
  }
  return Status::Ok();
}

int64_t Loading::IndexIn(const std::vector<int>& ranks) const {
  return std::lower_bound(ranks.begin(), ranks.end(), members().rank()) - ranks.begin();
}

RowRange Loading::RowsToLoad(const Table& table) const {
  const RowRange rows = table.partition().node_rows();
  std::vector<int> loaders_here;
  for (const int rank : loaders_) {
    if (context()->members().is_local(rank)) loaders_here.push_back(rank);
  }
  const auto num_here = static_cast<int64_t>(loaders_here.size());
  const int64_t index = IndexIn(loaders_here);
  // A rank loads the keys of whole stripes.
  const int64_t unit = table.spec().is_hash() ? KeyIndex::kRowsPerStripe : 1;
  const auto cut = [&](int64_t part) {
    return rows.first + rows.count() / unit * part / num_here * unit;
  };
  return RowRange{cut(index), cut(index + 1)};
}

Status Loading::LoadArea(size_t table_index, uint32_t area, const WaitLimit& limit) {
  Table* const table = tables()[table_index].get();
  const SavedTable& saved = SavedOf(table_index);
  const RowRange rows = RowsToLoad(*table);
  // A worker's slot was not saved if the saving job had fewer workers.
  if (!saved.has_area(area)) {
    const int64_t columns = table->spec().num_col;
    return LoadPart(table, area, rows.first * columns, rows.count() * columns, nullptr, limit);
  }
  return reader_->Read(saved_indices_[table_index], area, rows.first, rows.end, limit,
                       [&](int64_t first, int64_t count, const char* data) {
                         return LoadPart(table, area, first, count, data, limit);
                       });
}

Status Loading::LoadOptionsAndCounts(size_t table_index, const WaitLimit& limit) {
  Table* const table = tables()[table_index].get();
  const SavedTable& saved = SavedOf(table_index);
  const RowRange rows = RowsToLoad(*table);
  MV_RETURN_IF_NOT_OK(LoadStepsOfSection(
      table, rows, reader_->StepsOf(saved_indices_[table_index], rows.first, rows.end), limit));
  for (int32_t i = 0; i < kHyperCount; ++i) {
    const bool has_hyper = CheckHyper(table->spec().updater_kind(), i, saved.hyper[i]).ok();
    if (has_hyper)
      table->shard()->hyper()->values[i].store(saved.hyper[i], std::memory_order_relaxed);
  }
  uint64_t rounds = 0;  // of the fastest worker, whose clock StartFrom sets
  for (const uint64_t clock : saved.clocks) rounds = std::max(rounds, clock);
  table->consistency()->StartFrom(rounds);
  return Status::Ok();
}

}  // namespace multiverso
