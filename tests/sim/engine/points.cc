// What the compiler calls: each atomic operation is a point, and each store if the options say so.
//
// With -fsanitize=thread, the compiler replaces atomic operations by functions of the runtime of
// ThreadSanitizer, and announces other accesses to memory. These functions take its place. With
// -fsanitize-coverage=trace-pc, which goes with AddressSanitizer, each block of code is a point.
#include <stdint.h>

#include "engine/reordering.h"
#include "engine/simulator.h"

using sim::PassPointOfMemory;

namespace {

constexpr int kOrder = __ATOMIC_SEQ_CST;

// The instruction of a weak compare-and-swap may fail for no reason, as on some processors.
bool FailsWeakly() { return sim::quiet == 0 && sim::Random() % 64 == 0; }

void PassStore() {
  if (sim::point_state.counts_writes) PassPointOfMemory();
}

}  // namespace

extern "C" {

// NOLINTBEGIN: the compiler dictates these names and types.
#define SIM_UPDATE(bits, Type, operation)                                           \
  Type __tsan_atomic##bits##_##operation(volatile Type* address, Type value, int) { \
    PassPointOfMemory();                                                            \
    sim::OrderMemory();                                                             \
    return __atomic_##operation(address, value, kOrder);                            \
  }
#define SIM_ATOMIC(bits, Type)                                                              \
  Type __tsan_atomic##bits##_load(const volatile Type* address, int order) {                \
    PassPointOfMemory();                                                                    \
    if (!sim::reorders) return __atomic_load_n(address, kOrder);                            \
    sim::BeginLoad(address);                                                                \
    return static_cast<Type>(                                                               \
        sim::SeenByLoad(address, __atomic_load_n(address, kOrder), bits / 8, order));       \
  }                                                                                         \
  void __tsan_atomic##bits##_store(volatile Type* address, Type value, int order) {         \
    PassPointOfMemory();                                                                    \
    if (sim::reorders && sim::DelayStore(address, value, bits / 8, order)) return;          \
    __atomic_store_n(address, value, kOrder);                                               \
  }                                                                                         \
  Type __tsan_atomic##bits##_exchange(volatile Type* address, Type value, int) {            \
    PassPointOfMemory();                                                                    \
    sim::OrderMemory();                                                                     \
    return __atomic_exchange_n(address, value, kOrder);                                     \
  }                                                                                         \
  SIM_UPDATE(bits, Type, fetch_add)                                                         \
  SIM_UPDATE(bits, Type, fetch_sub)                                                         \
  SIM_UPDATE(bits, Type, fetch_and)                                                         \
  SIM_UPDATE(bits, Type, fetch_or)                                                          \
  SIM_UPDATE(bits, Type, fetch_xor)                                                         \
  SIM_UPDATE(bits, Type, fetch_nand)                                                        \
  int __tsan_atomic##bits##_compare_exchange_strong(volatile Type* address, Type* expected, \
                                                    Type value, int, int) {                 \
    PassPointOfMemory();                                                                    \
    sim::OrderMemory();                                                                     \
    return __atomic_compare_exchange_n(address, expected, value, 0, kOrder, kOrder);        \
  }                                                                                         \
  int __tsan_atomic##bits##_compare_exchange_weak(volatile Type* address, Type* expected,   \
                                                  Type value, int, int) {                   \
    PassPointOfMemory();                                                                    \
    sim::OrderMemory();                                                                     \
    if (FailsWeakly()) {                                                                    \
      *expected = __atomic_load_n(address, kOrder);                                         \
      return 0;                                                                             \
    }                                                                                       \
    return __atomic_compare_exchange_n(address, expected, value, 0, kOrder, kOrder);        \
  }                                                                                         \
  Type __tsan_atomic##bits##_compare_exchange_val(volatile Type* address, Type expected,    \
                                                  Type value, int, int) {                   \
    PassPointOfMemory();                                                                    \
    sim::OrderMemory();                                                                     \
    __atomic_compare_exchange_n(address, &expected, value, 0, kOrder, kOrder);              \
    return expected;                                                                        \
  }
SIM_ATOMIC(8, uint8_t)
SIM_ATOMIC(16, uint16_t)
SIM_ATOMIC(32, uint32_t)
SIM_ATOMIC(64, uint64_t)

// A fence is also a point, since programs that have fences are those whose order of steps matters.
void __tsan_atomic_thread_fence(int) {
  PassPointOfMemory();
  sim::OrderMemory();
}
void __tsan_atomic_signal_fence(int) {}

#define SIM_ACCESS(bytes)                                    \
  void __tsan_read##bytes(void*) {}                          \
  void __tsan_write##bytes(void*) { PassStore(); }           \
  void __tsan_unaligned_read##bytes(void*) {}                \
  void __tsan_unaligned_write##bytes(void*) { PassStore(); } \
  void __tsan_volatile_read##bytes(void*) {}                 \
  void __tsan_volatile_write##bytes(void*) { PassStore(); }  \
  void __tsan_unaligned_volatile_read##bytes(void*) {}       \
  void __tsan_unaligned_volatile_write##bytes(void*) { PassStore(); }
SIM_ACCESS(1)
SIM_ACCESS(2)
SIM_ACCESS(4)
SIM_ACCESS(8)
SIM_ACCESS(16)
void __tsan_read_range(void*, long) {}
void __tsan_write_range(void*, long) { PassStore(); }
void __tsan_vptr_update(void**, void*) {}
void __tsan_vptr_read(void**) {}
void __tsan_func_entry(void*) {}
void __tsan_func_exit() {}
void __tsan_init() {}

#if defined(__SANITIZE_ADDRESS__)
void __sanitizer_cov_trace_pc() { PassPointOfMemory(); }
#endif
// NOLINTEND

}  // extern "C"
