// Memory that ranks share: where a word is in a file.
#pragma once

#include "engine/simulator.h"

namespace sim {

// Returns what fibers that wait for this word have in common: the file and the offset, if the word
// is in memory that shows a file, so that ranks with different mappings of it find each other.
Key KeyOfWord(const void* word);

}  // namespace sim
