#include "node/exchange_slot.h"

#include <algorithm>
#include <cstring>
#include <iterator>

namespace multiverso {

const char* NameOf(CollectiveKind kind) {
  constexpr const char* kNames[] = {
      "an unknown call",
      "init",
      "barrier",
      "the creation of a table",  // its three exchanges
      "the creation of a table",
      "the creation of a table",
      "get(sync=True)",
      "aggregate",
      "save",
      "the end of a save",
      "load",
      "shutdown",
      "publish",
      "broadcast",
      "all_gather",
      "all_to_all",
      "reduce_scatter",
      "check_leaving",
      "shutdown",
      "the end of its program",
  };
  static_assert(std::size(kNames) == static_cast<size_t>(CollectiveKind::kFailing) + 1);
  const auto number = static_cast<size_t>(kind);  // perhaps of a damaged message
  return kNames[number < std::size(kNames) ? number : 0];
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
