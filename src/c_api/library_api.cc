// The part of the C API that describes the library and the last error, and controls waits.
#include <atomic>
#include <memory>
#include <string>

#include "base/exit_deadline.h"
#include "base/json.h"
#include "base/process.h"
#include "base/text.h"
#include "c_api/guard.h"
#include "c_api/waiting.h"
#include "memory/limits.h"
#include "multiverso/c_api.h"
#include "session/version.h"
#include "shard/kernels.h"
#include "transport/mpi_communicator.h"

namespace {

using multiverso::Code;
using multiverso::ExitDeadline;
using multiverso::Status;
using multiverso::c_api::Guard;
using multiverso::c_api::LimitOf;
using multiverso::c_api::NotNull;

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

const char* MV_VersionString(void) { return multiverso::kVersion; }

const char* MV_BuildInfo(void) {
  static const std::string info = multiverso::JsonObject()
                                      .Add("version", multiverso::kVersion)
                                      .Add("abi", MV_ABI_VERSION)
                                      .Add("compiler", kCompiler)
                                      .Add("build_type", kBuildType)
                                      .Add("platform", multiverso::PlatformName())
                                      .Add("vector_kernels", multiverso::kernels::VectorVersion())
                                      .Take()
                                      .text;
  return info.c_str();
}

int32_t MV_CheckIsFree(int64_t bytes, const char* what) {
  return Guard([&]() -> Status {
    if (bytes < 0 || what == nullptr) {
      return Status(Code::kValue, "MV_CheckIsFree: expected a number of bytes, and a text");
    }
    return multiverso::CheckIsFree(bytes).In(what);
  });
}

const char* MV_StatusName(int32_t status) {
  const auto code = static_cast<Code>(status);
  return code == Code::kPending ? "unknown" : multiverso::NameOf(code);
}

int32_t MV_LastErrorFile(MV_FileError* error) {
  // This function does without Guard, which would overwrite the error.
  if (error == nullptr || error->struct_size != sizeof(MV_FileError)) return MV_ERR_VALUE;
  const multiverso::FileFault& file = multiverso::c_api::LastFile();
  error->error_number = file.error_number;
  error->reserved = 0;
  error->position = file.position;
  error->path = file.path.empty() ? nullptr : file.path.c_str();
  return MV_OK;
}

int32_t MV_LastErrorPeer(MV_PeerError* error) {
  if (error == nullptr || error->struct_size != sizeof(MV_PeerError)) return MV_ERR_VALUE;
  const multiverso::PeerFault& peer = multiverso::c_api::LastPeer();
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

const char* MV_LastError(void) { return multiverso::c_api::LastError(); }

int32_t MV_SetInterrupt(MV_InterruptCheck check, void* argument) {
  multiverso::c_api::SetInterrupt(check, argument);
  return MV_OK;
}

int32_t MV_SetDefaultInterrupt(MV_InterruptCheck check, void* argument) {
  return Guard([&] { return multiverso::c_api::SetDefaultInterrupt(check, argument); });
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
          multiverso::StrCat("timeout_ms: expected 1 or more, or -1 for no limit, received ",
                             timeout_ms));
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
  return Guard([&] { return multiverso::MpiCommunicator::MeetAtExit(LimitOf(timeout_ms)); });
}

int32_t MV_ExitDeadlineEnd(void) {
  return Guard([] {
    delete exit_deadline.exchange(nullptr);  // NOLINT: as above
    return Status::Ok();
  });
}
