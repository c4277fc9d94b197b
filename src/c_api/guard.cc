#include "c_api/guard.h"

#include <cctype>
#include <cstddef>
#include <cstring>

namespace multiverso::c_api {
namespace {

struct Failure {
  std::string text;
  FileFault file;
  PeerFault peer;
};

Failure& LastFailure() {
  thread_local Failure failure;
  return failure;
}

}  // namespace

Status CheckPath(const char* path, const char* what) {
  if (path == nullptr || path[0] == '\0') {
    return Status(Code::kValue, StrCat(what, ": expected a path, received none"));
  }
  size_t scheme = 0;
  while (std::isalnum(static_cast<unsigned char>(path[scheme])) != 0 ||
         (path[scheme] != '\0' && std::strchr("+-.", path[scheme]) != nullptr)) {
    ++scheme;
  }
  // The letter of a drive is no scheme.
  if (scheme < 2 || std::strncmp(path + scheme, "://", 3) != 0) return Status::Ok();
  return Status(Code::kValue,
                StrCat(what, ": expected a path, received the address \"", path,
                       "\": write to a folder of this machine and copy it, or mount the storage"));
}

Status WriteText(const Result<std::string>& text, char* out, int64_t room, int64_t* length) {
  if (length == nullptr || room < 0 || (room > 0 && out == nullptr)) {
    return Status(Code::kValue, "expected room for a description, and a length");
  }
  if (!text.ok()) return text.status();
  *length = static_cast<int64_t>(text.value().size());
  if (*length <= room) std::memcpy(out, text.value().data(), text.value().size());
  return Status::Ok();
}

int32_t Report(const Status& status) noexcept {
  // A reader that must look again has met no error, so the last error stays as it is.
  if (status.ok() || status.code() == Code::kOutdated) return static_cast<int32_t>(status.code());
  (void)Report(status.code(), status.text().c_str());
  try {
    if (status.file() != nullptr) LastFailure().file = *status.file();
    if (status.peer() != nullptr) LastFailure().peer = *status.peer();
  } catch (const std::exception&) {
    LastFailure().file = {};
    LastFailure().peer = {};
  }
  return static_cast<int32_t>(status.code());
}

int32_t Report(Code code, const char* text) noexcept {
  LastFailure() = {};
  // Report still returns the code if there is no memory for the text, which is then empty.
  try {
    LastFailure().text = text;
  } catch (const std::exception&) {
  }
  return static_cast<int32_t>(code);
}

const FileFault& LastFile() { return LastFailure().file; }

const PeerFault& LastPeer() { return LastFailure().peer; }

const char* LastError() { return LastFailure().text.c_str(); }

}  // namespace multiverso::c_api
