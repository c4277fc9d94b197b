// What the parts of a plan are in the library: options of the session and specifications of tables.
#pragma once

#include <cstdint>

#include "job/plan.h"
#include "session/session.h"
#include "table/table_spec.h"

namespace sim {

multiverso::SessionOptions OptionsOf(const Plan& plan, int rank);
multiverso::TableSpec SpecOf(const TablePlan& table);
// Returns whether the library allows the session and its tables (base/supported.h).
bool IsSupported(const Plan& plan);
// Returns the key that stands for a row of a hash table in a plan.
int64_t KeyOf(int64_t row);

}  // namespace sim
