// Initializer: the initial values of a table's rows, as a function of seed, row and column.
//
// The random bits come from the counter-based generator Philox4x32-10 (Salmon et al., "Parallel
// Random Numbers: As Easy as 1, 2, 3", SC 2011). So any rank computes any row at any time, without
// the rows before it, and all ranks get the same bits. Normal values are inverse normal
// distribution functions of uniform values: algorithm AS 241 (Wichura, Applied Statistics 37, 1988)
// in float64, with a logarithm made of basic operations. There is no call of the mathematical
// library, whose results differ between machines, and the compiler makes no fused multiply-adds
// (CMakeLists.txt). So the values are bitwise identical on all machines and in a NumPy program.
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "base/dtype.h"
#include "base/status.h"
#include "multiverso/constants.h"

namespace multiverso {

enum class InitializerKind : int32_t {
  kNone = MV_INITIALIZER_NONE,  // the rows are zero, and not tracked
  kZeros = MV_INITIALIZER_ZEROS,
  kConstant = MV_INITIALIZER_CONSTANT,
  kUniform = MV_INITIALIZER_UNIFORM,
  kNormal = MV_INITIALIZER_NORMAL,
  kTruncatedNormal = MV_INITIALIZER_TRUNCATED_NORMAL,  // a normal value at most two standard
                                                       // deviations from the mean
};

// Ranks send a spec as bytes and compare it, so every field is plain and unused ones are zero.
struct InitializerSpec {
  // Stands for a seed that follows from the number of the table in its session.
  static constexpr uint64_t kSeedOfTable = ~uint64_t{0};

  int32_t kind = 0;
  int32_t unused = 0;
  uint64_t seed = 0;  // of the random kinds
  // The value, minval or the mean. A constant of integers is the sum of both numbers, since one
  // float64 cannot hold every int64.
  double first = 0;
  double second = 0;  // maxval or the standard deviation

  bool is_random() const { return kind >= static_cast<int32_t>(InitializerKind::kUniform); }
  bool operator==(const InitializerSpec& other) const {
    return kind == other.kind && seed == other.seed && first == other.first &&
           second == other.second;
  }
  // Returns ValueError or TypeError if no table of that type can have these initial values.
  Status Check(DType dtype) const;
  // Returns "RandomUniform(-0.05, 0.05, seed=7)", or an empty string for kNone.
  std::string Describe() const;
};

// Returns the four words for a counter and a key.
std::array<uint32_t, 4> Philox4x32(std::array<uint32_t, 4> counter, std::array<uint32_t, 2> key);
// Returns x for which a standard normal value is less than x with probability p, 0 < p < 1.
double InverseNormal(double p);

class Initializer {
 public:
  // `spec` has been checked. Values of 16 bits are float32 values, rounded to the nearest.
  Initializer(const InitializerSpec& spec, DType dtype) : spec_(spec), dtype_(dtype) {}

  const InitializerSpec& spec() const { return spec_; }
  // Writes the initial values of `count` elements of a row from a column on.
  void Fill(int64_t row, int64_t column, int64_t count, void* out) const;

 private:
  template <class T>
  void FillRandom(int64_t row, int64_t column, int64_t count, T* out) const;

  InitializerSpec spec_;
  DType dtype_;
};

}  // namespace multiverso
