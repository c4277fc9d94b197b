#include "shard/undo_log.h"

#include <cstring>

#include "base/checked.h"
#include "base/copy_bytes.h"

namespace multiverso {

// Zero-filled memory is the header of a rank that has logged nothing.
struct alignas(ShardStorage::kUndoHeaderBytes) UndoLog::Header {
  // The position, and whether the part is under way, in one word, since its end must make the part
  // both complete and not to be put back.
  std::atomic<uint64_t> state;
  std::atomic<uint64_t> sender;  // with `number`, the ChangeId
  std::atomic<uint64_t> number;
  std::atomic<int64_t> first;
  std::atomic<int64_t> count;
  std::atomic<uint64_t> result;

  static constexpr uint64_t kUnderWay = 1;
  static uint64_t StateAt(int64_t position) { return static_cast<uint64_t>(position) << 1; }
};

bool UndoLog::IsOf(const Header& header, const ChangeId& change) {
  return header.sender.load(std::memory_order_relaxed) == change.sender &&
         header.number.load(std::memory_order_relaxed) == change.number;
}

UndoLog::Header* UndoLog::HeaderOf(int local_rank) const {
  static_assert(sizeof(Header) == ShardStorage::kUndoHeaderBytes);
  return reinterpret_cast<Header*>(storage_.undo_log(local_rank));
}

template <class Visit>
void UndoLog::VisitMemory(int64_t first, int64_t count, const Visit& visit) const {
  const int64_t stored_bytes = layout_.row_bytes() / columns_;
  visit(storage_.parameters() + first * stored_bytes, count * stored_bytes);
  const int64_t state_bytes = storage_.value_row_bytes() / columns_;
  for (int64_t slot = 0; slot < storage_.state_slots(); ++slot) {
    visit(storage_.state() + slot * storage_.state_stride() + first * state_bytes,
          count * state_bytes);
  }
  if (storage_.row_state_bytes() > 0) {
    const int64_t row = first / columns_;
    visit(storage_.row_state(row),
          (DivideUp(first + count, columns_) - row) * storage_.row_state_bytes());
  }
  const StepCells& cells = storage_.step_cells();
  if (cells.count() == 0) return;
  const StepCells::Range range = cells.RangeOf(first, count);
  visit(reinterpret_cast<char*>(range.first), range.count * static_cast<int64_t>(sizeof(StepCell)));
}

void UndoLog::Begin(int local_rank, const ChangeId& change, int64_t position, int64_t first,
                    int64_t count) const {
  Header* const header = HeaderOf(local_rank);
  if (!IsOf(*header, change)) {
    // At no time may the header have the position of one change and the id of another.
    header->state.store(0, std::memory_order_relaxed);
    header->sender.store(change.sender, std::memory_order_release);
    header->number.store(change.number, std::memory_order_release);
  }
  header->first.store(first, std::memory_order_relaxed);
  header->count.store(count, std::memory_order_relaxed);
  char* to = reinterpret_cast<char*>(header + 1);
  VisitMemory(first, count, [&](const char* from, int64_t bytes) {
    CopyBytes(to, from, static_cast<size_t>(bytes));
    to += bytes;
  });
  header->state.store(Header::StateAt(position) | Header::kUnderWay, std::memory_order_release);
  // The first change must not come before.
  std::atomic_thread_fence(std::memory_order_seq_cst);
}

void UndoLog::Commit(int local_rank, int64_t position, const void* result,
                     int64_t result_bytes) const {
  Header* const header = HeaderOf(local_rank);
  if (result != nullptr) {
    uint64_t bytes = 0;
    std::memcpy(&bytes, result, static_cast<size_t>(result_bytes));
    header->result.store(bytes, std::memory_order_relaxed);
  }
  header->state.store(Header::StateAt(position), std::memory_order_release);
}

bool UndoLog::Undo(int64_t stripe) const {
  bool was_undone = false;
  // Nobody but the dead holder of the lock can have been making a part in this stripe.
  for (int local_rank = 0; local_rank < storage_.undo_logs(); ++local_rank) {
    Header* const header = HeaderOf(local_rank);
    const uint64_t state = header->state.load(std::memory_order_acquire);
    const int64_t first = header->first.load(std::memory_order_relaxed);
    if ((state & Header::kUnderWay) == 0 || layout_.stripe_of(first / columns_) != stripe) continue;
    const char* from = reinterpret_cast<const char*>(header + 1);
    VisitMemory(first, header->count.load(std::memory_order_relaxed), [&](char* to, int64_t bytes) {
      CopyBytes(to, from, static_cast<size_t>(bytes));
      from += bytes;
    });
    header->state.store(state & ~Header::kUnderWay, std::memory_order_release);
    was_undone = true;
  }
  return was_undone;
}

int64_t UndoLog::PositionOf(int local_rank, const ChangeId& change) const {
  const Header* const header = HeaderOf(local_rank);
  if (!IsOf(*header, change)) return 0;
  return static_cast<int64_t>(header->state.load(std::memory_order_acquire) >> 1);
}

uint64_t UndoLog::ResultOf(int local_rank) const {
  return HeaderOf(local_rank)->result.load(std::memory_order_relaxed);
}

}  // namespace multiverso
