// The kinds of updaters, and Hyper: the hyper-parameters of a table's updater, such as the learning
// rate. Each updater but add has some hyper-parameters, with its own defaults.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>

#include "base/status.h"
#include "multiverso/constants.h"

namespace multiverso {

enum class UpdaterKind : int32_t {
  kAdd = MV_UPDATER_ADD,
  kSgd = MV_UPDATER_SGD,
  kMomentum = MV_UPDATER_MOMENTUM,
  kNesterov = MV_UPDATER_NESTEROV,
  kAdagrad = MV_UPDATER_ADAGRAD,
  kRmsprop = MV_UPDATER_RMSPROP,
  kAdadelta = MV_UPDATER_ADADELTA,
  kAdam = MV_UPDATER_ADAM,
  kEasgd = MV_UPDATER_EASGD,
  kDcasgd = MV_UPDATER_DCASGD,
  kFtrl = MV_UPDATER_FTRL,
  kDcasgda = MV_UPDATER_DCASGDA,
  kAdamw = MV_UPDATER_ADAMW,
  kRowwiseAdagrad = MV_UPDATER_ROWWISE_ADAGRAD,
  kRowwiseAdam = MV_UPDATER_ROWWISE_ADAM,
  kAmsgrad = MV_UPDATER_AMSGRAD,
};
constexpr int kUpdaterKinds = static_cast<int>(UpdaterKind::kAmsgrad) + 1;

// Returns a name such as "adam", or "unknown" for an undefined number.
const char* NameOf(UpdaterKind kind);

// Indices into Hyper::values.
constexpr int kLearningRate = MV_HYPER_LEARNING_RATE;
constexpr int kMomentum = MV_HYPER_MOMENTUM;
constexpr int kRho = MV_HYPER_RHO;
constexpr int kEpsilon = MV_HYPER_EPSILON;
constexpr int kBeta1 = MV_HYPER_BETA_1;
constexpr int kBeta2 = MV_HYPER_BETA_2;
constexpr int kInitialAccumulatorValue = MV_HYPER_INITIAL_ACCUMULATOR_VALUE;
constexpr int kElasticForce = MV_HYPER_ELASTIC_FORCE;
// Only `easgd` has an elastic force, and it has no epsilon, so the two share a number: checkpoints
// and the C API have room for 16.
constexpr int kOuterEpsilon = MV_HYPER_OUTER_EPSILON;
constexpr int kVarianceControl = MV_HYPER_VARIANCE_CONTROL;
// Updaters with a variance control clip nothing, so these two share a number, too.
constexpr int kClipNorm = MV_HYPER_CLIPNORM;
constexpr int kLearningRatePower = MV_HYPER_LEARNING_RATE_POWER;
constexpr int kL1 = MV_HYPER_L1_REGULARIZATION;
constexpr int kL2 = MV_HYPER_L2_REGULARIZATION;
constexpr int kL2Shrinkage = MV_HYPER_L2_SHRINKAGE;
constexpr int kBeta = MV_HYPER_BETA;
constexpr int kWeightDecay = MV_HYPER_WEIGHT_DECAY;
constexpr int kClipValue = MV_HYPER_CLIPVALUE;
constexpr int kHyperCount = MV_HYPER_COUNT;  // length of every array of values

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
