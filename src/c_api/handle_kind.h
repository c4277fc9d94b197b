// HandleKind: the handles of one kind, such as tables, which own their objects.
#ifndef MULTIVERSO_C_API_HANDLE_KIND_H_
#define MULTIVERSO_C_API_HANDLE_KIND_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "base/text.h"
#include "c_api/guard.h"
#include "c_api/handles.h"

namespace multiverso::c_api {

// Returns the error for a stale handle: closed, never valid, or from before a fork.
Status StaleHandleError(const char* name, bool is_from_before_fork = false);

// A HandleKind is thread-safe. It is never destroyed, since a handle may be used while the process
// exits.
template <class Handle, class Object>
class HandleKind {
 public:
  using Use = typename HandleTable<Object>::Use;

  // `name` is what messages call an object, such as "table".
  explicit HandleKind(const char* name) : name_(name) {}

  // Sets *handle to a new handle, which owns the object.
  Status Open(std::unique_ptr<Object> object, Handle* handle) {
    const uintptr_t number = table_.Open(object.get());
    if (number == 0) {
      return Status(Code::kMemory, StrCat("too many handles: cannot open another ", name_));
    }
    (void)object.release();  // NOLINT: Close returns it
    *handle = reinterpret_cast<Handle>(number);
    return Status::Ok();
  }

  // Returns a use of the object, which is false if the handle is stale.
  Use Using(Handle handle) { return Use(&table_, HandleNumber(handle)); }
  Status Stale(Handle handle) {
    return StaleHandleError(name_, table_.WasForgotten(HandleNumber(handle)));
  }

  // Runs `body`, a Status(Object*), in Guard, while the handle is in use.
  template <class Body>
  int32_t With(Handle handle, const Body& body) {
    return Guard([&]() -> Status {
      const Use use = Using(handle);
      return use ? body(use.get()) : Stale(handle);
    });
  }

  // Closes a handle and returns its object. Waits for the calls of other threads with the object.
  // After the deadline, returns OperationTimeout, and the handle stays open.
  Result<std::unique_ptr<Object>> Close(Handle handle, Instant deadline) {
    std::unique_ptr<Object> object(table_.Close(HandleNumber(handle), deadline));
    if (object != nullptr) return object;
    if (!Using(handle)) return Stale(handle);
    return Status(Code::kTimeout, StrCat("another thread is still using the ", name_));
  }

  // Closes a handle and destroys its object.
  int32_t Release(Handle handle) {
    return GuardRelease([&] { return Close(handle, Clock::now() + kCloseTimeout).status(); });
  }

  // Makes all handles stale in a forked child (HandleTable::Forget).
  template <class Visit>
  void Forget(const Visit& visit) {
    table_.Forget(visit);
  }

  std::vector<Handle> OpenHandles() {
    std::vector<Handle> handles;
    for (const uintptr_t number : table_.OpenHandles()) {
      handles.push_back(reinterpret_cast<Handle>(number));
    }
    return handles;
  }

 private:
  const char* name_;
  HandleTable<Object> table_;
};

}  // namespace multiverso::c_api

#endif  // MULTIVERSO_C_API_HANDLE_KIND_H_
