// The inner loops of `add`, `sgd` and exchanges: elementwise arithmetic on consecutive elements.
// Where vector_versions.h supports it, each loop exists in versions for several vector instruction
// sets, and the loader picks one when it loads the library.
//
// No pointer is null. `out` may equal an input; otherwise no arrays overlap. Integers wrap around,
// as in NumPy. T is float, double, int32_t or int64_t.
#pragma once

#include <cstdint>

namespace multiverso::kernels {

// w += d
template <class T>
void Add(T* w, const T* d, int64_t n);

// w += d; out = w
template <class T>
void AddGet(T* w, const T* d, T* out, int64_t n);

// out = a + b; also for int8_t, int16_t and uint8_t
template <class T>
void Sum(T* out, const T* a, const T* b, int64_t n);

// out = w = w + (a + b)
template <class T>
void AddSum(T* w, const T* a, const T* b, T* out, int64_t n);

// out = a - b
template <class T>
void Difference(T* out, const T* a, const T* b, int64_t n);

// w += current - last; current = w; last = w
template <class T>
void Exchange(T* w, T* current, T* last, int64_t n);

// current = table + last; last = table
template <class T>
void SettleAdding(T* current, T* last, const T* table, int64_t n);

// Float and double only: current = table - last; last = table
template <class T>
void SettleSubtracting(T* current, T* last, const T* table, int64_t n);

// Float and double only: w -= rate * d
template <class T>
void Descend(T* w, const T* d, T rate, int64_t n);

// Float and double only: w -= rate * (last - current); current = w; last = w
template <class T>
void ExchangeDescending(T* w, T* current, T* last, T rate, int64_t n);

// Names the version of the loops that runs on this processor: "avx512", "avx2" or "baseline".
const char* VectorVersion();

}  // namespace multiverso::kernels
