// HandleTable: callers hold numbers instead of pointers, so that a stale handle is an error and not
// a crash, even if another thread closes the handle at the same moment.
//
// A handle consists of a slot's index and the generation of its content. A use costs two atomic
// additions. The lowest two bits of a generation are the state of the slot: free, open, or closing
// (no new use begins, and the slot cannot be reused yet). In a forked child Forget gives every slot
// that is not free a new generation. So no handle of the parent is valid in the child, and a use
// need not check for forks.
#ifndef MULTIVERSO_C_API_HANDLES_H_
#define MULTIVERSO_C_API_HANDLES_H_

#include <atomic>
#include <cstdint>
#include <mutex>
#include <vector>

#include "base/clock.h"
#include "base/status.h"

namespace multiverso::c_api {

inline uintptr_t HandleNumber(const void* handle) { return reinterpret_cast<uintptr_t>(handle); }

// How long the functions that close a handle wait for other threads that use it.
constexpr auto kCloseTimeout = std::chrono::minutes(2);

// Sleeps for a moment while Close waits.
void SleepBetweenPolls();

// A HandleTable is thread-safe. It does not own the objects.
template <class Object>
class HandleTable {
  struct Slot;

 public:
  static constexpr uint32_t kPages = 256;
  static constexpr uint32_t kSlotsPerPage = 256;

  // Returns a new handle, or 0 if 65 536 handles are open.
  uintptr_t Open(Object* object) {
    const std::lock_guard<std::mutex> guard(mutex_);
    for (uint32_t index = 0; index < kPages * kSlotsPerPage; ++index) {
      Slot* slot = SlotAt(index, /*create=*/true);
      const uint32_t generation = slot->generation.load();
      // After a fork, a slot may count uses by threads that the child does not have.
      if (generation % kStates != kFree || slot->users.load() != 0) continue;
      slot->object = object;
      slot->generation.store(generation + kOpen);
      return (static_cast<uintptr_t>(generation + kOpen) << 32) | (index + 1);
    }
    return 0;
  }

  // Makes the handle stale, waits until no thread uses it, and returns its object. Returns null if
  // the handle was stale already. Returns null, too, if a thread still uses the handle at the
  // deadline, and makes the handle valid again.
  Object* Close(uintptr_t handle, Instant deadline) {
    Slot* slot = Find(handle);
    const uint32_t base = GenerationOf(handle) - kOpen;  // the generation without the state
    uint32_t expected = base + kOpen;
    if (slot == nullptr || !slot->generation.compare_exchange_strong(expected, base + kClosing)) {
      return nullptr;
    }
    while (slot->users.load() != 0) {
      if (Clock::now() >= deadline) {
        slot->generation.store(base + kOpen);
        return nullptr;
      }
      SleepBetweenPolls();
    }
    Object* const object = slot->object;
    slot->generation.store(base + kStates);
    return object;
  }

  // Makes all handles stale in a forked child, which has no other threads. Calls visit(object) for
  // each open handle.
  template <class Visit>
  void Forget(const Visit& visit) {
    for (auto& entry : pages_) {
      Page* page = entry.load();
      if (page == nullptr) continue;
      for (Slot& slot : page->slots) {
        const uint32_t generation = slot.generation.load();
        if (generation % kStates == kOpen) visit(slot.object);
        if (generation % kStates != kFree) {
          slot.generation.store(generation / kStates * kStates + kStates);
          slot.forgotten = generation;
        }
      }
    }
  }

  // Returns whether Forget has made the handle stale, so that it was open in the parent.
  bool WasForgotten(uintptr_t handle) {
    const Slot* const slot = Find(handle);
    return slot != nullptr && slot->forgotten == GenerationOf(handle);
  }

  // Returns all open handles.
  std::vector<uintptr_t> OpenHandles() {
    const std::lock_guard<std::mutex> guard(mutex_);
    std::vector<uintptr_t> handles;
    for (uint32_t index = 0; index < kPages * kSlotsPerPage; ++index) {
      const Slot* const slot = SlotAt(index, /*create=*/false);
      const uint32_t generation = slot == nullptr ? kFree : slot->generation.load();
      if (generation % kStates != kOpen) continue;
      handles.push_back((static_cast<uintptr_t>(generation) << 32) | (index + 1));
    }
    return handles;
  }

  // A Use keeps a handle's object open while the Use lives.
  class Use {
   public:
    Use(HandleTable* table, uintptr_t handle) : slot_(table->Find(handle)) {
      if (slot_ == nullptr) return;
      slot_->users.fetch_add(1);
      if (slot_->generation.load() == GenerationOf(handle)) return;
      slot_->users.fetch_sub(1);
      slot_ = nullptr;
    }
    ~Use() {
      if (slot_ != nullptr) slot_->users.fetch_sub(1);
    }
    Use(Use&& other) noexcept : slot_(other.slot_) { other.slot_ = nullptr; }
    Use(const Use&) = delete;
    Use& operator=(const Use&) = delete;
    Use& operator=(Use&&) = delete;

    Object* get() const { return slot_ == nullptr ? nullptr : slot_->object; }
    Object* operator->() const { return slot_->object; }
    explicit operator bool() const { return slot_ != nullptr; }

   private:
    Slot* slot_;
  };

 private:
  // The states of a slot, in the lowest bits of its generation.
  static constexpr uint32_t kFree = 0;
  static constexpr uint32_t kOpen = 1;
  static constexpr uint32_t kClosing = 2;
  static constexpr uint32_t kStates = 4;

  struct alignas(64) Slot {
    std::atomic<uint32_t> generation{0};
    std::atomic<uint32_t> users{0};
    Object* object = nullptr;
    uint32_t forgotten = 0;  // the generation that Forget has made stale
  };
  struct Page {
    Slot slots[kSlotsPerPage];
  };

  static_assert(sizeof(uintptr_t) == 8, "a handle holds two 32-bit numbers");
  static uint32_t GenerationOf(uintptr_t handle) { return static_cast<uint32_t>(handle >> 32); }

  Slot* Find(uintptr_t handle) {
    const auto number = static_cast<uint32_t>(handle & 0xffffffffU);
    if (number == 0 || number > kPages * kSlotsPerPage || GenerationOf(handle) % kStates != kOpen) {
      return nullptr;
    }
    return SlotAt(number - 1, /*create=*/false);
  }

  Slot* SlotAt(uint32_t index, bool create) {
    std::atomic<Page*>& entry = pages_[index / kSlotsPerPage];
    Page* page = entry.load(std::memory_order_acquire);
    if (page == nullptr && create) {
      page = new Page;  // NOLINT: lives as long as the process, so that no handle can dangle
      entry.store(page, std::memory_order_release);
    }
    return page == nullptr ? nullptr : &page->slots[index % kSlotsPerPage];
  }

  std::mutex mutex_;
  std::atomic<Page*> pages_[kPages] = {};
};

}  // namespace multiverso::c_api

#endif  // MULTIVERSO_C_API_HANDLES_H_
