#include "group/rank_context.h"

#include <utility>
#include <vector>

#include "base/text.h"
#include "memory/presence.h"

namespace multiverso {
namespace {

std::vector<int> AllRanks(const Membership& members) {
  std::vector<int> ranks;
  for (int rank = 0; rank < members.initial_size(); ++rank) ranks.push_back(rank);
  return ranks;
}

}  // namespace

Result<std::unique_ptr<RankContext>> RankContext::Join(
    Segment control, const Membership& members, std::unique_ptr<Messenger> messenger,
    std::unique_ptr<PeerConnections> connections) {
  const int64_t expected =
      NodeMemory::ControlBytes(members) +
      NodeMemory::ScratchBytes(static_cast<int>(members.node_ranks().size()), members.num_nodes());
  if (control.bytes() < expected) {
    return Status(Code::kInternal, StrCat("control segment: expected at least ", expected,
                                          " bytes, received ", control.bytes()));
  }
  if (control.fd() >= 0) MV_RETURN_IF_NOT_OK(MarkPresent(control.fd(), members.local_rank()));
  return std::unique_ptr<RankContext>(
      new RankContext(std::move(control), members, std::move(messenger), std::move(connections)));
}

RankContext::RankContext(Segment control, const Membership& members,
                         std::unique_ptr<Messenger> messenger,
                         std::unique_ptr<PeerConnections> connections)
    : members_(members),
      memory_(std::move(control), &members_),
      failure_detector_(memory_.control(), &members_),
      peers_(&memory_, &members_, &failure_detector_),
      connections_(std::move(connections)),
      control_channel_(OpenChannel(std::move(messenger))),
      state_(&members_, &memory_, &peers_, control_channel_.get(), connections_.get()),
      world_(MakeGroup(kWorldGroup, AllRanks(members))) {
  std::vector<int> workers;
  std::vector<int> workers_here;
  for (const int rank : world_.members()) {
    if (!members_.is_worker(rank)) continue;
    workers.push_back(rank);
    if (members_.is_local(rank)) workers_here.push_back(rank);
  }
  if (members_.num_workers() < members_.size()) workers_.emplace(MakeGroup(kWorkerGroup, workers));
  node_workers_.emplace(MakeGroup(kNodeWorkerGroup, workers_here));
  memory_.Join();
}

RankContext::~RankContext() {
  state_.Leave("left without calling shutdown");
  if (control_channel_ == nullptr) return;
  Messenger* const messenger = control_channel_->messenger();
  const uint32_t state = memory_.own_slot().state.load(std::memory_order_relaxed);
  if (state == RankSlot::kClosed) messenger->Close();
  // The receivers of the last messages are polling, so the wait is short.
  messenger->Drain(Clock::now() + std::chrono::seconds(1));
}

std::unique_ptr<ControlChannel> RankContext::OpenChannel(std::unique_ptr<Messenger> messenger) {
  if (messenger == nullptr) return nullptr;
  messenger->RefuseIf([this](int other, int tag) {
    const uint32_t state = memory_.slot(other).state.load(std::memory_order_relaxed);
    // A silent rank may run again. It must then learn that it counts as lost, and, because the rank
    // that tells it may die before the message is sent, which calls have ended.
    const bool must_learn =
        (peers_.WasFoundSilentHere(other) && memory_.slot(other).was_told.load() == 0) ||
        (peers_.IsExcludedForSilence(other) && tag == kEndTag);
    const bool has_died = state == RankSlot::kDied && !must_learn;
    return has_died || (connections_ != nullptr && connections_->HasEnded(other));
  });
  return std::make_unique<ControlChannel>(std::move(messenger), &members_, &memory_,
                                          &failure_detector_, &peers_);
}

Group RankContext::MakeGroup(GroupIndex index, std::vector<int> ranks) {
  return Group(index, std::move(ranks), &members_, &memory_, &peers_, &state_,
               control_channel_.get());
}

}  // namespace multiverso
