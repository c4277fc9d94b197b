// Memory order: what fences and the orders of atomic operations promise, for memory that ranks
// share.
//
// Operations are sequentially consistent, apart from two freedoms that C++ gives and that some
// seeds use. A relaxed or release store may become visible some operations of its fiber later, and
// plain stores and relaxed stores after it before it. A relaxed load may return again what an
// earlier load of its fiber returned. Fences end both, and so does each call that might pass
// control to others. At most one store of a fiber is delayed at a time.
#pragma once

#include <cstdint>

#include "engine/simulator.h"

namespace sim {

extern bool reorders;  // whether this seed uses these freedoms

// Makes the delayed store of a fiber visible, and forgets what it has loaded.
void SettleMemory(Fiber* fiber);
// Begins an operation of the current fiber that orders others around it.
inline void OrderMemory() {
  if (reorders && current != nullptr) SettleMemory(current);
}

// Delays a store of the current fiber, or returns false. The caller has passed the point.
bool DelayStore(volatile void* address, uint64_t value, int bytes, int order);
// Returns what a load of the current fiber sees, of which `now` is there.
uint64_t SeenByLoad(const volatile void* address, uint64_t now, int bytes, int order);
// Begins a load: a delayed store of the same fiber to that place becomes visible.
void BeginLoad(const volatile void* address);

}  // namespace sim
