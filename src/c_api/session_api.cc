// The part of the C API for sessions: open, describe, close, and collective calls without tables.
#include <cstring>
#include <memory>
#include <string>
#include <utility>

#include "base/text.h"
#include "c_api/call_recording.h"
#include "c_api/guard.h"
#include "c_api/registry.h"
#include "multiverso/c_api.h"
#include "session/joining.h"
#include "session/session_opening.h"
#include "transport/mpi_communicator.h"
#include "transport/rank_claim.h"
#include "transport/single_transport.h"
#include "transport/socket_communicator.h"
#include "transport/startup_transport.h"

namespace multiverso::c_api {
namespace {

// Returns ValueError unless `value` is from `least` to `most`. `meanings` explains them.
Status CheckRange(const char* name, int64_t value, int64_t least, int64_t most,
                  const std::string& meanings) {
  if (value >= least && value <= most) return Status::Ok();
  return Status(Code::kValue, StrCat(name, ": expected ", meanings, ", received ", value));
}

constexpr int64_t kDefaultTimeoutMs = int64_t{30} * 60 * 1000;
constexpr int64_t kDefaultStartTimeoutMs = int64_t{120} * 1000;

Status CheckMilliseconds(const char* name, int64_t value, bool may_be_unlimited = true) {
  if (may_be_unlimited && value == MV_NO_LIMIT) return Status::Ok();
  constexpr int64_t kYear = int64_t{365} * 24 * 3600 * 1000;
  return CheckRange(name, value, 1, kYear,
                    StrCat("1 to ", kYear, may_be_unlimited ? ", or -1 for no limit" : ""));
}

std::chrono::milliseconds StartTimeoutOf(const MV_SessionOptions& options) {
  if (options.start_timeout_ms != 0) return LimitOf(options.start_timeout_ms);
  const bool is_default = options.timeout_ms == kDefaultTimeoutMs;
  return LimitOf(is_default ? kDefaultStartTimeoutMs : options.timeout_ms);
}

// An option that is one of a few numbers.
struct NumberedOption {
  const char* name;
  int32_t MV_SessionOptions::* value;
  int32_t first;
  int32_t last;
  const char* expected;
};

constexpr NumberedOption kNumberedOptions[] = {
    {"mode", &MV_SessionOptions::mode, MV_MODE_ASYNC, MV_MODE_STALE,
     "0 (async), 1 (sync) or 2 (stale)"},
    {"role", &MV_SessionOptions::role, MV_ROLE_ALL, MV_ROLE_SERVER,
     "0 (all), 1 (worker) or 2 (server)"},
    {"on_loss", &MV_SessionOptions::on_loss, MV_LOSS_FAILS, MV_LOSS_CONTINUES,
     "0 (fails) or 1 (continues)"},
    {"elastic", &MV_SessionOptions::elastic, 0, 1, "0 or 1"},
    {"max_workers", &MV_SessionOptions::max_workers, 0, INT32_MAX, "0 or more"},
    {"on_term", &MV_SessionOptions::on_term, MV_TERM_ENDS, MV_TERM_LEAVES,
     "0 (ends) or 1 (leaves)"},
    {"saves_at_end", &MV_SessionOptions::saves_at_end, 0, 1, "0 or 1"},
};

Status CheckOptions(const MV_SessionOptions* options, const MV_Session* session) {
  MV_RETURN_IF_NOT_OK(CheckStruct(options, "MV_SessionOptions"));
  if (session == nullptr) return Status(Code::kValue, "MV_SessionOpen: received null");
  for (const NumberedOption& option : kNumberedOptions) {
    MV_RETURN_IF_NOT_OK(CheckRange(option.name, options->*option.value, option.first, option.last,
                                   option.expected));
  }
  if (options->mode == MV_MODE_STALE) {
    MV_RETURN_IF_NOT_OK(CheckRange("staleness", options->staleness, 1, INT64_MAX, "at least 1"));
  }
  if (options->name != nullptr && std::strlen(options->name) >= sizeof(AgreedOptions::name)) {
    return Status(Code::kValue, StrCat("name: expected at most ", sizeof(AgreedOptions::name) - 1,
                                       " bytes, received '", options->name, "'"));
  }
  if (options->join != nullptr && options->elastic == 0) {
    return Status(Code::kValue, "join: expected elastic to be 1, received 0");
  }
  MV_RETURN_IF_NOT_OK(CheckMilliseconds("timeout_ms", options->timeout_ms));
  if (options->start_timeout_ms != 0) {
    MV_RETURN_IF_NOT_OK(CheckMilliseconds("start_timeout_ms", options->start_timeout_ms));
  }
  return CheckMilliseconds("peer_timeout_ms", options->peer_timeout_ms,
                           /*may_be_unlimited=*/false);
}

SessionOptions OptionsOf(const MV_SessionOptions& options) {
  SessionOptions wanted;
  wanted.role = static_cast<Role>(options.role);
  wanted.mode.mode = static_cast<Mode>(options.mode);
  if (options.mode == MV_MODE_STALE) wanted.mode.staleness = options.staleness;
  wanted.on_loss = static_cast<OnLoss>(options.on_loss);
  wanted.timeout = LimitOf(options.timeout_ms);
  wanted.start_timeout = StartTimeoutOf(options);
  wanted.peer_timeout = std::chrono::milliseconds(options.peer_timeout_ms);
  wanted.is_elastic = options.elastic != 0;
  wanted.saves_at_end = options.saves_at_end != 0;
  wanted.on_term = options.on_term;
  wanted.max_workers = options.max_workers;
  if (options.name != nullptr) CopyText(wanted.name, options.name);
  return wanted;
}

Result<std::unique_ptr<Transport>> OpenOver(Result<std::unique_ptr<Communicator>> communicator) {
  if (!communicator.ok()) return communicator.status();
  return StartupTransport::Open(std::move(communicator.value()));
}

Result<std::unique_ptr<Transport>> OpenTransport(const MV_SessionOptions& options) {
  switch (options.transport) {
    case MV_TRANSPORT_SINGLE:
      return std::unique_ptr<Transport>(std::make_unique<SingleTransport>());
    case MV_TRANSPORT_MPI:
      return OpenOver(MpiCommunicator::Open(options.mpi_path == nullptr ? "" : options.mpi_path,
                                            options.mpi_comm, StartTimeoutOf(options)));
    case MV_TRANSPORT_LOCAL:
      return OpenOver(
          SocketCommunicator::Open(LocalJob{options.job_name == nullptr ? "" : options.job_name,
                                            options.job_rank, options.job_size}));
    default:
      return Status(Code::kValue,
                    StrCat("transport: expected 0 (single), 1 (mpi) or 2 (local), received ",
                           options.transport));
  }
}

}  // namespace
}  // namespace multiverso::c_api

using namespace multiverso;         // NOLINT: this file is the C++ side of extern "C" functions
using namespace multiverso::c_api;  // NOLINT

int32_t MV_ClaimRank(int32_t opens, int32_t* launchers) {
  return Guard([&]() -> Status {
    if (launchers == nullptr || opens < 0 || opens > 1) {
      return Status(Code::kValue, StrCat("MV_ClaimRank: expected 0 or 1 and a result, received ",
                                         opens, launchers == nullptr ? " and null" : ""));
    }
    const int32_t own = ClaimRank();
    if (opens == 1) {
      MV_RETURN_IF_NOT_OK(WatchForks());
      MV_RETURN_IF_NOT_OK(CheckNotForked());
      MV_RETURN_IF_NOT_OK(HoldRank(own));
    }
    *launchers = own;
    return Status::Ok();
  });
}

int32_t MV_SessionOptionsInit(MV_SessionOptions* options) {
  return Guard(NotNull(__func__, options), [&] {
    *options = MV_SessionOptions{};
    options->struct_size = sizeof(MV_SessionOptions);
    options->timeout_ms = kDefaultTimeoutMs;
    options->peer_timeout_ms = 30000;
    return Status::Ok();
  });
}

int32_t MV_SessionOpen(const MV_SessionOptions* options, MV_Session* session) {
  return Guard([&]() -> Status {
    MV_RETURN_IF_NOT_OK(WatchForks());
    MV_RETURN_IF_NOT_OK(CheckNotForked());
    MV_RETURN_IF_NOT_OK(CheckNotInInterrupt());
    MV_RETURN_IF_NOT_OK(CheckOptions(options, session));
    const SessionOptions wanted = OptionsOf(*options);
    MV_RETURN_IF_NOT_OK(CheckSupported(wanted.features()));
    const SessionOpening opening;
    if (options->join != nullptr) {
      return RunCall([&](Interrupt* interrupt) -> Status {
        MV_ASSIGN_OR_RETURN(auto joined, JoinSession(wanted, options->join, interrupt));
        LeaveSessionsAtExit();
        return OpenHandle(std::move(joined), session);
      });
    }
    MV_ASSIGN_OR_RETURN(auto transport, OpenTransport(*options));
    return RunCall([&](Interrupt* interrupt) -> Status {
      auto opened = OpenSession(wanted, std::move(transport), interrupt);
      // All ranks get a MismatchError. After another error, ranks may wait for this one in MPI.
      const bool is_agreed = opened.ok() || opened.status().code() == Code::kMismatch;
      if (!HasLostRanks()) MpiCommunicator::SkipFinalizeAtExit(!is_agreed);
      if (!opened.ok()) return opened.status();
      const bool has_peers = options->transport != MV_TRANSPORT_SINGLE;
      if (has_peers || wanted.is_elastic) LeaveSessionsAtExit();
      const bool uses_mpi = options->transport == MV_TRANSPORT_MPI;
      return OpenHandle(std::move(opened.value()), session, uses_mpi);
    });
  });
}

int32_t MV_SessionDescribe(MV_Session session, MV_SessionDescription* description) {
  return OpenSessions().With(session, [&](SessionEntry* entry) -> Status {
    MV_RETURN_IF_NOT_OK(CheckStruct(description, "MV_SessionDescription"));
    const RankContext& context = *entry->session->context();
    const Membership& members = context.members();
    description->rank = members.rank();
    description->size = members.size();
    description->worker_id = members.worker_id();
    description->server_id = members.server_id();
    description->num_workers = members.num_workers();
    if (members.is_elastic()) {
      const auto ended = context.peers()->EndedRanks().size();
      description->num_workers -= static_cast<int64_t>(ended);
    }
    description->num_servers = members.num_servers();
    description->master_rank = context.peers()->CurrentMaster();
    description->node = members.node();
    description->num_nodes = members.num_nodes();
    description->local_rank = members.local_rank();
    description->local_size = members.num_ranks_here();
    return Status::Ok();
  });
}

int32_t MV_SessionLost(MV_Session session, int64_t* ranks, int64_t room, int64_t* count) {
  return OpenSessions().With(session, [&](SessionEntry* entry) -> Status {
    if (count == nullptr || room < 0 || (room > 0 && ranks == nullptr)) {
      return Status(Code::kValue, "MV_SessionLost: expected room for ranks, and a count");
    }
    // In an elastic session, the others also continue without ranks that have shut down.
    const std::vector<int> lost = entry->session->context()->peers()->EndedRanks();
    for (size_t i = 0; i < lost.size() && static_cast<int64_t>(i) < room; ++i) ranks[i] = lost[i];
    *count = static_cast<int64_t>(lost.size());
    return Status::Ok();
  });
}

int32_t MV_HasLostRanks(void) { return HasLostRanks() ? 1 : 0; }

int32_t MV_SessionFinish(MV_Session session) {
  return OpenSessions().With(session, [&](SessionEntry* entry, Interrupt* interrupt) -> Status {
    // An add in the background would otherwise come after the last round.
    MV_RETURN_IF_NOT_OK(FlushTables(entry, WaitLimit::Until(Instant::max(), interrupt)));
    entry->session->Finish();
    return Status::Ok();
  });
}

int32_t MV_SessionLeaving(MV_Session session, int32_t told, int32_t* leaving) {
  return OpenSessions().With(session, [&](SessionEntry* entry) -> Status {
    if (leaving == nullptr || told < 0 || told > 1) {
      return Status(Code::kValue,
                    StrCat("MV_SessionLeaving: expected 0 or 1 and a result, received ", told,
                           leaving == nullptr ? " and null" : ""));
    }
    if (entry->session->members().is_elastic()) {
      *leaving = MV_LEAVE_NOT_NOW;
      if (told == 0) return Status::Ok();
      entry->session->SayThatItLeaves();
      *leaving = entry->session->IsLastToLeave() ? MV_LEAVE_LAST : MV_LEAVE_NOW;
      return Status::Ok();
    }
    SessionState* const state = entry->session->context()->state();
    if (told != 0) state->AnnounceLeaving();
    *leaving = state->IsLeaving() ? 1 : 0;
    return Status::Ok();
  });
}

int32_t MV_SessionAgreeToLeave(MV_Session session, int32_t when, int64_t* step, int32_t* outcome) {
  return Guard([&]() -> Status {
    if (step == nullptr || outcome == nullptr || when < MV_AT_STEP || when > MV_AT_FAILURE) {
      return Status(
          Code::kValue,
          StrCat("MV_SessionAgreeToLeave: expected 0 to 2, a step and a result, received ", when,
                 step == nullptr || outcome == nullptr ? " and null" : ""));
    }
    return RunCollective(
        session, CallKind::kLeaving, 0, [&](SessionEntry* entry, Interrupt* interrupt) -> Status {
          MV_ASSIGN_OR_RETURN(*outcome, entry->session->AgreeToLeave(when, step, interrupt));
          return Status::Ok();
        });
  });
}

int32_t MV_SessionClose(MV_Session session) {
  return Guard([&]() -> Status {
    MV_RETURN_IF_NOT_OK(CheckNotInInterrupt());
    Status failure;
    Status status;
    {
      MV_ASSIGN_OR_RETURN(const SessionUse use, OpenSessions().UsingOpen(session));
      // An earlier call may have closed the session, but not its handle.
      if (!use->is_closed.load()) {
        CallGuard guard(&use->in_collective_call);
        MV_RETURN_IF_NOT_OK(guard.Check("session"));
        FlightRecorder::Entry* const record = RecordCall(*use.get(), CallKind::kClose);
        status = RunCall([&](Interrupt* interrupt) {
          failure = FlushTables(use.get(), WaitLimit::Until(Instant::max(), interrupt));
          if (!HasBackgroundCalls(*use.get())) return use->session->Close(interrupt);
          // The wait has failed. The other ranks must not wait for a rank whose calls are stuck.
          LeaveSession(use.get(), failure.text());
          return failure;
        });
        record->End(status.code());
        RecordLosses(*use.get());
        use->is_closed.store(true);
        guard.Keep();  // No other collective call follows.
      }
    }
    // CloseHandle waits until no call uses the handle.
    const Status withdrawn = CloseHandle(session);
    if (!status.ok()) return status;
    return withdrawn.ok() ? failure : withdrawn;
  });
}

int32_t MV_SessionSetTimeout(MV_Session session, int64_t timeout_ms) {
  return OpenSessions().With(session, [&](SessionEntry* entry) -> Status {
    MV_RETURN_IF_NOT_OK(CheckMilliseconds("timeout_ms", timeout_ms));
    entry->session->set_timeout(LimitOf(timeout_ms));
    return Status::Ok();
  });
}

int32_t MV_SessionLeave(MV_Session session, const char* reason) {
  return Guard([&]() -> Status {
    MV_RETURN_IF_NOT_OK(CheckNotInInterrupt());
    {
      MV_ASSIGN_OR_RETURN(const SessionUse use, OpenSessions().UsingOpen(session));
      LeaveSession(use.get(), reason == nullptr ? "left" : reason);
      // The remaining ranks continue without this rank, and MPI_Finalize would wait for them.
      RecordLosses(*use.get());
    }
    return CloseHandle(session);
  });
}
