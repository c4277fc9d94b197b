// Waiting calls: how a caller keeps control while a call waits for other ranks.
//
// Below the C API a call blocks until it is done, and asks its Interrupt periodically whether to
// abort. A thread that has set a function with MV_SetInterrupt makes the call itself, and the
// function answers. Another thread, in a session with a slice, leaves the call to a helper thread:
// the caller waits for the helper for a slice at a time and gets pending in between. Without a
// slice the thread makes the call itself, and nothing can interrupt it.
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
using CallBody = std::function<Status(Interrupt*)>;

// Runs `body` as described above. May return pending if `slice` is not 0 and this thread has set no
// function with MV_SetInterrupt.
Status RunCall(std::chrono::milliseconds slice, CallBody body);
// Waits for this thread's pending call: for one more slice, or until its end if the thread has set
// a function meanwhile.
Status WaitForPending();
// Cancels this thread's pending call, if there is one, and waits for its end.
Status CancelPending(const std::string& reason);
// Drops this thread's pending call in a forked child, without running it, since the helper thread
// exists only in the parent. Returns whether a call was pending.
bool ForgetPending();
// Returns StateError if this thread is in the middle of a call: if a call is pending, or if a call
// runs the function of MV_SetInterrupt.
Status CheckNothingPending();
// Sets the function that this thread's waiting calls ask whether to abort; null removes it.
void SetInterrupt(MV_InterruptCheck check, void* argument);

}  // namespace multiverso::c_api

#endif  // MULTIVERSO_C_API_PENDING_H_
