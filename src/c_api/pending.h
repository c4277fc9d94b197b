// Waiting calls: how a caller keeps control while a call waits for other ranks.
//
// Below the C API a call blocks until it is done, and asks its Interrupt periodically whether to
// abort. A thread that has called MV_SetInterrupt makes the call itself, and its function answers.
// A thread without such a function, in a session with a slice, leaves the call to a helper thread:
// the caller waits for the helper for a slice at a time and gets pending in between.
#ifndef MULTIVERSO_C_API_PENDING_H_
#define MULTIVERSO_C_API_PENDING_H_

#include <chrono>
#include <functional>
#include <string>

#include "base/clock.h"
#include "base/status.h"
#include "multiverso/c_api.h"

namespace multiverso::c_api {

// The body of a call. It owns the objects that must stay in use during the call, since it may run
// in another thread.
using Body = std::function<Status(Interrupt*)>;

// Runs `body`. With a slice of 0, RunCall blocks until the end; otherwise it may return pending.
Status RunCall(std::chrono::milliseconds slice, Body body);
// Waits for this thread's pending call, for one more slice.
Status WaitForPending();
// Cancels this thread's pending call, if there is one.
Status CancelPending(const std::string& reason);
// Drops this thread's pending call in a forked child, without running it, since the helper thread
// exists only in the parent. Returns whether a call was pending.
bool ForgetPending();
// Returns StateError if this thread is in the middle of a call: if a call is pending, or if a call
// runs the function of MV_SetInterrupt.
Status CheckNothingPending();
// Sets the function that this thread's waiting calls ask whether to abort; null removes a function.
void SetInterrupt(MV_InterruptCheck check, void* argument);

}  // namespace multiverso::c_api

#endif  // MULTIVERSO_C_API_PENDING_H_
