// Optimizers: the updaters for floating-point tables that take gradients or positions.
#ifndef MULTIVERSO_SHARD_OPTIMIZERS_H_
#define MULTIVERSO_SHARD_OPTIMIZERS_H_

#include <memory>

#include "shard/updater.h"

namespace multiverso {

// Returns null if `kind` is not an optimizer. T is float or double.
template <class T>
std::unique_ptr<const Updater> MakeOptimizer(UpdaterKind kind);

extern template std::unique_ptr<const Updater> MakeOptimizer<float>(UpdaterKind);
extern template std::unique_ptr<const Updater> MakeOptimizer<double>(UpdaterKind);

}  // namespace multiverso

#endif  // MULTIVERSO_SHARD_OPTIMIZERS_H_
