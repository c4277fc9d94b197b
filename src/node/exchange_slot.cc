#include "node/exchange_slot.h"

#include <algorithm>
#include <cstring>

namespace multiverso {

const char* NameOf(CollectiveKind kind) {
  switch (kind) {
    case CollectiveKind::kOpen:
      return "init";
    case CollectiveKind::kBarrier:
      return "barrier";
    case CollectiveKind::kCreateTable:
    case CollectiveKind::kMapTable:
    case CollectiveKind::kFillTable:
      return "the creation of a table";
    case CollectiveKind::kCollectiveGet:
      return "get(sync=True)";
    case CollectiveKind::kAggregate:
      return "aggregate";
    case CollectiveKind::kSave:
      return "save";
    case CollectiveKind::kSaveWait:
      return "the end of a save";
    case CollectiveKind::kLoad:
      return "load";
    case CollectiveKind::kClose:
      return "shutdown";
    case CollectiveKind::kPublish:
      return "publish";
    case CollectiveKind::kBroadcast:
      return "broadcast";
    case CollectiveKind::kAllGather:
      return "all_gather";
    case CollectiveKind::kAllToAll:
      return "all_to_all";
    case CollectiveKind::kReduceScatter:
      return "reduce_scatter";
    case CollectiveKind::kLeaving:
      return "check_leaving";
    case CollectiveKind::kClosing:
      return "shutdown";
    case CollectiveKind::kFailing:
      return "the end of its program";
  }
  return "an unknown call";
}

void ExchangeSlot::Write(CollectiveKind kind, const void* data, size_t bytes) {
  kind_.store(kind, std::memory_order_relaxed);
  bytes_.store(static_cast<uint32_t>(bytes), std::memory_order_relaxed);
  const auto* const payload = static_cast<const char*>(data);
  for (size_t position = 0; position < bytes; position += sizeof(uint64_t)) {
    uint64_t word = 0;
    std::memcpy(&word, payload + position, std::min(sizeof(word), bytes - position));
    words_[position / sizeof(word)].store(word, std::memory_order_relaxed);
  }
}

void ExchangeSlot::CopyTo(void* buffer, size_t offset, size_t max_bytes) const {
  const size_t payload_bytes = bytes_.load(std::memory_order_relaxed);
  const size_t end = std::min(payload_bytes, offset + max_bytes);
  for (size_t position = offset; position < end;) {
    const size_t in_word = position % sizeof(uint64_t);
    const uint64_t word = words_[position / sizeof(word)].load(std::memory_order_relaxed);
    const size_t bytes = std::min(sizeof(word) - in_word, end - position);
    std::memcpy(static_cast<char*>(buffer) + (position - offset),
                reinterpret_cast<const char*>(&word) + in_word, bytes);
    position += bytes;
  }
}

std::string ExchangeSlot::Bytes() const {
  std::string data(bytes_.load(std::memory_order_relaxed), '\0');
  CopyTo(data.data(), 0, data.size());
  return data;
}

}  // namespace multiverso
