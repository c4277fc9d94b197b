// RequestLog: the requests of a rank of another node that this node has executed, in memory that
// outlives the rank that executed them. So the successor of a server that died executes each
// remaining request, and executes no request twice.
//
// The requests of a call to one server are numbered, and executed in order of number. Each such
// sequence has its own slot in the log (assigned by SequenceNumbers), with the number and executor
// of the request begun last, and the number of the request finished last. A request that a lost
// rank began and did not finish may have been executed in part.
#ifndef MULTIVERSO_NODE_REQUEST_LOG_H_
#define MULTIVERSO_NODE_REQUEST_LOG_H_

#include <atomic>
#include <cstdint>

namespace multiverso {

class RequestRecord {
 public:
  enum class Claim {
    kMine,    // only the claiming rank executes the request
    kDone,    // the request has been executed
    kInHand,  // another rank is executing the request
    kBroken,  // a rank died while executing the request
  };

  // Claims request `number`, from 1, for local rank `me`. `is_alive(local_rank)` returns whether
  // that rank is alive. An idempotent request (`may_repeat`) is repeated instead of being broken.
  template <class IsAlive>
  Claim Take(uint64_t number, int me, bool may_repeat, const IsAlive& is_alive) {
    uint64_t begun = begun_.load(std::memory_order_acquire);
    if (done_.load(std::memory_order_acquire) >= number) return Claim::kDone;
    if (NumberOf(begun) >= number) {
      if (NumberOf(begun) > number) return Claim::kBroken;
      if (is_alive(OwnerOf(begun))) return Claim::kInHand;
      // The owner may have finished the request just before it ended.
      if (done_.load(std::memory_order_acquire) >= number) return Claim::kDone;
      if (!may_repeat) return Claim::kBroken;
    }
    const uint64_t mine = number << kOwnerBits | static_cast<uint64_t>(me);
    return begun_.compare_exchange_strong(begun, mine) ? Claim::kMine : Claim::kInHand;
  }

  // Called by the rank that claimed the request.
  void Finish(uint64_t number) { done_.store(number, std::memory_order_release); }
  // Returns the local rank that made the last claim.
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

// The log for one rank of the session. A log filled with zeros is valid.
struct RequestLog {
  static constexpr int kSlots = 64;
  RequestRecord slot[kSlots];
};

}  // namespace multiverso

#endif  // MULTIVERSO_NODE_REQUEST_LOG_H_
