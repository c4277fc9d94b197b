#include "engine/reordering.h"

#include <cstring>

#include "engine/memory.h"
#include "engine/scheduler_state.h"

namespace sim {

bool reorders = false;

namespace {

constexpr uint64_t kDelayOneIn = 4;
constexpr uint64_t kLongestDelay = 16;  // atomic operations of the fiber
constexpr uint64_t kRepeatOneIn = 4;

bool IsRelaxed(int order) { return order == __ATOMIC_RELAXED; }
bool IsShared(const volatile void* address) {
  return KeyOfWord(const_cast<const void*>(address)).kind == Waits::kFile;
}

void Perform(Delayed* delayed) {
  if (delayed->address == nullptr) return;
  std::memcpy(const_cast<void*>(delayed->address), &delayed->value,
              static_cast<size_t>(delayed->bytes));
  delayed->address = nullptr;
}

}  // namespace

void SettleMemory(Fiber* fiber) {
  // A point in the copy would switch in the middle of the end or the suspension of the process.
  const Quiet no_points;
  Perform(&fiber->delayed);
  fiber->loaded = Loaded();
}

void OrderMemoryOfCall() { OrderMemory(); }

bool DelayStore(volatile void* address, uint64_t value, int bytes, int order) {
  if (quiet > 0 || current == nullptr) return false;
  Delayed* const delayed = &current->delayed;
  current->loaded = Loaded();
  const bool is_other = IsRelaxed(order) && delayed->address != address;
  if (!is_other || (delayed->address != nullptr && --delayed->left <= 0)) Perform(delayed);
  const bool may_wait = IsRelaxed(order) || order == __ATOMIC_RELEASE;
  if (!may_wait || delayed->address != nullptr || Below(kDelayOneIn) != 0 || !IsShared(address)) {
    return false;
  }
  *delayed = Delayed{address, value, bytes, 1 + static_cast<int>(Below(kLongestDelay))};
  return true;
}

void BeginLoad(const volatile void* address) {
  if (quiet > 0 || current == nullptr) return;
  Delayed* const delayed = &current->delayed;
  if (delayed->address == nullptr) return;
  if (delayed->address == address || --delayed->left <= 0) Perform(delayed);
}

uint64_t SeenByLoad(const volatile void* address, uint64_t now, int bytes, int order) {
  if (quiet > 0 || current == nullptr) return now;
  Loaded* const loaded = &current->loaded;
  const bool is_again = loaded->address == address && loaded->bytes == bytes;
  if (IsRelaxed(order) && is_again && Below(kRepeatOneIn) == 0) return loaded->value;
  if (IsRelaxed(order) && !is_again && loaded->address != nullptr) return now;
  *loaded = Loaded{address, now, bytes};
  if (!IsShared(address)) *loaded = Loaded();
  return now;
}

}  // namespace sim
