// Waiting calls: how a caller keeps control while a call waits for other ranks.
//
// Below the C API a call blocks until it is done, and asks its Interrupt periodically whether
// to abort. A thread that has set MV_SetInterrupt makes the call itself and is asked by its own
// function. A thread without one, in a session with a slice, leaves the call to a helper thread: it
// waits for the helper for a slice at a time and returns pending in between.
#ifndef MULTIVERSO_C_API_PENDING_H_
#define MULTIVERSO_C_API_PENDING_H_

#include <chrono>
#include <functional>
#include <string>

#include "base/clock.h"
#include "base/status.h"
#include "multiverso/c_api.h"

namespace multiverso::c_api {

// Makes a call to its end. Owns whatever has to stay in use during the call, and may run in
// another thread.
using Body = std::function<Status(Interrupt*)>;

// Runs `body`. A slice of 0 blocks until the end; otherwise the result may be pending.
Status RunCall(std::chrono::milliseconds slice, Body body);
// Waits for this thread's pending call, for one more slice.
Status WaitForPending();
// Cancels this thread's pending call. A no-op without one.
Status CancelPending(const std::string& reason);
// For a forked child, in which this thread's pending call belongs to the parent. Returns whether
// there was one. Drops it without running any of it, since its helper thread does not exist here.
bool ForgetPending();
// StateError if this thread is in the middle of a call: a pending one, or one that runs the
// function of MV_SetInterrupt.
Status CheckNothingPending();
// Sets the function that this thread's waiting calls ask whether to abort; null removes it.
void SetInterrupt(MV_InterruptCheck check, void* argument);

}  // namespace multiverso::c_api

#endif  // MULTIVERSO_C_API_PENDING_H_
