#include "memory/presence.h"

namespace multiverso {

ProcessMark OwnProcess() { return ProcessMark{}; }

bool HasEnded(const ProcessMark& /*process*/) { return false; }

}  // namespace multiverso
