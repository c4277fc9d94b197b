// A fuzz target: a function that must cope with any bytes, and its seeds.
//
// clang links the function with libFuzzer, which searches for bytes that reach new code. Other
// compilers link it with driver.cc, which mutates the corpus at random.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace multiverso::fuzz {

// Returns valid inputs, of which the corpus in the repository consists (see driver.cc).
std::vector<std::string> Seeds();

// Aborts unless `holds`, because a fuzzer reports an input that ends the process.
inline void Require(bool holds, const char* what, const std::string& received) {
  if (holds) return;
  std::fprintf(stderr, "expected %s, received %s\n", what, received.c_str());
  std::abort();
}

}  // namespace multiverso::fuzz
