// Shrink: makes a failing plan smaller while the same violation stays.
#pragma once

#include <functional>
#include <string>

#include "job/plan.h"

namespace sim {

// Runs a plan in a process of its own, and returns the text of its first violation, or "".
using RunPlan = std::function<std::string(const Plan&)>;

// Returns what two violations of one fault have in common: the text without numbers.
std::string KindOfViolation(const std::string& violation);

// Removes ranks, tables and steps, and simplifies numbers, as long as RunPlan returns a violation
// of the same kind. Makes at most `attempts` runs.
Plan Shrink(const Plan& plan, const std::string& violation, int attempts, const RunPlan& run);

}  // namespace sim
