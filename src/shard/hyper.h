// The kinds of updaters, and Hyper: the hyper-parameters of a table's updater, such as the learning
// rate. Each updater but add has some hyper-parameters, with its own defaults.
#ifndef MULTIVERSO_SHARD_HYPER_H_
#define MULTIVERSO_SHARD_HYPER_H_

#include <atomic>
#include <cstdint>
#include <string>

#include "base/status.h"

namespace multiverso {

// The numbers are those of the C API (MV_UPDATER_ADD, ...).
enum class UpdaterKind : int32_t {
  kAdd = 0,
  kSgd = 1,
  kMomentum = 2,
  kNesterov = 3,
  kAdagrad = 4,
  kRmsprop = 5,
  kAdadelta = 6,
  kAdam = 7,
  kEasgd = 8,
  kDcasgd = 9,
  kFtrl = 10,
  kDcasgda = 11,
  kAdamw = 12,
  kRowwiseAdagrad = 13,
  kRowwiseAdam = 14,
  kAmsgrad = 15,
};
constexpr int kUpdaterKinds = static_cast<int>(UpdaterKind::kAmsgrad) + 1;

// Returns a name such as "adam", or "unknown" for an undefined number.
const char* NameOf(UpdaterKind kind);

// Indices into Hyper::values: the numbers of the C API (MV_HYPER_LEARNING_RATE, ...).
constexpr int kLearningRate = 0;
constexpr int kMomentum = 1;
constexpr int kRho = 2;
constexpr int kEpsilon = 3;
constexpr int kBeta1 = 4;
constexpr int kBeta2 = 5;
constexpr int kInitialAccumulatorValue = 6;
constexpr int kElasticForce = 7;
// Only `easgd` has an elastic force, and it has no epsilon, so the two share a number: checkpoints
// and the C API have room for 16.
constexpr int kOuterEpsilon = 7;
constexpr int kVarianceControl = 8;
// Updaters with a variance control clip nothing, so these two share a number, too.
constexpr int kClipNorm = 8;
constexpr int kLearningRatePower = 9;
constexpr int kL1 = 10;
constexpr int kL2 = 11;
constexpr int kL2Shrinkage = 12;
constexpr int kBeta = 13;
constexpr int kWeightDecay = 14;
constexpr int kClipValue = 15;
constexpr int kHyperCount = 16;  // length of every array of values

// The values lie in the table's shared memory: when one rank sets a value, the next adds of all
// ranks of the node use it. Each value is read and written atomically.
struct Hyper {
  std::atomic<double> values[kHyperCount];

  double Get(int index) const { return values[index].load(std::memory_order_relaxed); }
};

// Returns whether the updater has kClipNorm and kClipValue.
bool ClipsGradients(UpdaterKind kind);

// Sets `values` to the updater's defaults, and to 0 where the updater has no such hyper-parameter.
void SetDefaultHypers(UpdaterKind kind, double* values);

// Sets to 0 the values of the hyper-parameters that the updater does not have.
void ClearUnusedHypers(UpdaterKind kind, double* values);

// Returns ValueError if the updater has no hyper-parameter `index`, or if `value` is invalid.
Status CheckHyper(UpdaterKind kind, int32_t index, double value);
// Checks every hyper-parameter that the updater has.
Status CheckHypers(UpdaterKind kind, const double* values);

// Returns names and values in index order, as in "learning_rate 0.001, rho 0.9", or an empty string
// if the updater has no hyper-parameter. Leaves out those that have no effect because they are 0.
std::string DescribeHypers(UpdaterKind kind, const double* values);

}  // namespace multiverso

#endif  // MULTIVERSO_SHARD_HYPER_H_
