#include "sum/transfer.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <string>

#include "base/checked.h"
#include "base/copy_bytes.h"
#include "base/text.h"
#include "sum/element_sum.h"

namespace multiverso {
namespace {

// Parts begin at cache lines, so that no two workers use the same one.
constexpr int64_t kLine = 64;

// The addresses of an array, from its first byte to that after its last one.
struct Extent {
  uintptr_t begin = std::numeric_limits<uintptr_t>::max();
  uintptr_t end = 0;

  bool Meets(const Extent& other) const { return begin < other.end && other.begin < end; }
};

Extent ExtentOf(const Transfer::Part& part, int64_t element_bytes) {
  if (part.count == 0) return Extent();
  const auto begin = reinterpret_cast<uintptr_t>(part.data);
  return Extent{begin, begin + static_cast<uintptr_t>(part.count * element_bytes)};
}

// Returns the least extent that contains all of the parts.
Extent ExtentOf(const std::vector<Transfer::Part>& parts, int64_t element_bytes) {
  Extent all;
  for (const Transfer::Part& part : parts) {
    const Extent extent = ExtentOf(part, element_bytes);
    all = Extent{std::min(all.begin, extent.begin), std::max(all.end, extent.end)};
  }
  return all;
}

}  // namespace

// What a worker tells the others at the first chunk.
struct Transfer::Announcement {
  int32_t op;
  int32_t dtype;
  int32_t root;
  int32_t is_even;  // whether all parts have the same size
  int64_t count;    // of elements of each part, or of the largest one

  bool IsLike(const Announcement& other) const {
    return op == other.op && dtype == other.dtype && root == other.root;
  }
};

// The numbers of elements that a worker sends to another worker, and expects from that worker.
struct Transfer::Sizes {
  int64_t sent;
  int64_t expected;
};

Transfer::Transfer(RankContext* context, AggregationState* state, const Call& call)
    : context_(context),
      state_(state),
      call_(call),
      reduction_(is_reduction() ? call.op : ReduceOp::kSum, call.dtype),
      me_(context->members().worker_id()),
      workers_(static_cast<int>(context->workers()->members().size())) {
  const int64_t room =
      context_->memory()->scratch_area_bytes() - RoundUp(workers_ * int64_t{sizeof(Sizes)}, kLine);
  const int64_t slots = sends_to_all() ? 1 : workers_;
  in_chunk_ = room / slots / kLine * kLine / element_bytes();
  if (WouldOverwrite()) CopySent();
}

bool Transfer::WouldOverwrite() const {
  const int64_t bytes = element_bytes();
  if (!ExtentOf(call_.sent, bytes).Meets(ExtentOf(call_.received, bytes))) return false;
  for (int to = 0; to < workers_; ++to) {
    for (int from = 0; from < workers_; ++from) {
      const Part& sent = SentTo(to);
      const Part& received = ReceivedFrom(from);
      if (!ExtentOf(sent, bytes).Meets(ExtentOf(received, bytes))) continue;
      // An element that stays where it is has been read before it is written.
      const bool is_same_worker = (sends_to_all() ? me_ : to) == (is_reduction() ? me_ : from);
      if (!is_same_worker || sent.data != received.data) return true;
    }
  }
  return false;
}

void Transfer::CopySent() {
  int64_t elements = 0;
  for (const Part& part : call_.sent) elements += part.count;
  copy_.resize(static_cast<size_t>(elements * element_bytes()));
  char* to = copy_.data();
  for (Part& part : call_.sent) {
    const auto bytes = static_cast<size_t>(part.count * element_bytes());
    CopyBytes(to, part.data, bytes);
    part.data = to;
    to += bytes;
  }
}

const Transfer::Part& Transfer::SentTo(int worker) const {
  return call_.sent[sends_to_all() ? 0 : static_cast<size_t>(worker)];
}

const Transfer::Part& Transfer::ReceivedFrom(int worker) const {
  return call_.received[is_reduction() ? 0 : static_cast<size_t>(worker)];
}

int64_t Transfer::CountIn(const Part& part, int64_t chunk) const {
  return std::max(std::min(part.count - chunk * in_chunk_, in_chunk_), int64_t{0});
}

char* Transfer::ElementOf(const Part& part, int64_t chunk) const {
  return part.data + chunk * in_chunk_ * element_bytes();
}

char* Transfer::Staged(int from, int to) const {
  const int64_t slot = sends_to_all() ? 0 : RoundUp(in_chunk_ * element_bytes(), kLine) * to;
  return reinterpret_cast<char*>(StagedSizes(from)) +
         RoundUp(workers_ * int64_t{sizeof(Sizes)}, kLine) + slot;
}

const char* Transfer::Source(int worker, int64_t chunk) const {
  return worker == me_ ? ElementOf(SentTo(me_), chunk) : Staged(worker, me_);
}

Transfer::Sizes* Transfer::StagedSizes(int from) const {
  const int rank = context_->workers()->members()[static_cast<size_t>(from)];
  const int local_rank = context_->members().local_rank_of(rank);
  return reinterpret_cast<Sizes*>(context_->memory()->scratch(local_rank, state_->area));
}

Transfer::Announcement Transfer::Announce() const {
  Announcement mine{static_cast<int32_t>(call_.op), static_cast<int32_t>(call_.dtype), call_.root,
                    1, SentTo(me_).count};
  if (call_.kind == CollectiveKind::kBroadcast) {
    mine.count = std::max(SentTo(me_).count, ReceivedFrom(call_.root).count);
    return mine;
  }
  for (const std::vector<Part>* const parts : {&call_.sent, &call_.received}) {
    for (const Part& part : *parts) {
      if (part.count != mine.count) mine.is_even = 0;
      mine.count = std::max(mine.count, part.count);
    }
  }
  return mine;
}

Status Transfer::Run(const WaitLimit& limit) {
  Group* const workers = context_->workers();
  const Announcement mine = Announce();
  for (int worker = 0; mine.is_even == 0 && worker < workers_; ++worker) {
    StagedSizes(me_)[worker] = {SentTo(worker).count, ReceivedFrom(worker).count};
  }
  for (int64_t chunk = 0; chunk < chunks_; ++chunk) {
    StageChunk(chunk);
    workers->BeginAllgather(call_.kind, &mine, sizeof(mine));
    MV_RETURN_IF_NOT_OK(workers->Wait(limit));
    const Status checked = chunk == 0 ? CheckCalls() : Status::Ok();
    if (checked.ok()) is_reduction() ? CombineChunk(chunk) : TakeChunk(chunk);
    // The next call uses the other area also after a mismatch, because a slow worker may still
    // compare the sizes in this one.
    state_->area ^= 1;
    MV_RETURN_IF_NOT_OK(checked);
  }
  return Status::Ok();
}

void Transfer::StageChunk(int64_t chunk) {
  if (workers_ == 1) return;
  const auto stage = [&](const Part& part, char* to) {
    const int64_t count = CountIn(part, chunk);
    if (count == 0) return;
    CopyBytes(to, ElementOf(part, chunk), static_cast<size_t>(count * element_bytes()));
  };
  if (sends_to_all()) return stage(call_.sent[0], Staged(me_, 0));
  for (int worker = 0; worker < workers_; ++worker) {
    if (worker != me_) stage(SentTo(worker), Staged(me_, worker));
  }
}

Status Transfer::CheckCalls() {
  const Group& workers = *context_->workers();
  const auto call_of = [&](int worker) {
    return workers.payload(workers.members()[static_cast<size_t>(worker)]).Read<Announcement>();
  };
  const Announcement first = call_of(0);
  const auto describe = [&](const Announcement& call) {
    std::string text = StrCat(call.is_even != 0 ? "" : "up to ", call.count, " ",
                              NameOf(static_cast<DType>(call.dtype)));
    if (is_reduction()) text += StrCat(", op ", NameOf(static_cast<ReduceOp>(call.op)));
    if (!is_reduction() && call.op != 0) text += StrCat(" of type ", call.op);
    if (call_.kind == CollectiveKind::kBroadcast) text += StrCat(" of worker ", call.root);
    return text;
  };
  bool all_even = true;
  int64_t largest = 0;
  for (int worker = 0; worker < workers_; ++worker) {
    const Announcement call = call_of(worker);
    all_even = all_even && call.is_even != 0;
    largest = std::max(largest, call.count);
  }
  for (int worker = 0; worker < workers_; ++worker) {
    const Announcement call = call_of(worker);
    if (call.IsLike(first) && (!all_even || call.count == first.count)) continue;
    return Status(Code::kMismatch, StrCat("the ranks did not make the same call: worker 0 called ",
                                          NameOf(call_.kind), " of ", describe(first), ", worker ",
                                          worker, " of ", describe(call)));
  }
  chunks_ = std::max(DivideUp(largest, in_chunk_), int64_t{1});
  return all_even ? Status::Ok() : CheckSizes();
}

Status Transfer::CheckSizes() const {
  const Group& workers = *context_->workers();
  const auto sizes = [&](int of, int about) {
    const int rank = workers.members()[static_cast<size_t>(of)];
    const auto call = workers.payload(rank).Read<Announcement>();
    return call.is_even != 0 ? Sizes{call.count, call.count} : StagedSizes(of)[about];
  };
  for (int from = 0; from < workers_; ++from) {
    for (int to = 0; to < workers_; ++to) {
      const int64_t sent = sizes(from, to).sent;
      const int64_t expected = sizes(to, from).expected;
      if (sent == expected) continue;
      return Status(
          Code::kMismatch,
          StrCat("the ranks did not make the same call: in ", NameOf(call_.kind), ", worker ", to,
                 " expected ", expected, " elements from worker ", from, ", which sent ", sent));
    }
  }
  return Status::Ok();
}

void Transfer::TakeChunk(int64_t chunk) {
  for (int worker = 0; worker < workers_; ++worker) {
    const Part& part = ReceivedFrom(worker);
    const int64_t count = CountIn(part, chunk);
    if (count == 0) continue;
    char* const to = ElementOf(part, chunk);
    const auto bytes = static_cast<size_t>(count * element_bytes());
    if (worker == me_) {
      std::memmove(to, Source(me_, chunk), bytes);  // The arrays may share memory.
    } else {
      CopyBytes(to, Source(worker, chunk), bytes);
    }
  }
}

void Transfer::CombineChunk(int64_t chunk) {
  const Part& part = call_.received[0];
  const int64_t count = CountIn(part, chunk);
  std::vector<PairwiseSum::Term> terms;
  for (int worker = 0; worker < workers_; ++worker) {
    terms.push_back({worker, Source(worker, chunk)});
  }
  ElementSum(reduction_, workers_, count)
      .Store(terms, count, ElementOf(part, chunk), [](int64_t, int64_t) {});
}

}  // namespace multiverso
