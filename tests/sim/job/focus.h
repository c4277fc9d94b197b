// Focuses: kinds of jobs that show faults which few random jobs have, such as those of two ranks
// that are in the same row at the same moment. A focus is a list of wishes, and some seeds have
// one.
#pragma once

#include <cstdint>

#include "job/plan.h"

namespace sim {

// Returns the wishes, and for those that are left open the ones of the seed's focus. The wish
// `focus` names another focus than that of the seed, or none.
Wishes WithFocus(uint64_t seed, const Wishes& wishes);

}  // namespace sim
