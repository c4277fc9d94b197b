// Compiler features beyond standard C++, as macros that are harmless where a feature is missing.
#pragma once

#if defined(__GNUC__)
#define MV_ALWAYS_INLINE __attribute__((always_inline))
// Keeps rare work out of its caller, whose entry the inlined work would slow down.
#define MV_NOINLINE __attribute__((noinline))
// `write` is 1 if the cache line will be written to, else 0.
#define MV_PREFETCH(address, write) __builtin_prefetch(address, write)
#else
#define MV_ALWAYS_INLINE
#define MV_NOINLINE
#define MV_PREFETCH(address, write) static_cast<void>(address)
#endif
