// Pending calls: an operation that had to wait longer than its session's slice, parked in the
// thread that made it until MV_Wait goes on with it.
#ifndef MULTIVERSO_C_API_PENDING_H_
#define MULTIVERSO_C_API_PENDING_H_

#include <chrono>
#include <functional>
#include <memory>
#include <string>

#include "base/operation.h"
#include "base/status.h"
#include "node/flight_recorder.h"

namespace multiverso::c_api {

struct Call {
  std::unique_ptr<Operation> operation;
  std::chrono::milliseconds slice{0};  // 0: block until the end
  // What the caller gets: is given the operation's status and returns the call's. It also holds
  // what must stay in use while the call lasts.
  std::function<Status(const Status&)> finish;
  FlightRecorder::Entry* record = nullptr;  // ended before `finish`, which may end the session
};

// Steps the call until it is done or its slice is over; then it is pending in this thread.
Status Drive(Call call);
// Goes on with this thread's pending call.
Status DrivePending();
// Gives it up. Ok without one.
Status CancelPending(const std::string& reason);
// In a forked child: this thread's pending call is the parent's. True if there was one. Lets go of
// it without touching anything, since what it works on is not there.
bool ForgetPending();
// StateError if this thread has a pending call, for calls that cannot be made then.
Status CheckNothingPending();

}  // namespace multiverso::c_api

#endif  // MULTIVERSO_C_API_PENDING_H_
