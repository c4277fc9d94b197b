#include "memory/presence.h"

namespace multiverso {

ProcessMark OwnProcess() { return ProcessMark{}; }

ProcessWatch::~ProcessWatch() = default;

bool ProcessWatch::HasEnded(int /*number*/, const ProcessMark& /*process*/) { return false; }

bool ProcessWatch::End(int /*number*/, const ProcessMark& /*process*/) { return false; }

}  // namespace multiverso
