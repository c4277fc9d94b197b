// RequestLog: which requests of a rank of another node this node has executed, in memory that
// outlives the rank that executed them. So the successor of a server that died executes each
// remaining request, and none twice.
//
// The requests of a call to one server are numbered and executed in that order. Each such sequence
// has its own slot here (SequenceNumbers assigns it), with the number and executor of the request
// begun last, and the number of the request finished last. A request that a lost rank began and did
// not finish may have been executed in part.
#ifndef MULTIVERSO_NODE_REQUEST_LOG_H_
#define MULTIVERSO_NODE_REQUEST_LOG_H_

#include <atomic>
#include <cstdint>

namespace multiverso {

class RequestRecord {
 public:
  enum class Claim {
    kMine,    // the claiming rank executes it, and no other
    kDone,    // it has been executed
    kInHand,  // another rank is executing it
    kBroken,  // a rank died while executing it
  };

  // Local rank `me` claims request `number`, from 1. `is_alive(local_rank)` tells whether that rank
  // is alive. An idempotent request (`may_repeat`) is repeated instead of being broken.
  template <class IsAlive>
  Claim Take(uint64_t number, int me, bool may_repeat, const IsAlive& is_alive) {
    uint64_t begun = begun_.load(std::memory_order_acquire);
    if (done_.load(std::memory_order_acquire) >= number) return Claim::kDone;
    if (NumberOf(begun) >= number) {
      if (NumberOf(begun) > number) return Claim::kBroken;
      if (is_alive(OwnerOf(begun))) return Claim::kInHand;
      // The rank may have finished it just before it ended.
      if (done_.load(std::memory_order_acquire) >= number) return Claim::kDone;
      if (!may_repeat) return Claim::kBroken;
    }
    const uint64_t mine = number << kOwnerBits | static_cast<uint64_t>(me);
    return begun_.compare_exchange_strong(begun, mine) ? Claim::kMine : Claim::kInHand;
  }

  // Called by the rank that claimed it.
  void Finish(uint64_t number) { done_.store(number, std::memory_order_release); }
  // The local rank that made the last claim.
  int owner() const { return OwnerOf(begun_.load(std::memory_order_acquire)); }

 private:
  static constexpr int kOwnerBits = 16;
  static uint64_t NumberOf(uint64_t begun) { return begun >> kOwnerBits; }
  static int OwnerOf(uint64_t begun) {
    return static_cast<int>(begun & ((uint64_t{1} << kOwnerBits) - 1));
  }

  std::atomic<uint64_t> begun_;
  std::atomic<uint64_t> done_;
};

// The log for one rank of the session. Valid when filled with zeros.
struct RequestLog {
  static constexpr int kSlots = 64;
  RequestRecord slot[kSlots];
};

}  // namespace multiverso

#endif  // MULTIVERSO_NODE_REQUEST_LOG_H_
