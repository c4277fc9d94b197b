// The updaters that take gradients or positions.
#include <algorithm>
#include <cmath>

#include "base/copy_bytes.h"
#include "numbers/kernels.h"
#include "numbers/make_updater.h"
#include "numbers/optimizer_kernels.h"

namespace multiverso {
namespace {

// Returns a hyper-parameter, rounded once to the table's dtype, as NumPy rounds a Python float.
template <class T>
T Rounded(const Hyper& hyper, int index) {
  return static_cast<T>(hyper.Get(index));
}

// The common part of the optimizers, with kSlots state slots. A delta is a gradient unless the
// subclass says otherwise. Weight decay and clipping are those of Keras; the decay is the decoupled
// one of Loshchilov and Hutter, "Decoupled Weight Decay Regularization", ICLR 2019.
template <class T, int64_t kSlots>
class Optimizer : public Updater {
 public:
  int64_t state_slots(int /*num_workers*/) const override { return kSlots; }
  void Apply(const Hyper& hyper, const Update& update) const final {
    const T decay = Rounded<T>(hyper, kWeightDecay);
    const T limit = Rounded<T>(hyper, kClipValue);
    if (update.out == nullptr && decay == 0 && limit == 0) return Step(hyper, update);
    constexpr auto kElementBytes = static_cast<int64_t>(sizeof(T));
    constexpr int64_t kElements = kUpdatePieceBytes / kElementBytes;
    T clipped[kElements];
    for (int64_t i = 0; i < update.count; i += kElements) {
      const int64_t count = std::min(kElements, update.count - i);
      Update piece = update.Part(i, count, kElementBytes);
      if (decay != 0) {
        kernels::Decay(Weights(piece), decay, Rounded<T>(hyper, kLearningRate), count);
      }
      if (limit != 0) {
        kernels::Clip(clipped, Delta(piece), limit, count);
        piece.delta = clipped;
      }
      Step(hyper, piece);
      if (piece.out == nullptr) continue;
      CopyBytes(piece.out, piece.weights, static_cast<size_t>(count * kElementBytes));
    }
  }

  void AddDelta(void* sum, const void* delta, int64_t count) const override {
    kernels::Add(static_cast<T*>(sum), static_cast<const T*>(delta), count);
  }
  void TakeDelta(const void* current, const void* last, void* delta, int64_t count) const override {
    kernels::Difference(static_cast<T*>(delta), static_cast<const T*>(last),
                        static_cast<const T*>(current), count);
  }
  void Settle(const Hyper& /*hyper*/, const void* table, void* current,
              int64_t count) const override {
    CopyBytes(current, table, static_cast<size_t>(count) * sizeof(T));
  }
  // The delta is a gradient, which points away from where the worker moved.
  void SettleWithResidual(const Hyper& /*hyper*/, const void* table, void* last, void* current,
                          int64_t count) const override {
    kernels::SettleSubtracting(static_cast<T*>(current), static_cast<T*>(last),
                               static_cast<const T*>(table), count);
  }

 protected:
  // Updates the weights and the state, but does not write to update.out.
  virtual void Step(const Hyper& hyper, const Update& update) const = 0;

  static T* Weights(const Update& update) { return static_cast<T*>(update.weights); }
  static const T* Delta(const Update& update) { return static_cast<const T*>(update.delta); }
  static T* Slot(const Update& update, int64_t index) {
    return reinterpret_cast<T*>(update.slot(index));
  }
};

template <class T>
class SgdOptimizer final : public Optimizer<T, 0> {
 public:
  // A row decays once in an add, and clipping is not linear.
  Updater::Duplicates duplicates(const Hyper& hyper) const override {
    const bool is_linear =
        hyper.Get(kWeightDecay) == 0 && hyper.Get(kClipValue) == 0 && hyper.Get(kClipNorm) == 0;
    return is_linear ? Updater::Duplicates::kOneByOne : Updater::Duplicates::kSummed;
  }
  // ParamSync averages with this updater, so it is as fast as `add`.
  bool Exchange(const Hyper& hyper, const Update& update, void* current) const override {
    if (hyper.Get(kWeightDecay) != 0 || hyper.Get(kClipValue) != 0) return false;
    kernels::ExchangeDescending(this->Weights(update), static_cast<T*>(current),
                                static_cast<T*>(update.out), Rounded<T>(hyper, kLearningRate),
                                update.count);
    return true;
  }

 private:
  void Step(const Hyper& hyper, const Update& update) const override {
    kernels::Descend(this->Weights(update), this->Delta(update), Rounded<T>(hyper, kLearningRate),
                     update.count);
  }
};

// Polyak's momentum, as Keras writes it: the learning rate is inside the velocity.
template <class T>
class MomentumOptimizer final : public Optimizer<T, 1> {
  void Step(const Hyper& hyper, const Update& update) const override {
    kernels::Momentum(this->Weights(update), this->Slot(update, 0), this->Delta(update),
                      Rounded<T>(hyper, kLearningRate), Rounded<T>(hyper, kMomentum), update.count);
  }
};

// Nesterov's momentum in the form of Sutskever et al., "On the importance of initialization and
// momentum in deep learning", ICML 2013, shifted so that the parameters are where the gradient is
// taken, as Keras and PyTorch do.
template <class T>
class NesterovOptimizer final : public Optimizer<T, 1> {
  void Step(const Hyper& hyper, const Update& update) const override {
    kernels::Nesterov(this->Weights(update), this->Slot(update, 0), this->Delta(update),
                      Rounded<T>(hyper, kLearningRate), Rounded<T>(hyper, kMomentum), update.count);
  }
};

// Duchi et al., "Adaptive Subgradient Methods for Online Learning and Stochastic Optimization",
// JMLR 2011; epsilon and the initial value of the sum are Keras', the outer epsilon is PyTorch's.
template <class T>
class AdagradOptimizer final : public Optimizer<T, 1> {
  void Step(const Hyper& hyper, const Update& update) const override {
    kernels::Adagrad(this->Weights(update), this->Slot(update, 0), this->Delta(update),
                     Rounded<T>(hyper, kLearningRate), Rounded<T>(hyper, kInitialAccumulatorValue),
                     Rounded<T>(hyper, kEpsilon), Rounded<T>(hyper, kOuterEpsilon), update.count);
  }
};

// Tieleman and Hinton, "Lecture 6.5 - RMSProp", COURSERA 2012, as Keras writes it; the outer
// epsilon is PyTorch's.
template <class T>
class RmspropOptimizer final : public Optimizer<T, 2> {
  void Step(const Hyper& hyper, const Update& update) const override {
    const T rate = Rounded<T>(hyper, kLearningRate);
    const T epsilon = Rounded<T>(hyper, kEpsilon);
    const T outer = Rounded<T>(hyper, kOuterEpsilon);
    const double rho = hyper.Get(kRho);
    const double momentum = hyper.Get(kMomentum);
    const T keep = static_cast<T>(rho);
    const T take = static_cast<T>(1 - rho);
    if (momentum == 0) {  // the unused second slot takes no memory
      kernels::Rmsprop(this->Weights(update), this->Slot(update, 0), this->Delta(update), rate,
                       keep, take, epsilon, outer, update.count);
    } else {
      kernels::RmspropMomentum(this->Weights(update), this->Slot(update, 0), this->Slot(update, 1),
                               this->Delta(update), rate, keep, take, epsilon, outer,
                               static_cast<T>(momentum), update.count);
    }
  }
};

// Zeiler, "ADADELTA: An Adaptive Learning Rate Method", arXiv:1212.5701, with Keras' learning rate.
template <class T>
class AdadeltaOptimizer final : public Optimizer<T, 2> {
  void Step(const Hyper& hyper, const Update& update) const override {
    const double rho = hyper.Get(kRho);
    kernels::Adadelta(this->Weights(update), this->Slot(update, 0), this->Slot(update, 1),
                      this->Delta(update), Rounded<T>(hyper, kLearningRate), static_cast<T>(rho),
                      static_cast<T>(1 - rho), Rounded<T>(hyper, kEpsilon), update.count);
  }
};

// Returns what Adam's corrections of both moments make of the learning rate and of epsilon.
StepRate AdamRate(const Hyper& hyper, const Update& update) {
  const auto rate_of = [&](int64_t step) {
    const auto power = static_cast<double>(step);
    const double root = std::sqrt(1 - std::pow(hyper.Get(kBeta2), power));
    return StepRate{hyper.Get(kLearningRate) * root / (1 - std::pow(hyper.Get(kBeta1), power)),
                    root};
  };
  return update.rates == nullptr ? rate_of(update.step) : update.rates->Of(update.step, rate_of);
}

// Kingma and Ba, "Adam: A Method for Stochastic Optimization", ICLR 2015, in the order of
// operations at the end of its section 2, which Keras uses. PyTorch adds epsilon after the bias
// correction, as the paper's algorithm 1 does, which is the outer epsilon here. StepCells counts
// the steps. AMSGrad is that of Reddi, Kale and Kumar, "On the Convergence of Adam and Beyond",
// ICLR 2018, with the bias correction of Keras and PyTorch.
template <class T, bool kIsAmsgrad>
class AdamOptimizer final : public Optimizer<T, kIsAmsgrad ? 3 : 2> {
 public:
  bool counts_steps() const override { return true; }

 private:
  void Step(const Hyper& hyper, const Update& update) const override {
    const StepRate step = AdamRate(hyper, update);
    const auto rate = static_cast<T>(step.rate);
    const auto epsilon = static_cast<T>(hyper.Get(kEpsilon) + hyper.Get(kOuterEpsilon) * step.root);
    const auto take_mean = static_cast<T>(1 - hyper.Get(kBeta1));
    const auto take_square = static_cast<T>(1 - hyper.Get(kBeta2));
    T* const w = this->Weights(update);
    if constexpr (kIsAmsgrad) {
      kernels::Amsgrad(w, this->Slot(update, 0), this->Slot(update, 1), this->Slot(update, 2),
                       this->Delta(update), rate, take_mean, take_square, epsilon, update.count);
    } else {
      kernels::Adam(w, this->Slot(update, 0), this->Slot(update, 1), this->Delta(update), rate,
                    take_mean, take_square, epsilon, update.count);
    }
  }
};

// Adagrad with the mean of the squared gradients of a row in place of each element's own. The
// formula is that of the exact row-wise Adagrad of FBGEMM.
template <class T>
class RowwiseAdagradOptimizer final : public Optimizer<T, 0> {
 public:
  int64_t row_slots() const override { return 1; }

 private:
  void Step(const Hyper& hyper, const Update& update) const override {
    T* const sum = static_cast<T*>(update.row_state);
    *sum += kernels::MeanSquare(this->Delta(update), update.count);
    const T rate =
        Rounded<T>(hyper, kLearningRate) / (std::sqrt(*sum) + Rounded<T>(hyper, kEpsilon));
    kernels::Descend(this->Weights(update), this->Delta(update), rate, update.count);
  }
};

// Adam with one second moment per row, of the mean of the row's squared gradients, as in FBGEMM's
// partial row-wise Adam, which adds epsilon after the bias correction.
template <class T>
class RowwiseAdamOptimizer final : public Optimizer<T, 1> {
 public:
  bool counts_steps() const override { return true; }
  int64_t row_slots() const override { return 1; }

 private:
  void Step(const Hyper& hyper, const Update& update) const override {
    T* const square = static_cast<T*>(update.row_state);
    const T mean_square = kernels::MeanSquare(this->Delta(update), update.count);
    *square += (mean_square - *square) * static_cast<T>(1 - hyper.Get(kBeta2));
    const StepRate step = AdamRate(hyper, update);
    const T scale = static_cast<T>(step.rate) /
                    (std::sqrt(*square) + static_cast<T>(hyper.Get(kEpsilon) * step.root));
    kernels::RowwiseAdam(this->Weights(update), this->Slot(update, 0), this->Delta(update),
                         static_cast<T>(1 - hyper.Get(kBeta1)), scale, update.count);
  }
};

// McMahan et al., "Ad Click Prediction: a View from the Trenches", KDD 2013, as Keras writes it.
// The parameters follow from the state, so the first update shrinks their initial values.
template <class T>
class FtrlOptimizer final : public Optimizer<T, 2> {
  void Step(const Hyper& hyper, const Update& update) const override {
    const double rate = hyper.Get(kLearningRate);
    const kernels::FtrlOptions<T> options = {
        static_cast<T>(rate),
        static_cast<T>(-hyper.Get(kLearningRatePower)),
        Rounded<T>(hyper, kInitialAccumulatorValue),
        Rounded<T>(hyper, kL1),
        static_cast<T>(2 * hyper.Get(kL2) + hyper.Get(kBeta) / rate),
        static_cast<T>(2 * hyper.Get(kL2Shrinkage)),
    };
    kernels::Ftrl(this->Weights(update), this->Slot(update, 0), this->Slot(update, 1),
                  this->Delta(update), options, update.count);
  }
};

// Zhang, Choromanska, LeCun, "Deep learning with Elastic Averaging SGD", NIPS 2015. A delta is the
// worker's own parameters, which pull the center (the table) towards themselves. In a sync, the new
// center then pulls the worker's parameters, as in mpi_learn.
template <class T>
class EasgdOptimizer final : public Optimizer<T, 0> {
 public:
  // A worker has one position, so a call may name a row only once.
  Updater::Duplicates duplicates(const Hyper& /*hyper*/) const override {
    return Updater::Duplicates::kRefused;
  }

  void TakeDelta(const void* current, const void* /*last*/, void* delta,
                 int64_t count) const override {
    CopyBytes(delta, current, static_cast<size_t>(count) * sizeof(T));
  }
  void Settle(const Hyper& hyper, const void* table, void* current, int64_t count) const override {
    kernels::Pull(static_cast<T*>(current), static_cast<const T*>(table),
                  Rounded<T>(hyper, kElasticForce), T{1}, count);
  }
  // The next delta is the worker's whole position, so nothing is left of this one.
  void SettleWithResidual(const Hyper& hyper, const void* table, void* last, void* current,
                          int64_t count) const override {
    Settle(hyper, table, current, count);
    CopyBytes(last, table, static_cast<size_t>(count) * sizeof(T));
  }

 private:
  void Step(const Hyper& hyper, const Update& update) const override {
    kernels::Pull(this->Weights(update), this->Delta(update), Rounded<T>(hyper, kElasticForce),
                  static_cast<T>(update.terms), update.count);
  }
};

// Zheng et al., "Asynchronous Stochastic Gradient Descent with Delay Compensation", ICML 2017,
// algorithm 2 with a constant variance control (DC-ASGD-c), or one that is divided by the root of a
// moving average of the squared gradients (DC-ASGD-a), which is the first slot. A slot per worker
// holds the parameters that the worker received last.
template <class T, bool kIsAdaptive>
class DcasgdOptimizer final : public Optimizer<T, kIsAdaptive ? 1 : 0> {
 public:
  // The workers' slots are the last ones, because a checkpoint of more or fewer workers has more or
  // fewer of these.
  int64_t state_slots(int num_workers) const override { return kFirstWorker + num_workers; }
  bool notes_gets() const override { return true; }
  void NoteGet(const Update& update, const void* values) const override {
    kernels::Remember(Seen(update), static_cast<const T*>(values), update.count);
  }

 private:
  static constexpr int kFirstWorker = kIsAdaptive ? 1 : 0;
  static T* Seen(const Update& update) {
    return Optimizer<T, kFirstWorker>::Slot(update, kFirstWorker + update.worker);
  }

  void Step(const Hyper& hyper, const Update& update) const override {
    const T rate = Rounded<T>(hyper, kLearningRate);
    if constexpr (kIsAdaptive) {
      const double rho = hyper.Get(kRho);
      kernels::CompensateAdaptively(this->Weights(update), Seen(update), this->Slot(update, 0),
                                    this->Delta(update), rate, Rounded<T>(hyper, kVarianceControl),
                                    static_cast<T>(rho), static_cast<T>(1 - rho),
                                    Rounded<T>(hyper, kEpsilon), update.count);
    } else {
      kernels::Compensate(this->Weights(update), Seen(update), this->Delta(update), rate,
                          Rounded<T>(hyper, kVarianceControl), update.count);
    }
  }
};

}  // namespace

template <class T>
std::unique_ptr<const Updater> MakeOptimizer(UpdaterKind kind) {
  switch (kind) {
    case UpdaterKind::kAdd:
      break;
    case UpdaterKind::kSgd:
      return std::make_unique<SgdOptimizer<T>>();
    case UpdaterKind::kMomentum:
      return std::make_unique<MomentumOptimizer<T>>();
    case UpdaterKind::kNesterov:
      return std::make_unique<NesterovOptimizer<T>>();
    case UpdaterKind::kAdagrad:
      return std::make_unique<AdagradOptimizer<T>>();
    case UpdaterKind::kRmsprop:
      return std::make_unique<RmspropOptimizer<T>>();
    case UpdaterKind::kAdadelta:
      return std::make_unique<AdadeltaOptimizer<T>>();
    case UpdaterKind::kAdam:
    case UpdaterKind::kAdamw:
      return std::make_unique<AdamOptimizer<T, false>>();
    case UpdaterKind::kAmsgrad:
      return std::make_unique<AdamOptimizer<T, true>>();
    case UpdaterKind::kEasgd:
      return std::make_unique<EasgdOptimizer<T>>();
    case UpdaterKind::kDcasgd:
      return std::make_unique<DcasgdOptimizer<T, false>>();
    case UpdaterKind::kFtrl:
      return std::make_unique<FtrlOptimizer<T>>();
    case UpdaterKind::kDcasgda:
      return std::make_unique<DcasgdOptimizer<T, true>>();
    case UpdaterKind::kRowwiseAdagrad:
      return std::make_unique<RowwiseAdagradOptimizer<T>>();
    case UpdaterKind::kRowwiseAdam:
      return std::make_unique<RowwiseAdamOptimizer<T>>();
  }
  return nullptr;
}

template std::unique_ptr<const Updater> MakeOptimizer<float>(UpdaterKind);
template std::unique_ptr<const Updater> MakeOptimizer<double>(UpdaterKind);

}  // namespace multiverso
