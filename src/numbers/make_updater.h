// Creates the updater of a table: the plain add, or one of the optimizers.
#pragma once

#include <memory>

#include "base/dtype.h"
#include "base/status.h"
#include "numbers/updater.h"

namespace multiverso {

// Returns null if `kind` is not an optimizer. T is float or double.
template <class T>
std::unique_ptr<const Updater> MakeOptimizer(UpdaterKind kind);

// Returns TypeError if the updater does not support the dtype, ValueError if `kind` is undefined.
Result<std::unique_ptr<const Updater>> MakeUpdater(UpdaterKind kind, DType dtype);

}  // namespace multiverso
