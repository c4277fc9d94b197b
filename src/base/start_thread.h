// Starts threads of the library.
#pragma once

#include <functional>
#include <thread>

#include "base/status.h"

namespace multiverso {

// Starts a thread, which never receives signals (WithoutSignals). Returns MemoryError if the system
// refuses, for instance at a limit of threads; `what` names the thread in the message.
Result<std::thread> StartThread(const char* what, std::function<void()> run);

}  // namespace multiverso
