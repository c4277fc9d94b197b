#include "consistency/relay_aggregation.h"

#include <algorithm>
#include <cstring>
#include <thread>
#include <type_traits>

#include "base/text.h"
#include "consistency/aggregate_call.h"
#include "memory/futex.h"
#include "shard/kernels.h"
#include "transport/transport.h"

namespace multiverso {
namespace {

constexpr uint32_t kMagic = 0x4d565253;
constexpr auto kCheckInterval = std::chrono::milliseconds(50);
constexpr auto kLongestNap = std::chrono::milliseconds(2);
// A leader polls for this long before it sleeps, because a short wait takes about as long.
constexpr std::chrono::microseconds kEager{1000};

// The header of a message, before the values.
struct Header {
  uint32_t magic;
  uint32_t unused;
  uint64_t sequence;
  int64_t chunk;
};

}  // namespace

RelayAggregation::RelayAggregation(RankContext* context, DType dtype, void* data, int64_t count)
    : context_(context),
      dtype_(dtype),
      data_(static_cast<char*>(data)),
      count_(count),
      in_chunk_(NodeMemory::kScratchAreaBytes / SizeOf(dtype)),
      chunks_((count + in_chunk_ - 1) / in_chunk_),
      began_(Clock::now()),
      backoff_(kLongestNap) {}

Status RelayAggregation::Run(const WaitLimit& limit) {
  Group* const workers = context_->workers();
  AggregateCall{count_, static_cast<int32_t>(dtype_), 0, 0}.Announce(workers);
  MV_RETURN_IF_NOT_OK(workers->Wait(limit));
  MV_RETURN_IF_NOT_OK(AggregateCall::CheckSame(*workers));
  ChooseRanks();
  for (; chunk_ < chunks_ && lost_ < 0; ++chunk_) MV_RETURN_IF_NOT_OK(SumChunk(limit));
  workers->BeginAllgather(CollectiveKind::kAggregate, &lost_, sizeof(lost_));
  MV_RETURN_IF_NOT_OK(workers->Wait(limit));
  return Vote();
}

Status RelayAggregation::SumChunk(const WaitLimit& limit) {
  Group* const here = context_->node_workers();
  const auto bytes = static_cast<size_t>(Bytes(ChunkCount()));
  char* const mine = data_ + Bytes(ChunkBegin());
  has_passed_on_ = false;
  std::memcpy(scratch(context_->members().rank()), mine, bytes);
  here->BeginAllgather(CollectiveKind::kAggregate);
  MV_RETURN_IF_NOT_OK(here->Wait(limit));
  CheckNodeWorkers();
  if (lost_ < 0 && is_leader()) MV_RETURN_IF_NOT_OK(SumAsLeader(limit));
  here->BeginAllgather(CollectiveKind::kAggregate, &lost_, sizeof(lost_));
  MV_RETURN_IF_NOT_OK(here->Wait(limit));
  CheckNodeWorkers();
  const int leader = ranks_here_.front();
  if (lost_ < 0) lost_ = here->payload(leader).Read<int>();
  if (lost_ < 0) std::memcpy(mine, scratch(leader), bytes);
  return Status::Ok();
}

void RelayAggregation::ChooseRanks() {
  const Membership& members = context_->members();
  ranks_ = context_->workers()->participants();
  sequence_ = context_->workers()->sequence();
  std::vector<bool> is_led(static_cast<size_t>(members.num_nodes()), false);
  for (const int rank : ranks_) {
    const int node = members.node_of(rank);
    if (node == members.node()) ranks_here_.push_back(rank);
    if (is_led[static_cast<size_t>(node)]) continue;
    is_led[static_cast<size_t>(node)] = true;
    if (node == members.node()) place_ = leaders_.size();
    leaders_.push_back(rank);
  }
}

void RelayAggregation::CheckNodeWorkers() {
  const std::vector<int> present = context_->node_workers()->participants();
  for (const int rank : ranks_here_) {
    if (lost_ >= 0 || std::find(present.begin(), present.end(), rank) != present.end()) continue;
    lost_ = rank;
  }
}

Status RelayAggregation::Vote() const {
  for (const int rank : context_->workers()->participants()) {
    const int lost = context_->workers()->payload(rank).Read<int>();
    if (lost < 0) continue;
    // The control message about the loss may still be in flight.
    const std::string reason = context_->peers()->ExitReason(lost);
    return context_->peers()->About(
        lost,
        Status(Code::kPeerLost,
               StrCat(context_->members().NameRank(lost), " ", reason.empty() ? "was lost" : reason,
                      " in the middle of aggregate: a part of the array has been summed")));
  }
  return Status::Ok();
}

// ---- The leader ---------------------------------------------------------------------------------

Status RelayAggregation::SumAsLeader(const WaitLimit& limit) {
  Instant next_check = Clock::now() + kCheckInterval;
  for (;;) {
    bool done = false;
    const Status exchanged = Exchange(&done);
    // A failure that may mean a loss is ignored, because the check below finds the lost rank.
    if (!exchanged.ok() && !MayMeanLoss(exchanged)) return exchanged;
    if (done) return Status::Ok();
    const Instant now = Clock::now();
    if (now >= next_check) {
      next_check = now + kCheckInterval;
      MV_RETURN_IF_NOT_OK(context_->state()->CheckRunning(/*was_waiting=*/true));
      const auto lost = std::find_if(ranks_.begin(), ranks_.end(), [&](int rank) {
        return !context_->peers()->ExitReason(rank).empty();
      });
      if (lost != ranks_.end()) {
        lost_ = *lost;
        return Status::Ok();
      }
    }
    if (now >= limit.deadline) {
      const int awaited = has_passed_on_ ? leaders_.back() : leaders_[place_ - 1];
      const Status timeout = context_->peers()->About(
          awaited, Status(Code::kTimeout,
                          StrCat("rank ", context_->members().rank(), " waited ",
                                 SecondsBetween(began_, now), " s in aggregate for the sums of ",
                                 NameRanks({awaited}), context_->peers()->Trace(awaited))));
      context_->state()->Abort(timeout);
      return timeout;
    }
    MV_RETURN_IF_NOT_OK(limit.Check(now));
    const auto nap = backoff_.Next(now, kEager);
    if (nap.count() == 0) {
      YieldCore();
    } else {
      std::this_thread::sleep_for(nap);
    }
  }
}

Status RelayAggregation::Exchange(bool* done) {
  messenger()->Advance();
  const bool is_last = place_ + 1 == leaders_.size();
  std::string values;
  bool has_arrived = false;
  if (!has_passed_on_) {
    if (place_ > 0) {
      MV_RETURN_IF_NOT_OK(TakeFrom(leaders_[place_ - 1], &values, &has_arrived));
      if (!has_arrived) return Status::Ok();
    }
    AddOwn(&values);
    has_passed_on_ = true;
    backoff_.Reset();
    if (!is_last) return SendTo(leaders_[place_ + 1], values);
    for (size_t i = 0; i < place_; ++i) {
      const Status sent = SendTo(leaders_[i], values);
      if (!sent.ok() && !MayMeanLoss(sent)) return sent;
    }
  } else {
    MV_RETURN_IF_NOT_OK(TakeFrom(leaders_.back(), &values, &has_arrived));
    if (!has_arrived) return Status::Ok();
    backoff_.Reset();
  }
  std::memcpy(scratch(context_->members().rank()), values.data(), values.size());
  *done = true;
  return Status::Ok();
}

void RelayAggregation::AddOwn(std::string* values) const {
  bool is_begun = !values->empty();
  values->resize(static_cast<size_t>(Bytes(ChunkCount())));
  WithType(dtype_, [&](auto* null) {
    using T = std::remove_pointer_t<decltype(null)>;
    T* const sum = reinterpret_cast<T*>(values->data());
    for (const int rank : ranks_here_) {
      const T* const part = reinterpret_cast<const T*>(scratch(rank));
      if (is_begun) {
        kernels::Add(sum, part, ChunkCount());
      } else {
        // The first term is copied, because a sum that starts at 0 would turn -0 into 0.
        std::memcpy(sum, part, values->size());
      }
      is_begun = true;
    }
  });
}

Status RelayAggregation::SendTo(int leader, const std::string& values) const {
  const Header header{kMagic, 0, sequence_, chunk_};
  std::string bytes(reinterpret_cast<const char*>(&header), sizeof(header));
  bytes += values;
  return messenger()->Post(leader, kAggregateTag, std::move(bytes));
}

Status RelayAggregation::TakeFrom(int leader, std::string* values, bool* has_arrived) {
  for (bool is_found = true; is_found;) {
    std::string bytes;
    MV_RETURN_IF_NOT_OK(messenger()->Take(
        leader, kAggregateTag, static_cast<int64_t>(sizeof(Header)) + NodeMemory::kScratchAreaBytes,
        &bytes, &is_found));
    if (!is_found) break;
    Header header{};
    if (bytes.size() >= sizeof(header)) std::memcpy(&header, bytes.data(), sizeof(header));
    // Messages of an earlier aggregate may remain if that aggregate failed.
    if (header.magic == kMagic && header.sequence < sequence_) continue;
    if (header.magic != kMagic || header.sequence != sequence_ || header.chunk != chunk_ ||
        static_cast<int64_t>(bytes.size() - sizeof(header)) != Bytes(ChunkCount())) {
      context_->control_channel()->ReportInvalid("aggregate", leader);
      continue;
    }
    *values = bytes.substr(sizeof(header));
    *has_arrived = true;
    break;
  }
  return Status::Ok();
}

}  // namespace multiverso
