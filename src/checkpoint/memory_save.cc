#include "checkpoint/memory_save.h"

#include <chrono>
#include <memory>
#include <random>
#include <utility>

#include "checkpoint/folder.h"
#include "checkpoint/save_job.h"

namespace multiverso {

Status SaveMemory(FileSystem* files, const std::string& folder, int64_t step, int64_t keep,
                  const std::vector<MemoryTable>& tables, const std::string& library,
                  Interrupt* interrupt) {
  SavePlan plan;
  std::random_device random;
  plan.manifest.id = (uint64_t{random()} << 32) | random();
  plan.manifest.library = library;
  plan.manifest.created = std::chrono::duration_cast<std::chrono::seconds>(
                              std::chrono::system_clock::now().time_since_epoch())
                              .count();
  std::vector<const char*> data;
  for (uint32_t i = 0; i < tables.size(); ++i) {
    const MemoryTable& table = tables[i];
    plan.manifest.tables.push_back(table.record);
    for (uint32_t index = 0; index < table.record.num_areas(); ++index) {
      Section section;
      section.table = i;
      section.area = table.record.area(index);
      section.rows = table.record.num_row;
      section.steps = table.steps;
      section.bytes = (table.record.is_lazy() ? table.stored_rows : section.rows) *
                      table.record.row_bytes(section.area);
      plan.sections.push_back(section);
      data.push_back(static_cast<const char*>(table.areas[index]));
    }
  }
  CheckpointFolder target(files, folder);
  auto saving = target.Begin(step, plan.manifest.id, &plan.name);
  if (!saving.ok()) return saving.status();
  plan.folder = folder;
  plan.saving = saving.value();
  plan.manifest.number = plan.name.number;
  plan.manifest.step = plan.name.step;
  plan.deadline = Instant::max();
  plan.file_index = 0;
  plan.num_files = 1;
  plan.commits = true;
  plan.keep = keep;
  Status status;
  {
    auto job =
        SaveJob::Start(files, std::move(plan), std::make_unique<MemorySource>(std::move(data)));
    status = job.status();
    if (job.ok()) status = job.value()->AwaitCommitted(WaitLimit::Until(Instant::max(), interrupt));
  }
  // The job, which may have been writing, has stopped.
  if (!status.ok()) target.Abandon(saving.value());
  return status;
}

}  // namespace multiverso
