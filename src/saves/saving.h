// Saving: the call that writes a checkpoint.
//
// After CheckpointCall::Begin, the master creates the folder in which the ranks write and announces
// the folder's name. No rank changes the tables until the call ends. Each rank's SaveJob writes
// the rank's rows directly from the tables, and the call ends when the checkpoint is complete. In a
// background save, each rank first copies its rows to memory. The call ends when all ranks have
// copied their rows, and the jobs then write from the copies.
//
// An incremental save writes only the rows that have changed since the session's last save into the
// same folder, whose files the master links. Each rank writes its own rows whole if it does not
// know what it has saved there, which is always correct. If all ranks together would write as much
// as a full save does, they make a full one.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "saves/checkpoint_call.h"

namespace multiverso {

class Saving : private CheckpointCall {
 public:
  // Makes a save that records `mode` in the manifest.
  Saving(Checkpointing* state, AgreedCall request, Mode mode)
      : CheckpointCall(state, CollectiveKind::kSave, std::move(request)), mode_(mode) {}

  // Runs the save; called once, after a barrier, with the arguments of Negotiate.
  Status Run(Tables tables, int64_t num_created, const WaitLimit& limit);

 private:
  // Creates the folder on the master and sends its name to the other ranks.
  Status Prepare(const Status& mine, const WaitLimit& limit);
  // On the master: links the files of the last save into the folder of this one. Returns why this
  // save cannot be incremental, or an empty text.
  std::string LinkLastSave();
  Status LinkFiles(const Manifest& last, const std::string& path);
  // Returns what this rank knows about the last save, or null if it must write all of its rows.
  const LastSave* KnownBase() const;
  bool IsOfTheseTables(const LastSave& save) const;
  // Makes this save a full one on all ranks if its increment is as large.
  Status ChooseKind(const Status& mine, const WaitLimit& limit);
  // Sets sections_ to the rows that this rank saves, and their update counts, and full_sections_ to
  // those of a full save in place of an increment.
  Status ListSections(const WaitLimit& limit);
  // Which rows of a table a section stores, and in which areas.
  struct SectionRows {
    RowRange range;
    uint64_t steps = 0;
    std::shared_ptr<const StoredRows> stored;  // null for all
    std::shared_ptr<const StoredRows> freed;   // of changed rows, those without a key
    bool is_of_changed = false;
    bool has_keys = true;
    bool has_values = true;
  };
  void AddSections(size_t table, const SavedTable& record, const SectionRows& rows,
                   std::vector<Section>* sections) const;
  void AddChanged(size_t table, const SavedTable& record, const std::vector<RowRange>& changed,
                  SectionRows rows);
  // Returns the path that the checkpoint will have.
  std::string SavedPath() const;
  Status MakeRoomForCopy();
  Status Copy(const WaitLimit& limit);
  Status StartJob(Instant deadline);
  Manifest MakeManifest() const;

  Mode mode_;
  std::vector<int> savers_;  // the ranks that divide the rows among themselves
  std::string saving_path_;
  CheckpointName name_;
  uint64_t id_ = 0;
  int64_t created_ = 0;
  uint64_t base_id_ = 0;                  // of the last save, if this one is incremental
  std::vector<SavedFile> earlier_files_;  // on the master, those that are in the folder
  LastSave this_save_;
  std::vector<Section> sections_;
  std::vector<Section> full_sections_;
};

}  // namespace multiverso
