// Guard: what stands between C++ and the callers of the C API: statuses, messages, exceptions.
#ifndef MULTIVERSO_C_API_GUARD_H_
#define MULTIVERSO_C_API_GUARD_H_

#include <cstdint>
#include <exception>
#include <new>

#include "base/status.h"

namespace multiverso::c_api {

// Keeps the text for MV_LastError, in this thread; gives the number.
int32_t Report(const Status& status) noexcept;
// The same without making a Status, which takes memory.
int32_t Report(Code code, const char* text) noexcept;
const char* LastError();
// Of the same error; an empty path if it is about no file.
const FileFault& LastFile();
// And a rank below 0 if it is about no rank.
const PeerFault& LastPeer();

// Runs `body`, which returns Status, and reports what came of it. Nothing is thrown past it.
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
