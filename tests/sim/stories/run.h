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

// The command `simulation stories`: FIRST_SEED COUNT [name=value ...], or FILE of one story.
int StoriesMain(int argc, char** argv);

}  // namespace sim
