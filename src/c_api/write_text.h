// Passes a text to a caller in C.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>

#include "base/status.h"

namespace multiverso::c_api {

// Copies the text to `out` if it fits the `room` there, and its length to *length. Returns
// ValueError if they are no memory for that.
inline Status WriteText(const Result<std::string>& text, char* out, int64_t room, int64_t* length) {
  if (length == nullptr || room < 0 || (room > 0 && out == nullptr)) {
    return Status(Code::kValue, "expected room for a description, and a length");
  }
  if (!text.ok()) return text.status();
  *length = static_cast<int64_t>(text.value().size());
  if (*length <= room) std::memcpy(out, text.value().data(), text.value().size());
  return Status::Ok();
}

}  // namespace multiverso::c_api
