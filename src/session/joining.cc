#include "session/joining.h"

#include <algorithm>
#include <cstdlib>
#include <optional>
#include <utility>

#include "base/text.h"
#include "base/version.h"
#include "group/collective_call.h"
#include "group/join_lock.h"
#include "node/find_sessions.h"
#include "session/heartbeat.h"
#include "transport/single_transport.h"

namespace multiverso {
namespace {

// Returns the number in a text of digits, or 0.
int64_t NumberIn(const std::string& text) {
  const bool is_number = !text.empty() && text.find_first_not_of("0123456789") == std::string::npos;
  return is_number ? std::strtoll(text.c_str(), nullptr, 10) : 0;
}

class Joining {
 public:
  Joining(const SessionOptions& options, std::string name_or_pid)
      : options_(options), name_or_pid_(std::move(name_or_pid)) {}

  Result<std::unique_ptr<Session>> Run(Interrupt* interrupt);

 private:
  NodeControl* control() const { return session_->control(); }
  Status FindSession();
  Status CheckOptions() const;
  // Takes the next rank. The caller holds the lock.
  Status TakeRank();

  SessionOptions options_;
  std::string name_or_pid_;
  std::optional<FoundSession> session_;
  Membership members_;
  std::unique_ptr<RankContext> context_;
  std::unique_ptr<Heartbeat> heartbeat_;
};

Status Joining::FindSession() {
  const int64_t pid = NumberIn(name_or_pid_);
  std::string others;  // the sessions that exist
  bool is_fixed = false;
  for (FoundSession& found : FindSessions(pid, /*is_writable=*/true)) {
    const bool is_wanted = pid > 0 || found.name() == name_or_pid_;
    const bool is_alive = found.CountAlive() > 0;
    if (is_wanted && found.is_elastic() && is_alive) {
      session_ = std::move(found);
      return Status::Ok();
    }
    is_fixed = is_fixed || (is_wanted && !found.is_elastic());
    const std::string quoted = StrCat("'", found.name(), "'");
    if (!found.name().empty() && is_alive && others.find(quoted) == std::string::npos) {
      others += StrCat(others.empty() ? "" : ", ", quoted);
    }
  }
  if (is_fixed) {
    return Status(Code::kState, StrCat("the session of '", name_or_pid_,
                                       "' is not elastic: its ranks pass elastic=True to "
                                       "multiverso.init"));
  }
  return Status(Code::kState,
                StrCat("expected the name of an elastic session of this user on this machine, or "
                       "the process id of one of its ranks, received '",
                       name_or_pid_, "'; the sessions here: ", others.empty() ? "none" : others));
}

Status Joining::CheckOptions() const {
  const NodeControl& session = *control();
  const std::string version = TextOf(session.version);
  if (version != kVersion) {
    return Status(Code::kMismatch,
                  StrCat("the ranks differ in the version of Multiverso: the session has ", version,
                         ", this rank, which joins it, has ", kVersion));
  }
  // The other options of a joiner are its own, or follow from those of the session.
  AgreedOptions mine = session.options;
  mine.mode = options_.mode;
  mine.timeout = options_.timeout;
  mine.peer_timeout = options_.peer_timeout;
  if (options_.name[0] != '\0') CopyText(mine.name, options_.name);
  return session.options.Compare("the session", mine, "this rank, which joins it,");
}

Status Joining::TakeRank() {
  NodeControl* const session = control();
  if (session->abort.load(std::memory_order_acquire) == NodeControl::kSet) {
    return Status(Code::kState,
                  StrCat("the session has been aborted: ", TextOf(session->abort_reason)));
  }
  const int active = session_->CountAlive();
  if (active == 0)
    return Status(Code::kState, StrCat("the session '", name_or_pid_, "' has ended"));
  if (session->options.max_workers > 0 && active >= session->options.max_workers) {
    return Status(Code::kState, StrCat("the session '", TextOf(session->options.name),
                                       "' has no free place: it has ", active,
                                       " workers, the most that it may have"));
  }
  const int rank = session->joined.count();
  if (rank >= session->num_ranks) {
    return Status(Code::kState,
                  StrCat("the session '", TextOf(session->options.name),
                         "' has no free place: ", rank, " ranks have joined it since it began"));
  }
  ElasticSession facts;
  facts.version = kVersion;
  facts.options = session->options;
  facts.session = session->session;
  facts.host = TextOf(session->host);
  facts.initial_size = session->initial_size;
  facts.joined = &session->joined;
  members_ = Membership::OfJoiner(facts, rank);
  MV_ASSIGN_OR_RETURN(context_, RankContext::Join(std::move(*session_->segment()), members_));
  MV_ASSIGN_OR_RETURN(heartbeat_, Heartbeat::Start(context_.get()));
  // From now on the others see this rank.
  if (session->joined.Add(rank)) return Status::Ok();
  return Status(Code::kState, StrCat("the session '", name_or_pid_,
                                     "' ends, because its last worker was told to end"));
}

Result<std::unique_ptr<Session>> Joining::Run(Interrupt* interrupt) {
  const WaitLimit limit = WaitLimit::Until(Clock::now() + options_.start_timeout, interrupt);
  MV_RETURN_IF_NOT_OK(FindSession());
  MV_RETURN_IF_NOT_OK(CheckOptions());
  {
    JoinLock lock(session_->segment()->fd(), *control());
    MV_RETURN_IF_NOT_OK(lock.TakeUnless([] { return false; }, limit));
    const Status taken = TakeRank();
    if (!taken.ok()) {
      // The next process to get the lock may take this rank, whose presence ends here.
      heartbeat_.reset();
      context_.reset();
    }
    // The end of the mapping has ended all marks.
    if (!session_->segment()->is_mapped() && context_ == nullptr) lock.Forget();
    MV_RETURN_IF_NOT_OK(taken);
  }
  const Status opened = CollectiveCall::AwaitOthers(context_.get(), limit);
  if (!opened.ok()) {
    context_->state()->Leave("could not join");
    return opened;
  }
  auto session =
      std::make_unique<Session>(options_, std::make_unique<SingleTransport>(), std::move(members_),
                                std::move(context_), nullptr, std::move(heartbeat_));
  session->FindEarlierTables();
  return session;
}

}  // namespace

Result<std::unique_ptr<Session>> JoinSession(const SessionOptions& options,
                                             const std::string& name_or_pid, Interrupt* interrupt) {
  return Joining(options, name_or_pid).Run(interrupt);
}

}  // namespace multiverso
