// OpenSession: the collective call by which the ranks of a job become a session.
//
// The transport exchanges three messages between all ranks. In the first, a rank describes itself
// (Hello); ranks that can map each other's memory form a node. In the second, the first rank of
// each node, which has created the control segment, sends its locator; every rank sends its address
// for connections. In the third, a rank that could not map the segment says why. From then on the
// ranks of a node no longer need the transport. With several nodes, the transport also provides a
// messenger, the service threads start, and each rank waits a while for its connections to other
// nodes, whose ends reveal deaths. An allgather of the new session ends the call.
#pragma once

#include <memory>

#include "base/clock.h"
#include "base/status.h"
#include "session/session.h"
#include "transport/transport.h"

namespace multiverso {

// Opens a session together with all ranks of `transport`.
Result<std::unique_ptr<Session>> OpenSession(const SessionOptions& options,
                                             std::unique_ptr<Transport> transport,
                                             Interrupt* interrupt = nullptr);

}  // namespace multiverso
