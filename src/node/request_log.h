// RequestLog: which changes that a rank of another node requested have been executed on this node.
// The log is in the control segment, so it outlives the rank that executed them, and the successor
// of a server that died executes each remaining request and none twice.
//
// The requests of a call to one server are numbered, and executed in order of number. Each such
// sequence has its own slot in the log (assigned by SequenceNumbers), with the number and owner of
// the request claimed last, how far its owners have come with it, and the number of the request
// finished last. The owner of a request is the rank that executes it. If it is lost, the next owner
// continues where it ended.
#pragma once

#include <atomic>
#include <cstdint>

namespace multiverso {

class RequestRecord {
 public:
  // The largest number of a request.
  static constexpr uint64_t kMaxNumber = (uint64_t{1} << 40) - 1;

  enum class Claim {
    kMine,    // only the claiming rank executes the request
    kDone,    // the request has been executed
    kInHand,  // another rank is executing the request
    kBroken,  // the request failed, and a later one has begun
  };

  // Claims request `number`, from 1, for that rank of this node. `is_alive(owner)` returns whether
  // a rank of this node is alive, and `position_of(owner)` how far a lost owner has come.
  template <class IsAlive, class PositionOf>
  Claim Take(uint64_t number, int local_rank, const IsAlive& is_alive,
             const PositionOf& position_of) {
    uint64_t begun = begun_.load(std::memory_order_acquire);
    if (done_.load(std::memory_order_acquire) >= number) return Claim::kDone;
    if (NumberOf(begun) >= number) {
      if (NumberOf(begun) > number) return Claim::kBroken;
      if (is_alive(OwnerOf(begun))) return Claim::kInHand;
      // The owner may have finished the request after the first check, just before it ended.
      if (done_.load(std::memory_order_acquire) >= number) return Claim::kDone;
      // Before the claim, since its next owner looks here if this rank dies just after the claim.
      SetPosition(number, position_of(OwnerOf(begun)));
    }
    const uint64_t mine = number << kOwnerBits | static_cast<uint64_t>(local_rank);
    return begun_.compare_exchange_strong(begun, mine) ? Claim::kMine : Claim::kInHand;
  }

  // The position of a request (Progress::done) never decreases.
  void SetPosition(uint64_t number, int64_t position) {
    const uint64_t later = number << kPositionBits | static_cast<uint64_t>(position);
    uint64_t before = position_.load(std::memory_order_relaxed);
    while (before < later && !position_.compare_exchange_weak(before, later)) {
    }
  }
  int64_t PositionOf(uint64_t number) const {
    const uint64_t position = position_.load(std::memory_order_acquire);
    return position >> kPositionBits == number ? position & ((1U << kPositionBits) - 1) : 0;
  }

  // Called by the owner of the request. `result` is what an atomic request returns (kIsAtomic).
  void Finish(uint64_t number, uint64_t result = 0) {
    result_.store(result, std::memory_order_relaxed);
    done_.store(number, std::memory_order_release);
  }
  // Keeps the result of a request whose lost owner had executed but not finished it.
  void KeepResult(uint64_t result) { result_.store(result, std::memory_order_relaxed); }
  // Returns the result of the request that was finished, or kept, last.
  uint64_t result() const { return result_.load(std::memory_order_relaxed); }
  // Returns the local rank that made the last claim.
  int owner() const { return OwnerOf(begun_.load(std::memory_order_acquire)); }

 private:
  static constexpr int kOwnerBits = 16;
  static constexpr int kPositionBits = 24;  // a chunk has fewer elements
  static_assert(kMaxNumber <= UINT64_MAX >> kOwnerBits && kMaxNumber <= UINT64_MAX >> kPositionBits,
                "a number has room beside an owner and beside a position");
  static uint64_t NumberOf(uint64_t begun) { return begun >> kOwnerBits; }
  static int OwnerOf(uint64_t begun) {
    return static_cast<int>(begun & ((uint64_t{1} << kOwnerBits) - 1));
  }

  std::atomic<uint64_t> begun_;     // the number of the request claimed last, and its owner
  std::atomic<uint64_t> position_;  // the number of a request, and how far it has come
  std::atomic<uint64_t> done_;      // the number of the request finished last
  std::atomic<uint64_t> result_;
};

// The log for one rank of the session. A log filled with zeros is valid.
struct RequestLog {
  static constexpr int kSlots = 64;
  RequestRecord records[kSlots];
};

}  // namespace multiverso
