// HandleTable: the handles of one kind of object, such as tables. Callers hold numbers instead of
// pointers, so that a stale handle is an error and not a crash, even if another thread closes the
// handle at the same moment.
//
// A handle consists of a slot's index and the generation of its content. A use costs two atomic
// additions. The lowest two bits of a generation are the state of the slot: free, open, or closing
// (no new use begins, and the slot cannot be reused yet). In a forked child ForgetInChild gives
// every slot that is not free a new generation. So no handle of the parent is valid in the child,
// and a use need not check for forks.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <forward_list>
#include <memory>
#include <mutex>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "base/text.h"
#include "c_api/guard.h"
#include "c_api/waiting.h"

namespace multiverso::c_api {

// Returns the error for a stale handle: closed, never valid, or from before a fork.
Status StaleHandleError(const char* name, bool is_from_before_fork = false);

// The handles of one kind of object.
class AnyHandles {
 public:
  // Makes the handles of every kind stale in a forked child.
  static void ForgetAllInChild();

  // Adds this kind, which must exist as long as the process.
  void Register();

 protected:
  ~AnyHandles() = default;
  virtual void ForgetInChild() = 0;

 private:
  AnyHandles* next_ = nullptr;  // in the list of all kinds
};

// A HandleTable is thread-safe and owns the objects. It is never destroyed, since a handle may be
// used while the process exits.
template <class Handle, class Object>
class HandleTable final : public AnyHandles {
  struct Slot;

 public:
  static constexpr uint32_t kPages = 256;
  static constexpr uint32_t kSlotsPerPage = 256;
  // How long Release waits for other threads that use the handle.
  static constexpr auto kCloseTimeout = std::chrono::minutes(2);

  // `name` is what messages call an object, such as "table". A forked child calls `forget` with
  // each object, also of a handle that another thread of the parent was closing, and makes all
  // handles stale. If it is null, the child can use the objects, too, except those that threads of
  // the parent were using or closing.
  using Forget = void (*)(Object*);
  HandleTable(const char* name, Forget forget) : name_(name), forget_(forget) {}

  // Sets *handle to a new handle, which owns the object. Returns MemoryError if 65 536 are open.
  Status Open(std::unique_ptr<Object> object, Handle* handle) {
    const std::lock_guard<std::mutex> guard(mutexes_.front());
    for (uint32_t index = 0; index < kPages * kSlotsPerPage; ++index) {
      Slot* slot = SlotAt(index, /*create=*/true);
      const uint32_t generation = slot->generation.load();
      // After a fork, a slot may count uses by threads that the child does not have.
      if (StateOf(generation) != kFree || slot->users.load() != 0) continue;
      slot->object = object.release();  // Close returns it.
      slot->generation.store(generation + kOpen);
      *handle = HandleOf(index, generation + kOpen);
      return Status::Ok();
    }
    return Status(Code::kMemory, StrCat("too many handles: cannot open another ", name_));
  }

  // A Use keeps a handle's object open while the Use lives. It is false if the handle is stale.
  class Use {
   public:
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
    friend class HandleTable;

    Use(Slot* slot, uint32_t generation) : slot_(slot) {
      if (slot_ == nullptr) return;
      slot_->users.fetch_add(1);
      if (slot_->generation.load() == generation) return;
      slot_->users.fetch_sub(1);
      slot_ = nullptr;
    }

    Slot* slot_;
  };

  Use Using(Handle handle) { return Use(Find(handle), GenerationOf(handle)); }

  // Returns the error for a handle whose use is false.
  Status Stale(Handle handle) {
    const Slot* const slot = Find(handle);
    return StaleHandleError(name_, slot != nullptr && slot->forgotten == GenerationOf(handle));
  }

  // As Using, for a caller that returns the error of a stale handle.
  Result<Use> UsingOpen(Handle handle) {
    Use use = Using(handle);
    return use ? Result<Use>(std::move(use)) : Stale(handle);
  }

  // Runs `body` in Guard, while the handle is in use: a Status(Object*), or a Status(Object*,
  // Interrupt*) that may wait, which RunCall then runs.
  template <class Body>
  int32_t With(Handle handle, const Body& body) {
    return With(handle, NotNull(""), body);
  }
  // As above, for a function that needs the caller's pointers.
  template <class Body>
  int32_t With(Handle handle, const NotNull& needed, const Body& body) {
    return Guard([&]() -> Status {
      const Use use = Using(handle);
      if (!use) return Stale(handle);
      MV_RETURN_IF_NOT_OK(needed.Check());
      return Run(use.get(), body);
    });
  }

  // Closes a handle and returns its object. Waits for the calls of other threads with the object.
  // After the deadline, returns OperationTimeout, and the handle is valid again.
  Result<std::unique_ptr<Object>> Close(Handle handle, Instant deadline) {
    Slot* const slot = Find(handle);
    const uint32_t base = GenerationOf(handle) - kOpen;  // the generation without the state
    uint32_t expected = base + kOpen;
    if (slot == nullptr || !slot->generation.compare_exchange_strong(expected, base + kClosing)) {
      return Stale(handle);
    }
    while (slot->users.load() != 0) {
      if (Clock::now() >= deadline) {
        slot->generation.store(base + kOpen);
        return Status(Code::kTimeout, StrCat("another thread is still using the ", name_));
      }
      std::this_thread::sleep_for(kPollInterval);
    }
    std::unique_ptr<Object> object(slot->object);
    slot->generation.store(base + kNextGeneration);
    return object;
  }

  // Closes a handle and destroys its object.
  int32_t Release(Handle handle) {
    return GuardRelease([&] { return Close(handle, Clock::now() + kCloseTimeout).status(); });
  }

  // A forked child has no other threads, and destroys no objects.
  void ForgetInChild() override {
    // A thread that the child does not have may hold the mutex, which therefore stays as it is.
    mutexes_.emplace_front();
    for (std::atomic<Page*>& page_pointer : pages_) {
      Page* const page = page_pointer.load();
      if (page == nullptr) continue;
      for (Slot& slot : page->slots) {
        const uint32_t generation = slot.generation.load();
        if (StateOf(generation) == kFree) continue;
        if (forget_ == nullptr && slot.users.load() == 0) continue;
        if (forget_ != nullptr) forget_(slot.object);
        slot.generation.store(generation - StateOf(generation) + kNextGeneration);
        // A handle is always of the open generation.
        slot.forgotten = generation - StateOf(generation) + kOpen;
      }
    }
  }

  std::vector<Handle> OpenHandles() {
    const std::lock_guard<std::mutex> guard(mutexes_.front());
    std::vector<Handle> handles;
    for (uint32_t index = 0; index < kPages * kSlotsPerPage; ++index) {
      const Slot* const slot = SlotAt(index, /*create=*/false);
      const uint32_t generation = slot == nullptr ? kFree : slot->generation.load();
      if (StateOf(generation) == kOpen) handles.push_back(HandleOf(index, generation));
    }
    return handles;
  }

 private:
  // How often Close looks whether other threads still use the handle.
  static constexpr auto kPollInterval = std::chrono::microseconds(100);

  // The states of a slot, in the lowest bits of its generation.
  static constexpr uint32_t kFree = 0;
  static constexpr uint32_t kOpen = 1;
  static constexpr uint32_t kClosing = 2;
  static constexpr uint32_t kNextGeneration = 4;
  static uint32_t StateOf(uint32_t generation) { return generation % kNextGeneration; }

  struct alignas(64) Slot {
    std::atomic<uint32_t> generation{0};
    std::atomic<uint32_t> users{0};
    Object* object = nullptr;
    uint32_t forgotten = 0;  // the generation that ForgetInChild has made stale
  };
  struct Page {
    Slot slots[kSlotsPerPage];
  };

  template <class Body>
  static Status Run(Object* object, const Body& body) {
    if constexpr (std::is_invocable_v<Body, Object*, Interrupt*>) {
      return RunCall([&](Interrupt* interrupt) { return body(object, interrupt); });
    } else {
      return body(object);
    }
  }

  static_assert(sizeof(Handle) == 8, "a handle holds two 32-bit numbers");
  static uintptr_t NumberOf(Handle handle) { return reinterpret_cast<uintptr_t>(handle); }
  static uint32_t GenerationOf(Handle handle) {
    return static_cast<uint32_t>(NumberOf(handle) >> 32);
  }
  static Handle HandleOf(uint32_t index, uint32_t generation) {
    return reinterpret_cast<Handle>((static_cast<uintptr_t>(generation) << 32) | (index + 1));
  }

  Slot* Find(Handle handle) {
    const auto number = static_cast<uint32_t>(NumberOf(handle) & 0xffffffffU);
    if (number == 0 || number > kPages * kSlotsPerPage || StateOf(GenerationOf(handle)) != kOpen) {
      return nullptr;
    }
    return SlotAt(number - 1, /*create=*/false);
  }

  Slot* SlotAt(uint32_t index, bool create) {
    std::atomic<Page*>& page_pointer = pages_[index / kSlotsPerPage];
    Page* page = page_pointer.load(std::memory_order_acquire);
    if (page == nullptr && create) {
      page = new Page;  // NOLINT: lives as long as the process, so that no handle can dangle
      page_pointer.store(page, std::memory_order_release);
    }
    return page == nullptr ? nullptr : &page->slots[index % kSlotsPerPage];
  }

  const char* name_;
  const Forget forget_;
  // The first mutex protects the table in this process. The others belonged to its parents.
  std::forward_list<std::mutex> mutexes_ = std::forward_list<std::mutex>(1);
  std::atomic<Page*> pages_[kPages] = {};
};

// Returns the only HandleTable of its type, which exists from the first call on.
template <class Handles>
Handles& HandlesOf(const char* name, typename Handles::Forget forget) {
  static auto* const handles = [&] {
    auto* const made = new Handles(name, forget);
    made->Register();
    return made;
  }();
  return *handles;
}

}  // namespace multiverso::c_api
