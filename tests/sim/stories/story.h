// Story: several jobs after each other over the same disk, as plain data.
//
// A story is a list of steps, as the plan of one job is (job/plan.h). A step `job` begins the next
// job, and the steps after it are that job's: calls of one rank or of all ranks, and faults. A
// story without some of its steps is a story again, which is how a failing one shrinks. Its text,
// which Parse reads back, looks like this:
//
//   all world seed=17 mean_run=20 writes=0 latency_us=300
//   all job ranks=4 per_node=2 mode=0 slow_us=200 readers=1
//   all load
//   rank 1 add table=0 value=17 ids=1,3
//   all save step=1 keep=2 incremental=1 background=1
//   all power at=12
//   all job ranks=3 per_node=3
//   all load
//
// The calls are in story_rank.cc and elastic_rank.cc, the faults in run.cc.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "job/plan.h"

namespace sim {

struct Story {
  Step world;               // seed and parameters of the scheduler
  std::vector<Step> steps;  // the first is a `job`

  std::string Text() const;
};

// The two tables of every job: a matrix of float64, and an array of float32 that is one row.
constexpr int kStoryTables = 2;
constexpr int64_t kMatrixColumns = 1024;
constexpr int64_t kArrayElements = 5'000;

// What a user fixes instead of leaving it to the seed: "elastic", "jobs", "ranks", "nodes",
// "calls", "faults", "mode".
Story DrawStory(uint64_t seed, const Wishes& wishes);
bool ParseStory(const std::string& text, Story* story, std::string* error);

}  // namespace sim
