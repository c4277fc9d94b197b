// Guard: runs the body of a C API function, and converts its status or exception to a result in C.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <exception>
#include <new>
#include <string>

#include "base/clock.h"
#include "base/status.h"
#include "base/text.h"
#include "multiverso/constants.h"

namespace multiverso::c_api {

// Returns the number of `status`. Stores an error for MV_LastError, MV_LastErrorFile and
// MV_LastErrorPeer of this thread.
int32_t Report(const Status& status) noexcept;
// Reports an error about no file and no rank, without a Status, which would need memory.
int32_t Report(Code code, const char* text) noexcept;
const char* LastError();
// Returns the file that the last error is about; the path is empty if it is about no file.
const FileFault& LastFile();
// Returns the rank that the last error is about; it is negative if the error is about no rank.
const PeerFault& LastPeer();

// Returns ValueError unless `argument` is a struct of the size that this version knows as `name`.
template <class Struct>
Status CheckStruct(const Struct* argument, const char* name) {
  if (argument != nullptr && argument->struct_size == sizeof(Struct)) return Status::Ok();
  return Status(Code::kValue, argument == nullptr
                                  ? StrCat(name, ": received null")
                                  : StrCat(name, ".struct_size: expected ", sizeof(Struct),
                                           ", received ", argument->struct_size));
}

// The pointers of a caller that `function` needs. It is a type, so that Guard and HandleTable::With
// can check them before their bodies use them.
class NotNull {
 public:
  template <class... Pointer>
  explicit NotNull(const char* function, const Pointer*... pointers)
      : function_(function), has_null_(((pointers == nullptr) || ...)) {}
  Status Check() const {
    if (!has_null_) return Status::Ok();
    return Status(Code::kValue, StrCat(function_, ": received null"));
  }

 private:
  const char* function_;
  bool has_null_;
};

// Returns ValueError unless `path` is a path: not null, not empty, and no address such as
// "s3://bucket/run", whose scheme would become the name of a folder here.
Status CheckPath(const char* path, const char* what);
// Copies the text to `out` if it fits the `room` there, and its length to *length. Returns
// ValueError if they are no memory for that.
Status WriteText(const Result<std::string>& text, char* out, int64_t room, int64_t* length);
// Returns the length of a wait in milliseconds or MV_NO_LIMIT.
inline std::chrono::milliseconds LimitOf(int64_t milliseconds) {
  return milliseconds == MV_NO_LIMIT ? kNoLimit
                                     : std::min(std::chrono::milliseconds(milliseconds), kNoLimit);
}

// Runs `body`, which returns a Status, and reports the status or the exception that `body` throws.
template <class Body>
int32_t Guard(Body body) noexcept {
  try {
    const Status status = body();
    return status.ok() ? 0 : Report(status);
  } catch (const std::bad_alloc&) {
    return Report(Code::kMemory, "out of memory");
  } catch (const std::exception& error) {
    return Report(Code::kInternal, error.what());
  } catch (...) {
    return Report(Code::kInternal, "unknown exception");
  }
}

// As above, for a function that needs the caller's pointers.
template <class Body>
int32_t Guard(const NotNull& needed, const Body& body) noexcept {
  return Guard([&]() -> Status {
    MV_RETURN_IF_NOT_OK(needed.Check());
    return body();
  });
}

// As Guard, for a function that releases an object. A finalizer of a binding may call the function
// between a failing call and MV_LastError, so an invalid handle does not replace the last error.
template <class Body>
int32_t GuardRelease(Body body) noexcept {
  Code invalid = Code::kOk;
  const int32_t code = Guard([&] {
    Status status = body();
    if (status.code() != Code::kHandle && status.code() != Code::kForked) return status;
    invalid = status.code();
    return Status::Ok();
  });
  return invalid == Code::kOk ? code : static_cast<int32_t>(invalid);
}

}  // namespace multiverso::c_api
