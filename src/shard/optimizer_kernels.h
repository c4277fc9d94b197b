// The inner loops of the optimizers other than `sgd`, over consecutive elements. The order of the
// operations is part of the contract: each operation rounds once, on every processor.
//
// w are the parameters and g is the gradient. State is zero before the first update. In a moving
// average, `keep` is the share of the old average and `take` that of the new value. No two arrays
// overlap.
#ifndef MULTIVERSO_SHARD_OPTIMIZER_KERNELS_H_
#define MULTIVERSO_SHARD_OPTIMIZER_KERNELS_H_

#include <cstdint>

namespace multiverso::kernels {

// velocity = velocity * momentum - g * rate; w += velocity
void Momentum(float* w, float* velocity, const float* g, float rate, float momentum, int64_t n);
void Momentum(double* w, double* velocity, const double* g, double rate, double momentum,
              int64_t n);

// velocity = velocity * momentum - g * rate; w += velocity * momentum - g * rate
void Nesterov(float* w, float* velocity, const float* g, float rate, float momentum, int64_t n);
void Nesterov(double* w, double* velocity, const double* g, double rate, double momentum,
              int64_t n);

// sum = (initial if sum == 0 else sum) + g * g;
// w -= rate * g / (sqrt(sum + epsilon) + outer)
// An updated sum is 0 only if `initial` is 0, so 0 reliably marks a sum without updates.
void Adagrad(float* w, float* sum, const float* g, float rate, float initial, float epsilon,
             float outer, int64_t n);
void Adagrad(double* w, double* sum, const double* g, double rate, double initial, double epsilon,
             double outer, int64_t n);

// square = keep * square + take * (g * g); w -= rate * g / (sqrt(square + epsilon) + outer)
void Rmsprop(float* w, float* square, const float* g, float rate, float keep, float take,
             float epsilon, float outer, int64_t n);
void Rmsprop(double* w, double* square, const double* g, double rate, double keep, double take,
             double epsilon, double outer, int64_t n);

// square as in Rmsprop
// velocity = momentum * velocity + rate * g / (sqrt(square + epsilon) + outer); w -= velocity
void RmspropMomentum(float* w, float* square, float* velocity, const float* g, float rate,
                     float keep, float take, float epsilon, float outer, float momentum, int64_t n);
void RmspropMomentum(double* w, double* square, double* velocity, const double* g, double rate,
                     double keep, double take, double epsilon, double outer, double momentum,
                     int64_t n);

// square = keep * square + take * (g * g)
// step = -(sqrt(steps + epsilon) * g / sqrt(square + epsilon))
// steps = keep * steps + take * (step * step); w += rate * step
void Adadelta(float* w, float* square, float* steps, const float* g, float rate, float keep,
              float take, float epsilon, int64_t n);
void Adadelta(double* w, double* square, double* steps, const double* g, double rate, double keep,
              double take, double epsilon, int64_t n);

// mean += (g - mean) * take_mean; square += (g * g - square) * take_square
// w -= mean * rate / (sqrt(square) + epsilon)
void Adam(float* w, float* mean, float* square, const float* g, float rate, float take_mean,
          float take_square, float epsilon, int64_t n);
void Adam(double* w, double* mean, double* square, const double* g, double rate, double take_mean,
          double take_square, double epsilon, int64_t n);

// mean and square as in Adam; largest = max(largest, square)
// w -= mean * rate / (sqrt(largest) + epsilon)
void Amsgrad(float* w, float* mean, float* square, float* largest, const float* g, float rate,
             float take_mean, float take_square, float epsilon, int64_t n);
void Amsgrad(double* w, double* mean, double* square, double* largest, const double* g, double rate,
             double take_mean, double take_square, double epsilon, int64_t n);

// Returns the mean of g * g. Number i is added to partial sum i % 16; then the upper half of the
// partial sums is added to the lower half, until one is left, which is divided by n.
float MeanSquare(const float* g, int64_t n);
double MeanSquare(const double* g, int64_t n);
// Returns the sum of g * g, which is added in the same order in double precision.
double SquareSum(const float* g, int64_t n);
double SquareSum(const double* g, int64_t n);

// mean += (g - mean) * take_mean; w -= mean * scale
void RowwiseAdam(float* w, float* mean, const float* g, float take_mean, float scale, int64_t n);
void RowwiseAdam(double* w, double* mean, const double* g, double take_mean, double scale,
                 int64_t n);

// w -= w * decay * rate
void Decay(float* w, float decay, float rate, int64_t n);
void Decay(double* w, double decay, double rate, int64_t n);

// out = g clipped to -limit ... limit
void Clip(float* out, const float* g, float limit, int64_t n);
void Clip(double* out, const double* g, double limit, int64_t n);

// out = g * scale
void Scale(float* out, const float* g, float scale, int64_t n);
void Scale(double* out, const double* g, double scale, int64_t n);

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

// before = initial if sum == 0 else sum; sum = before + g * g
// linear += g + shrinkage * w - (sum ** power - before ** power) / rate * w
// w = (linear clipped to -l1 ... l1 - linear) / (sum ** power / rate + l2), or 0 instead of n / 0
// For a power of 0.5 the square root is taken, which is rounded once.
void Ftrl(float* w, float* linear, float* sum, const float* g, const FtrlOptions<float>& options,
          int64_t n);
void Ftrl(double* w, double* linear, double* sum, const double* g,
          const FtrlOptions<double>& options, int64_t n);

// w += force * (x - terms * w), where x is the sum of `terms` positions.
void Pull(float* w, const float* x, float force, float terms, int64_t n);
void Pull(double* w, const double* x, double force, double terms, int64_t n);

// w -= rate * (g + control * (g * g) * (w - seen)), where `seen` is decoded from what Remember
// wrote. Before the first Remember, w - seen counts as 0.
void Compensate(float* w, const float* seen, const float* g, float rate, float control, int64_t n);
void Compensate(double* w, const double* seen, const double* g, double rate, double control,
                int64_t n);

// square = keep * square + take * (g * g)
// w -= rate * (g + control / sqrt(square + epsilon) * (g * g) * (w - seen)), with `seen` as in
// Compensate
void CompensateAdaptively(float* w, const float* seen, float* square, const float* g, float rate,
                          float control, float keep, float take, float epsilon, int64_t n);
void CompensateAdaptively(double* w, const double* seen, double* square, const double* g,
                          double rate, double control, double keep, double take, double epsilon,
                          int64_t n);

// Writes w into `seen`, encoded so that zero-filled memory means that nothing was remembered.
void Remember(float* seen, const float* w, int64_t n);
void Remember(double* seen, const double* w, int64_t n);

}  // namespace multiverso::kernels

#endif  // MULTIVERSO_SHARD_OPTIMIZER_KERNELS_H_
