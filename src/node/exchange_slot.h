// ExchangeSlot: the payload of one rank in one collective and the kind of its call, in memory that
// the ranks of a node share.
//
// Members of the group read a slot without a lock, when they know that it has been written
// (RankSlot::GroupProgress::sequence). A rank overwrites the slot of collective n only after all
// members have begun n + 1, and a rank that has given up a collective writes no more
// (Group::Begin). Only a rank that the others have excluded may read what they are writing.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <type_traits>

namespace multiverso {

// The collective calls and their steps: the creation of a table has three. Members that begin a
// collective with different kinds made different calls.
enum class CollectiveKind : uint32_t {
  kOpen = 1,
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
  kPublish,
  kBroadcast,
  kAllGather,
  kAllToAll,
  kReduceScatter,
  kLeaving,
  kClosing,
  kFailing,
};

// Returns whether a collective of this kind asks whether all ranks leave: at the end of a step,
// before the session is closed, or after the program of a rank has failed. Other calls begin again
// when they meet it, or fail if it is the last of these (Group::Wait).
inline bool AsksAboutLeaving(CollectiveKind kind) {
  return kind == CollectiveKind::kLeaving || kind == CollectiveKind::kClosing ||
         kind == CollectiveKind::kFailing;
}

const char* NameOf(CollectiveKind kind);

// Marks the kind of a collective in which the rank says that it has failed in the call; the payload
// is a Vote.
inline CollectiveKind FailureOf(CollectiveKind kind) {
  return static_cast<CollectiveKind>(static_cast<uint32_t>(kind) | 0x80000000U);
}
inline bool IsFailure(CollectiveKind kind) {
  return (static_cast<uint32_t>(kind) & 0x80000000U) != 0;
}
inline CollectiveKind WithoutFailure(CollectiveKind kind) {
  return static_cast<CollectiveKind>(static_cast<uint32_t>(kind) & 0x7FFFFFFFU);
}

// Written by one thread at a time, and read by any. A slot filled with zeros is valid.
class ExchangeSlot {
 public:
  static constexpr int64_t kMaxBytes = 512;

  // The caller announces the collective afterwards, with release, so that readers see the payload.
  void Write(CollectiveKind kind, const void* data, size_t bytes);

  // Return the kind of the call, with and without the mark of a failure.
  CollectiveKind marked_kind() const { return kind_.load(std::memory_order_relaxed); }
  CollectiveKind kind() const { return WithoutFailure(marked_kind()); }
  bool is_failure() const { return IsFailure(marked_kind()); }
  std::string Bytes() const;
  // Returns the payload from `offset` as a T. Bytes beyond the payload's end are as in T{}.
  template <class T>
  T Read(size_t offset = 0) const {
    static_assert(std::is_trivially_copyable_v<T>);
    T value{};
    CopyTo(&value, offset, sizeof(value));
    return value;
  }

 private:
  void CopyTo(void* buffer, size_t offset, size_t max_bytes) const;

  std::atomic<CollectiveKind> kind_;
  std::atomic<uint32_t> bytes_;
  std::atomic<uint64_t> words_[kMaxBytes / sizeof(uint64_t)];
};

static_assert(std::atomic<uint64_t>::is_always_lock_free &&
                  std::atomic<CollectiveKind>::is_always_lock_free,
              "shared between processes");

}  // namespace multiverso
