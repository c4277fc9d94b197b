#include <gtest/gtest.h>

#include <vector>

#include "shard/make_updater.h"

namespace multiverso {
namespace {

constexpr UpdaterKind kOptimizers[] = {
    UpdaterKind::kSgd,     UpdaterKind::kMomentum, UpdaterKind::kNesterov, UpdaterKind::kAdagrad,
    UpdaterKind::kRmsprop, UpdaterKind::kAdadelta, UpdaterKind::kAdam,     UpdaterKind::kEasgd,
    UpdaterKind::kDcasgd,  UpdaterKind::kFtrl,     UpdaterKind::kDcasgda,  UpdaterKind::kAmsgrad};

template <class T>
class Optimizers : public ::testing::Test {};
using Types = ::testing::Types<float, double>;
TYPED_TEST_SUITE(Optimizers, Types);

// Parameters and the state of an updater for up to three workers.
template <class T>
struct UpdaterMemory {
  UpdaterMemory(UpdaterKind kind, size_t count)
      : updater(MakeOptimizer<T>(kind)),
        weights(count, 1),
        state(count * static_cast<size_t>(updater->state_slots(3))) {
    double values[kHyperCount];
    SetDefaultHypers(kind, values);
    for (int i = 0; i < kHyperCount; ++i) hyper.values[i].store(values[i]);
  }

  Update UpdateOf(const std::vector<T>& delta, T* out = nullptr) {
    Update update;
    update.weights = weights.data();
    update.state = state.data();
    update.state_stride = static_cast<int64_t>(weights.size() * sizeof(T));
    update.delta = delta.data();
    update.out = out;
    update.count = static_cast<int64_t>(weights.size());
    update.worker = 2;
    return update;
  }

  std::unique_ptr<const Updater> updater;
  Hyper hyper{};
  std::vector<T> weights;
  std::vector<T> state;
};

TYPED_TEST(Optimizers, ReturnTheNewParametersAlsoInPlaceOfTheDelta) {
  using T = TypeParam;
  for (const UpdaterKind kind : kOptimizers) {
    const std::vector<T> delta(10'001, static_cast<T>(0.25));
    UpdaterMemory<T> apart(kind, delta.size());
    UpdaterMemory<T> in_place(kind, delta.size());
    UpdaterMemory<T> no_out(kind, delta.size());
    std::vector<T> out(delta.size());
    std::vector<T> in_out = delta;
    apart.updater->Apply(apart.hyper, apart.UpdateOf(delta, out.data()));
    in_place.updater->Apply(in_place.hyper, in_place.UpdateOf(in_out, in_out.data()));
    no_out.updater->Apply(no_out.hyper, no_out.UpdateOf(delta));
    EXPECT_EQ(out, apart.weights) << NameOf(kind);
    EXPECT_EQ(in_out, out) << NameOf(kind);
    EXPECT_EQ(no_out.weights, out) << NameOf(kind);
    EXPECT_EQ(no_out.state, apart.state) << NameOf(kind);
    EXPECT_NE(out, std::vector<T>(out.size(), 1)) << NameOf(kind);
  }
}

TYPED_TEST(Optimizers, StepInTheDirectionOfTheWorker) {
  using T = TypeParam;
  for (const UpdaterKind kind : kOptimizers) {
    if (kind == UpdaterKind::kFtrl) continue;  // Its first update forgets the initial parameters.
    UpdaterMemory<T> memory(kind, 3);
    std::vector<T> last(3, 1);
    std::vector<T> current = {3, 1, -1};
    memory.updater->TakeDelta(current.data(), last.data(), last.data(), 3);
    memory.updater->Apply(memory.hyper, memory.UpdateOf(last, last.data()));
    EXPECT_GT(memory.weights[0], 1) << NameOf(kind);
    EXPECT_EQ(memory.weights[1], 1) << NameOf(kind);
    EXPECT_LT(memory.weights[2], 1) << NameOf(kind);
    memory.updater->Settle(memory.hyper, last.data(), current.data(), 3);
    if (kind == UpdaterKind::kEasgd) continue;
    EXPECT_EQ(current, memory.weights) << NameOf(kind);
  }
}

TYPED_TEST(Optimizers, EasgdMovesTheCenterAndThenTheWorker) {
  using T = TypeParam;
  UpdaterMemory<T> memory(UpdaterKind::kEasgd, 1);
  memory.hyper.values[kElasticForce].store(0.25);
  std::vector<T> last(1, 77);
  std::vector<T> current = {9};
  memory.updater->TakeDelta(current.data(), last.data(), last.data(), 1);
  memory.updater->Apply(memory.hyper, memory.UpdateOf(last, last.data()));
  EXPECT_EQ(memory.weights[0], 3);
  memory.updater->Settle(memory.hyper, last.data(), current.data(), 1);
  EXPECT_EQ(current[0], T{7.5});
}

TYPED_TEST(Optimizers, EasgdOfSeveralWorkersIsPulledByEach) {
  using T = TypeParam;
  UpdaterMemory<T> memory(UpdaterKind::kEasgd, 1);
  memory.hyper.values[kElasticForce].store(0.25);
  const std::vector<T> sum = {3 + 5 + 10};
  Update update = memory.UpdateOf(sum);
  update.terms = 3;
  memory.updater->Apply(memory.hyper, update);
  EXPECT_EQ(memory.weights[0], 1 + T{0.25} * (2 + 4 + 9));
}

TYPED_TEST(Optimizers, DcasgdCompensatesEachWorkerSeparately) {
  using T = TypeParam;
  for (const UpdaterKind kind : {UpdaterKind::kDcasgd, UpdaterKind::kDcasgda}) {
    UpdaterMemory<T> memory(kind, 1);
    memory.hyper.values[kLearningRate].store(1);
    memory.hyper.values[kVarianceControl].store(1);
    memory.hyper.values[kRho].store(0);
    memory.hyper.values[kEpsilon].store(12);  // For dcasgda the root of 2 * 2 + 12 is 4.
    const std::vector<T> gradient = {2};
    Update update = memory.UpdateOf(gradient);
    const T given = -2;
    memory.updater->NoteGet(update, &given);
    update.worker = 0;  // Worker 0 has received nothing.
    memory.updater->Apply(memory.hyper, update);
    EXPECT_EQ(memory.weights[0], 1 - 2);
    update.worker = 2;
    memory.updater->Apply(memory.hyper, update);
    const T control = kind == UpdaterKind::kDcasgd ? 1 : T{1} / 4;
    EXPECT_EQ(memory.weights[0], -1 - (2 + control * 4 * (-1 + 2)));
  }
}

TYPED_TEST(Optimizers, AddHasNone) {
  EXPECT_EQ(MakeOptimizer<TypeParam>(UpdaterKind::kAdd), nullptr);
}

}  // namespace
}  // namespace multiverso
