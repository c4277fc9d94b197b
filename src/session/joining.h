// Joining: how a process takes part in an elastic session that others have opened.
//
// The joiner finds the session's control segment among the open files of other processes, as a
// reader does, and maps it. Under a lock, it takes the next rank and announces itself. The other
// ranks neither wait for it nor do anything for it, so joining takes as long as mapping memory.
#pragma once

#include <memory>
#include <string>

#include "base/clock.h"
#include "base/status.h"
#include "session/session.h"

namespace multiverso {

// Joins the elastic session of that name on this machine, or that of the process with that id.
// Returns StateError if there is no such session or no place in it, and MismatchError if it has
// another version or other options. The session does not notice a failure.
Result<std::unique_ptr<Session>> JoinSession(const SessionOptions& options,
                                             const std::string& name_or_pid,
                                             Interrupt* interrupt = nullptr);

}  // namespace multiverso
