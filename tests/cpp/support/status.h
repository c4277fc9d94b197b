// Predicates on a Status or Result, which print the received error if an expectation fails.
#pragma once

#include <gtest/gtest.h>

#include <stdexcept>
#include <string>
#include <utility>

#include "base/status.h"

namespace multiverso::testing {

inline const Status& StatusOf(const Status& status) { return status; }
template <class T>
const Status& StatusOf(const Result<T>& result) {
  return result.status();
}

inline ::testing::AssertionResult Contains(const std::string& text, const std::string& part) {
  const bool is_in = text.find(part) != std::string::npos;
  return ::testing::AssertionResult(is_in) << "expected '" << part << "', received: " << text;
}
inline ::testing::AssertionResult Contains(const Status& status, const std::string& part) {
  return Contains(status.text(), part);
}
template <class T>
::testing::AssertionResult Contains(const Result<T>& result, const std::string& part) {
  return Contains(result.status(), part);
}

template <class StatusOrResult>
::testing::AssertionResult HasCode(const StatusOrResult& received, Code code) {
  const Status& status = StatusOf(received);
  return ::testing::AssertionResult(status.code() == code)
         << "received code " << static_cast<int>(status.code()) << ": " << status.text();
}

template <class StatusOrResult>
::testing::AssertionResult IsOk(const StatusOrResult& received) {
  return HasCode(received, Code::kOk);
}

// Checks the error code, and that the error text contains every part.
template <class StatusOrResult, class... Parts>
::testing::AssertionResult IsError(const StatusOrResult& received, Code code,
                                   const Parts&... parts) {
  ::testing::AssertionResult result = HasCode(received, code);
  ((result = result ? Contains(StatusOf(received), parts) : result), ...);
  return result;
}

// Returns the value of a result. Throws on an error, which fails the test.
template <class T>
T ValueOf(Result<T> result) {
  if (!result.ok()) throw std::runtime_error(result.status().text());
  return std::move(result.value());
}

}  // namespace multiverso::testing
