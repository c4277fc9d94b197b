// OpenSession: how the ranks become a session.
//
// Every rank sends its description to all ranks, over the transport. Ranks that can map each
// other's memory form a node. The node's first rank creates the control segment, and the other
// ranks map the segment, so that the ranks of a node no longer need the transport. With several
// nodes, the transport also provides a messenger, the service threads start, and each rank waits a
// while for its connections to other nodes, through which every death is noticed.
#ifndef MULTIVERSO_SESSION_SESSION_OPENING_H_
#define MULTIVERSO_SESSION_SESSION_OPENING_H_

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

#endif  // MULTIVERSO_SESSION_SESSION_OPENING_H_
