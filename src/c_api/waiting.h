// Waiting calls: how a caller keeps control while a call waits for other ranks.
//
// A call blocks until it is done. Meanwhile it asks periodically whether to abort: the function
// that its thread has set, or else the one that the program has set for all other threads. A
// language binding needs the latter, because it does not create the threads that call it.
#pragma once

#include <optional>
#include <string>

#include "base/clock.h"
#include "base/status.h"
#include "multiverso/c_api.h"

namespace multiverso::c_api {

// Sets the function that this thread's waiting calls ask whether to abort; null removes it.
void SetInterrupt(MV_InterruptCheck check, void* argument);
// Sets the function for the threads that have set none. Returns StateError inside a function, which
// cannot replace the one that is running.
Status SetDefaultInterrupt(MV_InterruptCheck check, void* argument);
// Lets a forked child ask the default function again, which a thread of the parent may be running.
void ForgetAskingThread();

// Returns StateError if this thread is in the middle of a call, which runs one of the functions.
Status CheckNotInInterrupt();

// Asks the function of this thread, or the default one, and returns its reason to abort, if any.
std::optional<std::string> AskThisThread();

// Runs `body`, a Status(Interrupt*). If the caller aborts the call, the reason is the result.
template <class Body>
Status RunCall(const Body& body) {
  MV_RETURN_IF_NOT_OK(CheckNotInInterrupt());
  InterruptOf interrupt(&AskThisThread);
  const Status status = body(&interrupt);
  return interrupt.ResultOf(status);
}

// Like RunCall, for a call on files. An interrupt function may read files itself: that call cannot
// be aborted, and its interrupt is null.
template <class Body>
Status RunFileCall(const Body& body) {
  return CheckNotInInterrupt().ok() ? RunCall(body) : body(nullptr);
}

}  // namespace multiverso::c_api
