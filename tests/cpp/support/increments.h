// Writes an increment with any sections, as a session does, and as an attacker might.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "checkpoint/data_file.h"
#include "checkpoint/save_job.h"

namespace multiverso::testing {

struct IncrementPart {
  uint32_t table = 0;
  uint32_t area = 0;
  int64_t first_row = 0;
  int64_t rows = 0;
  const void* data = nullptr;
  int64_t stored_rows = -1;  // of a table with an initializer
  uint64_t steps = 0;
};

// Writes the increment `name` on the checkpoint with the manifest `base`, which is in `folder` and
// whose files it links, and returns its manifest.
inline Result<Manifest> SaveIncrement(FileSystem* files, const std::string& folder,
                                      CheckpointName name, const Manifest& base,
                                      const std::vector<IncrementPart>& parts) {
  SavePlan plan;
  plan.manifest = base;
  plan.manifest.id = base.id + 1;
  plan.manifest.number = name.number;
  plan.manifest.step = name.step;
  std::vector<const char*> data;
  for (const IncrementPart& part : parts) {
    Section section;
    section.table = part.table;
    section.area = part.area;
    section.first_row = part.first_row;
    section.rows = part.rows;
    section.steps = part.steps;
    section.bytes = (part.stored_rows < 0 ? part.rows : part.stored_rows) *
                    base.tables[part.table].row_bytes(part.area);
    plan.sections.push_back(section);
    data.push_back(static_cast<const char*>(part.data));
  }
  plan.folder = folder;
  plan.name = name;
  plan.saving = CheckpointFolder(files, folder).SavingPath(name, plan.manifest.id);
  plan.deadline = Instant::max();
  plan.file_index = 0;
  plan.num_files = 1;
  plan.commits = true;
  MV_RETURN_IF_NOT_OK(files->CreateFolder(plan.saving));
  const std::string from = folder + "/" + CheckpointName{base.number, base.step}.text() + "/";
  for (const SavedFile& file : base.files) {
    MV_RETURN_IF_NOT_OK(files->Link(from + DataFileName(file, base.number),
                                    plan.saving + "/" + DataFileName(file, name.number)));
  }
  auto job =
      SaveJob::Start(files, std::move(plan), std::make_unique<MemorySource>(std::move(data)));
  if (!job.ok()) return job.status();
  const Status status = job.value()->AwaitCommitted(WaitLimit::Until(Instant::max()));
  if (!status.ok()) return status;
  return ReadManifest(files, folder + "/" + name.text());
}

}  // namespace multiverso::testing
