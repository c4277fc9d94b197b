// Runs stories, and checks what they left behind.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "stories/story.h"

namespace sim {

struct StoryResult {
  std::vector<std::string> violations;
  std::vector<std::string> trace;
  uint64_t hash = 0;
  uint64_t switches = 0;
  int killed = 0;
  int saved = 0;   // saves that all knew to be complete
  int loaded = 0;  // loads that found a checkpoint
};

// Runs a story in this process, which nothing else is to use afterwards.
StoryResult RunStory(const Story& story);

// The command `simulation stories`: FIRST COUNT [name=value ...], or files of stories.
// Names are those of DrawStory, and verbose=1, repeat=1 (each seed twice), first=1 (ends with the
// first that fails) and shrink=N (in at most N runs).
int StoriesMain(int argc, char** argv);

}  // namespace sim
