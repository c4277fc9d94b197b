#include "c_api/guard.h"

#include <string>

namespace multiverso::c_api {
namespace {

std::string& Text() {
  thread_local std::string text;
  return text;
}

}  // namespace

int32_t Report(const Status& status) noexcept {
  if (status.ok() || status.pending()) return static_cast<int32_t>(status.code());
  return Report(status.code(), status.text().c_str());
}

int32_t Report(Code code, const char* text) noexcept {
  // A text that cannot be stored is no reason to lose the code.
  try {
    Text() = text;
  } catch (const std::exception&) {
    Text().clear();
  }
  return static_cast<int32_t>(code);
}

const char* LastError() { return Text().c_str(); }

}  // namespace multiverso::c_api
