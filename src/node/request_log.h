// RequestLog: which requests of a rank of another node have been carried out on this node, in
// memory that outlives the rank that did it. So whoever takes over from a server that died does
// what is still to be done, and does nothing twice.
//
// The requests of a call to one server are numbered, and carried out in that order. Each such
// sequence has a slot of its own here (SequenceNumbers gives them out), with the number of the
// request that was begun last and by whom, and of the last that was done. A request that was begun
// by a rank that is not there any more and not done may have been carried out in part.
#ifndef MULTIVERSO_NODE_REQUEST_LOG_H_
#define MULTIVERSO_NODE_REQUEST_LOG_H_

#include <atomic>
#include <cstdint>

namespace multiverso {

class RequestRecord {
 public:
  enum class Claim {
    kMine,    // to be carried out now, by who claimed it, and by nobody else
    kDone,    // it has been
    kInHand,  // another rank is at it
    kBroken,  // a rank died in the middle of it
  };

  // By local rank `me`, for request `number`, above 0. `is_alive` tells that of a local rank.
  // A request that has the same effect twice as once is begun anew instead of being broken.
  template <class IsAlive>
  Claim Take(uint64_t number, int me, bool may_repeat, const IsAlive& is_alive) {
    uint64_t begun = begun_.load(std::memory_order_acquire);
    if (done_.load(std::memory_order_acquire) >= number) return Claim::kDone;
    if (NumberOf(begun) >= number) {
      if (NumberOf(begun) > number) return Claim::kBroken;
      if (is_alive(OwnerOf(begun))) return Claim::kInHand;
      // What it did last it may have done since.
      if (done_.load(std::memory_order_acquire) >= number) return Claim::kDone;
      if (!may_repeat) return Claim::kBroken;
    }
    const uint64_t mine = number << kOwnerBits | static_cast<uint64_t>(me);
    return begun_.compare_exchange_strong(begun, mine) ? Claim::kMine : Claim::kInHand;
  }

  // By who claimed it.
  void Finish(uint64_t number) { done_.store(number, std::memory_order_release); }
  // The local rank that claimed last.
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

// Of one rank of the session. Valid when filled with zeros.
struct RequestLog {
  static constexpr int kSlots = 64;
  RequestRecord slot[kSlots];
};

}  // namespace multiverso

#endif  // MULTIVERSO_NODE_REQUEST_LOG_H_
