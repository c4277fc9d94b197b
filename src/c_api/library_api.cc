// The part of the C API that describes the library and the last error, and controls waits.
#include <atomic>
#include <memory>
#include <string>

#include "base/exit_deadline.h"
#include "base/json.h"
#include "base/process.h"
#include "base/supported.h"
#include "base/text.h"
#include "base/version.h"
#include "c_api/guard.h"
#include "c_api/waiting.h"
#include "memory/limits.h"
#include "multiverso/c_api.h"
#include "numbers/kernels.h"
#include "transport/mpi_communicator.h"

using namespace multiverso;         // NOLINT: this file is the C++ side of extern "C" functions
using namespace multiverso::c_api;  // NOLINT

namespace {

// The deadline of MV_ExitDeadlineBegin. It is never destroyed at exit, since the exit of a process
// may be what has the deadline.
std::atomic<ExitDeadline*> exit_deadline{nullptr};

#if defined(__clang__)
constexpr char kCompiler[] = "Clang " __clang_version__;
#elif defined(__GNUC__)
constexpr char kCompiler[] = "GCC " __VERSION__;
#else
constexpr char kCompiler[] = "unknown";
#endif

#if defined(NDEBUG)
constexpr char kBuildType[] = "release";
#else
constexpr char kBuildType[] = "debug";
#endif

}  // namespace

int32_t MV_AbiVersion(void) { return MV_ABI_VERSION; }

const char* MV_VersionString(void) { return kVersion; }

const char* MV_BuildInfo(void) {
  static const std::string info = JsonObject()
                                      .Add("version", kVersion)
                                      .Add("abi", MV_ABI_VERSION)
                                      .Add("compiler", kCompiler)
                                      .Add("build_type", kBuildType)
                                      .Add("platform", PlatformName())
                                      .Add("vector_kernels", kernels::VectorVersion())
                                      .Take()
                                      .text;
  return info.c_str();
}

const char* MV_Supported(void) {
  static const std::string supported = multiverso::SupportedAsJson();
  return supported.c_str();
}

int32_t MV_CheckIsFree(int64_t bytes, const char* what) {
  return Guard([&]() -> Status {
    if (bytes < 0 || what == nullptr) {
      return Status(Code::kValue, "MV_CheckIsFree: expected a number of bytes, and a text");
    }
    return CheckIsFree(bytes).In(what);
  });
}

const char* MV_StatusName(int32_t status) {
  const auto code = static_cast<Code>(status);
  return code == Code::kPending ? "unknown" : NameOf(code);
}

int32_t MV_LastErrorFile(MV_FileError* error) {
  // This function does without Guard, which would overwrite the error.
  if (error == nullptr || error->struct_size != sizeof(MV_FileError)) return MV_ERR_VALUE;
  const FileFault& file = LastFile();
  error->error_number = file.error_number;
  error->reserved = 0;
  error->position = file.position;
  error->path = file.path.empty() ? nullptr : file.path.c_str();
  return MV_OK;
}

int32_t MV_LastErrorPeer(MV_PeerError* error) {
  if (error == nullptr || error->struct_size != sizeof(MV_PeerError)) return MV_ERR_VALUE;
  const PeerFault& peer = LastPeer();
  const auto text = [&peer](const std::string& known) {
    return peer.rank < 0 || known.empty() ? nullptr : known.c_str();
  };
  error->rank = peer.rank;
  error->reserved = 0;
  error->silent_for = peer.rank < 0 ? -1 : peer.silent_for;
  error->host = text(peer.host);
  error->last_call = text(peer.last_call);
  error->table = text(peer.table);
  error->checkpoint = text(peer.checkpoint);
  return MV_OK;
}

const char* MV_LastError(void) { return LastError(); }

int32_t MV_SetInterrupt(MV_InterruptCheck check, void* argument) {
  SetInterrupt(check, argument);
  return MV_OK;
}

int32_t MV_SetDefaultInterrupt(MV_InterruptCheck check, void* argument) {
  return Guard([&] { return SetDefaultInterrupt(check, argument); });
}

const char* MV_CheckLuaHook(void* argument) {
  void** const watched = static_cast<void**>(argument);
  auto* const get_hook = reinterpret_cast<void* (*)(void*)>(watched[0]);
  return get_hook(watched[1]) == watched[2] ? nullptr : "interrupted!";
}

int32_t MV_ExitDeadlineBegin(const char* call, int64_t timeout_ms) {
  return Guard(NotNull(__func__, call), [&]() -> Status {
    if (timeout_ms < 1 && timeout_ms != MV_NO_LIMIT) {
      return Status(
          Code::kValue,
          StrCat("timeout_ms: expected 1 or more, or -1 for no limit, received ", timeout_ms));
    }
    auto begun = std::make_unique<ExitDeadline>(call, LimitOf(timeout_ms));
    ExitDeadline* none = nullptr;
    if (!exit_deadline.compare_exchange_strong(none, begun.get())) {
      return Status(Code::kState, "another call has a deadline");
    }
    (void)begun.release();  // NOLINT: MV_ExitDeadlineEnd deletes it
    return Status::Ok();
  });
}

int32_t MV_ExitMeet(int64_t timeout_ms) {
  return Guard([&] { return MpiCommunicator::MeetAtExit(LimitOf(timeout_ms)); });
}

int32_t MV_ExitDeadlineEnd(void) {
  return Guard([] {
    delete exit_deadline.exchange(nullptr);  // NOLINT: as above
    return Status::Ok();
  });
}
