#include "job/options.h"

#include "base/dtype.h"
#include "base/supported.h"
#include "base/text.h"
#include "numbers/hyper.h"

namespace sim {

using multiverso::DType;
using multiverso::Feature;
using multiverso::FeatureSet;
using multiverso::InitializerKind;
using multiverso::TableKind;
using multiverso::UpdaterKind;

multiverso::SessionOptions OptionsOf(const Plan& plan, int rank) {
  multiverso::SessionOptions options;
  options.mode.mode = plan.mode == "sync"        ? multiverso::Mode::kSync
                      : plan.mode == "staleness" ? multiverso::Mode::kStale
                                                 : multiverso::Mode::kAsync;
  options.mode.staleness = plan.mode == "staleness" ? plan.staleness : 0;
  options.on_loss =
      plan.on_loss == "continue" ? multiverso::OnLoss::kContinue : multiverso::OnLoss::kFail;
  options.is_elastic = plan.is_elastic;
  options.timeout = std::chrono::milliseconds(plan.timeout_ms);
  options.start_timeout = options.timeout;
  options.peer_timeout = std::chrono::milliseconds(plan.peer_timeout_ms);
  if (!plan.servers.empty()) {
    options.role = plan.IsWorker(rank) ? multiverso::Role::kWorker : multiverso::Role::kServer;
  }
  return options;
}

multiverso::TableSpec SpecOf(const TablePlan& table) {
  multiverso::TableSpec spec;
  spec.kind = static_cast<int32_t>(table.kind == "array"  ? TableKind::kArray
                                   : table.kind == "hash" ? TableKind::kHash
                                                          : TableKind::kMatrix);
  spec.dtype = static_cast<int32_t>(table.dtype == "float32" ? DType::kFloat32
                                    : table.dtype == "int64" ? DType::kInt64
                                    : table.dtype == "int32" ? DType::kInt32
                                                             : DType::kFloat64);
  const UpdaterKind updater = table.updater == "sgd"       ? UpdaterKind::kSgd
                              : table.updater == "adagrad" ? UpdaterKind::kAdagrad
                                                           : UpdaterKind::kAdd;
  spec.updater = static_cast<int32_t>(updater);
  multiverso::SetDefaultHypers(updater, spec.hyper);
  if (updater == UpdaterKind::kSgd) spec.hyper[multiverso::kLearningRate] = 1;
  spec.num_col = table.kind == "array" ? 1 : table.columns;
  if (table.kind == "hash") {
    // A rank that is killed in an add of keys leaves the room of its new key taken, so there is
    // room for one more key of each of at most six ranks.
    spec.keys.capacity = table.rows + 6;
    spec.initializer.kind = static_cast<int32_t>(InitializerKind::kZeros);
  } else {
    spec.num_row = table.kind == "array" ? table.count() : table.rows;
  }
  if (table.kind == "lazy") spec.initializer.kind = static_cast<int32_t>(InitializerKind::kZeros);
  return spec;
}

bool IsSupported(const Plan& plan) {
  const FeatureSet session = OptionsOf(plan, 0).features().With(Feature::kNodes, plan.nodes() > 1);
  if (!multiverso::CheckSupported(session).ok()) return false;
  for (const TablePlan& table : plan.tables) {
    multiverso::TableSpec spec = SpecOf(table);
    if (spec.is_hash()) spec.SetRowsForKeys(plan.nodes());
    if (!spec.Check().ok()) return false;
    if (!multiverso::CheckSupported(session | spec.features()).ok()) return false;
  }
  return true;
}

int64_t KeyOf(int64_t row) { return row * 7919 + 3; }

}  // namespace sim
