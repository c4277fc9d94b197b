// The inner loops of the optimizers other than `sgd`, over consecutive elements. The order of the
// operations is part of the contract: each operation rounds once, on every processor.
//
// w are the parameters and g is the gradient. State is zero before the first update. In a moving
// average, `keep` is the share of the old average and `take` that of the new value. `epsilon` is
// added under a root, and `outer` to the root. No two arrays overlap. T is float or double.
#pragma once

#include <cstdint>

namespace multiverso::kernels {

// The options of Ftrl.
template <class T>
struct FtrlOptions {
  T rate;       // not 0
  T power;      // of the sum; at least 0
  T initial;    // value of the sum before the first update
  T l1;         // at least 0
  T l2;         // twice the strength, and beta / rate
  T shrinkage;  // twice the strength
};

// velocity = velocity * momentum - g * rate; w += velocity
template <class T>
void Momentum(T* w, T* velocity, const T* g, T rate, T momentum, int64_t n);

// velocity = velocity * momentum - g * rate; w += velocity * momentum - g * rate
template <class T>
void Nesterov(T* w, T* velocity, const T* g, T rate, T momentum, int64_t n);

// sum = (initial if sum == 0 else sum) + g * g;
// w -= rate * g / (sqrt(sum + epsilon) + outer)
// An updated sum is 0 only if `initial` is 0, so 0 reliably marks a sum without updates.
template <class T>
void Adagrad(T* w, T* sum, const T* g, T rate, T initial, T epsilon, T outer, int64_t n);

// square = keep * square + take * (g * g); w -= rate * g / (sqrt(square + epsilon) + outer)
template <class T>
void Rmsprop(T* w, T* square, const T* g, T rate, T keep, T take, T epsilon, T outer, int64_t n);

// square as in Rmsprop
// velocity = momentum * velocity + rate * g / (sqrt(square + epsilon) + outer); w -= velocity
template <class T>
void RmspropMomentum(T* w, T* square, T* velocity, const T* g, T rate, T keep, T take, T epsilon,
                     T outer, T momentum, int64_t n);

// square = keep * square + take * (g * g)
// step = -(sqrt(steps + epsilon) * g / sqrt(square + epsilon))
// steps = keep * steps + take * (step * step); w += rate * step
template <class T>
void Adadelta(T* w, T* square, T* steps, const T* g, T rate, T keep, T take, T epsilon, int64_t n);

// mean += (g - mean) * take_mean; square += (g * g - square) * take_square
// w -= mean * rate / (sqrt(square) + epsilon)
template <class T>
void Adam(T* w, T* mean, T* square, const T* g, T rate, T take_mean, T take_square, T epsilon,
          int64_t n);

// mean and square as in Adam; largest = max(largest, square)
// w -= mean * rate / (sqrt(largest) + epsilon)
template <class T>
void Amsgrad(T* w, T* mean, T* square, T* largest, const T* g, T rate, T take_mean, T take_square,
             T epsilon, int64_t n);

// Returns the mean of g * g. Number i is added to partial sum i % 16; then the upper half of the
// partial sums is added to the lower half, until one is left, which is divided by n.
template <class T>
T MeanSquare(const T* g, int64_t n);
// Returns the sum of g * g, which is added in the same order in double precision.
template <class T>
double SquareSum(const T* g, int64_t n);

// mean += (g - mean) * take_mean; w -= mean * scale
template <class T>
void RowwiseAdam(T* w, T* mean, const T* g, T take_mean, T scale, int64_t n);

// w -= w * decay * rate
template <class T>
void Decay(T* w, T decay, T rate, int64_t n);

// out = g clipped to -limit ... limit
template <class T>
void Clip(T* out, const T* g, T limit, int64_t n);

// out = g * scale
template <class T>
void Scale(T* out, const T* g, T scale, int64_t n);

// before = initial if sum == 0 else sum; sum = before + g * g
// linear += g + shrinkage * w - (sum ** power - before ** power) / rate * w
// w = (linear clipped to -l1 ... l1 - linear) / (sum ** power / rate + l2), or 0 instead of n / 0
// For a power of 0.5 the square root is taken, which is rounded once.
template <class T>
void Ftrl(T* w, T* linear, T* sum, const T* g, const FtrlOptions<T>& options, int64_t n);

// w += force * (x - terms * w), where x is the sum of `terms` positions.
template <class T>
void Pull(T* w, const T* x, T force, T terms, int64_t n);

// w -= rate * (g + control * (g * g) * (w - seen)), where `seen` is decoded from what Remember
// wrote. Before the first Remember, w - seen counts as 0.
template <class T>
void Compensate(T* w, const T* seen, const T* g, T rate, T control, int64_t n);

// square = keep * square + take * (g * g)
// w -= rate * (g + control / sqrt(square + epsilon) * (g * g) * (w - seen)), with `seen` as in
// Compensate
template <class T>
void CompensateAdaptively(T* w, const T* seen, T* square, const T* g, T rate, T control, T keep,
                          T take, T epsilon, int64_t n);

// Writes w into `seen`, encoded so that zero-filled memory means that nothing was remembered.
template <class T>
void Remember(T* seen, const T* w, int64_t n);

}  // namespace multiverso::kernels
