#include "group/control_channel.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/log.h"
#include "base/text.h"
#include "group/muster.h"
#include "group/node_group.h"

namespace multiverso {
namespace {

constexpr uint32_t kMagic = 0x4d564e57;
enum NewsKind : uint32_t { kAborted = 1, kGone = 2, kWhoIsLate = 3, kAlive = 4, kMuster = 5 };

// How often the ranks of this node are looked after.
constexpr auto kLookAfter = std::chrono::milliseconds(200);
// How long a message about a loss may take to be sent; its receivers are polling.
constexpr auto kPassOnWithin = std::chrono::milliseconds(200);
// How long a node has to say who is late.
constexpr auto kAnswerWithin = std::chrono::seconds(1);

// The answer to kWhoIsLate, before the ranks.
struct Answered {
  uint32_t magic;
  int32_t node;
  int32_t circle;
  int32_t count;
  uint64_t meeting;
};

}  // namespace

// Travels as bytes.
struct ControlChannel::ControlMessage {
  uint32_t magic = kMagic;
  uint32_t kind = 0;
  int32_t sender = 0;
  int32_t rank = 0;    // whom it is about; kAborted: or -1
  int32_t code = 0;    // kAborted: why; kGone: a RankSlot::State; kAlive: whether for the last time
  int32_t circle = 0;  // kWhoIsLate, kMuster
  uint64_t meeting = 0;
  uint64_t arrivals[kGroups] = {};  // kGone: at how many meetings the rank had arrived
  char text[512] = {};
};

ControlChannel::ControlChannel(std::unique_ptr<Messenger> messenger, NodeGroup* group)
    : messenger_(std::move(messenger)),
      group_(group),
      numbers_(group->num_nodes()),
      known_dead_(static_cast<size_t>(group->members().size()), false) {
  for (int node = 0; node < group->num_nodes(); ++node) {
    service_ranks_.push_back(group->members().service_ranks(node));
  }
}

bool ControlChannel::Poll() {
  const std::unique_lock<std::mutex> guard(polling_, std::try_to_lock);
  if (!guard.owns_lock()) return false;
  polling_since_.store(NanosecondsNow(), std::memory_order_relaxed);
  const bool any = ReceiveAndCheck();
  polling_since_.store(0, std::memory_order_relaxed);
  return any;
}

bool ControlChannel::ReceiveAndCheck() {
  bool any = false;
  messenger_->Advance();
  const Status taken = failure_.is_set() ? failure_.Get() : failure_.Filter(ReceiveAll(&any));
  // Of a loss those who wait learn by the name of who has gone.
  if (!taken.ok() && !taken.pending() && !(MayMeanLoss(taken) && AnyLost())) {
    group_->RecordAbort(group_->rank(), taken);
    return any;
  }
  CheckNodePeers();
  SendHeartbeatIfDue();
  return any;
}

void ControlChannel::WarnIfStuck() {
  const int64_t since = polling_since_.load(std::memory_order_relaxed);
  // A rank that was stopped in the middle of it did not wait for MPI.
  const int64_t waits_since = std::max(since, group_->failure_detector()->moving_since());
  const int64_t stuck = since == 0 ? 0 : NanosecondsNow() - waits_since;
  if (stuck < group_->failure_detector()->warns_after().count() || said_stuck_.exchange(true))
    return;
  LogWarning(StrCat(group_->members().NameRank(group_->rank()), " has been in a call of MPI for ",
                    static_cast<double>(stuck) * 1e-9,
                    " s that should have returned at once: MPI may wait for a rank that was killed "
                    "while it sent something, and then only the end of this process ends that"));
}

Status ControlChannel::ReceiveAll(bool* any) {
  for (;;) {
    std::string bytes;
    bool got = false;
    MV_RETURN_IF_NOT_OK(
        messenger_->Take(Messenger::kAnyRank, kNewsTag, sizeof(ControlMessage), &bytes, &got));
    if (!got) return Status::Ok();
    ControlMessage news;
    if (bytes.size() == sizeof(news)) std::memcpy(&news, bytes.data(), sizeof(news));
    const int size = group_->members().size();
    const bool sound = bytes.size() == sizeof(news) && news.magic == kMagic && news.sender >= 0 &&
                       news.sender < size && !group_->is_local(news.sender) &&
                       news.rank >= (news.kind == kAborted ? -1 : 0) && news.rank < size &&
                       news.circle >= 0 && news.circle < kGroups;
    if (!sound) {
      Drop("news", -1);
      continue;
    }
    news.text[sizeof(news.text) - 1] = '\0';
    Handle(news);
    *any = true;
  }
}

bool ControlChannel::AnyLost() const {
  const int ranks = group_->members().size();
  for (int rank = 0; rank < ranks; ++rank) {
    if (rank != group_->rank() && !group_->peers()->ExitReason(rank).empty()) return true;
  }
  return false;
}

void ControlChannel::Handle(const ControlMessage& news) {
  switch (news.kind) {
    case kAborted:
      if (news.code < 0) {
        const Status why(static_cast<Code>(news.code), news.text);
        group_->RecordAbort(news.sender,
                            news.rank < 0 ? why : group_->peers()->About(news.rank, why));
        return;
      }
      break;
    case kGone:
      if (!group_->is_local(news.rank) &&
          (news.code == RankSlot::kLeft || news.code == RankSlot::kDied)) {
        group_->peers()->RecordExit(news.rank, static_cast<RankSlot::State>(news.code), news.text,
                                    news.arrivals);
        return;
      }
      break;
    case kWhoIsLate:
      Answer(news);
      return;
    case kMuster: {
      std::string bytes;
      if (news.circle >= kSpanningCircles) break;
      // If they have not all come, their leader will tell when they have.
      if (PackMuster(*group_, news.circle, news.meeting, &bytes)) {
        (void)messenger_->Post(news.sender, kMeetingTag + news.circle, std::move(bytes));
      }
      return;
    }
    case kAlive:
      group_->failure_detector()->RecordHeartbeat(group_->members().node_of(news.sender),
                                                  news.code != 0);
      return;
    default:
      break;
  }
  Drop("news", news.sender);
}

void ControlChannel::Answer(const ControlMessage& question) {
  std::vector<int32_t> late;
  const Membership& members = group_->members();
  for (const int rank : members.node_ranks()) {
    if (question.circle == 1 && !members.is_worker(rank)) continue;
    const auto& arrivals = group_->slot(rank).circle[question.circle].arrivals;
    if (arrivals.load(std::memory_order_acquire) < question.meeting) late.push_back(rank);
  }
  const Answered answered{kMagic, members.node(), question.circle,
                          static_cast<int32_t>(late.size()), question.meeting};
  std::string bytes(reinterpret_cast<const char*>(&answered), sizeof(answered));
  bytes.append(reinterpret_cast<const char*>(late.data()), late.size() * sizeof(late[0]));
  (void)messenger_->Post(question.sender, kAnswerTag, std::move(bytes));
}

void ControlChannel::SendToOtherNodes(const ControlMessage& news) {
  const std::string bytes(reinterpret_cast<const char*>(&news), sizeof(news));
  for (int node = 0; node < group_->num_nodes(); ++node) {
    if (node == group_->members().node()) continue;
    for (const int rank : service_ranks_[static_cast<size_t>(node)]) {
      // Who cannot be told has a deadline of its own.
      (void)messenger_->Post(rank, kNewsTag, bytes);
    }
  }
}

void ControlChannel::SendAbort(const Status& why) {
  ControlMessage news;
  news.kind = kAborted;
  news.sender = group_->rank();
  news.rank = why.peer() == nullptr ? -1 : why.peer()->rank;
  news.code = static_cast<int32_t>(why.code());
  CopyText(news.text, why.text());
  SendToOtherNodes(news);
  messenger_->AwaitPosted(Clock::now() + kPassOnWithin);
}

ControlChannel::ControlMessage ControlChannel::ExitMessage(int rank, RankSlot::State state,
                                                           const std::string& reason) const {
  ControlMessage news;
  news.kind = kGone;
  news.sender = group_->rank();
  news.rank = rank;
  news.code = static_cast<int32_t>(state);
  for (int i = 0; i < kGroups; ++i) {
    news.arrivals[i] = group_->slot(rank).circle[i].arrivals.load(std::memory_order_acquire);
  }
  CopyText(news.text, reason);
  return news;
}

void ControlChannel::SendExit(int rank, RankSlot::State state, const std::string& reason) {
  SendToOtherNodes(ExitMessage(rank, state, reason));
}

void ControlChannel::SendDeath(int rank, const std::string& how) {
  const ControlMessage news = ExitMessage(rank, RankSlot::kDied, how);
  const std::string bytes(reinterpret_cast<const char*>(&news), sizeof(news));
  const Membership& members = group_->members();
  for (int node = 0; node < group_->num_nodes(); ++node) {
    if (node == members.node() || node == members.node_of(rank)) continue;
    (void)messenger_->Post(ServiceRankOf(node), kNewsTag, bytes);
  }
  messenger_->AwaitPosted(Clock::now() + kPassOnWithin);
}

void ControlChannel::CheckNodePeers() {
  const Instant now = Clock::now();
  if (now < looked_ + kLookAfter) return;
  looked_ = now;
  const Membership& members = group_->members();
  // One of the node does it: the first that is there.
  if (ServiceRankOf(members.node()) != group_->rank()) return;
  SendDeaths();
}

void ControlChannel::SendLosses() {
  {
    const std::lock_guard<std::mutex> guard(polling_);
    SendDeaths();
  }
  messenger_->AwaitPosted(Clock::now() + kPassOnWithin);
}

void ControlChannel::SendDeaths() {
  const Membership& members = group_->members();
  for (const int rank : members.node_ranks()) {
    if (known_dead_[static_cast<size_t>(rank)] || rank == group_->rank()) continue;
    if (members.survives_losses()) {
      SendIfLost(rank);
      continue;
    }
    if (group_->slot(rank).state.load(std::memory_order_acquire) != RankSlot::kHere) continue;
    const std::string gone = group_->peers()->ExitReason(rank);
    // A rank that left has told everybody itself.
    if (gone.empty() || group_->slot(rank).state.load() != RankSlot::kHere) continue;
    known_dead_[static_cast<size_t>(rank)] = true;
    SendExit(rank, RankSlot::kDied, gone);
  }
}

void ControlChannel::SendIfLost(int rank) {
  const std::string gone = group_->peers()->ExitReason(rank);
  if (gone.empty()) return;
  group_->peers()->Exclude(rank, gone);
  if (!group_->peers()->IsExcluded(rank)) return;
  known_dead_[static_cast<size_t>(rank)] = true;
  // One that left has told everybody itself, but may have ended before that was sent.
  const RankSlot& peer = group_->slot(rank);
  const bool left = peer.state.load() == RankSlot::kLeft;
  SendExit(rank, left ? RankSlot::kLeft : RankSlot::kDied, left ? peer.reason : gone);
}

void ControlChannel::SendHeartbeatIfDue() {
  const Instant now = Clock::now();
  if (said_goodbye_ || now < gave_sign_ + group_->failure_detector()->interval()) return;
  gave_sign_ = now;
  SendHeartbeat(/*is_last=*/false);
}

void ControlChannel::AnnounceClose() {
  const std::lock_guard<std::mutex> guard(polling_);
  said_goodbye_ = true;
  SendHeartbeat(/*is_last=*/true);
}

void ControlChannel::SendHeartbeat(bool is_last) {
  if (ServiceRankOf(group_->members().node()) != group_->rank()) return;
  ControlMessage news;
  news.kind = kAlive;
  news.sender = group_->rank();
  news.rank = group_->rank();
  news.code = is_last ? 1 : 0;
  SendToOtherNodes(news);
}

int ControlChannel::ServiceRankOf(int node) const {
  const std::vector<int>& ranks = service_ranks_[static_cast<size_t>(node)];
  for (const int rank : ranks) {
    if (group_->peers()->ExitReason(rank).empty()) return rank;
  }
  return ranks.front();
}

void ControlChannel::AskForMuster(int node, int circle, uint64_t meeting) {
  ControlMessage news;
  news.kind = kMuster;
  news.sender = group_->rank();
  news.rank = group_->rank();
  news.circle = circle;
  news.meeting = meeting;
  (void)messenger_->Post(ServiceRankOf(node), kNewsTag,
                         std::string(reinterpret_cast<const char*>(&news), sizeof(news)));
}

LateInquiry ControlChannel::RequestLateRanks(int circle, uint64_t meeting) {
  LateInquiry inquiry;
  inquiry.until = Clock::now() + kAnswerWithin;
  ControlMessage news;
  news.kind = kWhoIsLate;
  news.sender = group_->rank();
  news.rank = group_->rank();
  news.circle = circle;
  news.meeting = meeting;
  const std::string bytes(reinterpret_cast<const char*>(&news), sizeof(news));
  for (int node = 0; node < group_->num_nodes(); ++node) {
    if (node == group_->members().node()) continue;
    inquiry.silent_nodes.push_back(node);
    (void)messenger_->Post(ServiceRankOf(node), kNewsTag, bytes);
  }
  return inquiry;
}

bool ControlChannel::CollectAnswers(int circle, uint64_t meeting, LateInquiry* inquiry) {
  const Membership& members = group_->members();
  const auto most = static_cast<int64_t>(sizeof(Answered)) + members.size() * int64_t{4};
  messenger_->Advance();
  for (bool got = true; got;) {
    std::string bytes;
    if (!messenger_->Take(Messenger::kAnyRank, kAnswerTag, most, &bytes, &got).ok() || !got) break;
    Answered answered{};
    if (bytes.size() < sizeof(answered)) continue;
    std::memcpy(&answered, bytes.data(), sizeof(answered));
    const size_t ranks = (bytes.size() - sizeof(answered)) / sizeof(int32_t);
    const auto silent =
        std::find(inquiry->silent_nodes.begin(), inquiry->silent_nodes.end(), answered.node);
    // Others are answers to an earlier question.
    if (answered.magic != kMagic || answered.circle != circle || answered.meeting != meeting ||
        answered.count != static_cast<int64_t>(ranks) || silent == inquiry->silent_nodes.end()) {
      continue;
    }
    inquiry->silent_nodes.erase(silent);
    for (size_t i = 0; i < ranks; ++i) {
      int32_t rank = 0;
      std::memcpy(&rank, bytes.data() + sizeof(answered) + i * sizeof(rank), sizeof(rank));
      if (rank >= 0 && rank < members.size()) inquiry->late_ranks.push_back(rank);
    }
  }
  return inquiry->silent_nodes.empty();
}

void ControlChannel::Drop(const char* what, int from) {
  if (dropped_.fetch_add(1, std::memory_order_relaxed) > 0) return;
  LogWarning(StrCat("rank ", group_->rank(), " dropped a message that is not ", what, " of ",
                    from < 0 ? std::string("another rank") : StrCat("rank ", from),
                    "; further ones are counted and not logged"));
}

}  // namespace multiverso
