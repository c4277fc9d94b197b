#include "c_api/guard.h"

#include <string>

namespace multiverso::c_api {
namespace {

std::string& Text() {
  thread_local std::string text;
  return text;
}

}  // namespace

int32_t Report(const Status& status) {
  // A text that cannot be stored is no reason to lose the status.
  try {
    if (!status.ok() && !status.pending()) Text() = status.text();
  } catch (const std::bad_alloc&) {
    Text().clear();
  }
  return static_cast<int32_t>(status.code());
}

const char* LastError() { return Text().c_str(); }

}  // namespace multiverso::c_api
