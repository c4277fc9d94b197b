// What the files of the ledger share.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

#include "engine/scheduler.h"
#include "job/ledger.h"

namespace sim {

constexpr int64_t kSecond = 1000000000;
// How long a call may go on after its deadline. It lets requests in flight end (up to 2 s).
constexpr int64_t kSlack = 5 * kSecond;

template <class T>
T& At(std::vector<T>& list, int64_t index) {
  return list[static_cast<size_t>(index)];
}
template <class T>
const T& At(const std::vector<T>& list, int64_t index) {
  return list[static_cast<size_t>(index)];
}

// Returns virtual time since the start of the job, for texts.
inline std::string TimeText(int64_t at) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.6f s",
                static_cast<double>(at - StartOfTime()) / static_cast<double>(kSecond));
  return text;
}

inline bool Names(const AddRecord& add, int64_t row) {
  return add.rows.empty() || std::binary_search(add.rows.begin(), add.rows.end(), row);
}

inline std::string NumberText(double number) {
  char text[40];
  std::snprintf(text, sizeof(text), "%.17g", number);
  return text;
}

}  // namespace sim
