#include "c_api/guard.h"

#include <cctype>
#include <cstddef>
#include <cstring>

namespace multiverso::c_api {
namespace {

std::string& ErrorText() {
  thread_local std::string text;
  return text;
}

FileFault& ErrorFile() {
  thread_local FileFault file;
  return file;
}

PeerFault& ErrorPeer() {
  thread_local PeerFault peer;
  return peer;
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

int32_t Report(const Status& status) noexcept {
  // A reader that must look again has met no error, so the last error stays as it is.
  if (status.ok() || status.code() == Code::kOutdated) return static_cast<int32_t>(status.code());
  (void)Report(status.code(), status.text().c_str());
  try {
    if (status.file() != nullptr) ErrorFile() = *status.file();
    if (status.peer() != nullptr) ErrorPeer() = *status.peer();
  } catch (const std::exception&) {
    ErrorFile().path.clear();
    ErrorPeer().rank = -1;
  }
  return static_cast<int32_t>(status.code());
}

int32_t Report(Code code, const char* text) noexcept {
  ErrorFile().path.clear();
  ErrorPeer().rank = -1;
  // Report still returns the code if there is no memory for the text.
  try {
    ErrorText() = text;
  } catch (const std::exception&) {
    ErrorText().clear();
  }
  return static_cast<int32_t>(code);
}

const FileFault& LastFile() { return ErrorFile(); }

const PeerFault& LastPeer() { return ErrorPeer(); }

const char* LastError() { return ErrorText().c_str(); }

}  // namespace multiverso::c_api
