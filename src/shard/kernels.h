// The inner loops of `add`, `sgd` and exchanges: elementwise arithmetic on consecutive elements.
// Where vector_versions.h supports it, each loop exists in versions for several vector instruction
// sets, and the loader picks one when it loads the library.
//
// No pointer is null. `out` may equal an input; otherwise no arrays overlap. Integers wrap around,
// as in NumPy.
#ifndef MULTIVERSO_SHARD_KERNELS_H_
#define MULTIVERSO_SHARD_KERNELS_H_

#include <cstdint>

namespace multiverso::kernels {

// w += d
void Add(float* w, const float* d, int64_t n);
void Add(double* w, const double* d, int64_t n);
void Add(int32_t* w, const int32_t* d, int64_t n);
void Add(int64_t* w, const int64_t* d, int64_t n);

// w += d; out = w
void AddGet(float* w, const float* d, float* out, int64_t n);
void AddGet(double* w, const double* d, double* out, int64_t n);
void AddGet(int32_t* w, const int32_t* d, int32_t* out, int64_t n);
void AddGet(int64_t* w, const int64_t* d, int64_t* out, int64_t n);

// out = a + b
void Sum(float* out, const float* a, const float* b, int64_t n);
void Sum(double* out, const double* a, const double* b, int64_t n);
void Sum(int32_t* out, const int32_t* a, const int32_t* b, int64_t n);
void Sum(int64_t* out, const int64_t* a, const int64_t* b, int64_t n);

// out = w = w + (a + b)
void AddSum(float* w, const float* a, const float* b, float* out, int64_t n);
void AddSum(double* w, const double* a, const double* b, double* out, int64_t n);
void AddSum(int32_t* w, const int32_t* a, const int32_t* b, int32_t* out, int64_t n);
void AddSum(int64_t* w, const int64_t* a, const int64_t* b, int64_t* out, int64_t n);

// out = a - b
void Difference(float* out, const float* a, const float* b, int64_t n);
void Difference(double* out, const double* a, const double* b, int64_t n);
void Difference(int32_t* out, const int32_t* a, const int32_t* b, int64_t n);
void Difference(int64_t* out, const int64_t* a, const int64_t* b, int64_t n);

// w += current - last; current = w; last = w
void Exchange(float* w, float* current, float* last, int64_t n);
void Exchange(double* w, double* current, double* last, int64_t n);
void Exchange(int32_t* w, int32_t* current, int32_t* last, int64_t n);
void Exchange(int64_t* w, int64_t* current, int64_t* last, int64_t n);

// current = table + last; last = table
void SettleAdding(float* current, float* last, const float* table, int64_t n);
void SettleAdding(double* current, double* last, const double* table, int64_t n);
void SettleAdding(int32_t* current, int32_t* last, const int32_t* table, int64_t n);
void SettleAdding(int64_t* current, int64_t* last, const int64_t* table, int64_t n);

// current = table - last; last = table
void SettleSubtracting(float* current, float* last, const float* table, int64_t n);
void SettleSubtracting(double* current, double* last, const double* table, int64_t n);

// w -= rate * d
void Descend(float* w, const float* d, float rate, int64_t n);
void Descend(double* w, const double* d, double rate, int64_t n);

// w -= rate * (last - current); current = w; last = w
void ExchangeDescending(float* w, float* current, float* last, float rate, int64_t n);
void ExchangeDescending(double* w, double* current, double* last, double rate, int64_t n);

// Names the version of the loops that runs on this processor: "avx512", "avx2" or "baseline".
const char* VectorVersion();

}  // namespace multiverso::kernels

#endif  // MULTIVERSO_SHARD_KERNELS_H_
