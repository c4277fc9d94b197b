// What a target of fuzzing has: a function that takes any bytes, and what it begins with.
//
// clang links the function with libFuzzer, which looks for bytes that reach new code; other
// compilers link it with driver.cc, which changes what is in the corpus at random.
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

// Right inputs, which the corpus in the repository has been made of (see driver.cc).
std::vector<std::string> Seeds();

// Ends the process, which is how fuzzing sees a fault.
inline void Require(bool holds, const char* what, const std::string& received) {
  if (holds) return;
  std::fprintf(stderr, "expected %s, received %s\n", what, received.c_str());
  std::abort();
}

}  // namespace multiverso::fuzz

#endif  // MULTIVERSO_TESTS_FUZZ_TARGET_H_
