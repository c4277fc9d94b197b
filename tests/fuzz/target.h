// A fuzz target: a function that takes any bytes, and its seeds.
//
// clang links the function with libFuzzer, which searches for bytes that reach new code. Other
// compilers link it with driver.cc, which mutates the corpus at random.
#ifndef MULTIVERSO_TESTS_FUZZ_TARGET_H_
#define MULTIVERSO_TESTS_FUZZ_TARGET_H_

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace multiverso::fuzz {

// Returns valid inputs: the corpus in the repository consists of them (see driver.cc).
std::vector<std::string> Seeds();

// Aborts unless `holds`: a fuzzer reports a process that ends.
inline void Require(bool holds, const char* what, const std::string& received) {
  if (holds) return;
  std::fprintf(stderr, "expected %s, received %s\n", what, received.c_str());
  std::abort();
}

}  // namespace multiverso::fuzz

#endif  // MULTIVERSO_TESTS_FUZZ_TARGET_H_
