#include "base/start_thread.h"

#include <system_error>
#include <utility>

#include "base/text.h"
#include "base/without_signals.h"

namespace multiverso {

Result<std::thread> StartThread(const char* what, std::function<void()> run) {
  const WithoutSignals without_signals;
  try {
    return std::thread(std::move(run));
  } catch (const std::system_error& error) {
    return Status(Code::kMemory, StrCat("cannot start ", what, ": ", error.what()));
  }
}

}  // namespace multiverso
