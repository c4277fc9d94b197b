// Guard: converts the statuses and exceptions of C++ for the callers of the C API.
#ifndef MULTIVERSO_C_API_GUARD_H_
#define MULTIVERSO_C_API_GUARD_H_

#include <cstdint>
#include <exception>
#include <new>

#include "base/status.h"

namespace multiverso::c_api {

// Stores the text for this thread's MV_LastError and returns the number.
int32_t Report(const Status& status) noexcept;
// Works as Report, but without a Status, which would need memory.
int32_t Report(Code code, const char* text) noexcept;
const char* LastError();
// Returns the file that the last error is about; the path is empty if it is about no file.
const FileFault& LastFile();
// Returns the rank that the last error is about; it is negative if the error is about no rank.
const PeerFault& LastPeer();

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

}  // namespace multiverso::c_api

#endif  // MULTIVERSO_C_API_GUARD_H_
