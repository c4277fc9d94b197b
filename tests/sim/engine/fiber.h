// A context: the stack of a fiber, its thread_local variables, and where it continues.
//
// All fibers run in one thread of the operating system, and the compiler addresses thread_local
// variables relative to that thread. So each switch copies the program's block of such variables,
// some hundred bytes, out for the fiber that pauses, and in for the one that continues. The blocks
// of shared libraries are not copied: the C library's malloc and its buffers belong to all fibers,
// and errno, which belongs to each, is saved by itself. The state of exceptions is in the block,
// because the program contains its own C++ library.
#pragma once

#include <cstddef>
#include <vector>

namespace sim {

struct Context {
  void* stack_pointer = nullptr;
  char* stack = nullptr;  // null for the context of main
  int saved_errno = 0;
  std::vector<char> locals;      // the thread_local variables, while the context pauses
  void* fake_stack = nullptr;    // of AddressSanitizer
  const void* bottom = nullptr;  // of the stack, as AddressSanitizer knows it
  size_t bytes = 0;
};

// Finds the program's thread_local variables.
void PrepareContexts();
// Makes a context whose first switch calls `entry`, which never returns.
void MakeContext(Context* context, void (*entry)());
void FreeContext(Context* context);
// Pauses `from`, and continues `to`. Returns when another switch continues `from`, which never
// happens if `from_ends`.
void SwitchContext(Context* from, Context* to, bool from_ends);
// An entry calls this first.
void BeginContext();
// Returns the return addresses on the stack of a context that pauses, innermost first. Those of the
// context that runs begin at `frame`, its frame pointer.
std::vector<void*> ReturnAddresses(const Context& context, void* frame = nullptr);

}  // namespace sim
