#include "engine/fiber.h"

#include <errno.h>
#include <link.h>
#include <string.h>
#include <sys/mman.h>

#include "engine/raw_call.h"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

#if !defined(__x86_64__)
#error "the simulation switches stacks with instructions of x86-64"
#endif

#if defined(__SANITIZE_ADDRESS__)
// A rank that is killed gives nothing back.
extern "C" __attribute__((visibility("default"))) const char*
__asan_default_options() {  // NOLINT: the sanitizer dictates the name
  return "detect_leaks=0";
}
#endif

// Saves the registers that a function must preserve, and restores those of the other stack.
extern "C" void sim_switch_stack(void** save, void* next);
extern "C" void sim_first_frame();
asm(R"(
.text
.globl sim_switch_stack
.type sim_switch_stack,@function
sim_switch_stack:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp,(%rdi)
  movq %rsi,%rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.globl sim_first_frame
.type sim_first_frame,@function
sim_first_frame:
  xorl %ebp,%ebp
  call *%r12
  ud2
)");

namespace sim {
namespace {

// Frames are larger with AddressSanitizer.
#if defined(__SANITIZE_ADDRESS__)
constexpr size_t kStackBytes = 1024 * 1024;
#else
constexpr size_t kStackBytes = 256 * 1024;
#endif
constexpr size_t kGuardBytes = 4096;
// The order in which sim_switch_stack leaves registers on the stack.
enum SavedRegister { kR15, kR14, kR13, kR12, kRbx, kRbp, kReturnAddress, kSavedRegisters };

struct Locals {
  char* block = nullptr;  // in this thread
  size_t bytes = 0;
  const char* initial = nullptr;
  size_t initial_bytes = 0;  // all others are zero
};
Locals locals;
// A stack that is free for the next fiber. Mapping one takes longer than a short simulated thread.
std::vector<char*> free_stacks;

int ReadProgramHeaders(dl_phdr_info* info, size_t, void*) {
  for (int i = 0; i < info->dlpi_phnum; ++i) {
    const auto& header = info->dlpi_phdr[i];
    if (header.p_type != PT_TLS) continue;
    locals.block = static_cast<char*>(info->dlpi_tls_data);
    locals.bytes = header.p_memsz;
    locals.initial = reinterpret_cast<const char*>(info->dlpi_addr + header.p_vaddr);
    locals.initial_bytes = header.p_filesz;
  }
  return 1;  // the program is the first object, and the only one that counts
}

}  // namespace

void PrepareContexts() {
  if (locals.block == nullptr) dl_iterate_phdr(ReadProgramHeaders, nullptr);
}

void MakeContext(Context* context, void (*entry)()) {
  if (!free_stacks.empty()) {
    context->stack = free_stacks.back();
    free_stacks.pop_back();
  } else {
    context->stack =
        reinterpret_cast<char*>(RawCall(SYS_mmap, 0, kStackBytes, PROT_READ | PROT_WRITE,
                                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
    // A fiber that needs more stack must not write into another one's.
    (void)RawCall(SYS_mprotect, reinterpret_cast<long>(context->stack), kGuardBytes, PROT_NONE);
  }
  // The stack pointer of the first frame is a multiple of 16, as calls require.
  auto* top = reinterpret_cast<void**>(context->stack + kStackBytes - 64);
  top -= kSavedRegisters;
  memset(top, 0, kSavedRegisters * sizeof(*top));
  top[kR12] = reinterpret_cast<void*>(entry);
  top[kReturnAddress] = reinterpret_cast<void*>(sim_first_frame);
  context->stack_pointer = top;
  context->bottom = context->stack;
  context->bytes = kStackBytes;
  context->locals.assign(locals.bytes, 0);
  memcpy(context->locals.data(), locals.initial, locals.initial_bytes);
}

void FreeContext(Context* context) {
  if (context->stack == nullptr) return;
#if defined(__SANITIZE_ADDRESS__)
  __asan_unpoison_memory_region(context->stack, kStackBytes);
#endif
  free_stacks.push_back(context->stack);
  context->stack = nullptr;
}

#if defined(__SANITIZE_ADDRESS__)
// The stack of main, of which AddressSanitizer tells the first fiber.
static const void* main_bottom = nullptr;
static size_t main_bytes = 0;
#endif

void SwitchContext(Context* from, Context* to, [[maybe_unused]] bool from_ends) {
  from->saved_errno = errno;
  if (from->locals.empty()) from->locals.resize(locals.bytes);  // main's
  memcpy(from->locals.data(), locals.block, locals.bytes);
  memcpy(locals.block, to->locals.data(), locals.bytes);
#if defined(__SANITIZE_ADDRESS__)
  const bool to_main = to->bottom == nullptr;
  __sanitizer_start_switch_fiber(from_ends ? nullptr : &from->fake_stack,
                                 to_main ? main_bottom : to->bottom,
                                 to_main ? main_bytes : to->bytes);
#endif
  sim_switch_stack(&from->stack_pointer, to->stack_pointer);
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(from->fake_stack, nullptr, nullptr);
#endif
  errno = from->saved_errno;
}

void BeginContext() {
#if defined(__SANITIZE_ADDRESS__)
  const void* bottom = nullptr;
  size_t bytes = 0;
  __sanitizer_finish_switch_fiber(nullptr, &bottom, &bytes);
  if (main_bottom == nullptr) {
    main_bottom = bottom;
    main_bytes = bytes;
  }
#endif
  errno = 0;
}

__attribute__((no_sanitize("address"))) std::vector<void*> ReturnAddresses(const Context& context,
                                                                           void* frame) {
  constexpr int kMost = 24;
  std::vector<void*> found;
  auto* pointer = static_cast<void**>(frame);
  if (pointer == nullptr) {
    auto* const saved = static_cast<void**>(context.stack_pointer);
    found.push_back(saved[kReturnAddress]);
    pointer = static_cast<void**>(saved[kRbp]);
  }
  const auto is_on_stack = [&](void** address) {
    const char* const byte = reinterpret_cast<const char*>(address);
    return byte >= context.stack && byte < context.stack + kStackBytes - 2 * sizeof(void*);
  };
  while (is_on_stack(pointer) && found.size() < kMost) {
    found.push_back(pointer[1]);
    pointer = static_cast<void**>(pointer[0]);
  }
  return found;
}

}  // namespace sim
