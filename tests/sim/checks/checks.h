// Checks of the simulated machine itself: small programs whose outcomes are known.
#pragma once

namespace sim {

// Runs all checks, and prints those that fail. Returns how many.
int RunChecks();

}  // namespace sim
