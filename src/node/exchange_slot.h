// ExchangeSlot: what a rank brings to a meeting, in memory that the ranks of its node share: which
// call it makes, and some bytes.
//
// Whoever meets the rank reads it without a lock: the rank writes the next but one into the same
// place only when all have met in the one between. But a service thread may be asked for a meeting
// that is long over (Muster). So the deposit says of which meeting it is, and says so before
// anything else changes: every word is written with release and read with acquire, so that a reader
// who has got one word of another meeting finds the number of that one, or a later one, when it
// looks at it afterwards. Who finds the number it expects has copied that meeting's words alone,
// provided that it knew beforehand that they had been written (RankSlot::InGroup::arrivals).
#ifndef MULTIVERSO_NODE_EXCHANGE_SLOT_H_
#define MULTIVERSO_NODE_EXCHANGE_SLOT_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <type_traits>

namespace multiverso {

// The collective calls. Ranks that meet in one with different kinds have made different calls.
enum class CollectiveKind : uint32_t {
  kJoin = 1,
  kBarrier,
  kCreateTable,
  kMapTable,
  kFillTable,
  kCollectiveGet,
  kAggregate,
  kSave,
  kSaveWait,
  kLoad,
  kClose,
};

const char* NameOf(CollectiveKind kind);

// Written by one thread at a time, read by any. Valid when filled with zeros.
class ExchangeSlot {
 public:
  static constexpr int64_t kMostBytes = 512;

  // That the rank is about to come to a meeting (from 1) is to be told after this, with release.
  void Write(uint64_t meeting, CollectiveKind kind, const void* data, size_t bytes);
  // Of a rank of another node of which no more is known.
  void WriteKind(CollectiveKind kind) { kind_.store(kind, std::memory_order_release); }

  CollectiveKind kind() const { return kind_.load(std::memory_order_acquire); }
  std::string Bytes() const;
  // The bytes from `offset` on as a value; what was not brought of it is as in T{}.
  template <class T>
  T Read(size_t offset = 0) const {
    static_assert(std::is_trivially_copyable_v<T>);
    T value{};
    CopyTo(&value, offset, sizeof(value));
    return value;
  }

  // What was brought to that meeting, which has been told. False if the rank has begun to write
  // what it brings to a later one: then there is nothing in the results that could be used.
  bool ReadOf(uint64_t meeting, CollectiveKind* kind, std::string* data) const;

 private:
  void CopyTo(void* to, size_t offset, size_t most) const;

  std::atomic<uint64_t> meeting_;
  std::atomic<CollectiveKind> kind_;
  std::atomic<uint32_t> bytes_;
  std::atomic<uint64_t> words_[kMostBytes / sizeof(uint64_t)];
};

static_assert(std::atomic<uint64_t>::is_always_lock_free &&
                  std::atomic<CollectiveKind>::is_always_lock_free,
              "shared between processes");

}  // namespace multiverso

#endif  // MULTIVERSO_NODE_EXCHANGE_SLOT_H_
