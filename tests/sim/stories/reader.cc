// A process that is no rank, and follows what the session publishes.
#include <algorithm>

#include "base/text.h"
#include "engine/scheduler.h"
#include "reader/job_reader.h"
#include "stories/story_rank.h"

namespace sim {

using namespace multiverso;

namespace {

// Returns up to 30 ms, and often much less: a job without a slow disk takes 2 ms.
int64_t AnyTime() { return static_cast<int64_t>(Random() % (uint64_t{1} << (12 + Random() % 14))); }

// Reads both tables of a publication that is said to be that of `step`. Returns false if a later
// one has taken its place meanwhile.
bool CheckVersion(StoryJob* job, JobReader* reader, const std::string& who, uint64_t version,
                  int64_t step) {
  for (int table = 0; table < kStoryTables; ++table) {
    const int64_t count = table == 0 ? StoryRows(*job, 0) * kMatrixColumns : kArrayElements;
    std::vector<double> wide(static_cast<size_t>(count));
    std::vector<float> narrow(static_cast<size_t>(count));
    std::vector<int64_t> ids;
    const Request request =
        StoryGet(*job, table, &ids,
                 table == 0 ? static_cast<void*>(wide.data()) : static_cast<void*>(narrow.data()));
    const Status status = reader->Run(table, version, request, count,
                                      WaitLimit::Until(Clock::now() + std::chrono::seconds(60)));
    if (status.code() == Code::kOutdated) return false;
    if (!status.ok()) {
      // A table that was not found before the end cannot be read after it.
      if (status.code() != Code::kState) job->book->Violation(who + ": " + status.text());
      return true;
    }
    if (table == 1) std::copy(narrow.begin(), narrow.end(), wide.begin());
    job->book->CheckPublished(who, step, table, wide.data(), count);
  }
  return true;
}

// Keeps a publication in its buffer. Returns false if it is too late for that, or if other readers
// keep as many as they may.
bool Pin(StoryJob* job, JobReader* reader, const std::string& who, uint64_t version) {
  const Status status =
      reader->pins()->Pin(version, WaitLimit::Until(Clock::now() + std::chrono::seconds(60)));
  if (!status.ok() && status.code() != Code::kOutdated && status.code() != Code::kState) {
    job->book->Violation(who + ": " + status.text());
  }
  return status.ok();
}

}  // namespace

void RunReader(StoryJob* job, int number) {
  const std::string who = StrCat("reader ", number);
  std::unique_ptr<JobReader> reader;
  const auto is_over = [&] { return job->HaveEnded(job->workers()); };
  while (reader == nullptr) {
    SleepUntil(Now() + AnyTime());
    if (is_over()) return;
    auto attached = JobReader::Attach(kStoryName, 0);
    if (attached.ok()) reader = std::move(attached.value());
  }
  uint64_t last = 0;
  int64_t last_step = -1;
  for (;;) {
    uint64_t published = 0;
    int64_t step = -1;
    const Status status = reader->Wait(last + 1, &published, &step,
                                       WaitLimit::Until(Clock::now() + std::chrono::seconds(1)));
    if (status.code() == Code::kTimeout) continue;
    if (!status.ok()) {
      if (status.code() != Code::kState) job->book->Violation(who + ": " + status.text());
      break;
    }
    if (published <= last || step <= last_step) {
      job->book->Violation(StrCat(who, ": version ", published, " of step ", step,
                                  " came after version ", last, " of step ", last_step));
    }
    last = published;
    last_step = step;
    if (Random() % 2 == 0) {
      // The session may take the buffer while this reader is in the middle of it.
      SuspendAt(CurrentRank(), PointsOf(CurrentRank()) + Random() % 300, AnyTime());
    }
    const bool is_pinned = Random() % 3 == 0 && Pin(job, reader.get(), who, published);
    if (Random() % 4 == 0) SleepUntil(Now() + AnyTime());
    const bool is_whole = CheckVersion(job, reader.get(), who, published, step);
    // Pins keep dense tables.
    if (is_pinned && !is_whole && job->kind() == StoryJob::kDense) {
      job->book->Violation(StrCat(who, ": version ", published, " has gone, which is pinned"));
    }
    if (is_pinned) (void)reader->pins()->Unpin(published);
  }
  // What was published last stays readable after the end.
  if (last > 0) (void)CheckVersion(job, reader.get(), who + " after the end", last, last_step);
}

}  // namespace sim
