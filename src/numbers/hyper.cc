#include "numbers/hyper.h"

#include <algorithm>
#include <iterator>
#include <limits>

#include "base/text.h"

namespace multiverso {
namespace {

constexpr double kLargest = std::numeric_limits<double>::max();
// The largest number below 1, since a moving average must leave a share for the new value.
constexpr double kBelowOne = 1 - std::numeric_limits<double>::epsilon() / 2;
// The least epsilon. Its float value and its square root are nonzero, so no update divides by 0.
constexpr double kSmallestEpsilon = 1e-37;

struct HyperInfo {
  const char* name;
  double min;
  double max;
  const char* expected;
};

// By index. The limits are inclusive.
constexpr HyperInfo kHypers[] = {
    {"learning_rate", -kLargest, kLargest, "a finite number"},
    {"momentum", 0, 1, "0 to 1"},
    {"rho", 0, kBelowOne, "0 to less than 1"},
    {"epsilon", kSmallestEpsilon, kLargest, "a finite number of at least 1e-37"},
    {"beta_1", 0, kBelowOne, "0 to less than 1"},
    {"beta_2", 0, kBelowOne, "0 to less than 1"},
    {"initial_accumulator_value", 0, kLargest, "a finite number of at least 0"},
    {"elastic_force", 0, 1, "0 to 1"},
    {"variance_control", 0, kLargest, "a finite number of at least 0"},
    {"learning_rate_power", -kLargest, 0, "a finite number of at most 0"},
    {"l1_regularization_strength", 0, kLargest, "a finite number of at least 0"},
    {"l2_regularization_strength", 0, kLargest, "a finite number of at least 0"},
    {"l2_shrinkage_regularization_strength", 0, kLargest, "a finite number of at least 0"},
    {"beta", 0, kLargest, "a finite number of at least 0"},
    {"weight_decay", 0, kLargest, "a finite number of at least 0"},
    {"clipvalue", 0, kLargest, "a finite number of at least 0"},
};
static_assert(std::size(kHypers) == kHyperCount);
// `ftrl` divides by its learning rate.
constexpr HyperInfo kFtrlLearningRate = {"learning_rate", kSmallestEpsilon, kLargest,
                                         "a finite number of at least 1e-37"};
constexpr HyperInfo kOuterEpsilonInfo = {"outer_epsilon", 0, kLargest,
                                         "a finite number of at least 0"};
constexpr HyperInfo kClipNormInfo = {"clipnorm", 0, kLargest, "a finite number of at least 0"};

const HyperInfo& HyperOf(UpdaterKind kind, int index) {
  if (kind == UpdaterKind::kFtrl && index == kLearningRate) return kFtrlLearningRate;
  if (kind != UpdaterKind::kEasgd && index == kOuterEpsilon) return kOuterEpsilonInfo;
  if (index == kClipNorm && ClipsGradients(kind)) return kClipNormInfo;
  return kHypers[index];
}

constexpr int kMaxDefaults = 7;
constexpr int kNoHyper = -1;

struct DefaultValue {
  int index = kNoHyper;
  double value = 0;
};

struct UpdaterInfo {
  const char* name;
  bool clips_gradients;  // and decays weights: has further options, whose defaults are 0
  DefaultValue defaults[kMaxDefaults];
};
constexpr bool kClips = true;

// By number of the UpdaterKind. Optimizers that Keras 3 has use the defaults of Keras, except for
// the momentum of `momentum` and `nesterov`, which is 0 in Keras. The variance controls, and the
// rho and the epsilon of `dcasgda`, are the constants of the experiments of Zheng et al. (2017).
// The elastic force suits up to ten workers, since their forces should add up to at most 1.
constexpr UpdaterInfo kUpdaters[] = {
    {"add", !kClips, {}},
    {"sgd", kClips, {{kLearningRate, 0.01}}},
    {"momentum", kClips, {{kLearningRate, 0.01}, {kMomentum, 0.9}}},
    {"nesterov", kClips, {{kLearningRate, 0.01}, {kMomentum, 0.9}}},
    {"adagrad",
     kClips,
     {{kLearningRate, 0.001},
      {kEpsilon, 1e-7},
      {kInitialAccumulatorValue, 0.1},
      {kOuterEpsilon, 0}}},
    {"rmsprop",
     kClips,
     {{kLearningRate, 0.001}, {kMomentum, 0}, {kRho, 0.9}, {kEpsilon, 1e-7}, {kOuterEpsilon, 0}}},
    {"adadelta", kClips, {{kLearningRate, 0.001}, {kRho, 0.95}, {kEpsilon, 1e-7}}},
    {"adam",
     kClips,
     {{kLearningRate, 0.001},
      {kEpsilon, 1e-7},
      {kBeta1, 0.9},
      {kBeta2, 0.999},
      {kOuterEpsilon, 0}}},
    {"easgd", !kClips, {{kElasticForce, 0.1}}},
    {"dcasgd", !kClips, {{kLearningRate, 0.01}, {kVarianceControl, 0.04}}},
    {"ftrl",
     kClips,
     {{kLearningRate, 0.001},
      {kInitialAccumulatorValue, 0.1},
      {kLearningRatePower, -0.5},
      {kL1, 0},
      {kL2, 0},
      {kL2Shrinkage, 0},
      {kBeta, 0}}},
    {"dcasgda",
     !kClips,
     {{kLearningRate, 0.01}, {kRho, 0.95}, {kEpsilon, 1e-7}, {kVarianceControl, 2}}},
    {"adamw",
     kClips,
     {{kLearningRate, 0.001},
      {kEpsilon, 1e-7},
      {kBeta1, 0.9},
      {kBeta2, 0.999},
      {kOuterEpsilon, 0},
      {kWeightDecay, 0.004}}},
    {"rowwise_adagrad", kClips, {{kLearningRate, 0.001}, {kEpsilon, 1e-7}}},
    {"rowwise_adam",
     kClips,
     {{kLearningRate, 0.001}, {kEpsilon, 1e-7}, {kBeta1, 0.9}, {kBeta2, 0.999}}},
    {"amsgrad",
     kClips,
     {{kLearningRate, 0.001},
      {kEpsilon, 1e-7},
      {kBeta1, 0.9},
      {kBeta2, 0.999},
      {kOuterEpsilon, 0}}},
};
static_assert(std::size(kUpdaters) == kUpdaterKinds);

const UpdaterInfo* InfoOf(UpdaterKind kind) {
  const auto number = static_cast<int32_t>(kind);
  return number >= 0 && number < kUpdaterKinds ? &kUpdaters[number] : nullptr;
}

// Calls body(index, default value) for each hyper-parameter of the updater, in index order.
template <class Body>
void ForEachHyper(UpdaterKind kind, Body body) {
  const UpdaterInfo* const info = InfoOf(kind);
  if (info == nullptr) return;
  for (int index = 0; index < kHyperCount; ++index) {
    const auto* const found =
        std::find_if(std::begin(info->defaults), std::end(info->defaults),
                     [&](const DefaultValue& value) { return value.index == index; });
    if (found != std::end(info->defaults)) {
      body(index, found->value);
    } else if (info->clips_gradients &&
               (index == kClipNorm || index == kWeightDecay || index == kClipValue)) {
      body(index, 0.0);
    }
  }
}

bool HasNoEffectAtZero(UpdaterKind kind, int index) {
  return index == kWeightDecay || index == kClipValue ||
         (index == kOuterEpsilon && kind != UpdaterKind::kEasgd) ||
         (index == kClipNorm && ClipsGradients(kind));
}

std::string HyperNames(UpdaterKind kind) {
  std::string names;
  ForEachHyper(kind, [&](int index, double /*value*/) {
    names += StrCat(names.empty() ? "" : ", ", index, " (", HyperOf(kind, index).name, ")");
  });
  return names.empty() ? "none" : names;
}

}  // namespace

const char* NameOf(UpdaterKind kind) {
  const UpdaterInfo* const info = InfoOf(kind);
  return info == nullptr ? "unknown" : info->name;
}

bool ClipsGradients(UpdaterKind kind) {
  const UpdaterInfo* const info = InfoOf(kind);
  return info != nullptr && info->clips_gradients;
}

void SetDefaultHypers(UpdaterKind kind, double* values) {
  for (int i = 0; i < kHyperCount; ++i) values[i] = 0;
  ForEachHyper(kind, [&](int index, double value) { values[index] = value; });
}

void ClearUnusedHypers(UpdaterKind kind, double* values) {
  double used[kHyperCount] = {};
  ForEachHyper(kind, [&](int index, double /*value*/) { used[index] = values[index]; });
  for (int i = 0; i < kHyperCount; ++i) values[i] = used[i];
}

Status CheckHyper(UpdaterKind kind, int32_t index, double value) {
  bool is_used = false;
  ForEachHyper(kind, [&](int i, double /*value*/) { is_used = is_used || i == index; });
  if (!is_used) {
    return Status(Code::kValue, StrCat("hyper-parameter: updater '", NameOf(kind), "' has ",
                                       HyperNames(kind), ", received ", index));
  }
  const HyperInfo& hyper = HyperOf(kind, index);
  if (value >= hyper.min && value <= hyper.max) return Status::Ok();
  return Status(Code::kValue,
                StrCat(hyper.name, ": expected ", hyper.expected, ", received ", value));
}

Status CheckHypers(UpdaterKind kind, const double* values) {
  Status status;
  ForEachHyper(kind, [&](int index, double /*value*/) {
    if (status.ok()) status = CheckHyper(kind, index, values[index]);
  });
  return status;
}

std::string DescribeHypers(UpdaterKind kind, const double* values) {
  std::string text;
  ForEachHyper(kind, [&](int index, double /*value*/) {
    if (values[index] == 0 && HasNoEffectAtZero(kind, index)) return;
    text += StrCat(text.empty() ? "" : ", ", HyperOf(kind, index).name, " ", values[index]);
  });
  return text;
}

}  // namespace multiverso
